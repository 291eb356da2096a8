"""Upserts and deletes from DataFrames: the same snapshot as without Spark, at the cost of the shards they touch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from holdfast.chain import Chain
from holdfast.errors import BadInput, BadRows, BuildFailed, SnapshotNotFound
from holdfast.kv import publish_arrow, update_arrow
from holdfast.kv.changes import as_changes, change_schema
from holdfast.kv.update import Base, updating
from holdfast.spark import publish_kv, update_kv
from holdfast.spark.kv_update import UpdateTask
from tests.chain.publishing import keys_below, overwrite
from tests.kv.updating import paths_of, stored_rows, table_of
from tests.spark.reading import dataset_of
from tests.spark.reading import table_of as stored_table

SHARDS = 8
BASE: dict[int, str | None] = {number: f"row {number}" for number in range(2_000)}
BOUNDS = [number * 250 for number in range(1, SHARDS)]


@pytest.fixture(params=["hash", "range", "expression"])
def base(request: pytest.FixtureRequest, chain: Chain) -> dict[int, str | None]:
    """A data set of eight shards that was built without Spark, and its rows."""
    options: dict[str, dict[str, object]] = {
        "hash": {"shards": SHARDS},
        "range": {"bounds": BOUNDS},
        "expression": {"shards": SHARDS, "route": "id // 250 % 8"},
    }
    publish_arrow(chain, table_of(BASE), key="id", **options[request.param])  # type: ignore[arg-type]
    return dict(BASE)


@pytest.fixture
def by_range(chain: Chain) -> dict[int, str | None]:
    publish_arrow(chain, table_of(BASE), key="id", bounds=BOUNDS)
    return dict(BASE)


def frame(spark: SparkSession, rows: Mapping[int | None, str | None]) -> DataFrame:
    return spark.createDataFrame(list(rows.items()), "id BIGINT, name STRING")


def ids(spark: SparkSession, *numbers: int | None) -> DataFrame:
    return spark.createDataFrame([(number,) for number in numbers], "id BIGINT")


def test_upserts_and_deletes_from_dataframes_are_seen_and_everything_else_stays(
    spark: SparkSession, chain: Chain, base: dict[int, str | None]
) -> None:
    """K9: for every kind of routing, on a data set that Spark did not build."""
    before = paths_of(chain)
    upserts: dict[int | None, str | None] = {3: "three", 700: None, 1_999: "last", 5_000: "new"}

    published = update_kv(chain, upserts=frame(spark, upserts), deletes=ids(spark, 0, 4, 1_000, 1_000, 77_777))

    gone = {0, 4, 1_000}
    assert stored_rows(chain) == {key: name for key, name in (base | upserts).items() if key not in gone}
    assert (published.upserted_rows, published.deleted_rows, published.absent_rows) == (4, 3, 1)
    dataset = dataset_of(chain)
    keys = [pa.array([3, 700, 1_999, 5_000, 0, 4, 1_000], pa.int64())]
    touched = set(dataset.routing.shards_of(keys, dataset.key.hash_arrays(keys)).tolist())
    after = paths_of(chain)
    assert {number for number in before if before[number] != after[number]} == touched
    assert published.written_shards == len(touched)
    assert published.written_bytes == sum(chain.store.head(after[number]).size for number in touched)
    assert str(dataset.statistics["engine"]).startswith("spark ")
    assert dataset.statistics["upserted_rows"] == 4


def test_a_shard_that_no_change_touches_is_neither_read_nor_written(
    spark: SparkSession, chain: Chain, by_range: dict[int, str | None]
) -> None:
    """K9: even a damaged shard does not stop an update of another one."""
    path = paths_of(chain)[5]
    good = chain.store.get(path).data
    overwrite(chain.store, path, bytes(len(good)))
    published = update_kv(chain, deletes=ids(spark, 1, 2))
    assert (published.written_shards, published.deleted_rows) == (1, 2)
    assert paths_of(chain)[5] == path
    overwrite(chain.store, path, good)
    assert stored_rows(chain) == {key: name for key, name in by_range.items() if key not in {1, 2}}


def test_a_damaged_base_ends_an_update_with_the_shard_by_name(
    spark: SparkSession, chain: Chain, by_range: dict[int, str | None]
) -> None:
    """K7, K18: an executor says which file it was, and nothing is published."""
    path = paths_of(chain)[0]
    good = chain.store.get(path).data
    overwrite(chain.store, path, bytes(len(good)))
    before = chain.current()
    with pytest.raises(BuildFailed, match=r"shard 0: CorruptShard: .*fails its checksum"):
        update_kv(chain, deletes=ids(spark, 1))
    assert chain.current() == before
    overwrite(chain.store, path, good)


def test_an_update_without_any_rows_shares_everything(
    spark: SparkSession, chain: Chain, base: dict[int, str | None]
) -> None:
    """K9: Spark runs no task at all for nothing; the data set must not become empty by it."""
    before = paths_of(chain)
    published = update_kv(chain, upserts=frame(spark, {}), deletes=ids(spark))
    assert published.written_shards == 0
    assert paths_of(chain) == before
    published = update_kv(chain, upserts=frame(spark, {1: "x"}).where("id > 5"))
    assert published.written_shards == 0
    assert stored_rows(chain) == base


def test_spark_and_arrow_make_the_same_update(spark: SparkSession, chain: Chain, tmp_path: Path) -> None:
    """K3, K9: many random changes by both ways, and the same rows in the same order in every shard."""
    rng = np.random.default_rng(5)
    keys = rng.choice(6_000, 900, replace=False)
    upserts = table_of({int(key): f"new {key}" for key in keys[:600]})
    deletes = pa.table({"id": keys[600:]})
    publish_arrow(chain, table_of(BASE), key="id", shards=SHARDS)
    update_arrow(chain, upserts=upserts, deletes=deletes)
    expected = stored_table(chain)
    chain.rollback()
    update_kv(
        chain,
        upserts=spark.createDataFrame(upserts.to_pylist(), "id BIGINT, name STRING").repartition(3),
        deletes=spark.createDataFrame(deletes.to_pylist(), "id BIGINT"),
    )
    assert stored_table(chain).equals(expected)


def test_keys_of_many_kinds_and_both_sides_in_other_types(spark: SparkSession, chain: Chain) -> None:
    """K2, K9: UUIDs in text, unsigned numbers as decimals, dates; deletes need not have the upserts' Spark types."""
    df = spark.range(100).selectExpr(
        "format_string('00000000-0000-0000-0000-%012d', id) AS u",
        "CAST(id AS INT) AS n",
        "date_add(DATE'2026-01-01', CAST(id AS INT)) AS day",
        "named_struct('a', id, 'b', IF(id < 0, NULL, array(id))) AS value",
    )
    publish_kv(df, chain, key=["u", "n", "day"], key_types={"u": "uuid", "n": "uint64"}, shards=3)
    upserts = (
        df.where("n < 10")
        .selectExpr("value", "day", "CAST(n AS DECIMAL(20, 0)) AS n", "upper(u) AS u")
        .selectExpr("named_struct('a', value.a + 1000, 'b', CAST(NULL AS ARRAY<BIGINT>)) AS value", "day", "n", "u")
    )
    deletes = df.where("n >= 95").selectExpr("unhex(replace(u, '-', '')) AS u", "CAST(n AS SMALLINT) AS n", "day")

    published = update_kv(chain, upserts=upserts, deletes=deletes)

    assert (published.upserted_rows, published.deleted_rows, published.absent_rows) == (10, 5, 0)
    rows = {row["n"]: row["value"] for row in stored_table(chain).to_pylist()}
    assert rows == {
        number: {"a": number + 1_000, "b": None} if number < 10 else {"a": number, "b": [number]}
        for number in range(95)
    }


