"""Differences record by record: what came, left and changed between any two versions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from holdfast.errors import SnapshotNotFound
from holdfast.graph.changes import Counts
from holdfast.graph.compaction import compact
from holdfast.graph.records import Edge, Node
from holdfast.graph.store import GraphStore
from holdfast.graph.version_diff import Change, diff
from holdfast.storage import LocalStore
from holdfast.testing.faulty import CountingStore

MAIN = Node(semantic_id="main", type="FUNCTION", file="app.py", name="main", metadata={"line": 1})
HELP = Node(semantic_id="help", type="FUNCTION", file="lib.py")
PARSE = Node(semantic_id="parse", type="CLASS", file="lib.py")
CALL = Edge(source="main", target="help", type="CALLS", file="app.py")
NONE = Counts()


@pytest.fixture
def place(tmp_path: Path) -> CountingStore:
    return CountingStore(LocalStore(tmp_path / "graph", durable=False))


@pytest.fixture(params=["as a whole", "where they lie"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """However the records of a version are looked up."""
    monkeypatch.setattr("holdfast.graph.version_diff.WHOLE_SHARE", 10**9 if request.param == "as a whole" else 1e-9)


@pytest.fixture
def graph(place: CountingStore) -> Iterator[GraphStore]:
    """Version 2 has two functions and a call; 3 replaces a file; 4 moves a node and changes an edge."""
    store = GraphStore.create(place)
    store.commit(nodes=[MAIN, HELP], edges=[CALL])
    store.replace_files(["lib.py"], nodes=[PARSE], dangling="keep")
    moved = Node(semantic_id="main", type="METHOD", file="new.py", name="main", metadata={"line": 2})
    store.commit(
        nodes=[moved],
        edges=[Edge(source="main", target="help", type="CALLS", file="app.py", metadata={"n": 1})],
        dangling="keep",
    )
    yield store
    assert store.chain.verify() == []


def test_what_came_left_and_changed_is_told_by_file_and_type(graph: GraphStore) -> None:
    """G20: counts by kind, file and type; records as Python objects and as tables."""
    found = diff(graph, 2, 4)
    assert (found.source, found.target) == (2, 4)
    assert dict(found.report) == {
        ("nodes", "lib.py", "CLASS"): Counts(added=1),
        ("nodes", "lib.py", "FUNCTION"): Counts(removed=1),
        ("nodes", "new.py", "METHOD"): Counts(changed=1),
        ("edges", "app.py", "CALLS"): Counts(changed=1),
    }
    assert list(found.added_nodes) == [PARSE]
    assert list(found.removed_nodes) == [HELP]
    (moved,) = found.changed_nodes
    assert (moved.before, moved.after.type, moved.after.metadata) == (MAIN, "METHOD", {"line": 2})
    (changed,) = found.changed_edges
    assert changed == Change(
        before=CALL, after=Edge(source="main", target="help", type="CALLS", file="app.py", metadata={"n": 1})
    )
    assert found.changed_nodes.table.column_names == ["before", "after"]
    assert pa.types.is_struct(found.changed_nodes.table.schema.field("after").type)
    assert found.changed_nodes.to_dicts()[0]["before"]["metadata"] == {"line": 1}
    assert found.changed_edges.to_dicts()[0]["before"]["metadata"] is None
    assert found.totals() == {"nodes": Counts(added=1, removed=1, changed=1), "edges": Counts(changed=1)}


def test_a_difference_is_that_of_the_commits_in_between_and_turns_around(graph: GraphStore) -> None:
    """G20, G15: what a commit reported is what the difference says; backwards, what came has left."""
    result = graph.commit(nodes=[HELP], remove_nodes=["parse"])
    assert dict(diff(graph, 4, result.version).report) == dict(result.changes.report)
    there, back = diff(graph, 2, 5), diff(graph, 5, 2)
    assert list(there.added_nodes) == list(back.removed_nodes)
    assert list(there.removed_edges) == list(back.added_edges)
    assert [(one.before, one.after) for one in there.changed_nodes] == [
        (one.after, one.before) for one in back.changed_nodes
    ]
    assert dict(diff(graph, 1, 5).report) == {
        ("nodes", "lib.py", "FUNCTION"): Counts(added=1),
        ("nodes", "new.py", "METHOD"): Counts(added=1),
        ("edges", "app.py", "CALLS"): Counts(added=1),
    }


def test_a_compaction_does_not_show(graph: GraphStore) -> None:
    """G20: across a compaction, and across one and a commit."""
    before = diff(graph, 2, 4)
    compact(graph, all=True)
    assert not diff(graph, 4, 5)
    assert dict(diff(graph, 2, 5).report) == dict(before.report)
    graph.commit(nodes=[HELP])
    assert dict(diff(graph, 4, 6).report) == {("nodes", "lib.py", "FUNCTION"): Counts(added=1)}
    assert dict(diff(graph, 4, None).report) == dict(diff(graph, 5, 6).report)


def test_versions_of_two_branches_are_compared(graph: GraphStore) -> None:
    """G20: after a rollback the new line and the old one have what each has by itself."""
    graph.chain.rollback(ref="2")
    graph.commit(nodes=[PARSE, Node(semantic_id="else", type="CLASS", file="else.py")])
    found = diff(graph, 4, 5)
    assert [node.semantic_id for node in found.added_nodes] == ["else", "help"]
    assert [change.after for change in found.changed_nodes] == [MAIN]
    assert not diff(graph, 4, 4)


def test_a_record_that_was_there_all_along_and_written_again_is_no_difference(graph: GraphStore) -> None:
    """G20: what left and came back just so is the same."""
    graph.commit(remove_nodes=["parse"])
    graph.commit(nodes=[PARSE])
    assert not diff(graph, 4, 6)
    assert diff(graph, 4, 6).totals() == {"nodes": NONE, "edges": NONE}


def test_segments_that_both_have_are_not_looked_through(
    graph: GraphStore, place: CountingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G20: what is read are the segments that only one version has, and those that may hold their ids."""
    for number in range(30):
        graph.commit(nodes=[Node(semantic_id=f"z{number:02}", type="T")])
    monkeypatch.setattr("holdfast.graph.version_diff.WHOLE_SHARE", 8)
    place.reset()
    found = diff(graph, 33, 34)
    assert [node.semantic_id for node in found.added_nodes] == ["z29"]
    (new,) = set(graph.state(34).nodes) - set(graph.state(33).nodes)
    assert {operation.key for operation in place.log if operation.key.endswith(".seg")} == {new.path}


