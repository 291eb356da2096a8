"""From a DataFrame to a snapshot that readers without Spark look up."""

from __future__ import annotations

from pyspark.sql import SparkSession

from holdfast.chain import Chain
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
