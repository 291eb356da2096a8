"""From a DataFrame to a snapshot that readers without Spark look up."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from uuid import UUID

import pytest
from pyspark.sql import DataFrame, SparkSession

from holdfast.chain import Chain, open_chain
from holdfast.errors import BadInput, RunIdInUse
from holdfast.kv import Key
from holdfast.spark import publish_kv
from tests.spark.reading import dataset_of, reader_of, table_of


def test_a_dataframe_is_published_and_every_row_is_found_again(spark: SparkSession, chain: Chain) -> None:
    """K1: from a Spark DataFrame to typed rows that any Python process looks up."""
    rows = 20_000
    df = spark.range(rows).selectExpr("id * 7 - 50000 AS id", "concat('n', id) AS name", "array(id, id + 1) AS both")

    published = publish_kv(df, chain, key="id", shards=4)

    assert published.dataset.row_count == rows
    assert published.written_shards == 4
    assert dataset_of(chain).shards == published.dataset.shards
    assert sorted(table_of(chain)["id"].to_pylist()) == [index * 7 - 50_000 for index in range(rows)]
    keys = [index * 7 - 50_000 for index in range(rows)]
    found = reader_of(chain).multi_get(keys)
    assert found == {key: {"name": f"n{index}", "both": [index, index + 1]} for index, key in enumerate(keys)}
    assert reader_of(chain).get(2, None) is None


ALL_KINDS = """
    CAST(id - 100 AS TINYINT) AS tiny, CAST(id * 300 - 30000 AS SMALLINT) AS small,
    CAST(id * -9999999 AS INT) AS middle,
    CASE id WHEN 0 THEN CAST('-9223372036854775808' AS BIGINT) WHEN 1 THEN 9223372036854775807L ELSE -id END AS big,
    CAST(18446744073709551615BD - id AS DECIMAL(20, 0)) AS unsigned, concat('Schlüssel ', id) AS name,
    unhex(concat('00FF', lpad(hex(id), 2, '0'))) AS code,
    lower(concat('ABCDEF00-0000-4000-8000-', lpad(hex(id), 12, '0'))) AS uuid,
    date_add(DATE'1969-12-25', CAST(id AS INT)) AS day
