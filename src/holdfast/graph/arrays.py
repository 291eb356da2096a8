"""One version of a graph as arrays: what every query in memory is made of (G14, G22).

Nodes are numbered in the order of their semantic ids. An edge that points to nothing keeps its end: such an end has a
number behind all nodes, and no record. Edges are numbers too, in the order of source, type and target, so the rows of
one node follow each other: the forward adjacency is the table of edges itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.errors import NotFound
from holdfast.graph.adjacency import NO_TYPE, Adjacency
from holdfast.graph.index import TextIndex
from holdfast.graph.quotient import Grouping
from holdfast.graph.records import edge_schema
from holdfast.graph.zone_map import matches_type

__all__ = ["GraphArrays", "one_piece"]

Numbers = npt.NDArray[np.int32]
Indices = npt.NDArray[np.int64]


class GraphArrays:
    """Immutable; any number of threads may read."""

    def __init__(
        self,
        *,
        version: int,
        nodes: pa.Table,
        sources: Numbers,
        targets: Numbers,
        types: npt.NDArray[np.int16],
        files: Numbers,
        metadata: pa.Array,
        type_names: Sequence[str],
        file_names: pa.Array,
        ghosts: pa.Array,
    ) -> None:
        """Give nodes in the order of their ids, type names sorted, and edges in any order."""
        self.version = version
        self.nodes = nodes
        """Types and files as dictionaries, every column in one piece."""
        self.type_names = list(type_names)
        """The types of edges, sorted; their places are the codes that adjacencies have."""
        self.file_names = file_names
        self.ghosts = ghosts
        """The ids that edges name and no node has, in order."""
        self.outgoing = Adjacency.build(len(nodes) + len(ghosts), sources, targets, types)
        order = self.outgoing.edges
        in_order = len(order) == 0 or bool((order[1:] > order[:-1]).all())
        self.files = files if in_order else files[order]
        self.metadata = metadata if in_order else metadata.take(pa.array(order))
        self.outgoing = self.outgoing.renumbered()

    @property
    def node_count(self) -> int:
        return len(self.nodes)

    @property
    def edge_count(self) -> int:
        return self.outgoing.edge_count

    @cached_property
    def incoming(self) -> Adjacency:
        return self.outgoing.reversed()

    @cached_property
    def sources(self) -> Numbers:
        """The node that each edge starts at."""
        return self.outgoing.sources()

    # -- ids ----------------------------------------------------------------------------------------------------------

    @cached_property
    def ids(self) -> pa.Array:
        """The semantic ids of all nodes, then of the ends without one: by number."""
        known = one_piece(self.nodes.column("semantic_id"))
        return pa.concat_arrays([known, self.ghosts.cast(known.type)]) if len(self.ghosts) else known

    @cached_property
    def index(self) -> TextIndex:
        """Where a node's id is among `ids`; ends without a node included."""
        return TextIndex(self.ids)

    def number_of(self, semantic_id: str) -> int:
        """The number of a node, or of an end that has none; NotFound if nothing has this id."""
        place = self.index.find(semantic_id)
        if place < 0:
            raise NotFound(f"no node {semantic_id!r} at version {self.version}")
        return place

    def numbers_of(self, semantic_ids: pa.Array) -> Indices:
        """The numbers of many ids, -1 for those that nothing has."""
        return self.index.find_all(semantic_ids)

    def ids_of(self, numbers: npt.NDArray[np.integer[Any]]) -> pa.Array:
        return self.ids.take(pa.array(numbers))

    # -- records ------------------------------------------------------------------------------------------------------

    def edge_table(self, places: npt.NDArray[np.integer[Any]] | None = None) -> pa.Table:
        """Some edges as records; or all of them, with their texts as dictionaries."""
        rows, names = self.outgoing, pa.array(self.type_names, pa.string())
        if places is None:
            columns = [
                pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32, copy=False)), texts)
                for codes, texts in (
                    (self.sources, self.ids),
                    (rows.targets, self.ids),
                    (rows.types, names),
                    (self.files, self.file_names),
                )
            ]
            return pa.table([*columns, self.metadata], names=edge_schema().names)
        columns = [
            self.ids_of(np.searchsorted(rows.offsets, places, side="right") - 1),
            self.ids_of(rows.targets[places]),
            names.take(pa.array(rows.types[places])),
            self.file_names.take(pa.array(self.files[places])),
            self.metadata.take(pa.array(places)),
        ]
        return pa.table(columns, schema=edge_schema())

    @cached_property
    def nodes_of_file(self) -> Grouping:
        """The nodes of each file, by the file's code in the dictionary of `nodes`; an end without a node is in none."""
        codes = one_piece(self.nodes.column("file")).indices.to_numpy(zero_copy_only=False)
        return Grouping(np.concatenate([codes, np.full(len(self.ghosts), -1, np.int32)]))

    @cached_property
    def edges_of_file(self) -> Grouping:
        """The edges of each file, by the file's place in `file_names`."""
        return Grouping(self.files)

    def type_codes(self, types: Sequence[str] | None) -> npt.NDArray[np.int16] | None:
        """The codes of some types of edges; None, which is all, if none are given."""
        if not types:
            return None
        wanted = [code for code, kind in enumerate(self.type_names) if any(matches_type(p, kind) for p in types)]
        return np.array(wanted or [NO_TYPE], np.int16)  # an empty list would mean all of them

    def nodes_with_type(self, patterns: Sequence[str]) -> npt.NDArray[np.bool_]:
        return self._with_values(
            "type", [any(matches_type(p, kind) for p in patterns) for kind in self._values("type")]
        )

    def _values(self, column: str) -> list[str]:
        return [str(value) for value in one_piece(self.nodes.column(column)).dictionary.to_pylist()]

    def _with_values(self, column: str, fits: Sequence[bool]) -> npt.NDArray[np.bool_]:
        """Which nodes have a value that fits, asked once per value."""
        codes = one_piece(self.nodes.column(column)).indices.to_numpy(zero_copy_only=False)
        found: npt.NDArray[np.bool_] = np.array(fits, np.bool_)[codes] if fits else np.zeros(len(codes), np.bool_)
        return found

    def file_codes(self, files: pa.Array, *, of: str) -> Indices:
        """The codes of some files among those of `nodes` or of `edges`; those that are not there are left out."""
        known = self.file_names if of == "edges" else one_piece(self.nodes.column("file")).dictionary
        found = pc.index_in(files.cast(known.type), value_set=known).drop_null()
        return np.unique(found.to_numpy(zero_copy_only=False)).astype(np.int64)


def one_piece(column: pa.ChunkedArray) -> pa.Array:
    """A column that is not in chunks."""
    whole = column.combine_chunks()
    return whole if isinstance(whole, pa.Array) else pa.concat_arrays(whole.chunks)
