"""A graph data set: versions, changes by file, tombstones, dangling edges, and what a manifest must add up to."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from holdfast.errors import (
    AlreadyExists,
    BadInput,
    BadRows,
    Conflict,
    CorruptRecord,
    CorruptShard,
    LockHeld,
    NotFound,
    SnapshotNotFound,
)
from holdfast.graph.changes import Counts
from holdfast.graph.records import Edge, Node, node_id, node_ids
from holdfast.graph.store import GraphStore
from holdfast.storage.url import open_store
from holdfast.testing.faulty import CountingStore


def function(name: str, file: str = "app.py", **more: str) -> Node:
    return Node(semantic_id=f"{file}->{name}", type="FUNCTION", name=name, file=file, **more)  # type: ignore[arg-type]


def call(source: str, target: str) -> Edge:
    return Edge(source=source, target=target, type="CALLS")


MAIN, HELP, PARSE = function("main"), function("help", "lib.py"), function("parse", "lib.py")
CALLS = [call("app.py->main", "lib.py->help"), call("lib.py->help", "lib.py->parse")]


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[GraphStore]:
    store = GraphStore.create(str(tmp_path / "graph"))
    yield store
    assert store.chain.verify() == []


@pytest.fixture
def loaded(graph: GraphStore) -> GraphStore:
    graph.commit(nodes=[MAIN, HELP, PARSE], edges=CALLS)
    return graph


def test_a_graph_begins_empty_at_version_one_and_is_not_made_twice(graph: GraphStore, tmp_path: Path) -> None:
    """G8: create writes the empty first version, and refuses a place that holds a graph."""
    assert (graph.current(), graph.snapshot().node_count) == (1, 0)
    with pytest.raises(AlreadyExists):
        GraphStore.create(str(tmp_path / "graph"))
    with pytest.raises(SnapshotNotFound):
        GraphStore.open(str(tmp_path / "nothing"))


def test_a_graph_in_memory_works_by_the_same_code() -> None:
    """G8, G12: ephemeral graphs, each its own; collection has nothing to do there."""
    store, other = GraphStore.ephemeral(), GraphStore.ephemeral()
    store.commit(nodes=[MAIN])
    store.commit(nodes=[HELP])
    assert store.snapshot().nodes().ids() == ["app.py->main", "lib.py->help"]
    assert other.snapshot().node_count == 0
    assert store.gc_collect(1).is_empty
    assert store.gc_purge(grace_s=0).deleted == ()
    assert store.gc_restore("any") is None
    assert store.snapshot(2).node_count == 1


def test_what_was_committed_is_there_at_its_version_and_the_manifest_is_as_promised(
    loaded: GraphStore, tmp_path: Path
) -> None:
    """G2, G3, G5, G14: version, time, parent, segments with their kind and zone map, and stats that add up."""
    before = loaded.snapshot()
    loaded.commit(nodes=[function("late")])
    assert (before.node_count, loaded.snapshot().node_count, loaded.snapshot(2).node_count) == (3, 4, 3)
    manifest = json.loads((tmp_path / "graph/manifests/000002.json").read_text())
    assert (manifest["version"], manifest["parent_version"]) == (2, 1)
    assert manifest["created_at"] > 0
    assert manifest["stats"] == {
        "total_nodes": 3, "total_edges": 2, "node_segment_count": 1, "edge_segment_count": 1
    }  # fmt: skip
    (segment,) = manifest["node_segments"]
    assert (segment["kind"], segment["record_count"]) == ("nodes", 3)
    assert segment["zone_map"] == {
        "node_types": ["FUNCTION"], "file_paths": ["app.py", "lib.py"],
        "min_id": "app.py->main", "max_id": "lib.py->parse",
    }  # fmt: skip
    assert segment["file_path"] == f"segments/seg_{segment['segment_id']:06}_nodes.seg"


def test_a_segment_is_a_parquet_file_that_anything_reads(loaded: GraphStore, tmp_path: Path) -> None:
    """G7: pyarrow reads a segment as it is."""
    descriptor = loaded.state().nodes[0]
    table = pq.read_table(tmp_path / "graph" / descriptor.path)
    assert table.column("name").to_pylist() == ["main", "help", "parse"]


def test_committing_what_is_there_already_makes_no_version(loaded: GraphStore) -> None:
    """G15: no change, no new version."""
    again = loaded.commit(nodes=[MAIN], edges=CALLS)
    assert (again.committed, again.version, loaded.current()) == (False, 2, 2)


def test_replacing_a_file_removes_what_left_and_tells_what_changed(loaded: GraphStore) -> None:
    """G15, G16: tombstones for what left, segments for what came; later versions and a new reader honour them."""
    result = loaded.replace_files(
        ["lib.py"], nodes=[function("help", "lib.py", content_hash="2"), function("scan", "lib.py")],
        edges=[call("lib.py->help", "lib.py->scan")],
    )  # fmt: skip
    assert dict(result.changes.report) == {
        ("nodes", "lib.py", "FUNCTION"): Counts(added=1, removed=1, changed=1),
        ("edges", "lib.py", "CALLS"): Counts(added=1, removed=1),
    }
    for store in (loaded, GraphStore.open(loaded.chain.store)):
        now = store.snapshot()
        assert now.nodes().ids() == ["app.py->main", "lib.py->help", "lib.py->scan"]
        assert now.node("lib.py->help").content_hash == "2"
        assert sorted(edge.target for edge in now.edges()) == ["lib.py->help", "lib.py->scan"]
        assert store.state().stats.total_nodes == now.node_count
        assert store.state().stats.total_edges == now.edge_count
    assert loaded.snapshot(2).node_count == 3


def test_a_record_that_moves_leaves_a_tombstone_where_its_zone_map_shows(loaded: GraphStore) -> None:
    """G4, G16: a query by the old type or file opens the segment that hides the record."""
    loaded.commit(nodes=[Node(semantic_id="lib.py->parse", type="METHOD", name="parse", file="new.py")])
    newest = loaded.state().nodes[-1].zone_map
    assert newest.may_contain(node_type="FUNCTION", file_path="lib.py")
    assert newest.may_contain(node_type="METHOD", file_path="new.py")
    assert not newest.may_contain(node_type="CLASS")
    assert not newest.may_contain(edge_type="CALLS")
    assert loaded.snapshot().count_by_type() == {"FUNCTION": 2, "METHOD": 1}


def test_an_edge_to_nowhere_is_named_and_refused_or_kept_if_asked(loaded: GraphStore) -> None:
    """G23: never silently dropped."""
    with pytest.raises(BadRows, match=r"'app.py->main' -CALLS-> 'gone'"):
        loaded.commit(edges=[call("app.py->main", "gone")])
    with pytest.raises(BadRows, match=r"'app.py->main' -CALLS-> 'lib.py->help'"):
        loaded.replace_files(["lib.py"])
    assert loaded.current() == 2
    loaded.commit(edges=[call("app.py->main", "gone")], dangling="keep")
    assert loaded.snapshot().dangling == ["gone"]


def test_nodes_and_edges_are_removed_by_name(loaded: GraphStore) -> None:
    """G16: a removed node takes the edges that start at it along; what is not there cannot be removed."""
    with pytest.raises(BadInput, match="not there: 'nobody'"):
        loaded.commit(remove_nodes=["nobody"])
    loaded.commit(remove_edges=[CALLS[0]])
    loaded.commit(remove_nodes=["lib.py->help"])
    assert loaded.snapshot().nodes().ids() == ["app.py->main", "lib.py->parse"]
    assert loaded.snapshot().edge_count == 0


def test_the_same_id_with_different_contents_is_refused(graph: GraphStore) -> None:
    """G6: in one commit an id, or an edge's key, has one meaning."""
    with pytest.raises(BadRows, match=r"'app.py->main'"):
        graph.commit(nodes=[MAIN, function("main", content_hash="other")])
    twice = Edge(source="app.py->main", target="app.py->main", type="CALLS", metadata={"line": 1})
    with pytest.raises(BadRows, match="with different contents"):
        graph.commit(nodes=[MAIN], edges=[twice, Edge(source="app.py->main", target="app.py->main", type="CALLS")])
    assert graph.commit(nodes=[MAIN, MAIN], edges=[twice, twice]).version == 2