"""


@pytest.mark.parametrize(
    "key, sample",
    [
        pytest.param("tiny", -93, id="int8"),
        pytest.param("small", -27_900, id="int16"),
        pytest.param("middle", -69_999_993, id="int32"),
        pytest.param("big", -7, id="int64"),
        pytest.param("unsigned", (1 << 64) - 1 - 7, id="uint64"),
        pytest.param("name", "Schlüssel 7", id="text"),
        pytest.param("code", b"\x00\xff\x07", id="bytes"),
        pytest.param("uuid", UUID("abcdef00-0000-4000-8000-000000000007"), id="uuid"),
        pytest.param("day", date(1970, 1, 1), id="date"),
        pytest.param(("day", "code", "big"), (date(1970, 1, 1), b"\x00\xff\x07", -7), id="composite"),
    ],
)
def test_keys_of_every_kind_are_published_and_found(
    spark: SparkSession, chain: Chain, key: str | tuple[str, ...], sample: Key
) -> None:
    """K2: negative and large integers, text, bytes, UUIDs, dates and tuples of them are keys."""
    df = spark.sql(f"SELECT {ALL_KINDS} FROM range(200)")

    publish_kv(
        df, chain, key=key, shards=3, key_types={"unsigned": "uint64", "uuid": "uuid"} if key != "name" else None
    )

    found = reader_of(chain).get(sample, None)
    assert isinstance(found, dict)
    names = (key,) if isinstance(key, str) else key
    assert found.get("tiny", -93) == -93
    assert not set(names) & set(found)
    assert len(found) == 9 - len(names)
    table = table_of(chain)
    assert len({tuple(row[name] for name in names) for row in table.to_pylist()}) == 200


def test_integers_at_both_ends_of_their_range_are_keys(spark: SparkSession, chain: Chain) -> None:
    """K26: negative and large integers are keys like all others."""
    publish_kv(spark.sql(f"SELECT {ALL_KINDS} FROM range(200)").select("big", "name"), chain, key="big", shards=5)

    reader = reader_of(chain)
    assert reader.get(-(1 << 63), None) == {"name": "Schlüssel 0"}
    assert reader.get((1 << 63) - 1, None) == {"name": "Schlüssel 1"}


def test_values_of_many_types_come_back_as_they_were(spark: SparkSession, chain: Chain) -> None:
    """K2: a value is a whole typed row, nested columns included."""
    df = spark.sql(
        """SELECT CAST(1 AS INT) AS id, 1.5D AS d, CAST(2.25 AS FLOAT) AS f, true AS yes,
        CAST(12.340 AS DECIMAL(10, 3)) AS money, TIMESTAMP'2026-11-15 12:00:00Z' AS at,
        TIMESTAMP_NTZ'2026-11-15 12:00:00' AS local, DATE'2026-11-15' AS day,
        array(1, NULL) AS list, map('a', 1) AS pairs, named_struct('x', 1, 'y', array('z')) AS both,
        INTERVAL '1' DAY AS span, CAST(NULL AS STRING) AS nothing, X'00FF' AS raw"""
    )

    publish_kv(df, chain, key="id", shards=1)

    found = reader_of(chain).get(1, None)
    assert isinstance(found, dict)
    assert found["at"] == datetime(2026, 11, 15, 12, tzinfo=UTC)
    assert found["money"] == Decimal("12.340")
    assert (found["d"], found["f"], found["yes"], found["raw"], found["nothing"]) == (
        1.5,
        2.25,
        True,
        b"\x00\xff",
        None,
    )
    assert (found["list"], found["pairs"], found["both"]) == ([1, None], [("a", 1)], {"x": 1, "y": ["z"]})
    assert found["day"] == date(2026, 11, 15)
    assert str(dataset_of(chain).schema.field("at").type) == "timestamp[us, tz=UTC]"


def test_bytes_and_json_are_values_of_their_own(spark: SparkSession, chain: Chain) -> None:
    """K2: a value may also be one binary column, or JSON."""
    df = spark.range(10).selectExpr("id", "CAST(repeat('x', 3) AS BINARY) AS data", "'{\"n\": 1}' AS doc")

    publish_kv(df.select("id", "data"), chain, key="id", shards=2, value="binary")
    assert reader_of(chain).get(3, None) == b"xxx"
    publish_kv(df.select("doc", "id"), chain, key="id", shards=2, value="json")
    assert reader_of(chain).get(3, None) == {"n": 1}


def test_column_names_may_be_anything(spark: SparkSession, chain: Chain) -> None:
    df = (
        spark.range(5)
        .toDF("h")
        .selectExpr("h AS `a.b`", "h AS `it's`", "h AS `A.B`", "h AS h", "h AS `k0`", "h AS `日 本`")
    )

    publish_kv(df, chain, key="it's", shards=2)

    assert reader_of(chain).get(4, None) == {"a.b": 4, "A.B": 4, "h": 4, "k0": 4, "日 本": 4}


def test_empty_shards_cost_nothing_and_route_correctly(spark: SparkSession, chain: Chain) -> None:
    """K6: a shard without rows has no file, and a look-up there finds nothing."""
    published = publish_kv(spark.range(3), chain, key="id", shards=16)

    empty = [number for number, shard in enumerate(published.dataset.shards) if shard is None]
    assert len(empty) >= 13
    assert published.written_shards == 16 - len(empty)
    assert [reader_of(chain).get(key, None) for key in (2, 3, 4)] == [{}, None, None]


@pytest.mark.parametrize(
    "sql", ["SELECT id FROM range(0)", "SELECT id FROM range(100) WHERE rand() > 2", "SELECT 1L AS id WHERE false"]
)
def test_a_dataframe_without_rows_makes_an_empty_snapshot(spark: SparkSession, chain: Chain, sql: str) -> None:
    """K6: Spark may leave out every task there; what is published is empty, not missing."""
    published = publish_kv(spark.sql(sql), chain, key="id", shards=4)

    assert dataset_of(chain).row_count == 0
    assert published.dataset.shards == (None,) * 4
    assert reader_of(chain).get(1, None) is None


def test_a_run_id_is_used_once(spark: SparkSession, chain: Chain) -> None:
    """K26: a second build under a used run id is refused, and merges nothing."""
    publish_kv(spark.range(5), chain, key="id", shards=2, run_id="nightly")

    with pytest.raises(RunIdInUse, match="nightly"):
        publish_kv(spark.range(5, 9), chain, key="id", shards=2, run_id="nightly")

    assert sorted(table_of(chain)["id"].to_pylist()) == [0, 1, 2, 3, 4]


def test_rows_are_published_by_range_and_by_expression(spark: SparkSession, chain: Chain) -> None:
    """K3: bounds and expressions decide where rows go, and readers find them there."""
    df = spark.range(1_000).selectExpr("id - 500 AS id", "CAST(id AS STRING) AS name")

    ranged = publish_kv(df, chain, key="id", bounds=[-100, 0, 250])
    assert [shard and (shard.min_key, shard.max_key) for shard in ranged.dataset.shards] == [
        (-500, -101), (-100, -1), (0, 249), (250, 499)
    ]  # fmt: skip
    assert reader_of(chain).get(249, None) == {"name": "749"}

    publish_kv(df, chain, key="id", shards=5, route="(id // 100) % 5")
    assert reader_of(chain).get(-1, None) == {"name": "499"}
    assert len(reader_of(chain).multi_get(list(range(-500, 500)))) == 1_000


def test_the_session_is_left_as_it_was(spark: SparkSession, chain: Chain) -> None:
    """K1: the session is the DataFrame's own; a build changes none of its settings, views or caches."""
    before = dict(spark.conf.getAll), [table.name for table in spark.catalog.listTables()]

    publish_kv(spark.range(50), chain, key="id", rows_per_shard=20)

    assert (dict(spark.conf.getAll), [table.name for table in spark.catalog.listTables()]) == before
    assert spark.sparkContext._jsc.getPersistentRDDs().size() == 0


