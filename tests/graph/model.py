"""A graph as a person would keep it on paper: two dictionaries a version, and the plainest answer to every question."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from unittest.mock import patch

from holdfast.graph import version_diff as diff_module
from holdfast.graph.changes import Counts
from holdfast.graph.direct import DirectGraph
from holdfast.graph.records import Edge, Node
from holdfast.graph.snapshot import GraphSnapshot
from holdfast.graph.store import GraphStore
from holdfast.graph.version_diff import Change, GraphDiff, diff

EdgeKey = tuple[str, str, str]
"""Source, type, target: the order in which edges are answered."""
Report = dict[tuple[str, str, str], Counts]


def key_of(edge: Edge) -> EdgeKey:
    return edge.source, edge.type, edge.target


@dataclass(frozen=True)
class Paper:
    """One version."""

    nodes: Mapping[str, Node] = field(default_factory=dict)
    edges: Mapping[EdgeKey, Edge] = field(default_factory=dict)

    # -- what a writer does --------------------------------------------------------------------------------------------

    def changed(
        self,
        nodes: Iterable[Node],
        edges: Iterable[Edge],
        *,
        files: Iterable[str] = (),
        remove_nodes: Iterable[str] = (),
        remove_edges: Iterable[EdgeKey] = (),
    ) -> Paper:
        """After one commit. What is put stays, whatever else is said about it; a node that is removed takes the edges
        that start at it along; an edge without a file belongs to its source's."""
        put = {node.semantic_id: node for node in nodes}
        put_edges = {key_of(edge): _filed(edge, {**self.nodes, **put}) for edge in edges}
        gone, gone_edges, gone_files = set(remove_nodes), set(remove_edges), set(files)
        kept = {id_: node for id_, node in self.nodes.items() if id_ not in gone and node.file not in gone_files}
        kept_edges = {
            key: edge
            for key, edge in self.edges.items()
            if key not in gone_edges and edge.source not in gone and edge.file not in gone_files
        }
        return Paper({**kept, **put}, {**kept_edges, **put_edges})

    def refused(self, before: Paper, put: Iterable[Edge]) -> bool:
        """Whether this has an edge to nowhere that the change made: one that was put, or one whose end has left."""
        left = before.nodes.keys() - self.nodes.keys()
        told = {key_of(edge) for edge in put}
        return any(
            (key in told and not {edge.source, edge.target} <= self.nodes.keys()) or {edge.source, edge.target} & left
            for key, edge in self.edges.items()
        )

    # -- what a reader asks --------------------------------------------------------------------------------------------

    @property
    def dangling(self) -> list[str]:
        return sorted({end for edge in self.edges.values() for end in (edge.source, edge.target)} - self.nodes.keys())

    @property
    def ids(self) -> list[str]:
        """All that can be asked for: nodes, and ends without one."""
        return [*sorted(self.nodes), *self.dangling]

    def nodes_like(self, fits: Callable[[Node], bool]) -> list[Node]:
        return [node for _, node in sorted(self.nodes.items()) if fits(node)]

    def edges_like(self, fits: Callable[[Edge], bool]) -> list[Edge]:
        """By source, type and target; an end without a node stands behind all that have one."""
        rank = {id_: place for place, id_ in enumerate(self.ids)}
        found = sorted(self.edges.values(), key=lambda edge: (rank[edge.source], edge.type, rank[edge.target]))
        return [edge for edge in found if fits(edge)]

    def incoming(self, id_: str) -> list[Edge]:
        rank = {other: place for place, other in enumerate(self.ids)}
        found = (edge for edge in self.edges.values() if edge.target == id_)
        return sorted(found, key=lambda edge: (edge.type, rank[edge.source]))

    def neighbors(self, id_: str, types: Sequence[str], direction: str) -> list[str]:
        rank = {other: place for place, other in enumerate(self.ids)}
        ends = {
            *(e.target for e in self.edges.values() if direction != "in" and e.source == id_ and _of(e, types)),
            *(e.source for e in self.edges.values() if direction != "out" and e.target == id_ and _of(e, types)),
        }
        return sorted(ends, key=rank.__getitem__)

    def breadth_first(self, start: str, types: Sequence[str], direction: str) -> list[tuple[str, int]]:
        """Ids and depths, nearest first."""
        rank = {other: place for place, other in enumerate(self.ids)}
        found = {start: 0}
        queue = deque([start])
        while queue:
            here = queue.popleft()
            way = [e for e in self.edges.values() if (e.source if direction == "out" else e.target) == here]
            ends = [(e.type, e.target if direction == "out" else e.source) for e in way if _of(e, types)]
            for _, end in sorted(ends, key=lambda one: (one[0], rank[one[1]])):
                if end not in found:
                    found[end] = found[here] + 1
                    queue.append(end)
        return list(found.items())

    # -- what changed --------------------------------------------------------------------------------------------------

    def report_to(self, other: Paper) -> Report:
        """What `diff` counts, by kind, file and type."""
        report: Report = {}

        def count(kind: str, record: Node | Edge, what: str) -> None:
            place = (kind, record.file, record.type)
            found = report.get(place, Counts())
            report[place] = replace(found, **{what: getattr(found, what) + 1})

        kinds: list[tuple[str, Mapping[object, Node | Edge], Mapping[object, Node | Edge]]] = [
            ("nodes", dict(self.nodes.items()), dict(other.nodes.items())),
            ("edges", dict(self.edges.items()), dict(other.edges.items())),
        ]
        for kind, before, after in kinds:
            for key, record in after.items():
                if key not in before:
                    count(kind, record, "added")
                elif before[key] != record:
                    count(kind, record, "changed")
            for key, record in before.items():
                if key not in after:
                    count(kind, record, "removed")
        return report


