"""A version of a graph as DataFrames, and answers as DataFrames."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from holdfast.errors import BadInput, SnapshotNotFound
from holdfast.graph.answers import Answer
from holdfast.graph.compaction import compact
from holdfast.graph.records import Edge, Node
from holdfast.graph.store import GraphStore
from holdfast.spark.failures import SPARK_ERRORS
from holdfast.spark.graph import compact_graph, publish_graph, read_graph
from holdfast.storage import LocalStore, MemoryStore
from tests.spark.graphs import collected, contents, edge, edges_frame, node, nodes_frame, table_of_edges, table_of_nodes

NODES = [Node(semantic_id=f"n{number:03}", type="T", file=f"f{number % 4}") for number in range(40)]
EDGES = [Edge(source=one.semantic_id, target=f"n{number * 7 % 40:03}", type="X") for number, one in enumerate(NODES)]


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[GraphStore]:
    store = GraphStore.create(LocalStore(tmp_path / "graph", durable=False))
    yield store
    assert store.chain.verify() == []


@pytest.fixture
def layered(graph: GraphStore) -> GraphStore:
    """Several commits: records that changed, moved, left, and came back."""
    graph.commit(nodes=NODES, edges=EDGES)
    graph.replace_files(["f1"], nodes=[Node(semantic_id="n001", type="U", file="f1")], edges=[], dangling="keep")
    graph.commit(nodes=[Node(semantic_id="n002", type="T", file="moved"), Node(semantic_id="zzz", type="T")])
    graph.commit(remove_nodes=["n003"], dangling="keep")
    graph.commit(nodes=[Node(semantic_id="n005", type="back")], edges=[Edge(source="n005", target="n002", type="X")])
    return graph


def plan_of(frame: Any) -> str:
    return str(frame._jdf.queryExecution().optimizedPlan().toString())


def test_a_version_is_two_dataframes(spark: SparkSession, layered: GraphStore) -> None:
    """G24: newest wins and tombstones hide, at the visible version, at any other, by tag and by time."""
    layered.tag_snapshot(2, {"stage": "first"})
    for version in range(1, layered.current() + 1):
        assert collected(*read_graph(spark, layered, version=version)) == contents(layered, version), version
    assert collected(*read_graph(spark, layered)) == contents(layered)
    assert collected(*read_graph(spark, layered, tag=("stage", "first"))) == contents(layered, 2)
    at = layered.find(version=3).at
    assert collected(*read_graph(spark, layered, at=at)) == contents(layered, 3)

    nodes, edges = read_graph(spark, layered)
    assert nodes.columns == ["semantic_id", "type", "name", "file", "content_hash", "metadata"]
    assert edges.columns == ["source", "target", "type", "file", "metadata"]
    assert {column.dataType.simpleString() for column in (*nodes.schema, *edges.schema)} == {"string"}
    with pytest.raises(SnapshotNotFound):
        read_graph(spark, layered, version=99)


def test_what_was_read_stays_the_version_that_it_was(spark: SparkSession, graph: GraphStore) -> None:
    """G14, G24: DataFrames are of a version, not of whatever is visible when they are used."""
    graph.commit(nodes=NODES, edges=EDGES)
    nodes, edges = read_graph(spark, graph)
    before = contents(graph)
    graph.commit(remove_nodes=["n003"], dangling="keep")

    assert collected(nodes, edges) == before
    assert nodes.join(edges, nodes.semantic_id == edges.source).count() == 40


def test_nothing_is_compared_where_nothing_can_be_hidden(spark: SparkSession, graph: GraphStore) -> None:
    """G24: no window and no shuffle over segments that share no key; only over those that may."""
    publish_graph(
        nodes_frame(spark, [node(one.semantic_id) for one in NODES]), edges_frame(spark, [edge("n000", "n001")]),
        graph, segments=4,
    )  # fmt: skip
    nodes, edges = read_graph(spark, graph)
    assert "Window" not in plan_of(nodes) + plan_of(edges)

    graph.commit(nodes=[Node(semantic_id="n000", type="changed")])
    nodes, edges = read_graph(spark, graph)
    assert "Window" in plan_of(nodes)
    assert "Window" not in plan_of(edges)
    plain, together = nodes.inputFiles(), graph.state().nodes
    assert len(plain) == len(together) == 5
    assert collected(nodes, edges) == contents(graph)


@pytest.mark.parametrize("folder", ["plain", "with space", "100%25", "a[b]*{c}", "ü"])
def test_any_folder_can_be_read(spark: SparkSession, tmp_path: Path, folder: str) -> None:
    """G24: by Spark's own reader, or by the store's where Spark would take the name for a pattern."""

    def made(name: str, type_: str) -> GraphStore:
        store = GraphStore.create(LocalStore(tmp_path / name / "graph", durable=False))
        store.commit(nodes=[replace(one, type=type_) for one in NODES], edges=EDGES)
        store.commit(remove_nodes=["n003"], dangling="keep")
        return store

    store = made(folder, "right")
    if "*" in folder:
        made("abxc", "wrong")  # what the pattern would find instead, under the same names

    nodes, edges = read_graph(spark, store)

    assert collected(nodes, edges) == contents(store)
    assert ("MapInArrow" in plan_of(nodes)) == ("*" in folder)


@pytest.mark.parametrize("folder", ["plain", "a[b]"])
@pytest.mark.parametrize("damage", ["flip", "missing"])
def test_damage_is_found_before_a_record_is_served(
    spark: SparkSession, tmp_path: Path, folder: str, damage: str
) -> None:
    """G7, G24: by the checksums of pages where Spark reads, by the file's own where the store does."""
    store = GraphStore.create(LocalStore(tmp_path / folder, durable=False))
    store.commit(nodes=NODES)
    file = tmp_path / folder / store.state().nodes[0].path
    data = bytearray(file.read_bytes())
    file.unlink()
    if damage == "flip":
        data[60] ^= 0xFF
        file.write_bytes(data)

    with pytest.raises(SPARK_ERRORS, match=r"checksum|it is missing"):
        read_graph(spark, store).nodes.collect()