def test_ids_are_any_text_and_the_128_bits_come_from_it(graph: GraphStore) -> None:
    """G6: separators, emptiness inside, other scripts; the id of one node is that of the column."""
    odd = ["a\x00b", "→ naïve", "'; drop", "x" * 500, "\n"]
    graph.commit(
        nodes=[Node(semantic_id=text, type="T") for text in odd],
        edges=[Edge(source=a, target=b, type="T") for a in odd for b in odd],
    )
    assert graph.snapshot().edge_count == len(odd) ** 2
    assert node_ids(pa.array(odd)).to_pylist() == [node_id(text) for text in odd]


def test_a_writer_that_was_overtaken_is_told_and_overwrites_nothing(loaded: GraphStore) -> None:
    """G18: a conflict is reported."""
    base, state = loaded.load_manifest(), loaded.state()
    GraphStore.open(loaded.chain.store).commit(nodes=[function("other")])
    with pytest.raises(Conflict):
        loaded.replace_segments(base, state.nodes, [], why="too late")
    assert loaded.snapshot().node_count == 4


def test_a_flipped_byte_or_a_missing_segment_is_found_before_it_is_served(loaded: GraphStore, tmp_path: Path) -> None:
    """G7: the checksum of a segment is compared before any record of it is."""
    path = tmp_path / "graph" / loaded.state().nodes[0].path
    good = path.read_bytes()
    path.write_bytes(good[:40] + bytes([good[40] ^ 1]) + good[41:])
    with pytest.raises(CorruptShard, match="its checksum is"):
        GraphStore.open(loaded.chain.store).snapshot()
    path.unlink()
    with pytest.raises(CorruptShard, match="missing"):
        GraphStore.open(loaded.chain.store).snapshot()
    path.write_bytes(good)


