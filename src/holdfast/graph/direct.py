"""A version of a graph that is asked where it lies: each query reads the segments that may hold its answer (G4, G7).

Nothing is loaded beforehand, so the first answer costs a few requests and not the graph. Zone maps choose segments, the
directory and the index inside a segment choose row groups. For walks, what they can reach is read level by level and
then walked in memory by the same code as a whole version, so the answers are the same, in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.errors import BadInput, NotFound
from holdfast.graph.answers import Answer, Reached, node_answer
from holdfast.graph.arrays import one_piece
from holdfast.graph.loading import load_arrays
from holdfast.graph.records import Edge, Node, edge_schema
from holdfast.graph.segments_view import SegmentsView, filter_records
from holdfast.graph.snapshot import GraphSnapshot, Texts, as_list
from holdfast.graph.state import GraphState
from holdfast.storage.objects import ObjectStore

__all__ = ["DirectGraph"]


class DirectGraph:
    """One version. Any number of threads may ask."""

    def __init__(self, store: ObjectStore, state: GraphState) -> None:
        self._state = state
        self.view = SegmentsView(store, state)

    @property
    def version(self) -> int:
        return self._state.version

    @property
    def node_count(self) -> int:
        return self._state.stats.total_nodes

    @property
    def edge_count(self) -> int:
        return self._state.stats.total_edges

    # -- queries ------------------------------------------------------------------------------------------------------

    def node(self, id: str | bytes) -> Node:  # noqa: A002 - it is what everybody calls it
        """One node, by its semantic id or by its 128-bit id; NotFound if it is not there."""
        found = self.view.nodes_by_id(
            pa.array([id] if isinstance(id, str) else self.view.ids_with_hash(id), pa.string())
        )
        if not len(found):
            raise NotFound(f"no node {id!r} at version {self.version}")
        return node_answer(lambda: found).one()

    def nodes(
        self,
        *,
        type: Texts = None,  # noqa: A002
        name: str | None = None,
        file: Texts = None,
        metadata: Mapping[str, object] | None = None,
        ids: Sequence[str] | pa.Array | None = None,
    ) -> Answer[Node]:
        """The nodes that fit all that is given."""
        types, files, wanted = as_list(type), as_list(file), metadata or {}
        if ids is not None:
            found = self.view.nodes_by_id(ids if isinstance(ids, pa.Array) else pa.array(list(ids), pa.string()))
        elif files:
            found = self.view.nodes_by_file(pa.array(files, pa.string()))
        elif name is not None or wanted:
            found = self.view.nodes_by_id(self.view.ids_that_fit(types, name, wanted))
        else:
            found = self.view.nodes_by_type(types)
        return node_answer(lambda: filter_records(found, types, files, name, wanted))

    def edges(
        self,
        *,
        type: Texts = None,  # noqa: A002
        source: str | None = None,
        target: str | None = None,
        file: Texts = None,
        metadata: Mapping[str, object] | None = None,
    ) -> Answer[Edge]:
        """The edges that fit all that is given."""
        types, files = as_list(type), as_list(file)
        if source is not None:
            found = self.view.edges_by_source(pa.array([source]))
        elif target is not None:
            found = self.view.edges_by_target(pa.array([target]))
        elif files:
            found = self.view.edges_by_file(pa.array(files, pa.string()))
        else:
            found = self.view.edges_by_type(types)
        found = filter_records(found, types, files, None, metadata or {})
        if target is not None:
            found = found.filter(pc.equal(found.column("target"), target))
        return self._around(found).edges()

    def count_by_type(self, kind: str = "nodes") -> dict[str, int]:
        """How many nodes, or edges, there are of each type, by name."""
        return self.view.count_by_type(kind)

    def outgoing(self, id: str, types: Texts = None) -> Answer[Edge]:  # noqa: A002
        """The edges that start at a node."""
        return self._region([id], 1, types, "out").outgoing(id, types)

    def incoming(self, id: str, types: Texts = None) -> Answer[Edge]:  # noqa: A002
        """The edges that end at a node, by type, then source."""
        return self._region([id], 1, types, "in").incoming(id, types)

    def neighbors(self, id: str, types: Texts = None, *, direction: str = "out") -> list[str]:  # noqa: A002
        """The ids of the nodes that an edge leads to, or comes from, each once, in order."""
        return self._region([id], 1, types, direction).neighbors(id, types, direction=direction)

    def breadth_first(
        self,
        starts: str | Sequence[str],
        *,
        depth: int | None = None,
        types: Texts = None,
        direction: str = "out",
        limit: int | None = None,
    ) -> Answer[Reached]:
        """All nodes within reach, nearest first."""
        region = self._region(as_list(starts), depth, types, direction)
        return region.breadth_first(starts, depth=depth, types=types, direction=direction, limit=limit)

    def depth_first(
        self,
        starts: str | Sequence[str],
        *,
        depth: int | None = None,
        types: Texts = None,
        direction: str = "out",
        limit: int | None = None,
    ) -> Answer[Reached]:
        """The same nodes, each branch to its end before the next."""
        region = self._region(as_list(starts), depth, types, direction)
        return region.depth_first(starts, depth=depth, types=types, direction=direction, limit=limit)

    def reachable(
        self, starts: str | Sequence[str], *, depth: int | None = None, types: Texts = None, direction: str = "out"
    ) -> list[str]:
        """The ids of all nodes within reach, the starts included, in order; `direction="in"`: of all that reach one."""
        region = self._region(as_list(starts), depth, types, direction)
        return region.reachable(starts, depth=depth, types=types, direction=direction)

    def shortest_path(
        self, source: str, target: str, *, types: Texts = None, depth: int | None = None
    ) -> Answer[Edge] | None:
        """The edges of a path of the fewest edges; None where there is none. No edge at all from a node to itself."""
        region = self._region([source], depth, types, "out", until=target)
        self._known([target])
        if region.arrays.index.find(target) < 0:
            return None
        return region.shortest_path(source, target, types=types, depth=depth)

    def dependents(self, files: str | Sequence[str], *, types: Texts = None, transitive: bool = False) -> list[str]:
        """The files that have an edge into these, in order; `transitive`: and those that depend on them, and so on."""
        return self._files_next_to(self.view.edges_by_target, "source", files, types, transitive)

    def dependencies(self, files: str | Sequence[str], *, types: Texts = None, transitive: bool = False) -> list[str]:
        """The files that these have an edge into."""
        return self._files_next_to(self.view.edges_by_source, "target", files, types, transitive)

    # -- what a query may have to do with -----------------------------------------------------------------------------

    def _region(
        self, starts: Sequence[str], depth: int | None, types: Texts, direction: str, until: str | None = None
    ) -> GraphSnapshot:
        """All that a walk can meet, level by level, as a small graph in memory."""
        kinds = as_list(types)
        asks = {"out": [(self.view.edges_by_source, "target")], "in": [(self.view.edges_by_target, "source")]}
        asks["both"] = asks["out"] + asks["in"]
        if direction not in asks:
            raise BadInput(f"direction {direction!r}: use {', '.join(asks)}")
        edges, seen = [edge_schema().empty_table()], pa.array(sorted(set(starts)), pa.string())
        frontier, level = seen, 0
        while len(frontier) and (depth is None or level < depth) and not _has(frontier, until):
            ends = []
            for ask, end in asks[direction]:
                found = filter_records(ask(frontier), kinds, [], None, {})
                edges.append(found)
                ends.append(one_piece(found.column(end)))
            reached = pc.unique(pa.concat_arrays(ends))
            frontier = reached.filter(pc.invert(pc.is_in(reached, value_set=seen)))
            seen = pa.concat_arrays([seen, frontier])
            level += 1
        region = self._around(pa.concat_tables(edges), seen)
        unknown = [start for start in starts if region.arrays.index.find(start) < 0]
        if unknown:  # no node, and no edge of the region names it: perhaps an end that other edges name
            ends_there = self._known(unknown)
            region = self._around(pa.concat_tables([*edges, ends_there]), seen)
        return region

    def _known(self, ids: Sequence[str]) -> pa.Table:
        """The edges that name ids without a node; NotFound for one that nothing names."""
        wanted = pa.array(list(ids), pa.string())
        there = set(self.view.nodes_by_id(wanted).column("semantic_id").to_pylist())
        left = [text for text in ids if text not in there]
        if not left:
            return edge_schema().empty_table()
        asked = pa.array(left, pa.string())
        naming = pa.concat_tables([self.view.edges_by_target(asked), self.view.edges_by_source(asked)])
        named = {text for name in ("source", "target") for text in naming.column(name).to_pylist()}
        for text in left:
            if text not in named:
                raise NotFound(f"no node {text!r} at version {self.version}")
        return naming

    def _around(self, edges: pa.Table, more: pa.Array | None = None) -> GraphSnapshot:
        """These edges and their ends as a graph of their own."""
        ends = [one_piece(edges.column(name)).cast(pa.string()) for name in ("source", "target")]
        ids = pc.unique(pa.concat_arrays([*ends, pa.array([], pa.string()) if more is None else more]))
        nodes, named = (_with_tombstones(table) for table in (self.view.nodes_by_id(ids), edges))
        again = named.slice(0, 0)  # two segments: an edge that was found in two ways is one edge
        return GraphSnapshot(load_arrays([nodes], [named, again], version=self.version))

    def _files_next_to(
        self,
        ask: Callable[[pa.Array], pa.Table],
        end: str,
        files: str | Sequence[str],
        types: Texts,
        transitive: bool,
    ) -> list[str]:
        given, kinds = as_list(files), as_list(types)
        nodes = self.view.nodes_by_file(pa.array(given, pa.string()))
        missing = sorted(set(given) - set(pc.unique(nodes.column("file")).to_pylist()))
        if missing:
            raise NotFound(f"no file {missing[0]!r} at version {self.version}")
        seen, found = set(given), set[str]()
        while len(nodes):
            edges = filter_records(ask(one_piece(nodes.column("semantic_id"))), kinds, [], None, {})
            ends = self.view.nodes_by_id(pc.unique(one_piece(edges.column(end))))
            new = set(pc.unique(ends.column("file")).to_pylist()) - seen
            found |= new
            seen |= new
            nodes = (
                self.view.nodes_by_file(pa.array(sorted(new), pa.string())) if transitive and new else nodes.slice(0, 0)
            )
        return sorted(found)


def _has(ids: pa.Array, wanted: str | None) -> bool:
    return wanted is not None and pc.index(ids, wanted).as_py() >= 0


def _with_tombstones(table: pa.Table) -> pa.Table:
    none = pa.array(np.zeros(len(table), np.bool_))
    return table.append_column(pa.field("tombstone", pa.bool_(), nullable=False), none)
