"""Rows that cannot be published: counted to the end, shown, refused as a whole. And the rules for twins."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from holdfast.chain import Chain
from holdfast.errors import BadRows, WrongKeyType
from holdfast.spark import publish_kv
from tests.spark.reading import reader_of, table_of


def test_null_and_duplicate_keys_are_refused_with_their_count_and_samples(spark: SparkSession, chain: Chain) -> None:
    """K2: what is wrong in all shards is added up: one attempt shows everything that must be mended."""
    df = spark.sql(
        "SELECT CASE WHEN id % 10 = 3 THEN NULL WHEN id >= 990 THEN id - 990 ELSE id END AS id, 'x' AS v "
        "FROM range(1000)"
    )

    with pytest.raises(BadRows, match=r"^nothing was published: there are rows 100 with a null in the key") as caught:
        publish_kv(df, chain, key="id", shards=4)

    assert "'id': None, 'v': 'x'" in str(caught.value)
    assert "9 with a key that another row has" in str(caught.value)
    assert chain.load_current() is None
    assert [shard for page in chain.store.list("shards") for shard in page] == []


def test_a_null_in_one_part_of_a_composite_key_is_refused(spark: SparkSession, chain: Chain) -> None:
    """K2: every part of a key counts."""
    df = spark.sql("SELECT id AS a, IF(id = 7, NULL, CAST(id AS STRING)) AS b FROM range(50)")
    for options in ({"shards": 3}, {"bounds": [(10, "a")]}, {"shards": 3, "route": "length(b) % 3"}):
        with pytest.raises(BadRows, match="1 with a null in the key"):
            publish_kv(df, chain, key=["a", "b"], **options)


def test_the_last_of_several_rows_wins(spark: SparkSession, chain: Chain) -> None:
    """K2: on_duplicate="last" goes by the DataFrame's own order."""
    df = spark.range(0, 9_000, 1, 4).selectExpr("id % 1000 AS id", "id AS v")

    published = publish_kv(df, chain, key="id", shards=3, on_duplicate="last")

    assert published.dropped_rows == 8_000
    assert {row["id"]: row["v"] for row in table_of(chain).to_pylist()} == {key: 8_000 + key for key in range(1_000)}


@pytest.mark.parametrize("column", ["v", "t"])
def test_the_largest_of_several_rows_wins(spark: SparkSession, chain: Chain, column: str) -> None:
    """K2: on_duplicate="max(column)" goes by any column that has an order; null is least."""
    df = spark.sql(
        """SELECT id % 100 AS id, IF(id < 100, NULL, pmod(id * 7, 900)) AS v,
        CASE WHEN id < 500 THEN concat('b', id) ELSE concat('a', id) END AS t FROM range(900)"""
    )

    publish_kv(df, chain, key="id", shards=3, on_duplicate=f"max({column})")

    every = [(n % 100, None if n < 100 else n * 7 % 900, f"b{n}" if n < 500 else f"a{n}") for n in range(900)]
    place = 1 if column == "v" else 2
    wanted = {}
    for row in sorted(every, key=lambda row: (row[place] is not None, row[place])):
        wanted[row[0]] = row[1:]
    assert {row["id"]: (row["v"], row["t"]) for row in table_of(chain).to_pylist()} == wanted


def test_keys_that_are_too_long_are_refused(spark: SparkSession, chain: Chain) -> None:
    """K2: keys have a limit, and the message says so."""
    df = spark.sql("SELECT repeat('k', CAST(id * 100 AS INT)) AS id FROM range(50)")

    with pytest.raises(BadRows, match="9 with a key longer than 4,096 bytes"):
        publish_kv(df, chain, key="id", shards=2)


@pytest.mark.parametrize(
    "sql, kind, message",
    [
        pytest.param("CAST(id + 250 AS INT)", "uint8", "no uint8|is uint8", id="too large"),
        pytest.param("CAST(id - 5 AS BIGINT)", "uint64", "no uint64|is uint64", id="negative"),
        pytest.param(
            "CAST(id AS DECIMAL(38, 0)) + 18446744073709551610BD", "uint64", "no uint64|is uint64", id="decimal"
        ),
        pytest.param("concat('no-uuid-', id)", "uuid", "is uuid: .*no-uuid-", id="text"),
        pytest.param("X'0102'", "uuid", "is uuid: .*x01.x02", id="bytes"),
        pytest.param("CAST(X'FFFE' AS STRING)", "text", "no UTF-8", id="no UTF-8"),
    ],
)
def test_a_value_that_its_kind_cannot_hold_is_refused(
    spark: SparkSession, chain: Chain, sql: str, kind: str, message: str
) -> None:
    """K2: nothing is cut, wrapped or guessed to make a key fit."""
    df = spark.sql(f"SELECT {sql} AS id FROM range(20)")

    with pytest.raises(WrongKeyType, match=message):
        publish_kv(df, chain, key="id", shards=1, key_types={"id": kind}, on_duplicate="last")

    assert chain.load_current() is None


def test_an_expression_that_leads_outside_is_refused_with_a_sample(spark: SparkSession, chain: Chain) -> None:
    """K3: rows whose routing names no shard are refused; nothing wraps around in silence."""
    with pytest.raises(BadRows, match=r"the routing gives shard -?\d+ of 4 for row \{'id': -?\d+") as caught:
        publish_kv(spark.range(-2, 6), chain, key="id", shards=4, route="id")

    assert "shard -" in str(caught.value) or "shard 4" in str(caught.value) or "shard 5" in str(caught.value)
    assert chain.load_current() is None


def test_a_mended_dataframe_is_published_after_a_refusal(spark: SparkSession, chain: Chain) -> None:
    """K7: a refused build leaves nothing in the way of the next."""
    df = spark.sql("SELECT IF(id = 3, NULL, id) AS id FROM range(10)")
    with pytest.raises(BadRows):
        publish_kv(df, chain, key="id", shards=2)

    publish_kv(df.where("id IS NOT NULL"), chain, key="id", shards=2)

    assert reader_of(chain).get(4, None) == {}
    assert table_of(chain).num_rows == 9
