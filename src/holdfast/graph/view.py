"""What a writer asks of the graph it is about to change: a few records by id, by file, by their ends.

`SnapshotView` answers from a version in memory. `LayeredView` puts the changes of later commits on top of that, so that
a small commit after another one costs in proportion to what changes, not to the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.graph.adjacency import Adjacency
from holdfast.graph.arrays import GraphArrays, one_piece
from holdfast.graph.encoding import conformed, encoded_column
from holdfast.graph.merge import live_edges
from holdfast.graph.records import edge_schema, node_schema
from holdfast.graph.segment import segment_schema

_SEPARATOR = pa.scalar(b"\x00", pa.large_binary())

_TIDY_ROWS = 2_000
"""A layer of fewer rows is not looked through for what it could do without."""

__all__ = ["GraphView", "LayeredView", "SnapshotView", "edge_key", "node_key", "without"]


class GraphView(Protocol):
    """Records that are there, as tables of the canonical columns."""

    def nodes_by_id(self, ids: pa.Array) -> pa.Table: ...

    def nodes_by_file(self, files: pa.Array) -> pa.Table: ...

    def edges_by_file(self, files: pa.Array) -> pa.Table: ...

    def edges_by_source(self, ids: pa.Array) -> pa.Table: ...

    def edges_by_target(self, ids: pa.Array) -> pa.Table: ...

    def missing(self, ids: pa.Array) -> pa.Array:
        """Those of some ids that no node has."""
        ...


class SnapshotView:
    """A version in memory."""

    def __init__(self, arrays: GraphArrays) -> None:
        self._arrays = arrays

    def nodes_by_id(self, ids: pa.Array) -> pa.Table:
        places = np.unique(self._arrays.numbers_of(ids)) if len(ids) else np.zeros(0, np.int64)
        return self._nodes(places[(places >= 0) & (places < self._arrays.node_count)])

    def missing(self, ids: pa.Array) -> pa.Array:
        places = self._arrays.numbers_of(ids)
        return ids.filter(pa.array((places < 0) | (places >= self._arrays.node_count)))

    def nodes_by_file(self, files: pa.Array) -> pa.Table:
        arrays = self._arrays
        return self._nodes(np.sort(arrays.nodes_of_file.nodes_of(arrays.file_codes(files, of="nodes"))))

    def edges_by_file(self, files: pa.Array) -> pa.Table:
        arrays = self._arrays
        return self._edges(np.sort(arrays.edges_of_file.nodes_of(arrays.file_codes(files, of="edges"))))

    def edges_by_source(self, ids: pa.Array) -> pa.Table:
        return self._edges_at(self._arrays.outgoing, ids)

    def edges_by_target(self, ids: pa.Array) -> pa.Table:
        return self._edges_at(self._arrays.incoming, ids)

    def _edges_at(self, rows: Adjacency, ids: pa.Array) -> pa.Table:
        if not len(ids):
            return edge_schema().empty_table()
        numbers = self._arrays.numbers_of(ids)
        return self._edges(np.sort(rows.expand(np.unique(numbers[numbers >= 0]), None).edges))

    def _nodes(self, places: npt.NDArray[np.integer[Any]]) -> pa.Table:
        if not len(places):
            return node_schema().empty_table()
        return conformed(self._arrays.nodes.take(pa.array(places)), node_schema())

    def _edges(self, places: npt.NDArray[np.integer[Any]]) -> pa.Table:
        if not len(places):
            return edge_schema().empty_table()
        return self._arrays.edge_table(places)


class LayeredView:
    """Later commits on top of another view: the rows of their segments, the oldest first, tombstones included.

    They are treated as segments are: those that fit are taken from every layer, and then newer ones hide older ones.
    """

    def __init__(self, below: GraphView) -> None:
        self._below = below
        self._nodes = segment_schema("nodes").empty_table()
        self._edges = segment_schema("edges").empty_table()

    @property
    def row_count(self) -> int:
        """How many rows later commits have: what this view costs more than the one below."""
        return len(self._nodes) + len(self._edges)

    def with_changes(self, nodes: pa.Table, edges: pa.Table) -> LayeredView:
        """This view after one more commit, whose segments' rows these are."""
        after = LayeredView(self._below)
        after._nodes = _on_top(self._nodes, nodes, ("semantic_id", "type", "file"))
        after._edges = _on_top(self._edges, edges, ("source", "target", "type", "file"))
        return after

    def nodes_by_id(self, ids: pa.Array) -> pa.Table:
        return self._merged(self._below.nodes_by_id(ids), self._nodes, "semantic_id", ids)

    def nodes_by_file(self, files: pa.Array) -> pa.Table:
        return self._merged(self._below.nodes_by_file(files), self._nodes, "file", files)

    def edges_by_file(self, files: pa.Array) -> pa.Table:
        return self._merged(self._below.edges_by_file(files), self._edges, "file", files)

    def edges_by_source(self, ids: pa.Array) -> pa.Table:
        return self._merged(self._below.edges_by_source(ids), self._edges, "source", ids)

    def edges_by_target(self, ids: pa.Array) -> pa.Table:
        return self._merged(self._below.edges_by_target(ids), self._edges, "target", ids)

    def missing(self, ids: pa.Array) -> pa.Array:
        named = self._nodes.column("semantic_id")
        if not pc.any(pc.is_in(ids, value_set=one_piece(named))).as_py():
            return self._below.missing(ids)
        return ids.filter(pc.invert(pc.is_in(ids, value_set=node_key(self.nodes_by_id(ids)))))

    def _merged(self, below: pa.Table, layer: pa.Table, column: str, values: pa.Array) -> pa.Table:
        if not len(layer) or not len(values):
            return below
        newer = layer.filter(pc.is_in(layer.column(column), value_set=values))
        if not len(newer):
            return below
        if layer is self._nodes:
            return _nodes_on_top(below, newer)
        older = below.append_column(layer.schema.field("tombstone"), pa.array(np.zeros(len(below), np.bool_)))
        return live_edges([older, newer]).select(below.column_names)


