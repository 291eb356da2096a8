"""Queries of a version where it lies: the same answers as in memory, and no more read than they need."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from holdfast.errors import BadInput, CorruptShard, NotFound
from holdfast.graph import segment_reader, segment_writer
from holdfast.graph.answers import Answer
from holdfast.graph.direct import DirectGraph
from holdfast.graph.records import Edge, Node
from holdfast.graph.snapshot import GraphSnapshot
from holdfast.graph.store import GraphStore
from holdfast.storage.memory import MemoryStore
from holdfast.storage.url import open_store
from holdfast.testing.faulty import CountingStore

IDS = ["a", "b", "c->1", "d", "ü", "z"]
TYPES = ["http:get", "http:put", "T"]
FILES = ["x.py", "y.py", ""]
CLASS_OR_METHOD = ("METHOD", "CLASS")
EDGE_TYPES = ["CALLS", "IMPORTS"]

node_records = st.builds(
    Node,
    semantic_id=st.sampled_from(IDS),
    type=st.sampled_from(TYPES),
    name=st.sampled_from(["n", "m"]),
    file=st.sampled_from(FILES),
    metadata=st.sampled_from([{}, {"line": 1}, {"line": 10, "text": "1"}]),
)
edge_records = st.builds(
    Edge,
    source=st.sampled_from([*IDS, "ghost"]),
    target=st.sampled_from([*IDS, "ghost", "spirit"]),
    type=st.sampled_from(EDGE_TYPES),
    file=st.sampled_from(FILES),
    metadata=st.sampled_from([{}, {"line": 1}]),
)


def unique(records: list[Any], key: Callable[[Any], object]) -> list[Any]:
    return list({key(record): record for record in records}.values())


commits = st.tuples(
    st.lists(node_records, max_size=6).map(lambda many: unique(many, lambda node: node.semantic_id)),
    st.lists(edge_records, max_size=8).map(
        lambda many: unique(many, lambda edge: (edge.source, edge.target, edge.type))
    ),
    st.lists(st.sampled_from(IDS), max_size=2, unique=True),
)


Question = tuple[str, tuple[Any, ...], dict[str, Any]]
"""A method, and what it is given."""


def questions() -> Iterator[Question]:
    for kind in ("nodes", "edges"):
        yield "count_by_type", (kind,), {}
    for type_ in (*TYPES, "http:*", "none", ["T", "http:get"], []):
        yield "nodes", (), {"type": type_}
    for filters in (
        {"name": "n"}, {"name": "n", "type": "http:*"}, {"file": "x.py"}, {"file": ["x.py", ""], "name": "m"},
        {"metadata": {"line": 1}}, {"metadata": {"text": "1"}, "file": "y.py"}, {"ids": ["a", "z", "nobody"]},
        {"ids": IDS, "type": "T"},
    ):  # fmt: skip
        yield "nodes", (), filters
    for filters in (
        {}, {"type": "CALLS"}, {"source": "a"}, {"target": "b"}, {"source": "a", "target": "b"}, {"file": "x.py"},
        {"file": "y.py", "type": ["IMPORTS"]}, {"metadata": {"line": 1}}, {"target": "spirit"}, {"source": "nobody"},
    ):  # fmt: skip
        yield "edges", (), filters
    for one in (*IDS, "ghost", "spirit", "nobody"):
        yield "node", (one,), {}
        yield "outgoing", (one,), {}
        yield "incoming", (one, ["CALLS"]), {}
        yield "neighbors", (one,), {"direction": "both"}
        yield "breadth_first", (one,), {"depth": 2}
        yield "breadth_first", ([one, "a"],), {"direction": "in", "limit": 4}
        yield "depth_first", (one,), {"types": "CALLS"}
        yield "reachable", (one,), {"direction": "in"}
        yield "shortest_path", ("a", one), {}
        yield "shortest_path", ("ghost", one), {"depth": 2, "types": "IMPORTS"}
    for file in ("x.py", "y.py", "nowhere.py"):
        for more in ({}, {"transitive": True}, {"types": ["CALLS"]}):
            yield "dependents", (file,), more
            yield "dependencies", (file,), more


def answer_of(graph: DirectGraph | GraphSnapshot, question: Question) -> object:
    """What it says, as plain data: also that there is nothing."""
    method, given_, named = question
    try:
        found = getattr(graph, method)(*given_, **named)
    except NotFound as error:
        return str(error)
    return found.to_dicts() if isinstance(found, Answer) else found


@settings(max_examples=10, phases=[Phase.explicit, Phase.reuse, Phase.generate])  # shrinking it would take minutes
@given(st.lists(commits, min_size=1, max_size=4))
def test_direct_answers_are_those_of_memory(changes: list[Any]) -> None:
    """G21, G22, G24: every query gives the same records in the same order, wherever it is answered."""
    store = GraphStore.create(MemoryStore())
    # Row groups of three rows, and no file read whole: what large segments do, with few records.
    with patch.object(segment_writer, "ROW_GROUP_ROWS", 3), patch.object(segment_reader, "WHOLE_MAX", 0):
        for nodes, edges, removed in changes:
            store.commit(nodes=nodes, edges=edges, dangling="keep")
            there = [id_ for id_ in removed if store.snapshot().nodes(ids=[id_])]
            store.commit(remove_nodes=there, dangling="keep")
        memory, direct = store.snapshot(), store.direct()
        assert (direct.node_count, direct.edge_count) == (memory.node_count, memory.edge_count)
        for question in questions():
            assert answer_of(direct, question) == answer_of(memory, question), question


@pytest.fixture
def spread(tmp_path: Path) -> Iterator[CountingStore]:
    """A graph of ten files that were committed one by one, so each has segments of its own; and a large first one."""
    store = CountingStore(open_store(str(tmp_path / "graph")))
    graph = GraphStore.create(store)
    with patch.object(segment_writer, "ROW_GROUP_ROWS", 1_000):
        names = [f"base.py->{number:05}" for number in range(20_000)]
        graph.commit(
            nodes=pa.table({"semantic_id": names, "type": ["FUNCTION"] * 20_000, "file": ["base.py"] * 20_000}),
            edges=pa.table({"source": names, "target": [*names[7:], *names[:7]], "type": ["CALLS"] * 20_000}),
        )
    for number in range(10):
        file = f"{number}.py"
        graph.commit(
            nodes=[
                Node(semantic_id=f"{file}->{i}", type="CLASS" if number == 3 else "METHOD", file=file) for i in "ab"
            ],
            edges=[Edge(source=f"{file}->a", target=f"{file}->b", type=f"E{number}")],
        )
    with patch.object(segment_reader, "WHOLE_MAX", 16_384):
        yield store
    assert graph.chain.verify() == []


def read_of(store: CountingStore, ask: Callable[[DirectGraph], object]) -> tuple[object, list[str], int]:
    """The answer, which segments were read, and by how many requests."""
    graph = GraphStore.open(store).direct()
    store.reset()
    answer = ask(graph)
    keys = sorted({operation.key for operation in store.log if operation.key.endswith(".seg")})
    return answer, keys, store.total


def test_a_query_opens_only_the_segments_that_may_contain_it(spread: CountingStore) -> None:
    """G4: by file and by type; shown by counted reads."""
    state = GraphStore.open(spread).state()
    nodes = {min(s.zone_map.file_paths or []): s.path for s in state.nodes}
    edges = {min(s.zone_map.file_paths or []): s.path for s in state.edges}
    answer, keys, requests = read_of(spread, lambda g: g.nodes(file="7.py").ids())
    assert (answer, keys, requests) == (["7.py->a", "7.py->b"], [nodes["7.py"]], 1)
    answer, keys, requests = read_of(spread, lambda g: g.nodes(type="CLASS").ids())
    assert (answer, keys, requests) == (["3.py->a", "3.py->b"], [nodes["3.py"]], 1)
    _, keys, requests = read_of(spread, lambda g: len(g.edges(type="E5")))
    assert keys == sorted([edges["5.py"], nodes["5.py"]])
    answer, keys, _ = read_of(spread, lambda g: g.nodes(type="E5").ids())
    assert (answer, keys) == ([], []), "a type of edges is no type of nodes"


def test_an_id_and_the_edges_of_a_node_are_found_without_a_scan(spread: CountingStore) -> None:
    """G7: in a segment of 20 row groups, one request finds where, one reads the row group; in both directions."""
    big = next(s for s in GraphStore.open(spread).state().nodes if s.record_count == 20_000)
    assert big.byte_size > segment_reader.WHOLE_MAX
    node, keys, requests = read_of(spread, lambda g: g.node("base.py->01234"))
    assert isinstance(node, Node)
    assert (node.file, keys, requests) == ("base.py", [big.path], 2)
    same, keys, _ = read_of(spread, lambda g: g.node(node.id))
    assert same == node
    found, keys, _ = read_of(spread, lambda g: g.view.edges_by_source(pa.array(["base.py->01234"])).num_rows)
    assert (found, len(keys)) == (1, 1)
    graph = GraphStore.open(spread).direct()
    graph.incoming("base.py->00000")  # the ends of all segments are known from now on
    spread.reset()
    assert [edge.source for edge in graph.incoming("base.py->05000")] == ["base.py->04993"]
    read = [operation for operation in spread.log if operation.key.endswith(".seg")]
    assert len([one for one in read if "edges" in one.key]) <= 3, (
        "a bucket of the index, a row group, perhaps one in vain"
    )
    assert len(read) < 8


@pytest.mark.parametrize("where", ["row group", "bucket", "directory", "footer", "end"])
def test_a_flipped_byte_in_a_part_is_found_before_it_is_served(
    spread: CountingStore, tmp_path: Path, where: str
) -> None:
    """G7: whatever range of a large segment is read, it is compared with its checksum first."""
    big = next(s for s in GraphStore.open(spread).state().edges if s.record_count == 20_000)
    file = tmp_path / "graph" / big.path
    good = file.read_bytes()
    reader = segment_reader.SegmentReader(spread, big, segment_reader.RowGroupCache())
    index = reader._opened().directory.index
    group = reader.row_groups[5]
    at = {
        "row group": group.start + group.length // 2,
        "bucket": index.starts[0] + 3,
        "directory": big.byte_size - big.tail_size + 20,
        "footer": big.byte_size - 200,
        "end": big.byte_size - 6,
    }[where]
    file.write_bytes(good[:at] + bytes([good[at] ^ 4]) + good[at + 1 :])
    graph = GraphStore.open(spread).direct()
    ids = pa.array([f"base.py->{number:05}" for number in range(20_000)])
    with pytest.raises(CorruptShard, match=r"seg_\d+_edges\.seg"):
        graph.view.edges_by_target(ids)
    file.write_bytes(good[:-100])
    with pytest.raises(CorruptShard, match="it ends after"):
        GraphStore.open(spread).direct().outgoing("base.py->00001")
    file.unlink()
    with pytest.raises(CorruptShard, match="missing"):
        GraphStore.open(spread).direct().outgoing("base.py->00001")
    file.write_bytes(good)
    assert GraphStore.open(spread).direct().neighbors("base.py->00001") == ["base.py->00008"]


def test_parquet_readers_do_not_mind_the_index(spread: CountingStore, tmp_path: Path) -> None:
    """G7: an open columnar file, whatever is between its row groups and its footer."""
    for descriptor in GraphStore.open(spread).state().segments[:2]:
        path = tmp_path / "graph" / descriptor.path
        assert pq.read_table(path, page_checksum_verification=True).num_rows == descriptor.record_count
        assert pq.ParquetFile(path).read(columns=["type"]).num_rows == descriptor.record_count


def test_answers_are_tables_and_objects(spread: CountingStore) -> None:
    """G24: the same answer as Arrow, as Python objects and as plain data."""
    graph = GraphStore.open(spread)
    for found in (graph.direct(), graph.snapshot()):
        assert isinstance(found, DirectGraph | GraphSnapshot)
        answer = found.nodes(file="3.py")
        assert answer.table.column("type").to_pylist() == ["CLASS", "CLASS"]
        assert [node.semantic_id for node in answer] == answer.ids() == ["3.py->a", "3.py->b"]
        assert answer.to_dicts()[0] == {
            "semantic_id": "3.py->a", "type": "CLASS", "name": "", "file": "3.py", "content_hash": None,
            "metadata": None,
        }  # fmt: skip
        assert found.nodes(type="none").to_dicts() == []
        with pytest.raises(NotFound, match="found nothing"):
            found.nodes(type="none").one()


def test_wrong_questions_are_told(spread: CountingStore) -> None:
    """G21: a direction, a kind or an id that cannot be."""
    graph = GraphStore.open(spread)
    for found in (graph.direct(), graph.snapshot()):
        with pytest.raises(BadInput, match="use out, in, both"):
            found.neighbors("3.py->a", direction="up")
        with pytest.raises(BadInput, match="use nodes or edges"):
            found.count_by_type("files")
        with pytest.raises(BadInput, match="16 bytes"):
            found.node(b"short")
        with pytest.raises(BadInput, match="one way"):
            found.reachable("3.py->a", direction="both")
        with pytest.raises(NotFound, match="no node"):
            found.node(b"0123456789abcdef")
