"""Incremental publish from DataFrames (K9): the one job of a full build, with changes for rows.

    upserts ∪ deletes, each row with a mark → hash, route, sort in the JVM → each executor merges its shard

A task whose shard has no changes returns at once, without reading anything; the others read the shard of the base from
the store, a few megabytes at a time, and write the next version of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql import DataFrame

from holdfast.chain import Chain, InputPin
from holdfast.errors import BadInput, BadRows
from holdfast.kv.changes import cast, change_schema, check_delete_columns, check_upsert_columns
from holdfast.kv.dataset import DataSet, Shard
from holdfast.kv.plan import ShardReceipt
from holdfast.kv.publish import Published
from holdfast.kv.rows import OnDuplicate
from holdfast.kv.update import Base, updating, write_changed_shard
from holdfast.spark.key_sql import canonical_sql, check_key_type, hash_sql, travel_sql
from holdfast.spark.kv import chain_at, run_tasks
from holdfast.spark.progress import ProgressTold
from holdfast.spark.shard_task import CheckedRows, ShardTask
from holdfast.spark.source import HASH_COLUMN, ORDER_COLUMN, Source, arrow_schema, check_frame

__all__ = ["update_kv"]

_MARK = "d"


def update_kv(
    place: str | Chain,
    *,
    upserts: DataFrame | None = None,
    deletes: DataFrame | None = None,
    on_duplicate: str = "error",
    run_id: str | None = None,
    inputs: Sequence[InputPin] = (),
    custom: Mapping[str, object] | None = None,
    tags: Mapping[str, str] | None = None,
    why: str = "",
    progress: ProgressTold | None = None,
) -> Published:
    """Publish the visible snapshot of the data set at `place`, with these changes, as the next one.

    `upserts` has the data set's columns, `deletes` the key's. A key may not be in both; `on_duplicate` is about upserts
    of one key. See `holdfast.kv.update` for what else holds.
    """
    given = upserts if upserts is not None else deletes
    if given is None:
        raise BadInput("nothing to change: give upserts, deletes, or both")
    chain = chain_at(place)
    base = Base.visible(chain)
    source = _changes(upserts, deletes, base.dataset, OnDuplicate.parse(on_duplicate))
    with updating(chain, base, run_id=run_id, on_duplicate=on_duplicate) as update:
        task = UpdateTask(update.plan, base=base.dataset.shards)
        written = run_tasks(source, base.dataset.routing, task, update.build, progress)
        return update.publish(
            written.receipts,
            inputs=inputs,
            custom=custom,
            tags=tags,
            why=why,
            statistics={
                "engine": f"spark {given.sparkSession.version}",
                "peak_worker_bytes": written.peak_memory_bytes,
            },
        )


# -- in an executor ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class UpdateTask(ShardTask):
    """Writes the next version of one partition's shard, or says that it stays as it is."""

    base: tuple[Shard | None, ...] = ()

    def write(self, number: int, batches: Iterator[pa.RecordBatch], writer: str) -> ShardReceipt:
        if number >= self.plan.shard_count:
            raise BadInput(f"Spark made a partition {number} for {self.plan.shard_count} shards")
        schema = change_schema(self.plan.schema, self.plan.key)
        changes = CheckedRows(replace(self.plan, schema=schema), number)
        rows = changes.of(_as_stored(batch, schema, len(self.plan.key.columns)) for batch in batches)
        try:
            receipt = write_changed_shard(self.plan, number, self.base[number], rows, writer=writer)
        except BadRows:
            if not changes.report:
                raise
            receipt = ShardReceipt(number=number)
        if not changes.report:
            return receipt
        return ShardReceipt(number=number, report=changes.report + receipt.report)

    def without_rows(self, number: int) -> ShardReceipt:
        return ShardReceipt(number=number, unchanged=True)


def _as_stored(batch: pa.RecordBatch, schema: pa.Schema, keys: int) -> pa.RecordBatch:
    """Changes from the JVM, which has no columns of values if there are only deletes, with the data set's types."""
    hashed, key_arrays, values, mark = batch.column(0), batch.columns[1 : keys + 1], batch.columns[keys + 1 : -1], -1
    columns = list(schema)[keys:-1]
    stored = (
        [cast(array, column, what="upserts") for array, column in zip(values, columns, strict=True)]
        if values
        else [pa.nulls(batch.num_rows, column.type) for column in columns]
    )
    arrays = [hashed, *key_arrays, *stored, batch.column(mark)]
    return pa.RecordBatch.from_arrays(arrays, names=[str(index) for index in range(len(arrays))])


# -- on the driver ----------------------------------------------------------------------------------------------------


def _changes(upserts: DataFrame | None, deletes: DataFrame | None, dataset: DataSet, rule: OnDuplicate) -> Source:
    """All changes as one DataFrame: hash, key, values, the mark, and what decides between upserts of one key."""
    sides = [
        side
        for side in (
            None if upserts is None else _side(upserts, dataset, rule, deleted=False),
            None if deletes is None else _side(deletes, dataset, rule, deleted=True),
        )
        if side is not None
    ]
    # Spark widens key columns of two types to one that holds the values of both, as they are.
    frame = sides[0] if len(sides) == 1 else sides[0].unionByName(sides[1], allowMissingColumns=True)
    names = [name for name in frame.columns if name not in {_MARK, ORDER_COLUMN}]
    tail = [_MARK, *([ORDER_COLUMN] if ORDER_COLUMN in frame.columns else [])]
    types = {column.name: column.dataType for column in frame.schema}
    canonical = tuple(
        canonical_sql(column, f"k{index}", types[f"k{index}"]) for index, column in enumerate(dataset.key.columns)
    )
    return Source(
        frame=frame.selectExpr(f"{hash_sql(canonical)} AS {HASH_COLUMN}", *names, *tail),
        key=dataset.key,
        stored=dataset.schema,
        value=dataset.value,
        canonical=canonical,
        has_order=ORDER_COLUMN in frame.columns,
    )


def _side(df: DataFrame, dataset: DataSet, rule: OnDuplicate, *, deleted: bool) -> DataFrame:
    """Upserts or deletes under names of our own, in the data set's order of columns."""
    what = "deletes" if deleted else "upserts"
    check_frame(df)
    found = df.schema
    check = check_delete_columns if deleted else check_upsert_columns
    check(arrow_schema(found), dataset, key_types=False)
    types = {column.name: column.dataType for column in found}
    for column in dataset.key.columns:
        try:
            check_key_type(column, types[column.name])
        except BadInput as error:
            raise BadInput(f"{what}: {error}") from None
    at = {column.name: f"c{index}" for index, column in enumerate(found)}
    keys = [travel_sql(column, at[column.name], types[column.name]) for column in dataset.key.columns]
    values = [] if deleted else [at[name] for name in dataset.value_schema.names]
    return df.toDF(*at.values()).selectExpr(
        *(f"{sql} AS k{index}" for index, sql in enumerate(keys)),
        *(f"{name} AS v{index}" for index, name in enumerate(values)),
        f"{str(deleted).lower()} AS {_MARK}",
        *([] if deleted else _order(rule, at)),
    )


def _order(rule: OnDuplicate, at: Mapping[str, str]) -> list[str]:
    if rule.rule == "error":
        return []
    if rule.column is None:
        return [f"monotonically_increasing_id() AS {ORDER_COLUMN}"]
    if rule.column not in at:
        raise BadInput(f"on_duplicate max({rule.column}): no such column; there are {', '.join(at)}")
    return [f"{at[rule.column]} AS {ORDER_COLUMN}"]
