"""Builds over Spark Connect, run by `test_connect`: there is no JVM in this process, only a server that it talks to."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import orjson
from pyspark.sql import SparkSession

from holdfast.chain import Chain, chain_on, kv_layout
from holdfast.errors import HoldfastError
from holdfast.spark import BuildProgress, publish_kv
from holdfast.storage import LocalStore
from tests.spark import faults
from tests.spark.reading import reader_of, table_of


def refused(spark: SparkSession, chain: Chain, sql: str, **options: Any) -> str:
    try:
        publish_kv(spark.sql(sql), chain, key="id", **{"shards": 2, **options})
    except HoldfastError as error:
        return f"{type(error).__name__}: {error}"
    return "published"


def main(scratch: Path) -> dict[str, Any]:
    settings = {
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.local.dir": str(scratch / "local"),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
    }
    builder = SparkSession.builder.remote("local[2]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    chain = chain_on(LocalStore(scratch / "store", durable=False), kv_layout())
    told: list[BuildProgress] = []
    df = spark.range(0, 9_000, 1, 3).selectExpr("id % 3000 AS id", "id AS v", "array(id) AS l")
    published = publish_kv(df, chain, key="id", shards=5, on_duplicate="last", progress=told.append)
    found: dict[str, Any] = {
        "session": type(spark).__module__,
        "rows": table_of(chain).num_rows,
        "sample": reader_of(chain).get(7, None),
        "dropped": published.dropped_rows,
        "told": [(one.shards_done, one.rows) for one in told],
        "derived": len(publish_kv(spark.range(1_000), chain, key="id", rows_per_shard=300).dataset.shards),
        "composite": len(
            publish_kv(
                df.selectExpr("CAST(v AS STRING) AS a", "v"), chain, key=["a", "v"], shards=8, route="length(a) % 8"
            ).dataset.shards
        ),
        "empty": publish_kv(spark.sql("SELECT 1L AS id WHERE false"), chain, key="id", shards=3).dataset.row_count,
        "nulls": refused(spark, chain, "SELECT IF(id = 3, NULL, id) AS id FROM range(9)"),
        "outside": refused(spark, chain, "SELECT id FROM range(9)", route="id"),
        "source": refused(spark, chain, "SELECT 1L div (id - 3) AS id FROM range(9)"),
    }
    failing = chain_on(faults.FailingStore(scratch / "store", faults.unavailable_at_shard_1), kv_layout())
    found["store"] = refused(spark, failing, "SELECT id FROM range(9)")
    found["breaks"] = [str(one) for one in chain.verify()]
    spark.stop()
    return found


if __name__ == "__main__":
    result = main(Path(sys.argv[1]))
    sys.stdout.write("\n" + orjson.dumps(result).decode() + "\n")