def test_what_differs_is_in_order(graph: GraphStore) -> None:
    """G20, G24: nodes by their ids; edges by source, type and target, those that changed as those that came."""
    ends = ["z", "main", "a", "parse"]
    keys = [(source, kind, target) for source in ends for kind in ("F", "E") for target in ends]
    for line in (1, 2):
        graph.commit(
            nodes=[Node(semantic_id=id_, type="T", metadata={"line": line}) for id_ in ends],
            edges=[Edge(source=s, target=t, type=k, file="f", metadata={"line": line}) for s, k, t in keys],
        )
    came, changed = diff(graph, 4, 5), diff(graph, 5, 6)
    assert [node.semantic_id for node in came.added_nodes] == ["a", "z"]
    assert [change.after.semantic_id for change in changed.changed_nodes] == sorted(ends)
    assert [(edge.source, edge.type, edge.target) for edge in came.added_edges] == sorted(keys)
    pairs = [(change.before, change.after) for change in changed.changed_edges]
    assert [(after.source, after.type, after.target) for _, after in pairs] == sorted(keys)
    assert [(before.source, before.type, before.target) for before, _ in pairs] == sorted(keys)
    assert {(*before.metadata.values(), *after.metadata.values()) for before, after in pairs} == {(1, 2)}


def test_a_version_that_is_not_there_is_said_so(graph: GraphStore) -> None:
    """G20: bad input."""
    with pytest.raises(SnapshotNotFound):
        diff(graph, 2, 99)
