"""Graphs built from two DataFrames: what is published, and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from pyspark.sql import DataFrame, SparkSession

from holdfast.chain import InputPin
from holdfast.errors import BadInput, BadRows, BuildFailed, HoldfastError, LockHeld, SnapshotNotFound
from holdfast.graph.records import Edge, Node
from holdfast.graph.store import GraphStore
from holdfast.spark import BuildProgress
from holdfast.spark.graph import publish_graph
from holdfast.storage import LocalStore, MemoryStore
from tests.spark.graphs import (
    ODD_TEXTS,
    contents,
    edges_frame,
    graphs,
    node,
    nodes_frame,
    table_of_edges,
    table_of_nodes,
)

NODES = "SELECT 'n' || id AS semantic_id, 'T' || id % 3 AS type, 'f' || id % 5 AS file FROM range(3000)"
EDGES = "SELECT 'n' || id AS source, 'n' || (id * 7) % 3000 AS target, 'CALLS' AS type FROM range(3000)"


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[GraphStore]:
    """A graph that is whole in the end, not synced to disk: no test here cuts the power."""
    store = GraphStore.create(LocalStore(tmp_path / "graph", durable=False))
    yield store
    assert store.chain.verify() == []


def in_memory() -> GraphStore:
    return GraphStore.create(MemoryStore())


def test_two_dataframes_become_the_next_version(spark: SparkSession, graph: GraphStore) -> None:
    """G25: sorted segments made in executors, with zone maps, that replace all that was there."""
    graph.commit(nodes=[Node(semantic_id="old", type="T")])
    told: list[BuildProgress] = []
    pin = InputPin(chain="file:///raw", manifest_id=7, manifest_hash="sha256:" + "0" * 64, ref="7")

    published = publish_graph(
        spark.sql(NODES), spark.sql(EDGES), graph, segments=3,
        tags={"day": "1"}, inputs=[pin], why="nightly", progress=told.append,
    )  # fmt: skip

    assert (published.version, published.nodes, published.edges) == (3, 3_000, 3_000)
    assert (published.node_segments, published.edge_segments, published.dropped_rows) == (3, 3, 0)
    state = graph.state()
    assert (state.stats.total_nodes, state.stats.total_edges) == (3_000, 3_000)
    assert published.written_bytes == sum(segment.byte_size for segment in state.segments)
    assert not any(segment.hidden_count or segment.tombstone_count for segment in state.segments)
    for before, after in zip(state.nodes, state.nodes[1:], strict=False):
        assert before.zone_map.max_id < after.zone_map.min_id
    for segment in state.nodes:
        assert segment.zone_map.node_types == frozenset({"T0", "T1", "T2"})
        assert segment.zone_map.may_contain(file_path="f1")
        assert not segment.zone_map.may_contain(edge_type="CALLS")
    manifest = graph.load_manifest()
    assert (manifest.tags, manifest.inputs) == ({"day": "1"}, (pin,))
    assert told[-1] == BuildProgress(
        shards_done=6, shards=6, rows=6_000, bytes=published.written_bytes, seconds_left=0.0
    )

    snapshot = graph.snapshot()
    assert snapshot.outgoing("n5").table.to_pylist() == [
        {"source": "n5", "target": "n35", "type": "CALLS", "file": "f0", "metadata": None}
    ]
    assert snapshot.nodes(file="f1", type="T1").table.num_rows == 200
    assert graph.direct().node("n2999") is not None
    assert graph.snapshot(2).nodes().ids() == ["old"]


def test_segments_are_parquet_files_that_spark_reads_as_they_are(
    spark: SparkSession, graph: GraphStore, tmp_path: Path
) -> None:
    """G7, G25: `spark.read.parquet` on a segment gives its rows, in the order of their ids' bytes."""
    publish_graph(nodes_frame(spark, [node(text) for text in ODD_TEXTS]), edges_frame(spark, []), graph)

    (segment,) = graph.state().segments
    read = spark.read.parquet(str(tmp_path / "graph" / segment.path))

    assert [row.semantic_id for row in read.collect()] == sorted(ODD_TEXTS, key=str.encode)
    assert read.columns[-1] == "tombstone"


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(made=graphs())
def test_a_build_on_spark_gives_what_a_commit_of_the_same_tables_gives(
    spark: SparkSession, graph: GraphStore, made: tuple[list[dict[str, str | None]], list[dict[str, str | None]]]
) -> None:
    """G6, G23, G25: the same answers, or the same kind of error; ids are any text."""
    nodes, edges = made
    local = in_memory()
    expected: type[HoldfastError] | None = None
    try:
        local.commit(nodes=table_of_nodes(nodes), edges=table_of_edges(edges))
    except HoldfastError as error:
        expected = type(error)
    before = graph.current()

    if expected is not None:
        with pytest.raises(expected):
            publish_graph(nodes_frame(spark, nodes), edges_frame(spark, edges), graph, segments=3)
        assert graph.current() == before
        return
    published = publish_graph(nodes_frame(spark, nodes), edges_frame(spark, edges), graph, segments=3)

    assert contents(graph) == contents(local)
    assert (published.nodes, published.edges) == (local.state().stats.total_nodes, local.state().stats.total_edges)
    assert published.dropped_rows == len(nodes) + len(edges) - published.nodes - published.edges
    some = str(nodes[0]["semantic_id"])
    assert graph.snapshot().reachable([some]) == local.snapshot().reachable([some])


