"""Graphs on executors that are other processes, run by `test_graph_clusters`: with what goes wrong on a cluster."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import orjson
from pyspark.sql import SparkSession

from holdfast.errors import HoldfastError
from holdfast.graph.records import Node
from holdfast.graph.store import GraphStore
from holdfast.spark import local_spark
from holdfast.spark.graph import compact_graph, publish_graph, read_graph
from holdfast.storage import LocalStore, ObjectStore, open_store
from tests.spark import faults
from tests.spark.graph_faults import MeetingStore
from tests.spark.graphs import collected, contents

WORKER_BYTES = 640 << 20
"""The address space that a Python worker may have. Its libraries alone take most of it."""
METADATA_BYTES = 2_000
LARGE_ROWS = 400_000
ROWS = 2_000
NODES = f"SELECT 'n' || id AS semantic_id, 'T' AS type, 'f' || id % 5 AS file FROM range({ROWS})"
EDGES = f"SELECT 'n' || id AS source, 'n' || (id * 7) % {ROWS} AS target, 'CALLS' AS type FROM range({ROWS})"


def build(spark: SparkSession, store: ObjectStore, *, is_new: bool = True) -> dict[str, Any]:
    """Publish on top of what is there, and say what came out of it."""
    graph = GraphStore.create(store) if is_new else GraphStore.open(store)
    found: dict[str, Any] = {"error": None}
    try:
        publish_graph(spark.sql(NODES), spark.sql(EDGES), graph, segments=3)
    except HoldfastError as error:
        found["error"] = f"{type(error).__name__}: {error}"
    snapshot = graph.snapshot()
    found["counts"] = [snapshot.node_count, snapshot.edge_count]
    found["breaks"] = [str(one) for one in graph.chain.verify()]
    found["named"] = [segment.path.rpartition("/")[2] for segment in graph.state().segments]
    found["files"] = [info.key.rpartition("/")[2] for page in store.list("segments") for info in page]
    return found


def in_a_bucket(spark: SparkSession, url: str) -> dict[str, Any]:
    """A whole life in a bucket that only the store can reach: Spark has no file system for it."""
    store = open_store(url)
    found = build(spark, store)
    graph = GraphStore.open(store)
    graph.commit(nodes=[Node(semantic_id="n1", type="changed")], remove_nodes=["n2"], dangling="keep")
    before = contents(graph)
    found["read"] = collected(*read_graph(spark, url)) == before
    compact_graph(spark, url)
    found["compacted"] = contents(GraphStore.open(store)) == before
    found["breaks"] += [str(one) for one in graph.chain.verify()]
    return found


def large(spark: SparkSession, place: Path) -> dict[str, Any]:
    """One segment, of which the rows are more than a worker may have memory."""
    graph = GraphStore.create(LocalStore(place, durable=False))
    metadata = f"'{{\"x\":\"' || repeat(hex(xxhash64(id)), {METADATA_BYTES // 16}) || '\"}}'"
    nodes = spark.sql(f"SELECT 'n' || id AS semantic_id, 'T' AS type, {metadata} AS metadata FROM range({LARGE_ROWS})")
    published = publish_graph(nodes, spark.sql(f"{EDGES} LIMIT 0"), graph, segments=1)
    return {
        "rows": graph.state().nodes[0].record_count,
        "bytes": LARGE_ROWS * METADATA_BYTES,
        "limit": WORKER_BYTES,
        "peak": published.peak_worker_bytes,
        "segments": published.node_segments,
        "breaks": [str(one) for one in graph.chain.verify()],
    }


def main(scratch: Path, master: str, bucket: str) -> dict[str, Any]:
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
    found: dict[str, Any] = {"bucket": in_a_bucket(spark, f"{bucket}/graph")}
    found["speculation"] = build(spark, MeetingStore(scratch / "speculation", durable=False))
    found["killed once"] = build(spark, faults.FailingStore(scratch / "killed", faults.kill_executor_once))
    always = faults.FailingStore(scratch / "killed", faults.kill_executor_always)
    found["killed always"] = build(spark, always, is_new=False)
    found["large"] = large(spark, scratch / "large")
    spark.stop()
    return found


if __name__ == "__main__":
    result = main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
    sys.stdout.write("\n" + orjson.dumps(result).decode() + "\n")
