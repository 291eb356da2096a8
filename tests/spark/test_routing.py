"""The JVM and the readers agree on the hash and on the shard of every key, of every type."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import TYPE_CHECKING
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from holdfast.kv import Expression, ExpressionRouting, HashRouting, OnDuplicate, RangeRouting, Routing, ValueKind
from holdfast.kv.rows import key_at
from holdfast.spark.key_sql import route_sql
from holdfast.spark.source import HASH_COLUMN, Source

if TYPE_CHECKING:
    from holdfast.kv import Key, KeyPart

ROWS = 120_000
SCALARS = 500
"""How many of the keys are also asked for one by one."""

# A pseudo-random BIGINT of each row, from all of its range.
MIX = "xxhash64(id, 7L)"
TEXT = (
    f"substring(concat('ключ-', hex({MIX}), '-', repeat('é', pmod(id, 23)), char(pmod(id, 95) + 32)), 1, pmod(id, 70))"
)


@dataclass(frozen=True, kw_only=True)
class Column:
    """A kind of key: how Spark generates it, and a few values of it in growing order."""

    sql: str
    bounds: Sequence[KeyPart]
    kind: str | None = None
    edges: Sequence[str] = field(default_factory=list)
    """Values that are worth a row of their own."""


def integer(spark_type: str, bits: int) -> Column:
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    width = 1 << bits
    sql = f"CAST(shiftright({MIX}, {64 - bits}) AS {spark_type})"
    return Column(
        sql=sql,
        bounds=[low, low + 1, -(width // 5), -1, 0, 1, width // 7, high - 1, high],
        edges=[f"CAST('{number}' AS {spark_type})" for number in (low, -1, 0, 1, high)],
    )


def unsigned(bits: int, spark_type: str) -> Column:
    high = (1 << bits) - 1
    if bits == 64:
        sql = f"CAST({MIX} AS DECIMAL(20, 0)) + CASE WHEN {MIX} < 0 THEN 18446744073709551616BD ELSE 0BD END"
        sql = f"CAST({sql} AS DECIMAL(20, 0))"
    else:
        sql = f"CAST(shiftrightunsigned({MIX}, {64 - bits}) AS {spark_type})"
    edges = [f"CAST('{number}' AS {spark_type})" for number in (0, 1, high // 2, high // 2 + 1, high)]
    bounds = [1, high // 5, high // 2, high // 2 + 1, high // 4 * 3, high]
    return Column(sql=sql, bounds=bounds, kind=f"uint{bits}", edges=edges)


COLUMNS: dict[str, Column] = {
    "int8": integer("TINYINT", 8),
    "int16": integer("SMALLINT", 16),
    "int32": integer("INT", 32),
    "int64": integer("BIGINT", 64),
    "uint8": unsigned(8, "SMALLINT"),
    "uint16": unsigned(16, "INT"),
    "uint32": unsigned(32, "BIGINT"),
    "uint64": unsigned(64, "DECIMAL(20, 0)"),
    "text": Column(
        sql=TEXT, bounds=["", "ab", "ключ-", "ключ-5", "ключ-B7", "ключ-é", "ключя", "�", "\U0001f511"], edges=["''"]
    ),
    "bytes": Column(
        sql=f"substring(unhex(concat(hex({MIX}), hex(id))), 1, pmod(id, 13))",
        bounds=[b"\x00", b"\x01\xff", b"\x7f", b"\x80", b"\x80\x00", b"\xff"],
        edges=["X''", "X'00'", "X'FF'", "X'80'"],
    ),
    "uuid": Column(
        sql=f"unhex(lpad(hex({MIX}), 32, hex(xxhash64(id, 8L))))",
        bounds=[UUID(int=n << 120) for n in (1, 17, 127, 128, 200, 255)],
        kind="uuid",
        edges=["unhex(repeat('00', 16))", "unhex(repeat('ff', 16))", "unhex('80000000000000000000000000000000')"],
    ),
    "uuid in text": Column(
        sql="regexp_replace(lpad(lower(hex(xxhash64(id, 9L))), 32, hex(xxhash64(id, 8L))), "
        "'^(.{8})(.{4})(.{4})(.{4})(.{12})$', '$1-$2-$3-$4-$5')",
        bounds=[UUID(int=n << 120) for n in (5, 128, 129, 250)],
        kind="uuid",
    ),
    "date": Column(
        sql="date_add(DATE'1970-01-01', CAST(pmod(xxhash64(id, 3L), 3000000L) AS INT) - 700000)",
        bounds=[date(1, 1, 2), date(1969, 12, 31), date(1970, 1, 1), date(1970, 1, 2), date(9999, 12, 31)],
        edges=["DATE'0001-01-01'", "DATE'1969-12-31'", "DATE'1970-01-01'", "DATE'9999-12-31'"],
    ),
    "text with a collation": Column(sql=f"collate({TEXT}, 'UTF8_LCASE')", bounds=["A", "a", "ключ-c", "ключ-é"]),
    "bytes in text": Column(sql=TEXT, bounds=[b"\x00", b"\xd0", b"\xd0\xba"], kind="bytes"),
}

COMPOSITES: dict[str, list[str]] = {
    "number and text": ["int32", "text"],
    "text and date": ["text", "date"],
    "bytes, bytes": ["bytes", "bytes"],
    "uuid, unsigned, number": ["uuid", "uint64", "int8"],
    "everything": ["int16", "text", "bytes", "uuid", "date", "uint32", "int64"],
}


def source_of(
    spark: SparkSession, kinds: Sequence[str], names: Sequence[str] | None = None, rows: int = ROWS
) -> Source:
    """Rows with these key columns, called a, b, c … unless told; the values that are worth a row of their own first."""
    columns = [COLUMNS[kind] for kind in kinds]
    names = names or [chr(ord("a") + index) for index in range(len(columns))]
    df = spark.range(rows).selectExpr(
        *(f"{with_edges(c, at)} AS {name}" for at, (c, name) in enumerate(zip(columns, names, strict=True)))
    )
    return Source.of(
        df,
        key=names,
        key_types={name: column.kind for column, name in zip(columns, names, strict=True) if column.kind},
        value=ValueKind.ROW,
        on_duplicate=OnDuplicate(),
    )


def with_edges(column: Column, at: int) -> str:
    """The columns of a composite key meet their edges at different rows, and each other's in some."""
    if not column.edges:
        return column.sql
    cases = [
        f"WHEN pmod(id, {11 + 2 * at}L) = {row} AND id < 1000 THEN {edge}" for row, edge in enumerate(column.edges)
    ]
    return f"CASE {' '.join(cases)} ELSE {column.sql} END"