def test_graphs_that_executors_cannot_reach_are_refused(spark: SparkSession) -> None:
    with pytest.raises(BadInput, match="cannot reach memory://"):
        read_graph(spark, GraphStore.create(MemoryStore()))


def test_answers_become_dataframes(spark: SparkSession, layered: GraphStore) -> None:
    """G24: nodes, edges and walks, also where nothing was found."""
    snapshot = layered.snapshot()
    answers: list[Answer[Any]] = [
        snapshot.nodes(type="T"),
        snapshot.nodes(type="none"),
        snapshot.edges(source="n005"),
        snapshot.edges(type="none"),
        snapshot.breadth_first(["n005"], depth=2),
        layered.direct().nodes(type="T"),
    ]
    for answer in answers:
        frame = answer.to_spark(spark)
        assert frame.columns == answer.table.column_names
        assert [row.asDict() for row in frame.collect()] == answer.table.to_pylist()


Step = tuple[str, list[str]]
steps = st.lists(
    st.tuples(st.sampled_from(["put", "move", "remove", "file", "edges", "compact"]),
              st.lists(st.sampled_from([f"k{number}" for number in range(8)]), min_size=1, max_size=4, unique=True)),
    min_size=2, max_size=7,
)  # fmt: skip


def take(store: GraphStore, number: int, step: Step) -> None:
    """One commit, of the kind that the step names."""
    what, names = step
    there = set(store.snapshot().nodes().ids())
    if what == "compact":
        compact(store, fan=2)
    elif what == "file":
        put = [node(name, file="g", metadata=f'{{"at":{number}}}') for name in names]
        store.replace_files(["g", ""], nodes=table_of_nodes(put), dangling="keep")
    elif what == "remove":
        store.commit(remove_nodes=[name for name in names if name in there], dangling="keep")
    elif what == "edges":
        links: Sequence[Mapping[str, str | None]] = [
            edge(one, other, metadata=f'{{"at":{number}}}') for one in names for other in names
        ]
        store.commit(edges=table_of_edges(links), dangling="keep")
    else:
        file = f"f{number}" if what == "move" else ""
        store.commit(nodes=table_of_nodes([node(name, file=file, type=f"T{number % 2}") for name in names]))


@settings(max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(life=steps)
def test_whatever_was_committed_spark_reads_and_keeps_it(spark: SparkSession, tmp_path: Path, life: list[Step]) -> None:
    """G16, G17, G24: DataFrames say what queries say, before and after a compaction on Spark, at every version."""
    place = tmp_path / f"life-{len(list(tmp_path.iterdir()))}"
    store = GraphStore.create(LocalStore(place, durable=False))
    for number, step in enumerate(life):
        take(store, number, step)
    version, before = store.current(), contents(store)
    assert collected(*read_graph(spark, store)) == before

    done = compact_graph(spark, store, segments=2)

    reopened = GraphStore.open(LocalStore(place, durable=False))
    assert contents(reopened) == before == contents(reopened, version)
    state = reopened.state()
    assert (done.version, done.nodes, done.edges) == (reopened.current(), len(before[0]), len(before[1]))
    assert not any(segment.hidden_count or segment.tombstone_count for segment in state.segments)
    assert collected(*read_graph(spark, reopened)) == before
    assert reopened.chain.verify() == []