def test_a_place_without_a_graph_gets_one(spark: SparkSession, tmp_path: Path) -> None:
    """G25: the first build creates the graph; a call that cannot be right does not."""
    place = str(tmp_path / "new")
    with pytest.raises(BadInput):
        publish_graph(spark.range(3), spark.sql(EDGES), place)
    with pytest.raises(SnapshotNotFound):
        GraphStore.open(place)

    published = publish_graph(spark.sql(NODES), spark.sql(EDGES), f"file://{place}", rows_per_segment=1_500)

    assert (published.version, published.node_segments, published.edge_segments) == (2, 2, 2)
    assert GraphStore.open(place).snapshot().node_count == 3_000


def test_nothing_at_all_is_a_graph_too(spark: SparkSession, graph: GraphStore) -> None:
    """G25: empty DataFrames empty the graph."""
    graph.commit(nodes=[Node(semantic_id="old", type="T")])

    published = publish_graph(spark.sql(f"{NODES} LIMIT 0"), spark.sql(f"{EDGES} LIMIT 0"), graph)

    assert (published.version, published.nodes, published.node_segments, published.written_bytes) == (3, 0, 0, 0)
    assert (graph.snapshot().node_count, graph.state().segments) == (0, ())


def test_an_edge_without_a_file_belongs_to_its_sources(spark: SparkSession, graph: GraphStore) -> None:
    """G25: also where the file is null, and where the node is there twice; an edge with a file keeps it."""
    nodes = spark.sql("SELECT 'a' AS semantic_id, 'T' AS type, 'a.py' AS file UNION ALL SELECT 'a', 'T', 'a.py'")
    edges = spark.sql(
        "SELECT 'a' AS source, 'a' AS target, 'X' AS type, NULL AS file UNION ALL SELECT 'a', 'a', 'Y', 'b.py'"
        " UNION ALL SELECT 'ghost', 'a', 'Z', ''"
    )

    published = publish_graph(nodes, edges, graph, dangling="keep")

    assert {one.type: one.file for one in graph.snapshot().edges()} == {"X": "a.py", "Y": "b.py", "Z": ""}
    assert (published.edges, published.dropped_rows) == (3, 1)
    assert graph.snapshot().dangling == ["ghost"]


def test_collations_do_not_make_two_ids_one(spark: SparkSession, graph: GraphStore) -> None:
    """G6, G25: a column that compares without case is stored, sorted and joined by its bytes."""
    nodes = spark.sql(
        "SELECT id COLLATE UTF8_LCASE AS semantic_id, 'T' AS type FROM VALUES ('B'), ('a'), ('b') AS t (id)".replace(
            "t (id)", "t(id)"
        )
    )
    edges = spark.sql("SELECT 'A' COLLATE UTF8_LCASE AS source, 'a' AS target, 'X' AS type")

    publish_graph(nodes, edges.limit(0), graph)
    assert graph.snapshot().nodes().ids() == ["B", "a", "b"]

    with pytest.raises(BadRows, match="'A' -X-> 'a'"):
        publish_graph(nodes, edges, graph)


OK_NODES, OK_EDGES = "SELECT 'a' AS semantic_id, 'T' AS type", "SELECT 'a' AS source, 'a' AS target, 'X' AS type"


