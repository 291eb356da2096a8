"""A DataFrame brought to the columns that builds use: the hash, the key, the rest (K2, K4). One explicit `select`.

h              the key's hash
k0 … kn        the key's columns
v0 … vn        the others, in the order in which shards store them
o              what decides between rows with the same key, where there is such a rule
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.types import DataType, StructType

from holdfast.errors import BadInput
from holdfast.kv.dataset import ValueKind, shard_schema
from holdfast.kv.keys import KeySchema
from holdfast.kv.routing import Routing
from holdfast.kv.rows import OnDuplicate
from holdfast.spark.key_sql import canonical_sql, check_key_type, hash_sql, route_sql, travel_sql

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = ["HASH_COLUMN", "ORDER_COLUMN", "Source", "arrow_schema", "check_frame"]

HASH_COLUMN = "h"
ORDER_COLUMN = "o"


@dataclass(frozen=True, kw_only=True)
class Source:
    """The rows of a build, not routed yet."""

    frame: DataFrame
    key: KeySchema
    stored: pa.Schema
    """As shards store it: `holdfast.kv.dataset.shard_schema`."""
    value: ValueKind
    canonical: tuple[str, ...]
    """The key's columns in canonical SQL, over `frame`."""
    has_order: bool

    @classmethod
    def of(
        cls,
        df: DataFrame,
        *,
        key: Sequence[str],
        key_types: Mapping[str, str] | None,
        value: ValueKind,
        on_duplicate: OnDuplicate,
    ) -> Source:
        """A DataFrame's rows with their hashes; BadInput if its columns do not fit."""
        check_frame(df)
        found = df.schema
        arrow = arrow_schema(found)
        schema = KeySchema.from_arrow(arrow, key, key_types)
        stored = shard_schema(arrow, schema, value)
        types = {column.name: column.dataType for column in found}
        for column in schema.columns:
            check_key_type(column, types[column.name])
        at = {column.name: f"c{index}" for index, column in enumerate(found)}
        safe = df.toDF(*at.values())
        travel = [travel_sql(column, at[column.name], types[column.name]) for column in schema.columns]
        keys = [f"k{index}" for index in range(len(travel))]
        values = [at[name] for name in stored.names[len(keys) :]]
        order = _order_sql(on_duplicate, at)
        columns = [
            *(f"{sql} AS {name}" for sql, name in zip(travel, keys, strict=True)),
            *(f"{name} AS v{index}" for index, name in enumerate(values)),
            *([f"{order} AS {ORDER_COLUMN}"] if order else []),
        ]
        moved = safe.selectExpr(*columns)
        canonical = tuple(
            canonical_sql(column, name, types[column.name]) for column, name in zip(schema.columns, keys, strict=True)
        )
        return cls(
            frame=moved.selectExpr(f"{hash_sql(canonical)} AS {HASH_COLUMN}", "*"),
            key=schema,
            stored=stored,
            value=value,
            canonical=canonical,
            has_order=order is not None,
        )

    def on(self, frame: DataFrame) -> Source:
        """The same rows from elsewhere, such as a cache."""
        return replace(self, frame=frame)

    def routed(self, routing: Routing) -> DataFrame:
        """One partition a shard, in the order of the hashes; of equal keys the one to keep comes last."""
        frame = self.frame
        shard = _column(frame, route_sql(routing, self.key, self.canonical, HASH_COLUMN))
        try:
            parts = frame.repartitionById(routing.shard_count, shard)
            if not self.has_order:
                return parts.sortWithinPartitions(HASH_COLUMN)
            return parts.sortWithinPartitions(HASH_COLUMN, ORDER_COLUMN).drop(ORDER_COLUMN)
        except PySparkException as error:
            raise BadInput(f"Spark cannot order these rows: {str(error).splitlines()[0]}") from error


def check_frame(df: DataFrame) -> None:
    """BadInput unless a build can read this DataFrame."""
    if not hasattr(df, "repartitionById"):
        raise BadInput("this Spark is older than 4.1, which builds need; upgrade pyspark and the cluster")
    if df.isStreaming:
        raise BadInput("a streaming DataFrame has no end: publish each micro-batch with writeStream.foreachBatch")


def arrow_schema(found: StructType) -> pa.Schema:
    """The Arrow columns of a Spark schema. Times are kept in UTC, whatever zone the session shows them in."""
    from pyspark.sql.pandas.types import to_arrow_schema

    try:
        return to_arrow_schema(found, error_on_duplicated_field_names_in_struct=True, timezone="UTC")
    except PySparkException as error:
        raise BadInput(f"a column has a type that Arrow does not know: {error}; cast or drop it") from None


def row_bytes_sql(source: Source) -> str:
    """About how many bytes a row takes in a shard."""
    schema: StructType = source.frame.schema
    parts = [_width_sql(f"`{column.name}`", column.dataType) for column in schema if column.name != ORDER_COLUMN]
    return " + ".join(parts)


def _width_sql(name: str, found: DataType) -> str:
    kind = found.typeName()
    if kind in {"string", "binary", "varchar", "char"}:
        return f"coalesce(octet_length({name}), 0) + 4"
    if kind in {"array", "map", "struct", "variant"}:
        return f"coalesce(octet_length(CAST({name} AS STRING)), 0)"
    return "16" if kind == "decimal" else "8"


def _order_sql(rule: OnDuplicate, at: Mapping[str, str]) -> str | None:
    if rule.rule == "error":
        return None
    if rule.column is None:
        return "monotonically_increasing_id()"
    if rule.column not in at:
        raise BadInput(f"on_duplicate max({rule.column}): no such column; there are {', '.join(at)}")
    return at[rule.column]


def _column(frame: DataFrame, sql: str) -> Column:
    """An expression of the kind that the frame's session takes: of Spark Connect, or of a JVM in this process."""
    if type(frame).__module__.startswith("pyspark.sql.connect."):
        from pyspark.sql.connect.functions import expr as connect_expr

        return connect_expr(sql)
    from pyspark.sql.functions import expr

    return expr(sql)