@pytest.mark.parametrize(
    "sql, options, message",
    [
        ("id", {"key": "nothing", "shards": 1}, "no column 'nothing'"),
        ("id", {"key": "id"}, "say how many shards"),
        ("id", {"key": "id", "shards": 0}, "from 1 to"),
        ("id", {"key": "id", "shards": 2, "rows_per_shard": 5}, "give one of"),
        ("id", {"key": "id", "rows_per_shard": 0}, "at least 1"),
        ("id", {"key": "id", "shards": 2, "value": "rows"}, "use row, binary, json"),
        ("id", {"key": "id", "shards": 2, "on_duplicate": "first"}, "use error, last or max"),
        ("id", {"key": "id", "shards": 2, "on_duplicate": "max(when)"}, "no such column"),
        ("id, map(1, 2) AS m", {"key": "id", "shards": 2, "on_duplicate": "max(m)"}, "cannot order"),
        ("1.5D AS id", {"key": "id", "shards": 2}, "cannot be a key"),
        ("1.5D AS id", {"key": "id", "shards": 2, "key_types": {"id": "date"}}, "cast it first"),
        ("id, id AS ID, id AS id", {"key": "ID", "shards": 2}, "there twice"),
        ("id, INTERVAL '1' YEAR AS x", {"key": "id", "shards": 2}, "Arrow does not know"),
        ("id", {"key": "id", "shards": 2, "route": "nope % 2"}, "no key column"),
    ],
)
def test_a_wrong_call_is_refused_before_any_work(
    spark: SparkSession, chain: Chain, sql: str, options: dict[str, object], message: str
) -> None:
    df = spark.sql(f"SELECT {sql} FROM range(3)")

    with pytest.raises(BadInput, match=message):
        publish_kv(df, chain, **options)  # type: ignore[arg-type]

    assert chain.load_current() is None


def test_a_place_that_executors_cannot_reach_is_refused(spark: SparkSession) -> None:
    with pytest.raises(BadInput, match="executors are other processes"):
        publish_kv(spark.range(3), "memory://here", key="id", shards=1)


def test_a_stream_is_refused(spark: SparkSession, chain: Chain) -> None:
    stream: DataFrame = spark.readStream.format("rate").load()
    with pytest.raises(BadInput, match="foreachBatch"):
        publish_kv(stream, chain, key="value", shards=1)


def test_a_url_is_a_place(spark: SparkSession, chain: Chain) -> None:
    publish_kv(
        spark.range(3), chain.store.url, key="id", shards=1, tags={"stage": "test"}, custom={"a": 1}, why="because"
    )

    manifest = open_chain(chain.store.url).load_current()
    assert manifest is not None
    assert dataset_of(chain).custom == {"a": 1}
