"""Builds on executors that are other processes, run by `test_clusters`: with what goes wrong on a cluster."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import orjson
from pyspark.sql import SparkSession

from holdfast.catalog import Workspace
from holdfast.chain import chain_on, kv_layout, open_chain
from holdfast.errors import HoldfastError
from holdfast.pipeline import FileSource, KvDataset, Pipeline, TableDataset
from holdfast.pipeline.plan import plan
from holdfast.pipeline.runner import run_pipeline
from holdfast.spark import local_spark, publish_kv
from holdfast.spark.stage import Stage
from holdfast.storage import LocalStore, ObjectStore
from tests.spark import faults
from tests.spark.reading import table_of

WORKER_BYTES = 640 << 20
"""The address space that a Python worker may have. Its libraries alone take most of it."""


def build(spark: SparkSession, store: ObjectStore, **options: Any) -> dict[str, Any]:
    """Publish on top of what is there, and say what came out of it."""
    chain = chain_on(store, kv_layout())
    found: dict[str, Any] = {"error": None}
    try:
        published = publish_kv(spark.range(3_000), chain, key="id", **{"shards": 4, **options})
        found["writers"] = [shard and shard.writer for shard in published.dataset.shards]
        found["named"] = [shard and shard.path.rpartition("/")[2] for shard in published.dataset.shards]
    except HoldfastError as error:
        found["error"] = f"{type(error).__name__}: {error}"
    found["rows"] = 0 if chain.load_current() is None else table_of(chain).num_rows
    found["breaks"] = [str(one) for one in chain.verify()]
    found["files"] = sorted(
        name for page in store.list("") for info in page if (name := info.key.rpartition("/")[2]).startswith("shard-")
    )
    return found


def pipeline(spark: SparkSession, scratch: Path) -> dict[str, Any]:
    """A run whose executors die until it fails, and the same run once they live."""
    rows = scratch / "rows.csv"
    rows.write_text("".join(f"{number},{number % 7}\n" for number in range(1_000)), encoding="utf-8")
    planned = plan(
        Pipeline(
            name="nightly",
            sources=(FileSource(name="rows", path=str(rows), format="csv", schema="id BIGINT, n BIGINT"),),
            datasets=(
                TableDataset(name="plain", rows="rows", files=1),
                KvDataset(name="by_id", rows="rows", key=("id",), shards=4),
            ),
        )
    )
    found: dict[str, Any] = {"error": None}
    place = scratch / "pipeline"
    dying = Workspace(root=faults.FailingStore(place, faults.kill_executor_always), tenant="acme", name="prod")
    dying.initialize()
    try:
        run_pipeline(planned, dying, lambda: Stage(spark), run="r1")
    except HoldfastError as error:
        found["error"] = f"{type(error).__name__}: {error}"
    living = Workspace(root=LocalStore(place, durable=False), tenant="acme", name="prod")
    report = run_pipeline(planned, living, lambda: Stage(spark), run="r1")
    chains = [living.dataset(name) for name in ("plain", "by_id")]
    return {
        **found,
        "attempt": report.attempt,
        "states": [task.state for task in report.tasks],
        "published": [len(chain.list_manifests()) for chain in chains],
        "breaks": [str(one) for chain in chains for one in chain.verify()],
        "rows": table_of(chains[1]).num_rows,
    }


def main(scratch: Path, master: str, bucket: str | None) -> dict[str, Any]:
    settings = {
        "spark.master": master,
        "spark.local.dir": str(scratch / "local"),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.shuffle.partitions": "2",
        "spark.executor.memory": "640m",
        "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.task.maxFailures": "2",
        "spark.speculation": "true",
        "spark.speculation.interval": "200ms",
        "spark.speculation.quantile": "0.5",
        "spark.speculation.minTaskRuntime": "2s",
        "spark.executor.pyspark.memory": f"{WORKER_BYTES >> 20}m",
    }
    spark = local_spark(settings=settings)
    found: dict[str, Any] = {}
    if bucket is not None:
        place = open_chain(f"{bucket}/data", layout="kv")
        found["bucket"] = build(spark, place.store)
        found["speculation"] = build(spark, faults.MeetingStore(scratch / "speculation", durable=False))
        store = faults.FailingStore(scratch / "killed", faults.kill_executor_once)
        found["killed once"] = build(spark, store)
        found["pipeline"] = pipeline(spark, scratch)
        found["killed always"] = build(spark, faults.FailingStore(scratch / "killed", faults.kill_executor_always))
    else:
        large = spark.range(2_000_000).selectExpr("id", "repeat(hex(xxhash64(id)), 20) AS payload")
        chain = chain_on(LocalStore(scratch / "large", durable=False), kv_layout())
        published = publish_kv(large, chain, key="id", shards=1)
        shard = published.dataset.shards[0]
        assert shard is not None
        found["large"] = {
            "rows": shard.row_count,
            "bytes": shard.byte_size,
            "limit": WORKER_BYTES,
            "peak": published.dataset.statistics["peak_worker_bytes"],
            "breaks": [str(one) for one in chain.verify()],
        }
    spark.stop()
    return found


if __name__ == "__main__":
    result = main(Path(sys.argv[1]), sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else None)
    sys.stdout.write("\n" + orjson.dumps(result).decode() + "\n")