def test_stats_that_do_not_add_up_are_refused(loaded: GraphStore) -> None:
    """G5: checked on every load."""
    manifest = loaded.load_manifest()
    wrong = {**manifest.payload, "stats": {**manifest.payload["stats"], "total_nodes": 7}}  # type: ignore[dict-item]
    object.__setattr__(manifest, "payload", wrong)
    with pytest.raises(CorruptRecord, match="are not the sum of its segments"):
        loaded._state_of(manifest)


def test_many_commits_share_parts_and_every_version_stays_whole(graph: GraphStore) -> None:
    """G10, G19: segment ids are never used twice, and old segments move into parts without a change of any answer."""
    for number in range(70):
        graph.commit(nodes=[Node(semantic_id=f"n{number:03}", type="T")])
    state = graph.state()
    used = [segment.segment_id for segment in state.segments]
    assert len(set(used)) == len(used) == 70
    assert [artifact.kind for artifact in graph.load_manifest().artifacts].count("parts") == 1
    assert (graph.snapshot(36).node_count, graph.snapshot().node_count) == (35, 70)


def test_tags_find_versions_and_rollback_takes_one_back(loaded: GraphStore) -> None:
    """G11, G21: a version by tag; after a rollback the next commit builds on what is visible."""
    loaded.tag_snapshot(2, {"release": "one"})
    loaded.commit(nodes=[function("late")])
    assert loaded.find_snapshot("release", "one").manifest_id == 2
    assert loaded.snapshot(tag=("release", "one")).node_count == 3
    loaded.chain.rollback()
    loaded.commit(nodes=[function("instead")])
    assert loaded.snapshot().nodes().ids() == ["app.py->instead", "app.py->main", "lib.py->help", "lib.py->parse"]
    assert loaded.current() == 4


def test_nodes_are_selected_by_type_name_file_and_metadata(graph: GraphStore) -> None:
    """G21: filters are combined; `prefix:*` asks for all types that begin so; an empty list of types is all."""
    graph.commit(
        nodes=[
            Node(semantic_id="1", type="http:get", name="a", file="x", metadata={"line": 4}),
            Node(semantic_id="2", type="http:put", name="a", file="y", metadata={"line": 40}),
            Node(semantic_id="3", type="httpd", name="b", file="x", metadata={"line": "4"}),
        ]
    )
    now = graph.snapshot()

    def found(**filters: object) -> list[str]:
        return now.nodes(**filters).ids()  # type: ignore[arg-type]

    assert found(type="http:*") == ["1", "2"]
    assert found(type="http:*", file="x") == ["1"]
    assert found(name="a", type=["http:put", "httpd"]) == ["2"]
    assert found(metadata={"line": 4}) == ["1"]
    assert found(metadata={"line": "4"}) == ["3"]
    assert found(type=[]) == ["1", "2", "3"]
    assert found(type="nothing") == []


