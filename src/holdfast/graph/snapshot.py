"""One version of a graph in memory, and all that can be asked of it (G14, G21-G24).

Every answer has one order, whatever segments it came from: nodes by their semantic id; edges by source, type and
target, those to an end without a node last; walks as `traverse.py` says. No types, or an empty list of them, means all.
A pattern `http:*` stands for all types that begin with `http:`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.errors import BadInput, NotFound
from holdfast.graph.adjacency import Adjacency, type_table
from holdfast.graph.answers import Answer, Reached, edge_answer, node_answer, reached_answer
from holdfast.graph.arrays import GraphArrays, one_piece
from holdfast.graph.metadata import rows_with_metadata
from holdfast.graph.quotient import quotient
from holdfast.graph.records import Edge, Node, id_hash, node_id
from holdfast.graph.traverse import Visit, breadth_first, depth_first, reachable, shortest_path

__all__ = ["DIRECTIONS", "GraphSnapshot", "as_list"]

DIRECTIONS = ("out", "in", "both")
Indices = npt.NDArray[np.int64]
Texts = str | Sequence[str] | None


class GraphSnapshot:
    """Immutable; any number of threads may ask."""

    def __init__(self, arrays: GraphArrays) -> None:
        self.arrays = arrays

    @property
    def version(self) -> int:
        return self.arrays.version

    @property
    def node_count(self) -> int:
        return self.arrays.node_count

    @property
    def edge_count(self) -> int:
        return self.arrays.edge_count

    @property
    def dangling(self) -> list[str]:
        """The ids that edges name and no node has, in order."""
        return [str(text) for text in self.arrays.ghosts.to_pylist()]

    # -- records ------------------------------------------------------------------------------------------------------

    def node(self, id: str | bytes) -> Node:  # noqa: A002 - it is what everybody calls it
        """One node, by its semantic id or by its 128-bit id; NotFound if it is not there."""
        arrays = self.arrays
        place = arrays.index.find(id) if isinstance(id, str) else self._place_of(id)
        if not 0 <= place < arrays.node_count:
            raise NotFound(f"no node {id!r} at version {self.version}")
        return node_answer(lambda: arrays.nodes.slice(place, 1)).one()

    def _place_of(self, given: bytes) -> int:
        for place in self.arrays.index.with_hash(id_hash(given)):
            if node_id(self.arrays.ids[place].as_py()) == given:
                return place
        return -1

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
        places = self._select(as_list(type), name, as_list(file), metadata or {}, ids)
        nodes = self.arrays.nodes
        return node_answer(lambda: nodes if len(places) == len(nodes) else nodes.take(pa.array(places)))

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
        arrays, kinds, files = self.arrays, as_list(type), as_list(file)
        places: Indices | None = None
        if source is not None:
            places = _common(places, self._edges_of(arrays.outgoing, source))
        if target is not None:
            places = _common(places, self._edges_of(arrays.incoming, target))
        if files:
            codes = arrays.file_codes(pa.array(files), of="edges")
            places = _common(places, arrays.edges_of_file.nodes_of(codes).astype(np.int64))
        table = type_table(arrays.type_codes(kinds))
        if table is not None:
            fits = table[arrays.outgoing.types if places is None else arrays.outgoing.types[places]]
            places = np.flatnonzero(fits) if places is None else places[fits]
        if metadata:
            places = np.arange(self.edge_count) if places is None else places
            places = places[rows_with_metadata(arrays.metadata.take(pa.array(places)), metadata)]
        chosen = places
        return edge_answer(lambda: arrays.edge_table(chosen))

    def _edges_of(self, rows: Adjacency, id: str) -> Indices:  # noqa: A002
        number = self.arrays.index.find(id)
        return rows.edges_of(number) if number >= 0 else np.empty(0, np.int64)

    def count_by_type(self, kind: str = "nodes") -> dict[str, int]:
        """How many nodes, or edges, there are of each type, by name."""
        if kind == "edges":
            counts = np.bincount(self.arrays.outgoing.types, minlength=len(self.arrays.type_names)).tolist()
            return {name: n for name, n in zip(self.arrays.type_names, counts, strict=True) if n}
        if kind != "nodes":
            raise BadInput(f"{kind!r} cannot be counted; use nodes or edges")
        types = one_piece(self.arrays.nodes.column("type"))
        counts = np.bincount(types.indices.to_numpy(zero_copy_only=False), minlength=len(types.dictionary)).tolist()
        return {str(name): n for name, n in zip(types.dictionary.to_pylist(), counts, strict=True) if n}

    def _select(
        self,
        types: Sequence[str],
        name: str | None,
        files: Sequence[str],
        metadata: Mapping[str, object],
        ids: Sequence[str] | pa.Array | None,
    ) -> Indices:
        arrays = self.arrays
        places: Indices | None = None
        if ids is not None:
            wanted = ids if isinstance(ids, pa.Array) else pa.array(list(ids), pa.string())
            found = np.unique(arrays.numbers_of(wanted))
            places = found[(found >= 0) & (found < arrays.node_count)]
        if files:
            codes = arrays.file_codes(pa.array(files), of="nodes")
            places = _common(places, arrays.nodes_of_file.nodes_of(codes).astype(np.int64))
        if types:
            fits = arrays.nodes_with_type(types)
            places = np.flatnonzero(fits) if places is None else places[fits[places]]
        if name is not None:
            names = arrays.nodes.column("name")
            same = pc.equal(names if places is None else names.take(pa.array(places)), name)
            fits = one_piece(same).to_numpy(zero_copy_only=False) if len(same) else np.zeros(0, np.bool_)
            places = np.flatnonzero(fits) if places is None else places[fits]
        if places is None:
            places = np.arange(arrays.node_count)
        if metadata:
            texts = one_piece(arrays.nodes.column("metadata").take(pa.array(places)))
            places = places[rows_with_metadata(texts, metadata)]
        return places

    # -- who is next to whom ------------------------------------------------------------------------------------------

    def outgoing(self, id: str, types: Texts = None) -> Answer[Edge]:  # noqa: A002
        """The edges that start at a node."""
        return self._edges_at(self.arrays.outgoing, id, types)

    def incoming(self, id: str, types: Texts = None) -> Answer[Edge]:  # noqa: A002
        """The edges that end at a node, by type, then source."""
        return self._edges_at(self.arrays.incoming, id, types)

    def _edges_at(self, rows: Adjacency, id: str, types: Texts) -> Answer[Edge]:  # noqa: A002
        number, codes = self.arrays.number_of(id), self.arrays.type_codes(as_list(types))
        return edge_answer(lambda: self.arrays.edge_table(rows.edges_of(number, codes)))

    def neighbors(self, id: str, types: Texts = None, *, direction: str = "out") -> list[str]:  # noqa: A002
        """The ids of the nodes that an edge leads to, or comes from, each once, in order."""
        arrays = self.arrays
        number, codes = arrays.number_of(id), arrays.type_codes(as_list(types))
        found = [rows.neighbors(number, codes) for rows in self._rows(direction)]
        numbers = found[0] if len(found) == 1 else np.union1d(*found)
        return arrays.ids.take(pa.array(numbers)).to_pylist()  # type: ignore[no-any-return]

    # -- walks --------------------------------------------------------------------------------------------------------

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
        return self._walk(breadth_first, starts, depth, types, direction, limit)

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
        return self._walk(depth_first, starts, depth, types, direction, limit)

    def reachable(
        self, starts: str | Sequence[str], *, depth: int | None = None, types: Texts = None, direction: str = "out"
    ) -> list[str]:
        """The ids of all nodes within reach, the starts included, in order; `direction="in"`: of all that reach one."""
        arrays, rows = self.arrays, self._one_way(direction)
        found = reachable(rows, self._numbers(starts), depth_max=depth, types=arrays.type_codes(as_list(types)))
        return arrays.ids_of(found).to_pylist()  # type: ignore[no-any-return]

    def shortest_path(
        self, source: str, target: str, *, types: Texts = None, depth: int | None = None
    ) -> Answer[Edge] | None:
        """The edges of a path of the fewest edges; None where there is none. No edge at all from a node to itself."""
        arrays = self.arrays
        ends, codes = (arrays.number_of(source), arrays.number_of(target)), arrays.type_codes(as_list(types))
        steps = shortest_path(arrays.outgoing, arrays.incoming, *ends, types=codes, depth_max=depth)
        if steps is None:
            return None
        places = np.array([step.edge for step in steps[1:]], np.int64)
        return edge_answer(lambda: arrays.edge_table(places))

    def dependents(self, files: str | Sequence[str], *, types: Texts = None, transitive: bool = False) -> list[str]:
        """The files that have an edge into these, in order; `transitive`: and those that depend on them, and so on."""
        return self._files_next_to(self.arrays.incoming, files, types, transitive)

    def dependencies(self, files: str | Sequence[str], *, types: Texts = None, transitive: bool = False) -> list[str]:
        """The files that these have an edge into."""
        return self._files_next_to(self.arrays.outgoing, files, types, transitive)

    def _files_next_to(self, rows: Adjacency, files: str | Sequence[str], types: Texts, transitive: bool) -> list[str]:
        arrays, given = self.arrays, as_list(files)
        known = one_piece(arrays.nodes.column("file")).dictionary
        codes = arrays.file_codes(pa.array(given, pa.string()), of="nodes")
        if len(codes) < len(set(given)):
            gone = sorted(set(given) - set(known.take(pa.array(codes)).to_pylist()))
            raise NotFound(f"no file {gone[0]!r} at version {self.version}")
        found = quotient(
            rows, arrays.nodes_of_file, codes, types=arrays.type_codes(as_list(types)), transitive=transitive
        )
        return sorted(str(text) for text in known.take(pa.array(found)).to_pylist())

    # -- small parts --------------------------------------------------------------------------------------------------

    def _rows(self, direction: str) -> list[Adjacency]:
        if direction not in DIRECTIONS:
            raise BadInput(f"direction {direction!r}: use {', '.join(DIRECTIONS)}")
        ways = [] if direction == "in" else [self.arrays.outgoing]
        return ways if direction == "out" else [*ways, self.arrays.incoming]

    def _one_way(self, direction: str) -> Adjacency:
        if direction == "both":
            raise BadInput("a walk goes one way: use out or in")
        return self._rows(direction)[0]

    def _numbers(self, starts: str | Sequence[str]) -> list[int]:
        return [self.arrays.number_of(start) for start in as_list(starts)]

    def _walk(
        self,
        walk: Callable[..., Visit],
        starts: str | Sequence[str],
        depth: int | None,
        types: Texts,
        direction: str,
        limit: int | None,
    ) -> Answer[Reached]:
        rows, codes = self._one_way(direction), self.arrays.type_codes(as_list(types))
        visit = walk(rows, self._numbers(starts), depth_max=depth, types=codes, limit=limit)
        return reached_answer(lambda: self._visited(visit))

    def _visited(self, visit: Visit) -> pa.Table:
        arrays = self.arrays
        known = pa.array(visit.nodes, mask=visit.nodes >= arrays.node_count)
        records = arrays.nodes.select(["type", "name", "file"]).take(known)
        edge_types = pa.array(arrays.type_names, pa.string()).take(_or_null(arrays.outgoing.types, visit.edges))
        return pa.table(
            {
                "semantic_id": arrays.ids_of(visit.nodes),
                **{name: records.column(name) for name in records.column_names},
                "depth": pa.array(visit.depths),
                "parent": arrays.ids.take(pa.array(visit.parents, mask=visit.parents < 0)),
                "edge_type": edge_types,
            }
        )


def as_list(given: Texts) -> list[str]:
    """One text, several or none, as a list."""
    return [] if given is None else [given] if isinstance(given, str) else list(given)


def _common(one: Indices | None, other: Indices) -> Indices:
    """The places that are in both, ascending; None stands for all."""
    return np.sort(other) if one is None else np.intersect1d(one, other, assume_unique=True)


def _or_null(values: npt.NDArray[Any], places: npt.NDArray[np.integer[Any]]) -> pa.Array:
    """The values at some places; null for a place of -1."""
    missing = places < 0
    found = values[np.where(missing, 0, places)] if len(values) else np.zeros(len(places), np.int16)
    return pa.array(found, mask=missing)