@pytest.mark.parametrize(
    "nodes, edges, message",
    [
        ("SELECT 'a' AS type", OK_EDGES, r"nodes need a column 'semantic_id'; there are type"),
        (OK_NODES, "SELECT 'a' AS source, 'a' AS type", r"edges need a column 'target'; there are source, type"),
        (f"{OK_NODES}, 'x' AS colour", OK_EDGES, r"nodes have no column 'colour'; the columns are semantic_id, type"),
        (f"{OK_NODES}, 'U' AS type", OK_EDGES, r"nodes have two columns 'type'"),
        ("SELECT 1L AS semantic_id, 'T' AS type", OK_EDGES, r"'semantic_id' of nodes should be text, not bigint: cast"),
        (f"{OK_NODES}, X'00' AS name", OK_EDGES, r"'name' of nodes should be text, not binary"),
        (f"{OK_NODES}, map('a', 1) AS metadata", OK_EDGES, r"not map<string,int>: to_json\(metadata\) makes it so"),
    ],
)
def test_wrong_columns_are_refused_before_any_job(
    spark: SparkSession, graph: GraphStore, nodes: str, edges: str, message: str
) -> None:
    """G25: one line says which column, and what to do."""
    with pytest.raises(BadInput, match=message):
        publish_graph(spark.sql(nodes), spark.sql(edges), graph)
    assert graph.current() == 1


@pytest.mark.parametrize(
    "nodes, edges, message",
    [
        ("SELECT nullif('', '') AS semantic_id, 'T' AS type FROM range(3)", OK_EDGES, "3 nodes have no 'semantic_id'"),
        ("SELECT 'a' AS semantic_id, NULL AS type", OK_EDGES, "1 nodes have no 'type'"),
        ("SELECT '' AS semantic_id, 'T' AS type FROM range(2)", OK_EDGES, "2 nodes have an empty 'semantic_id'"),
        (OK_NODES, "SELECT 'a' AS source, '' AS target, 'X' AS type", "1 edges have an empty 'target'"),
        (OK_NODES, "SELECT NULL AS source, 'a' AS target, 'X' AS type", "1 edges have no 'source'"),
        (f"{OK_NODES}, CAST(X'FF' AS STRING) AS name", OK_EDGES, "1 nodes have a 'name' that is no UTF-8"),
        (
            "SELECT 'n' || id % 2 AS semantic_id, 'T' AS type, 'x' || id AS name FROM range(4)", OK_EDGES,
            "2 nodes have the id of another with different contents, such as 'n0', 'n1'",
        ),
        (
            OK_NODES,
            "SELECT 'a' AS source, 'a' AS target, 'X' AS type, '{\"n\":' || id || '}' AS metadata FROM range(2)",
            "1 edges are there twice with different contents, such as 'a' -X-> 'a'",
        ),
        (
            OK_NODES,
            "SELECT 'a' AS source, 'b' || id AS target, 'X' AS type FROM range(7) UNION ALL SELECT 'c', 'a', 'Y'",
            "8 edges have an end that is not there: 'a' -X-> 'b0', 'a' -X-> 'b1', .*'b4'; add the nodes",
        ),
    ],
)  # fmt: skip
def test_bad_rows_are_counted_named_and_refused(
    spark: SparkSession, graph: GraphStore, nodes: str, edges: str, message: str
) -> None:
    """G6, G23, G25: nothing is published."""
    edges = edges if edges != OK_EDGES else f"{OK_EDGES} LIMIT 0"
    with pytest.raises(BadRows, match=f"^nothing was published: {message}") as caught:
        publish_graph(spark.sql(nodes), spark.sql(edges), graph, segments=2)
    assert "\n" not in str(caught.value)
    assert graph.current() == 1


