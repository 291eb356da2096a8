"""The rows of a key-value snapshot as a DataFrame."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from uuid import UUID

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from holdfast.chain import Chain, chain_on, graph_layout, kv_layout
from holdfast.errors import BadInput, NotAChain
from holdfast.kv import publish_arrow
from holdfast.spark import publish_kv
from holdfast.spark.kv_read import read_kv
from holdfast.storage import LocalStore, MemoryStore

WIDE = """
    SELECT id, DATE'1970-01-01' AS day, 'n' || id AS name, CAST(id / 3 AS DECIMAL(10, 3)) AS money,
    IF(id % 2 = 0, NULL, X'00FF') AS raw, TIMESTAMP'2026-11-15 12:00:00Z' AS at, TIMESTAMP_NTZ'2026-11-15 12:00:00' AS near,
    array(id, NULL) AS list, map('a', id) AS pairs, named_struct('x', TIMESTAMP'2026-11-15 12:00:00Z') AS both
    FROM range(5000)
"""  # noqa: E501


def test_every_row_of_a_snapshot_comes_back(spark: SparkSession, chain: Chain) -> None:
    """C30: a key-value data set is a source like any other, at whatever snapshot."""
    rows = spark.sql(WIDE)
    first = publish_kv(rows, chain, key=["id", "day"], shards=3, tags={"v": "1"})
    publish_kv(spark.sql(WIDE).where("id < 7"), chain, key=["id", "day"], shards=2)

    found = read_kv(spark, chain, ref=first.ref)

    assert found.schema.simpleString() == rows.schema.simpleString()
    assert found.sort("id").collect() == rows.sort("id").collect()
    assert found.rdd.getNumPartitions() == 3
    assert read_kv(spark, chain).count() == 7
    assert read_kv(spark, chain, tag=("v", "1")).count() == 5_000
    assert read_kv(spark, chain, at=chain.find(ref=first.ref).at).count() == 5_000
    assert read_kv(spark, chain.store.url).count() == 7


def test_types_that_spark_does_not_have_become_their_next_of_kin(spark: SparkSession, chain: Chain) -> None:
    """C30: UUIDs are text, unsigned numbers grow, finer times are as fine as Spark's."""
    most = [(1 << bits) - 1 for bits in (8, 16, 32, 64)]
    keys = [UUID(int=7), UUID("abcdef00-1234-4000-8000-00000000000f")]
    table = pa.table(
        {
            "key": pa.array([key.bytes for key in keys], pa.uuid()),
            **{
                f"u{bits}": pa.array([value, None], kind)
                for bits, value, kind in zip(
                    (8, 16, 32, 64), most, (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()), strict=True
                )
            },
            "fine": pa.array([datetime(2026, 11, 15, tzinfo=UTC), None], pa.timestamp("ns", "Europe/Berlin")),
            "bytes": pa.array([b"abc", None], pa.binary(3)),
            "day": pa.array([date(2026, 11, 15), None], pa.date64()),
            "list": pa.array([[1, 2], None], pa.large_list(pa.uint8())),
            "other": pa.array([keys[0].bytes, None], pa.uuid()),
        }
    )
    publish_arrow(chain, table, key="key", shards=1)

    found = {row.key: row.asDict() for row in read_kv(spark, chain).collect()}

    assert set(found) == {str(key) for key in keys}
    full, empty = found[str(keys[0])], found[str(keys[1])]
    assert [full[f"u{bits}"] for bits in (8, 16, 32, 64)] == [255, 65_535, most[2], Decimal(most[3])]
    assert (full["bytes"], full["day"], full["list"]) == (b"abc", date(2026, 11, 15), [1, 2])
    assert full["other"] == str(keys[0])
    assert full["fine"].timestamp() == datetime(2026, 11, 15, tzinfo=UTC).timestamp()
    assert set(empty.values()) == {str(keys[1]), None}


def test_a_snapshot_without_rows_has_its_columns(spark: SparkSession, chain: Chain) -> None:
    """C30: empty shards cost nothing and are no damage."""
    publish_kv(spark.sql(WIDE).where("id < 0"), chain, key="id", shards=3)

    assert read_kv(spark, chain).count() == 0
    assert read_kv(spark, chain).columns == spark.sql(WIDE).columns


def test_a_damaged_shard_is_never_served(spark: SparkSession, tmp_path: Path) -> None:
    """C30: each block is compared with its checksum before any of its rows is used."""
    chain = chain_on(LocalStore(tmp_path / "kv", durable=False), kv_layout())
    published = publish_kv(spark.sql(WIDE), chain, key="id", shards=2)
    shard = published.dataset.shards[1]
    assert shard is not None
    path = tmp_path / "kv" / shard.path
    data = bytearray(path.read_bytes())
    data[shard.byte_size // 2] ^= 1
    path.write_bytes(data)

    with pytest.raises(Exception, match=r"CorruptShard: shard .*is damaged"):
        read_kv(spark, chain).collect()
    path.unlink()
    with pytest.raises(Exception, match=r"its file is missing"):
        read_kv(spark, chain).collect()


def test_what_cannot_be_read_is_said_before_any_work(spark: SparkSession, chain: Chain) -> None:
    """C30: no snapshot, another kind of chain, a place that executors cannot reach, a type that Spark does not have."""
    with pytest.raises(NotAChain, match="no kv chain at"):
        read_kv(spark, chain)
    with pytest.raises(NotAChain, match="opened as a graph chain"):
        read_kv(spark, chain_on(chain.store, graph_layout()))
    memory = chain_on(MemoryStore(), kv_layout())
    publish_arrow(memory, pa.table({"id": [1], "v": [2]}), key="id", shards=1)
    with pytest.raises(BadInput, match="cannot reach memory://"):
        read_kv(spark, memory)
    uuids = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"0" * 16], pa.binary(16)))
    lists = pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), uuids)
    publish_arrow(chain, pa.table({"id": [1], "v": lists}), key="id", shards=1)
    with pytest.raises(BadInput, match="column 'v' has UUIDs inside"):
        read_kv(spark, chain)
