"""What Spark publishes into a workspace's folder is in its catalog when the call returns."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from holdfast.catalog.lineage import downstream
from holdfast.catalog.sql import query
from holdfast.catalog.workspace import open_workspace
from holdfast.spark import publish_graph, publish_kv


def test_builds_by_url_announce_themselves(spark: SparkSession, tmp_path: Path) -> None:
    """C16, C28: data set, kind, rows and what it was built from; nobody tells the catalog by hand."""
    root = f"file://{tmp_path}/lake"
    workspace = open_workspace(root, tenant="acme", workspace="prod")
    workspace.initialize()
    users = spark.createDataFrame([(1, "a"), (2, "b")], "id long, name string")
    publish_kv(users, f"{root}/acme/prod/datasets/users", key="id", shards=1)
    nodes = spark.createDataFrame([("a", "T"), ("b", "T")], "semantic_id string, type string")
    edges = spark.createDataFrame([("a", "b", "E")], "source string, target string, type string")
    pin = workspace.dataset("users").pin()
    publish_graph(nodes, edges, f"{root}/acme/prod/datasets/friends", inputs=[pin])
    found = query(workspace, "SELECT dataset, kind, row_count FROM system.datasets ORDER BY dataset").to_pylist()
    assert found == [
        {"dataset": "friends", "kind": "graph", "row_count": 3}, {"dataset": "users", "kind": "kv", "row_count": 2}
    ]  # fmt: skip
    assert downstream(workspace, "users").column("target").to_pylist() == ["friends"]