def _filed(edge: Edge, nodes: Mapping[str, Node]) -> Edge:
    source = nodes.get(edge.source)
    return edge if edge.file or source is None else replace(edge, file=source.file)


def _of(edge: Edge, types: Sequence[str]) -> bool:
    return not types or edge.type in types


# -- the model beside the real thing -----------------------------------------------------------------------------------


def check_version(store: GraphStore, number: int, paper: Paper) -> None:
    """Every kind of question has the model's answer, and the stats add up."""
    stats = store.state(number).stats
    assert (stats.total_nodes, stats.total_edges) == (len(paper.nodes), len(paper.edges))
    graph = store.snapshot(number)
    assert graph.dangling == paper.dangling
    assert list(graph.nodes()) == paper.nodes_like(lambda _: True)
    assert list(graph.edges()) == paper.edges_like(lambda _: True)
    assert graph.count_by_type() == Counter(node.type for node in paper.nodes.values())
    assert graph.count_by_type("edges") == Counter(edge.type for edge in paper.edges.values())
    check_selection(graph, paper, "x.py", "T")
    for place, id_ in enumerate(paper.ids):
        if id_ in paper.nodes:
            assert graph.node(id_) == paper.nodes[id_]
        assert list(graph.outgoing(id_)) == paper.edges_like(lambda edge: edge.source == id_)  # noqa: B023
        assert list(graph.incoming(id_)) == paper.incoming(id_)
        types = ([], ["E"], ["E", "F"], ["none"])[place % 4]
        for direction in ("out", "in", "both"):
            assert graph.neighbors(id_, types, direction=direction) == paper.neighbors(id_, types, direction)
        direction = ("out", "in")[place % 2]
        walked = graph.breadth_first(id_, types=types, direction=direction)
        assert [(at.semantic_id, at.depth) for at in walked] == paper.breadth_first(id_, types, direction)


def check_selection(graph: GraphSnapshot | DirectGraph, paper: Paper, file: str, kind: str) -> None:
    """What has a file or a type, or is at one of the ends of an edge: what zone maps and tombstones must not get wrong
    where segments are asked as they lie."""
    assert list(graph.nodes(file=file)) == paper.nodes_like(lambda node: node.file == file)
    assert list(graph.nodes(type=kind)) == paper.nodes_like(lambda node: node.type == kind)
    found = {key_of(edge): edge for edge in graph.edges(file=file)}
    assert found == {key: edge for key, edge in paper.edges.items() if edge.file == file}
    for id_ in paper.ids[:1]:
        assert graph.neighbors(id_, direction="both") == paper.neighbors(id_, [], "both")


def check_difference(store: GraphStore, before: tuple[int, Paper], after: tuple[int, Paper]) -> None:
    """The records that differ are the model's, and so are their counts; read as a whole, and where they lie."""
    for share in (10**9, 1e-9):
        with patch.object(diff_module, "WHOLE_SHARE", share):
            _check_difference(diff(store, before[0], after[0]), before[1], after[1])


def _check_difference(found: GraphDiff, old: Paper, new: Paper) -> None:
    assert dict(found.report) == old.report_to(new)
    assert list(found.added_nodes) == [new.nodes[key] for key in sorted(new.nodes.keys() - old.nodes.keys())]
    assert list(found.removed_nodes) == [old.nodes[key] for key in sorted(old.nodes.keys() - new.nodes.keys())]
    both = [key for key in sorted(old.nodes.keys() & new.nodes.keys()) if old.nodes[key] != new.nodes[key]]
    assert list(found.changed_nodes) == [Change(before=old.nodes[key], after=new.nodes[key]) for key in both]
    assert list(found.added_edges) == [new.edges[key] for key in sorted(new.edges.keys() - old.edges.keys())]
    assert list(found.removed_edges) == [old.edges[key] for key in sorted(old.edges.keys() - new.edges.keys())]
    moved = [key for key in sorted(old.edges.keys() & new.edges.keys()) if old.edges[key] != new.edges[key]]
    assert list(found.changed_edges) == [Change(before=old.edges[key], after=new.edges[key]) for key in moved]
