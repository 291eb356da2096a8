"""Spark, for the benchmarks: a session, the least that any build must cost, and a build row by row.

This module is imported by Spark's Python workers: it needs nothing but what they have.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from bench.kv_rows import KEY, VALUE, packed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

__all__ = ["empty_pass", "insert_sharded", "row_at_a_time", "session"]

_HASH, _SHARD = "_hash", "_shard"
_TOGETHER = 10_000


@contextmanager
def session(scratch: Path) -> Iterator[SparkSession]:
    """Spark on two cores, with both of Java's compilers, and its temporary files where the benchmark's are."""
    from holdfast.spark import local_spark

    settings = {
        "spark.driver.memory": "3g",
        "spark.local.dir": str(scratch / "spark"),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
    }
    root = str(Path(__file__).resolve().parent.parent)
    before = dict(os.environ)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [root, before.get("PYTHONPATH")]))  # workers import this
    spark = local_spark(cores=2, quick=False, settings=settings)
    try:
        yield spark
    finally:
        spark.stop()
        os.environ.clear()
        os.environ |= before


def _routed(rows: DataFrame, shards: int) -> DataFrame:
    """Every row with its hash and its shard, in the partition of that shard."""
    from pyspark.sql import functions as f

    hashed = rows.withColumn(_HASH, f.xxhash64(KEY)).withColumn(_SHARD, f.pmod(_HASH, f.lit(shards)).cast("int"))
    return hashed.repartitionById(shards, f.col(_SHARD))


def empty_pass(rows: DataFrame, shards: int) -> None:
    """Route, sort, hand all rows to Python, and drop them there: what a build costs before it writes a byte."""
    from pyspark.sql import functions as f

    whole = _routed(rows, shards).select(KEY, VALUE, f.col(_HASH)).sortWithinPartitions(_HASH)
    whole.mapInArrow(_drop, f"{KEY} bigint").write.format("noop").mode("overwrite").save()


def _drop(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        pass
    yield from ()


def row_at_a_time(rows: DataFrame, shards: int, folder: Path) -> None:
    """One SQLite file a shard, the way that the peer goes: shard numbers from Python key by key, a look that all are in
    range, pairs of number and row shuffled as pickles, and a writer that takes one row after the other."""
    from pyspark.sql import functions as f

    folder.mkdir(parents=True)
    numbered = rows.mapInArrow(_Numbering(shards), f"{KEY} {_type(rows, KEY)}, {VALUE} binary, {_SHARD} int")
    if numbered.where(f.col(_SHARD).isNull() | (f.col(_SHARD) < 0) | (f.col(_SHARD) >= shards)).limit(1).count():
        raise AssertionError("a shard number is out of range")
    pairs = numbered.rdd.map(lambda row: (int(row[_SHARD]), row)).partitionBy(shards, int)
    pairs.foreachPartition(_RowWriter(str(folder)))


def _type(rows: DataFrame, column: str) -> str:
    return rows.schema[column].dataType.simpleString()


class _Numbering:
    """Pickles: Spark sends it to its workers."""

    def __init__(self, shards: int) -> None:
        self._shards = shards

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from xxhash import xxh3_64_intdigest

        for batch in batches:
            numbers = [xxh3_64_intdigest(packed(key)) % self._shards for key in batch.column(KEY).to_pylist()]
            yield batch.append_column(_SHARD, pa.array(numbers, pa.int32()))


def insert_sharded(folder: Path, shards: int, batches: Iterable[pa.RecordBatch]) -> None:
    """The same without Spark: one pass over the rows, each put beside the others of its shard, then a file a shard."""
    from xxhash import xxh3_64_intdigest

    folder.mkdir(parents=True)
    by_shard: list[list[tuple[int | str, bytes]]] = [[] for _ in range(shards)]
    for batch in batches:
        for key, value in zip(batch.column(KEY).to_pylist(), batch.column(VALUE).to_pylist(), strict=True):
            by_shard[xxh3_64_intdigest(packed(key)) % shards].append((key, value))
    for number, rows in enumerate(by_shard):
        _insert_rows(folder / f"shard-{number:05d}.sqlite", rows)


class _RowWriter:
    """The same."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def __call__(self, pairs: Iterable[tuple[int, Row]]) -> None:
        iterator = iter(pairs)
        first = next(iterator, None)
        if first is not None:
            file = Path(self._folder) / f"shard-{first[0]:05d}.sqlite"
            _insert_rows(file, ((row[KEY], bytes(row[VALUE])) for _, row in chain([first], iterator)))


def _insert_rows(file: Path, rows: Iterable[tuple[int | str, bytes]]) -> None:
    """Row by row: the key turned to bytes, smallest and largest kept, and an INSERT for some thousand of them."""
    connection = sqlite3.connect(file)
    connection.execute("PRAGMA journal_mode = OFF")
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute("CREATE TABLE kv (k BLOB PRIMARY KEY, v BLOB) WITHOUT ROWID")
    smallest: int | str | None = None
    largest: int | str | None = None
    waiting: list[tuple[bytes, bytes]] = []
    for key, value in rows:
        waiting.append((packed(key), value))
        smallest = key if smallest is None or key < smallest else smallest  # type: ignore[operator]
        largest = key if largest is None or key > largest else largest  # type: ignore[operator]
        if len(waiting) >= _TOGETHER:
            connection.executemany("INSERT INTO kv VALUES (?, ?)", waiting)
            waiting.clear()
    connection.executemany("INSERT INTO kv VALUES (?, ?)", waiting)
    connection.commit()
    connection.close()
