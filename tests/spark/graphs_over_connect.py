"""Graphs over Spark Connect, run by `test_graph_clusters`: no JVM in this process, only a server that it talks to."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import orjson
from pyspark.sql import SparkSession

from holdfast.errors import HoldfastError
from holdfast.graph.records import Node
from holdfast.graph.store import GraphStore
from holdfast.spark import BuildProgress
from holdfast.spark.graph import compact_graph, publish_graph, read_graph
from holdfast.storage import LocalStore
from tests.spark.graphs import collected, contents

NODES = "SELECT 'n' || id AS semantic_id, 'T' AS type, 'f' || id % 5 AS file FROM range(900)"
EDGES = "SELECT 'n' || id AS source, 'n' || (id * 7) % 900 AS target, 'CALLS' AS type FROM range(900)"
NO_EDGES = f"{EDGES} LIMIT 0"


def refused(spark: SparkSession, store: GraphStore, nodes: str, edges: str) -> str:
    try:
        publish_graph(spark.sql(nodes), spark.sql(edges), store)
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
    store = GraphStore.create(LocalStore(scratch / "plain", durable=False))
    told: list[BuildProgress] = []
    published = publish_graph(spark.sql(NODES), spark.sql(EDGES), store, segments=2, progress=told.append)
    found: dict[str, Any] = {
        "session": type(spark).__module__,
        "counts": [published.nodes, published.edges, published.node_segments, published.edge_segments],
        "told": [(one.shards_done, one.rows) for one in told],
        "dangling": refused(spark, store, f"{NODES} LIMIT 1", "SELECT 'n0' AS source, 'x' AS target, 'T' AS type"),
        "twice": refused(
            spark, store, "SELECT 'a' AS semantic_id, string(id) AS type FROM range(2)", f"{EDGES} LIMIT 0"
        ),
        "source": refused(spark, store, "SELECT string(1 div id) AS semantic_id, 'T' AS type FROM range(2)", EDGES),
    }
    store.commit(nodes=[Node(semantic_id="n1", type="changed")], remove_nodes=["n2"], dangling="keep")
    before = contents(store)
    found["read"] = collected(*read_graph(spark, store)) == before
    odd = GraphStore.create(LocalStore(scratch / "a[b]", durable=False))
    odd.commit(nodes=[Node(semantic_id="a", type="T")])
    found["fetched"] = collected(*read_graph(spark, odd)) == contents(odd)
    found["answer"] = store.snapshot().nodes(type="changed").to_spark(spark).collect()[0].semantic_id
    found["compacted"] = compact_graph(spark, store).version
    found["same"] = contents(GraphStore.open(LocalStore(scratch / "plain", durable=False))) == before
    found["breaks"] = [str(one) for one in store.chain.verify()]
    spark.stop()
    return found


if __name__ == "__main__":
    result = main(Path(sys.argv[1]))
    sys.stdout.write("\n" + orjson.dumps(result).decode() + "\n")
