"""Data sets announce themselves: from their own log, once, whoever does it."""

from __future__ import annotations

import pyarrow as pa
import pytest

from holdfast.catalog.announce import announce, announce_all, tell_moves
from holdfast.catalog.lineage import downstream
from holdfast.catalog.search import refresh_search, search
from holdfast.catalog.sql import query
from holdfast.catalog.workspace import Workspace
from holdfast.errors import NotAChain
from holdfast.graph import GraphStore, Node
from holdfast.kv import publish_arrow
from holdfast.storage.memory import MemoryStore


@pytest.fixture
def workspace() -> Workspace:
    made = Workspace(root=MemoryStore(), tenant="acme", name="prod")
    made.initialize()
    return made


def build(workspace: Workspace, name: str, rows: int, *inputs: str) -> None:
    chain = workspace.dataset(name, "kv")
    table = pa.table({"id": range(rows), "label": [f"n{number}" for number in range(rows)]})
    pins = [workspace.dataset(one).pin() for one in inputs]
    publish_arrow(chain, table, key="id", shards=2, inputs=pins, why=f"{name} with {rows} rows")


def test_publishes_and_rollbacks_are_told_with_run_inputs_and_columns(workspace: Workspace) -> None:
    """C16, C28: the catalog knows what is visible, everything that was published, and what it was built from."""
    build(workspace, "raw", 10)
    build(workspace, "clean", 8, "raw")
    build(workspace, "clean", 9, "raw")
    for name in ("raw", "clean"):
        announce(workspace, name)
    visible = query(workspace, "SELECT dataset, manifest_id, row_count, move FROM system.datasets").to_pylist()
    assert visible == [
        {"dataset": "clean", "manifest_id": 1, "row_count": 9, "move": "published"},
        {"dataset": "raw", "manifest_id": 0, "row_count": 10, "move": "published"},
    ]
    assert query(workspace, "SELECT count(*) AS n FROM system.dataset_snapshots").to_pylist() == [{"n": 3}]
    edges = downstream(workspace, "raw").to_pylist()
    assert [(edge["target"], edge["source_snapshot"], edge["target_snapshot"]) for edge in edges] == [
        ("clean", "0", "0"), ("clean", "0", "1")
    ]  # fmt: skip
    workspace.dataset("clean").rollback(why="too many rows")
    announce(workspace, "clean")
    moved = query(workspace, "SELECT manifest_id, row_count, move, why FROM system.datasets WHERE dataset = 'clean'")
    assert moved.to_pylist() == [{"manifest_id": 0, "row_count": 8, "move": "rolled back", "why": "too many rows"}]
    refresh_search(workspace)
    assert search(workspace, "label", kind="dataset")[0].name in {"raw", "clean"}


def test_announcing_again_says_nothing_new_and_anybody_can_catch_up(workspace: Workspace) -> None:
    """C13, C28: events are named by commits, so a writer that died before it could tell is told by the next."""
    build(workspace, "raw", 3)
    first = tell_moves(workspace, "raw")
    again = tell_moves(workspace, "raw")
    assert [receipt.event_id for receipt in first] == [receipt.event_id for receipt in again]
    graph = GraphStore.create(workspace.dataset("code", "graph").store)
    graph.commit(nodes=[Node(semantic_id="a", type="T"), Node(semantic_id="b", type="T")])
    done = announce_all(workspace)
    assert sorted(done) == ["code", "raw"]
    found = query(workspace, "SELECT dataset, kind, row_count FROM system.datasets").to_pylist()
    assert found == [
        {"dataset": "code", "kind": "graph", "row_count": 2}, {"dataset": "raw", "kind": "kv", "row_count": 3}
    ]  # fmt: skip
    assert all(one is not None and not one.published for one in announce_all(workspace).values())
    with pytest.raises(NotAChain):
        announce(workspace, "nothing")