def test_bytes_as_text_on_one_side_and_as_binary_on_the_other(spark: SparkSession, chain: Chain) -> None:
    """K2, K9: the union of both sides changes no key, not even one that is no text."""
    keys = spark.createDataFrame([(bytes([0xC3, 0xA9]), 1), (bytes([0xFF, 0x00]), 2)], "k BINARY, n INT")
    publish_kv(keys, chain, key="k", shards=2)
    upserts = spark.createDataFrame([("é", 10), ("z", 20)], "k STRING, n INT")
    published = update_kv(chain, upserts=upserts, deletes=keys.where("n = 2").select("k"))
    assert (published.upserted_rows, published.deleted_rows, published.absent_rows) == (2, 1, 0)
    assert {row["k"]: row["n"] for row in stored_table(chain).to_pylist()} == {"é".encode(): 10, b"z": 20}


def test_upserts_of_one_key_are_resolved_by_the_rule(
    spark: SparkSession, chain: Chain, by_range: dict[int, str | None]
) -> None:
    """K2: max(column), decided in the JVM's sort."""
    twice = spark.createDataFrame([(7, "m"), (7, "z"), (8, "x"), (7, "a")], "id BIGINT, name STRING")
    published = update_kv(chain, upserts=twice, deletes=ids(spark, 9), on_duplicate="max(name)")
    assert stored_rows(chain)[7] == "z"
    assert published.dropped_rows == 2
    with pytest.raises(BadInput, match=r"max\(nme\): no such column"):
        update_kv(chain, upserts=twice, on_duplicate="max(nme)")


