"""Compaction on Spark: fewer segments, the same answers, and nobody's commit lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from holdfast.chain import chain_on, graph_layout
from holdfast.errors import BadInput, Fenced, InvariantViolation, LockHeld, SnapshotNotFound
from holdfast.graph.publishing import GraphBuild
from holdfast.graph.records import Edge, Node
from holdfast.graph.segment_writer import encode_segment
from holdfast.graph.store import GraphStore
from holdfast.spark import BuildProgress
from holdfast.spark.graph import compact_graph
from holdfast.storage import LocalStore
from holdfast.testing.clock import VirtualClock
from tests.spark.graphs import contents


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[GraphStore]:
    """Ten commits: as many segments of each kind, some records changed, some gone."""
    store = GraphStore.create(LocalStore(tmp_path / "graph", durable=False))
    for number in range(10):
        ids = [f"n{number * 5 + step:03}" for step in range(10)]
        store.commit(
            nodes=[Node(semantic_id=one, type=f"T{number % 3}", file=f"f{number}") for one in ids],
            edges=[Edge(source=one, target=ids[0], type="X") for one in ids],
        )
    store.commit(remove_nodes=["n007", "n008"], dangling="keep")
    yield store
    assert store.chain.verify() == []


def test_segments_are_merged_and_no_answer_changes(spark: SparkSession, graph: GraphStore) -> None:
    """G16, G17: few sorted segments without tombstones, that hide nothing; older versions stay as they were."""
    before, version = contents(graph), graph.current()
    told: list[BuildProgress] = []

    done = compact_graph(spark, graph, rows_per_segment=30, why="tidy", progress=told.append)

    assert (done.committed, done.version, done.nodes, done.edges) == (True, version + 1, len(before[0]), len(before[1]))
    state = graph.state()
    assert (len(state.nodes), len(state.edges)) == (done.node_segments, done.edge_segments) == (2, -(-done.edges // 30))
    assert not any(segment.hidden_count or segment.tombstone_count for segment in state.segments)
    assert sum(segment.byte_size for segment in state.segments) == done.written_bytes
    assert contents(graph) == before == contents(graph, version)
    assert graph.find().why == "tidy"
    assert told[-1].shards_done == told[-1].shards == len(state.segments)

    again = compact_graph(spark, graph, rows_per_segment=30)
    assert (again.committed, again.version, again.written_bytes) == (False, version + 1, 0)

    graph.commit(nodes=[Node(semantic_id="n001", type="new")])
    edges = graph.state().edges
    once_more = compact_graph(spark, graph, rows_per_segment=30)
    assert (once_more.committed, graph.state().edges) == (True, edges)
    assert graph.snapshot().nodes(type="new").ids() == ["n001"]


def test_a_graph_of_which_nothing_is_left_has_no_segments(spark: SparkSession, tmp_path: Path) -> None:
    """G17: tombstones that hide nothing any more need no file."""
    store = GraphStore.create(LocalStore(tmp_path / "graph", durable=False))
    assert not compact_graph(spark, store).committed
    store.commit(nodes=[Node(semantic_id="a", type="T")])
    store.commit(remove_nodes=["a"])

    done = compact_graph(spark, store)

    assert (done.committed, done.nodes, store.state().segments) == (True, 0, ())
    assert store.chain.verify() == []


def test_a_writer_waits_or_is_told(spark: SparkSession, graph: GraphStore) -> None:
    """G18: while somebody else writes, nothing is compacted."""
    with graph.chain.lock(operation="a commit"), pytest.raises(LockHeld):
        compact_graph(spark, graph)


def test_a_commit_that_came_meanwhile_wins(
    spark: SparkSession, tmp_path: Path, graph: GraphStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G17, G18: whoever took the lock over has committed; the compaction is refused, and nothing of it is visible."""
    clock = VirtualClock(graph.chain.handle.clock.now())
    store = LocalStore(tmp_path / "graph", durable=False)
    slow = GraphStore(chain_on(store, graph_layout(), clock=clock))
    publish = GraphBuild.publish

    def overtaken(build: GraphBuild, *args: Any, **options: Any) -> Any:
        clock.advance(3_600.0)  # its lock has run out, and it does not know
        GraphStore(chain_on(store, graph_layout(), clock=clock)).commit(nodes=[Node(semantic_id="late", type="T")])
        return publish(build, *args, **options)

    monkeypatch.setattr(GraphBuild, "publish", overtaken)
    before = graph.current()
    with pytest.raises(Fenced):
        compact_graph(spark, slow)

    assert graph.current() == before + 1
    assert graph.snapshot().node("late") is not None
    assert len(graph.state().nodes) > 10


def test_segments_that_do_not_hold_what_the_manifest_says_are_not_merged(spark: SparkSession, tmp_path: Path) -> None:
    """G5, G17: what is missing is not made to look as if it had never been there."""
    store = GraphStore.create(LocalStore(tmp_path / "damaged", durable=False))
    store.commit(nodes=[Node(semantic_id=text, type="T") for text in "abc"])
    store.commit(nodes=[Node(semantic_id=text, type="T") for text in "xyz"])
    first = store.state().nodes[0]
    fewer = store.read_segments([first])[0].slice(1)
    data, _ = encode_segment("nodes", fewer, segment_id=first.segment_id, path=first.path, hidden_count=0)
    file = tmp_path / "damaged" / first.path
    file.unlink()
    file.write_bytes(data)

    with pytest.raises(InvariantViolation, match="should have 6 nodes, and 5 were found"):
        compact_graph(spark, store)
    assert store.current() == 3


def test_a_place_without_a_graph_is_said_to_be_one(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(SnapshotNotFound, match="no graph at"):
        compact_graph(spark, str(tmp_path / "nothing"))
    with pytest.raises(BadInput, match="at least 1"):
        compact_graph(spark, str(tmp_path / "nothing"), rows_per_segment=0)