Call = Callable[[DataFrame, DataFrame, GraphStore], object]


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda n, e, g: publish_graph(n, e, g, dangling="drop"), "use refuse or keep"),
        (lambda n, e, g: publish_graph(n, e, g, segments=0), "segments is 0: at least 1"),
        (
            lambda n, e, g: publish_graph(n, e, g, segments=2, rows_per_segment=5),
            "one of rows_per_segment and segments",
        ),
        (lambda n, e, g: publish_graph(n, e, in_memory()), "cannot reach memory://"),
        (lambda n, e, g: publish_graph(n, e, "memory://there"), "cannot reach memory://"),
        (
            lambda n, e, g: publish_graph(n.sparkSession.readStream.format("rate").load(), e, g),
            "streaming DataFrame has no end",
        ),
    ],
)
def test_wrong_calls_are_refused(spark: SparkSession, graph: GraphStore, call: Call, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        call(spark.sql(NODES), spark.sql(EDGES), graph)


def test_two_builds_at_once_do_not_meet(spark: SparkSession, graph: GraphStore) -> None:
    """G18: the second is told that the lock is held, before Spark does anything."""
    with graph.chain.lock(operation="another build"), pytest.raises(LockHeld):
        publish_graph(spark.sql(NODES), spark.sql(EDGES), graph)


def test_a_source_that_fails_is_told_in_one_line(spark: SparkSession, graph: GraphStore) -> None:
    """G25: as Spark's SQL said it; nothing stays cached."""
    failing = spark.sql("SELECT string(1 div (id - 5)) AS semantic_id, 'T' AS type FROM range(9)")
    with pytest.raises(BuildFailed, match="DIVIDE_BY_ZERO") as caught:
        publish_graph(failing, spark.sql(EDGES), graph)
    assert "\n" not in str(caught.value)
    assert spark.sparkContext._jsc.getPersistentRDDs().size() == 0
    assert graph.current() == 1


def test_the_source_is_read_once(spark: SparkSession, graph: GraphStore) -> None:
    """G25: counting, joining, choosing ranges and writing share one reading."""
    counter = spark.sparkContext.accumulator(0)

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            counter.add(batch.num_rows)
            yield batch

    nodes, edges = spark.sql(NODES), spark.sql(EDGES)
    publish_graph(
        nodes.mapInArrow(read, nodes.schema), edges.mapInArrow(read, edges.schema), graph, rows_per_segment=1_000
    )

    assert counter.value == 6_000
    assert spark.sparkContext._jsc.getPersistentRDDs().size() == 0


def test_a_source_that_says_something_else_the_second_time_is_refused(
    spark: SparkSession, graph: GraphStore, tmp_path: Path
) -> None:
    """G25: a cache can be lost; what is written then must still be what was checked."""
    count = tmp_path / "count"
    count.write_text("10")

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            ids = [f"n{number}" for number in range(int(count.read_text()))]
            yield pa.record_batch({"semantic_id": ids, "type": ["T"] * len(ids)})

    def lose(at: BuildProgress) -> None:
        count.write_text("11")
        spark.catalog.clearCache()

    nodes = spark.range(1).coalesce(1).mapInArrow(read, "semantic_id string, type string")
    with pytest.raises(BuildFailed, match="10 rows of nodes when they were checked and 11 when they were written"):
        publish_graph(nodes, spark.sql(f"{EDGES} LIMIT 0"), graph, progress=lose)
    assert graph.current() == 1


def test_rows_that_are_all_the_same_are_one_and_progress_comes_to_its_end(
    spark: SparkSession, graph: GraphStore
) -> None:
    """G25: where there are fewer keys than ranges were asked for, there are fewer segments."""
    told: list[BuildProgress] = []
    nodes = spark.sql("SELECT 'a' AS semantic_id, 'T' AS type FROM range(50)")

    published = publish_graph(nodes, spark.sql(f"{EDGES} LIMIT 0"), graph, segments=5, progress=told.append)

    assert (published.nodes, published.node_segments, published.dropped_rows) == (1, 1, 49)
    assert (told[-1].shards_done, told[-1].shards, told[-1].seconds_left) == (5, 5, 0.0)


def test_writers_go_on_after_a_build(spark: SparkSession, graph: GraphStore) -> None:
    """G15, G25: what Spark built is a version like any other: files are replaced, versions rolled back."""
    publish_graph(spark.sql(NODES), spark.sql(EDGES), graph, segments=2)

    graph.replace_files(["f1"], nodes=[Node(semantic_id="n1", type="T", file="f1")], edges=[], dangling="keep")
    assert graph.snapshot().nodes(file="f1").ids() == ["n1"]
    graph.commit(edges=[Edge(source="n1", target="n2", type="USES")])
    assert [one.file for one in graph.snapshot().edges(type="USES")] == ["f1"]

    publish_graph(spark.sql(NODES), spark.sql(EDGES), graph, segments=2)
    assert graph.snapshot().nodes(file="f1").table.num_rows == 600
    assert (graph.snapshot(2).edge_count, graph.snapshot(4).nodes(file="f1").ids()) == (3_000, ["n1"])