def test_what_is_wrong_is_counted_over_all_shards_and_nothing_is_published(
    spark: SparkSession, chain: Chain, by_range: dict[int, str | None]
) -> None:
    """K2, K9: null keys, duplicates and contradictions, with samples."""
    before = chain.current()
    rows = [(1, "a"), (1, "b"), (1_500, "c"), (1_500, "d"), (1_500, "e"), (None, "f")]
    with pytest.raises(BadRows) as caught:
        update_kv(
            chain,
            upserts=spark.createDataFrame(rows, "id BIGINT, name STRING"),
            deletes=ids(spark, 1_500, None, 600),
        )
    text = str(caught.value)
    assert "2 with a null in the key" in text
    assert "3 with a key that another row has" in text
    assert "1 keys that are upserted and deleted at once (such as 1500)" in text
    assert chain.current() == before


def test_wrong_columns_are_named_before_spark_does_anything(
    spark: SparkSession, chain: Chain, by_range: dict[int, str | None]
) -> None:
    """K9: a clear line each."""
    good = frame(spark, {1: "a"})
    with pytest.raises(BadInput, match="upserts: column 'name' is missing"):
        update_kv(chain, upserts=good.drop("name"))
    with pytest.raises(BadInput, match="no column 'age'"):
        update_kv(chain, upserts=good.selectExpr("*", "1 AS age"))
    with pytest.raises(BadInput, match="upserts: key column 'id' is string, not int64"):
        update_kv(chain, upserts=good.selectExpr("CAST(id AS STRING) AS id", "name"))
    with pytest.raises(BadInput, match="deletes take the key's columns and no others"):
        update_kv(chain, deletes=good)
    with pytest.raises(BadInput, match="give upserts, deletes, or both"):
        update_kv(chain)


def test_values_that_do_not_fit_are_named_by_column(spark: SparkSession, chain: Chain) -> None:
    """K9: an executor finds it, and one line says which column."""
    publish_kv(spark.createDataFrame([(1, 1)], "id BIGINT, n TINYINT"), chain, key="id", shards=2)
    with pytest.raises(BadRows, match="upserts: column 'n' has values that do not fit int8"):
        update_kv(chain, upserts=spark.createDataFrame([(1, 300)], "id BIGINT, n BIGINT"))


def test_an_empty_chain_cannot_be_updated(spark: SparkSession, chain: Chain) -> None:
    with pytest.raises(SnapshotNotFound, match="publish one first"):
        update_kv(chain, upserts=frame(spark, {1: "a"}))


def test_two_attempts_of_a_task_write_two_files_and_one_is_published(
    chain: Chain, by_range: dict[int, str | None]
) -> None:
    """K6: speculative and retried tasks of an update are as safe as those of a full build."""
    base = Base.visible(chain)
    with updating(chain, base) as update:
        task = UpdateTask(update.plan, base=base.dataset.shards)
        batch = as_changes(
            table_of({5: "five"}).to_batches()[0], change_schema(update.plan.schema, update.plan.key), deleted=False
        )
        hashes = pa.array(update.plan.key.hash_arrays([batch.column("id")]).view(np.int64))
        from_the_jvm = pa.RecordBatch.from_arrays([hashes, *batch.columns], names=["h", "k0", "v0", "d"])
        attempts = [task.write(0, iter([from_the_jvm]), f"attempt {number}") for number in range(2)]
        rest = [task.write(number, iter(()), "attempt 0") for number in range(1, SHARDS)]
        assert [receipt.unchanged for receipt in rest] == [True] * (SHARDS - 1)
        update.publish([attempts[1], *rest])
    written = [receipt.shard.path for receipt in attempts if receipt.shard is not None]
    assert len(set(written)) == 2
    assert paths_of(chain)[0] == written[1]
    assert stored_rows(chain) == by_range | {5: "five"}
    chain.collect(retention=1)
    chain.purge(grace_s=0)
    assert sorted(keys_below(chain.store, "shards")) == sorted(paths_of(chain).values())