def bounds_of(kinds: Sequence[str]) -> list[Key]:
    columns = [COLUMNS[kind] for kind in kinds]
    if len(columns) == 1:
        return list(columns[0].bounds)
    rows = max(len(column.bounds) for column in columns)
    found = {
        tuple(column.bounds[(row * 3 + at) % len(column.bounds)] for at, column in enumerate(columns))
        for row in range(rows)
    }
    head = columns[0].bounds[len(columns[0].bounds) // 2]
    found |= {(head, *(column.bounds[at % len(column.bounds)] for column in columns[1:])) for at in range(rows)}
    return sorted(found)


def check(source: Source, routings: Sequence[Routing]) -> int:
    """Compare what the JVM says with the readers' two ways; the number of keys compared."""
    routes = [
        f"{route_sql(routing, source.key, source.canonical, HASH_COLUMN)} AS s{index}"
        for index, routing in enumerate(routings)
    ]
    found: pa.Table = source.frame.selectExpr("*", *routes).toArrow()
    width = len(source.key.columns)
    canonical = [
        column.canonical(pa.concat_arrays(found.column(index + 1).chunks))
        for index, column in enumerate(source.key.columns)
    ]
    hashes = source.key.hash_arrays(canonical)
    assert np.array_equal(found.column(HASH_COLUMN).to_numpy().view(np.uint64), hashes)
    for index, routing in enumerate(routings):
        in_jvm = found.column(1 + width + index).to_numpy()
        np.testing.assert_array_equal(in_jvm, routing.shards_of(canonical, hashes), err_msg=routing.describe())
        assert in_jvm.min() >= 0
        assert in_jvm.max() < routing.shard_count
    some = range(0, found.num_rows, -(-found.num_rows // SCALARS))
    batch = pa.RecordBatch.from_arrays(canonical, names=source.key.names)
    for row in [*some, *range(found.num_rows - min(60, found.num_rows), found.num_rows)]:
        key = key_at(source.key, batch, row)
        hashed = source.key.hash_of(key)
        assert hashed == int(hashes[row])
        for index, routing in enumerate(routings):
            assert routing.shard_of(key, hashed) == found.column(1 + width + index)[row].as_py()
    return int(found.num_rows)


@pytest.mark.parametrize("kind", COLUMNS)
def test_the_jvm_and_readers_agree_on_keys_of_one_column(spark: SparkSession, kind: str) -> None:
    """K3: hash and range routing are the same function in Spark SQL, for one key, and for a column of keys."""
    source = source_of(spark, [kind])
    routings: list[Routing] = [
        HashRouting(1),
        HashRouting(7),
        HashRouting(64),
        RangeRouting(source.key, tuple(bounds_of([kind]))),
    ]
    assert check(source, routings) >= ROWS


@pytest.mark.parametrize("name", COMPOSITES)
def test_the_jvm_and_readers_agree_on_composite_keys(spark: SparkSession, name: str) -> None:
    """K3: composite keys are hashed part by part, and ranges compare them from the first part on."""
    kinds = COMPOSITES[name]
    source = source_of(spark, kinds)
    assert check(source, [HashRouting(13), RangeRouting(source.key, tuple(bounds_of(kinds)))]) >= ROWS


EXPRESSIONS = [
    "pmod(int64, 16)",
    "int64 % 16",
    "(int64 // 1000) % 16",
    "(int32 * 31 + 7) % 16",
    "(-int8) % 16",
    "least(abs(int8), 15)",
    "greatest(uint8 - 240, 0)",
    "uint64 % 16",
    "(date // 365) % 16",
    "length(text) % 16",
    "xxhash64(text) % 16",
    "pmod(xxhash64(uuid, bytes), 16)",
    "pmod(xxhash64(text, int32), 8) + int32 % 8",
    "(int16 * 4 + int8) % 16",
    # Numbers that leave 64 bits wrap around, in the JVM as in a reader.
    "(int64 * 6364136223846793005 + 1442695040888963407) % 16",
    "(int64 - 9223372036854775807 - 5) % 16",
    "abs(int64) % 16",
    "(-int64 // 7 + xxhash64(int64) * 31) % 16",
    "((int64 + uint64) * (int64 - uint64) + (int64 * uint64) // 3 + abs(int64) * 5 - (-uint64)) % 16",
]


def test_the_jvm_and_readers_agree_on_expressions(spark: SparkSession) -> None:
    """K3: an expression means the same in Spark SQL and in a reader, negative numbers and large ones included."""
    kinds = [kind for kind in COLUMNS if kind.isidentifier()]
    source = source_of(spark, kinds, kinds, rows=ROWS // 16)
    cached = source.frame.persist()  # else Spark would generate the keys anew for every mention in an expression
    routings = [ExpressionRouting(Expression(text, source.key), 16) for text in EXPRESSIONS]
    assert check(source.on(cached), routings) == ROWS // 16
    cached.unpersist()


def test_many_bounds_make_a_tree_that_spark_accepts(spark: SparkSession) -> None:
    """K3: ranges with many bounds, too."""
    source = source_of(spark, ["date"])
    bounds = tuple(date(1900, 1, 1) + timedelta(days=11 * n) for n in range(500))
    assert check(source, [RangeRouting(source.key, bounds)]) >= ROWS