def _nodes_on_top(below: pa.Table, newer: pa.Table) -> pa.Table:
    """Nodes that nothing newer names, then what the newest says of the others. In no particular order."""
    ids = newer.column("semantic_id")
    kept = (
        below.filter(pc.invert(pc.is_in(below.column("semantic_id"), value_set=one_piece(ids))))
        if len(below)
        else below
    )
    _, codes = encoded_column(newer, "semantic_id")
    last = np.empty(int(codes.max()) + 1, np.int64)
    last[codes] = np.arange(len(codes))  # the last assignment stays
    if len(last) < len(newer):
        newer = newer.take(pa.array(np.sort(last)))
    there = newer.filter(pc.invert(newer.column("tombstone"))).select(below.column_names)
    return pa.concat_tables([kept, there]) if len(kept) else there


def _on_top(older: pa.Table, newer: pa.Table, names: Sequence[str]) -> pa.Table:
    """Both, without rows that are older than another of the same key, type and file: no query tells these apart."""
    if not len(newer):
        return older
    if not len(older):
        return conformed(newer, older.schema)
    both = pa.concat_tables([older, conformed(newer, older.schema)]).combine_chunks()
    if len(older) < _TIDY_ROWS:
        return both
    numbers = np.zeros(len(both), np.int64)
    for name in names:
        texts, codes = encoded_column(both, name)
        numbers = np.unique(numbers * len(texts) + codes, return_inverse=True)[1]
    last = np.empty(int(numbers.max()) + 1, np.int64)
    last[numbers] = np.arange(len(both))  # the last assignment stays
    return both if len(last) == len(both) else both.take(pa.array(np.sort(last)))


def edge_key(edges: pa.Table) -> pa.Array:
    """One value per edge, the same only for the same source, target and type: the texts, two behind their length."""
    source, target, kind = (_texts(edges.column(name)).cast(pa.large_binary()) for name in ("source", "target", "type"))
    return pc.binary_join_element_wise(_length(source), source, _length(target), target, kind, _SEPARATOR)


def node_key(nodes: pa.Table) -> pa.Array:
    """What tells one node from another."""
    return _texts(nodes.column("semantic_id"))


def without(table: pa.Table, key_of: Callable[[pa.Table], pa.Array], gone: pa.Table | pa.Array) -> pa.Table:
    """The rows whose key is not among those of `gone`: a table, or keys."""
    if not len(table) or not len(gone):
        return table
    keys = key_of(gone) if isinstance(gone, pa.Table) else gone
    return table.filter(pc.invert(pc.is_in(key_of(table), value_set=keys)))


def _length(values: pa.Array) -> pa.Array:
    return pc.binary_length(values).cast(pa.string()).cast(pa.large_binary())


def _texts(column: pa.ChunkedArray) -> pa.Array:
    plain = (column if column.type == pa.string() else column.cast(pa.string())).combine_chunks()
    return plain if isinstance(plain, pa.Array) else pa.concat_arrays(plain.chunks)
