"""How many shards, how even they are, and how often the source is read for it."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark import Accumulator
from pyspark.sql import DataFrame, SparkSession

from holdfast.chain import Chain
from holdfast.spark import publish_kv
from tests.spark.reading import dataset_of, table_of


def counting(spark: SparkSession, rows: int) -> tuple[DataFrame, Accumulator[int]]:
    """A source that counts the rows that are read from it."""
    counter = spark.sparkContext.accumulator(0)

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            counter.add(batch.num_rows)
            yield batch

    return spark.range(rows).mapInArrow(read, "id bigint"), counter


@pytest.mark.parametrize("options", [{"shards": 4}, {"rows_per_shard": 1_000}, {"bytes_per_shard": 20_000}])
def test_the_source_is_read_once(spark: SparkSession, chain: Chain, options: dict[str, int]) -> None:
    """K26: neither routing, sorting nor counting reads the source again."""
    df, counter = counting(spark, 4_000)

    publish_kv(df, chain, key="id", **options)  # type: ignore[arg-type]

    assert counter.value == 4_000
    assert table_of(chain).num_rows == 4_000


def test_shards_are_as_large_as_asked_for(spark: SparkSession, chain: Chain) -> None:
    """K5: the number of shards follows from rows or bytes per shard."""
    df = spark.range(10_001).selectExpr("id", "repeat('v', 84) AS v", "array(id) AS l")

    assert len(publish_kv(df, chain, key="id", rows_per_shard=2_500).dataset.shards) == 5
    by_bytes = publish_kv(df, chain, key="id", bytes_per_shard=200_000).dataset
    mean = sum(shard.byte_size for shard in by_bytes.shards if shard) / len(by_bytes.shards)
    assert 100_000 < mean < 400_000
    assert len(publish_kv(df.limit(0), chain, key="id", rows_per_shard=10).dataset.shards) == 1


def test_skew_is_reported_and_warned_of(spark: SparkSession, chain: Chain, caplog: pytest.LogCaptureFixture) -> None:
    """K5: the manifest says how uneven the shards are, and a warning names the largest."""
    df = spark.range(1_000)
    with caplog.at_level(logging.WARNING, logger="holdfast.spark"):
        publish_kv(df, chain, key="id", shards=4)
        assert caplog.records == []

        publish_kv(df, chain, key="id", bounds=[10, 20, 30])

    assert "shard 3 has 970 rows, 3.9 times the mean" in caplog.text
    statistics = dataset_of(chain).statistics
    assert (statistics["skew"], statistics["largest_shard"], statistics["rows_max"]) == (3.88, 3, 970)