def test_edges_are_walked_both_ways(loaded: GraphStore) -> None:
    """G22: outgoing and incoming, by number and by name."""
    now = loaded.snapshot()
    assert now.neighbors("lib.py->help") == ["lib.py->parse"]
    assert now.neighbors("lib.py->help", direction="in") == ["app.py->main"]
    assert now.neighbors("lib.py->help", direction="both") == ["app.py->main", "lib.py->parse"]
    assert now.neighbors("lib.py->help", ["CALLS"]) == now.neighbors("lib.py->help", []) == ["lib.py->parse"]
    assert now.neighbors("lib.py->help", "NO SUCH TYPE") == []
    assert [edge.source for edge in now.incoming("lib.py->help")] == ["app.py->main"]
    assert [edge.target for edge in now.outgoing("lib.py->help")] == ["lib.py->parse"]
    with pytest.raises(NotFound, match="'nobody'"):
        now.neighbors("nobody")
    with pytest.raises(BadInput, match="use out, in, both"):
        now.neighbors("lib.py->help", direction="up")


@pytest.mark.parametrize("text", ["line 3", "[3]", "3", "null", "", "{", '{"a": 1}, {"b": 2}', '{"a": 1}],[{"b": 2}'])
def test_metadata_that_is_no_json_object_is_refused(graph: GraphStore, text: str) -> None:
    """G6: whoever asks for an attribute later can rely on it; also when it stands among thousands that are good."""
    good = [f'{{"line": {number}}}' for number in range(30_000)]
    texts = pa.array([None, *good, text], pa.string())
    ids = [str(number) for number in range(len(texts))]
    with pytest.raises(BadRows, match="should be a JSON object"):
        graph.commit(nodes=pa.table({"semantic_id": ids, "type": ["T"] * len(ids), "metadata": texts}))
    assert graph.current() == 1


def test_a_writer_that_stays_holds_the_lock_for_a_series_of_commits(loaded: GraphStore) -> None:
    """G9, G18: others are told who holds it, and each commit is a version of its own."""
    other = GraphStore.open(loaded.chain.store, by="other")
    with loaded.writing("watching files"):
        for name in "ab":
            loaded.commit(nodes=[function(name)])
        with pytest.raises(LockHeld, match="watching files"):
            other.commit(nodes=[function("c")])
        loaded.chain.rollback()
        assert loaded.commit(nodes=[function("d")]).version == 5
    other.commit(nodes=[function("c")])
    assert [node.name for node in loaded.snapshot().nodes(file="app.py")] == ["a", "c", "d", "main"]


def test_versions_are_listed_again_by_two_conditional_reads_and_never_stale(tmp_path: Path) -> None:
    """G11: what a store object knows is checked against the pointer and the tags, whoever moved them."""
    counting = CountingStore(open_store(str(tmp_path / "graph")))
    store = GraphStore.create(counting)
    other = GraphStore.open(str(tmp_path / "graph"), by="other")

    def agreed() -> list[int]:
        found = store.list_snapshots()
        assert found == store.chain.list_snapshots() == other.list_snapshots()
        assert store.list_snapshots("release") == store.chain.list_snapshots("release")
        return [one.snapshot.manifest_id for one in found]

    assert agreed() == [1]
    other.commit(nodes=[MAIN])
    assert agreed() == [1, 2]
    with pytest.raises(SnapshotNotFound, match="release=one"):
        store.find_snapshot("release", "one")
    other.tag_snapshot(1, {"release": "one"})
    assert store.find_snapshot("release", "one").manifest_id == 1
    other.tag_snapshot(2, {"release": "one"})
    assert store.find_snapshot("release", "one") == store.chain.find_snapshot("release", "one")
    assert store.find_snapshot("release", "one").manifest_id == 2
    other.tag_snapshot(2, {"release": None})
    assert store.find_snapshot("release", "one").manifest_id == 1
    other.chain.rollback()
    other.commit(nodes=[HELP])
    assert agreed() == [1, 2, 3]
    counting.reset()
    assert len(store.list_snapshots()) == 3
    assert store.find_snapshot("release", "one").manifest_id == 1
    assert counting.counts == {"get_if_changed": 4}
