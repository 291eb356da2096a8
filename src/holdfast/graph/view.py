"""What a writer asks of the graph it is about to change: a few records by id, by file, by their ends.

`SnapshotView` answers from a version in memory. `LayeredView` puts the changes of later commits on top of that, so that
a small commit after another one costs in proportion to what changes, not to the graph.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.graph.adjacency import Adjacency
from holdfast.graph.arrays import GraphArrays
from holdfast.graph.records import edge_schema, node_schema

_SEPARATOR = pa.scalar(b"\x00", pa.large_binary())

__all__ = ["GraphView", "LayeredView", "SnapshotView", "edge_key", "node_key", "without"]


class GraphView(Protocol):
    """Records that are there, as tables of the canonical columns."""

    def nodes_by_id(self, ids: pa.Array) -> pa.Table: ...

    def nodes_by_file(self, files: pa.Array) -> pa.Table: ...

    def edges_by_file(self, files: pa.Array) -> pa.Table: ...

    def edges_by_source(self, ids: pa.Array) -> pa.Table: ...

    def edges_by_target(self, ids: pa.Array) -> pa.Table: ...


class SnapshotView:
    """A version in memory."""

    def __init__(self, arrays: GraphArrays) -> None:
        self._arrays = arrays

    def nodes_by_id(self, ids: pa.Array) -> pa.Table:
        places = np.unique(self._arrays.numbers_of(ids))
        return self._nodes(places[(places >= 0) & (places < self._arrays.node_count)])

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
        numbers = self._arrays.numbers_of(ids)
        return self._edges(np.sort(rows.expand(np.unique(numbers[numbers >= 0]), None).edges))

    def _nodes(self, places: npt.NDArray[np.integer[Any]]) -> pa.Table:
        return self._arrays.nodes.take(pa.array(places)).cast(node_schema())

    def _edges(self, places: npt.NDArray[np.integer[Any]]) -> pa.Table:
        return self._arrays.edge_table(places).cast(edge_schema())


class LayeredView:
    """Changes on top of another view: records that were put, and keys that are gone."""

    def __init__(self, below: GraphView) -> None:
        self._below = below
        self._nodes = node_schema().empty_table()
        self._edges = edge_schema().empty_table()
        self._touched_nodes = pa.array([], pa.string())
        self._touched_edges = pa.array([], pa.large_binary())

    @property
    def touched(self) -> int:
        """How many keys the changes have named: what this view costs more than the one below."""
        return len(self._touched_nodes) + len(self._touched_edges)

    def with_changes(self, nodes: pa.Table, edges: pa.Table) -> LayeredView:
        """This view after one more commit, whose segments' rows these are (tombstones included)."""
        after = LayeredView(self._below)
        node_keys, edge_keys = node_key(nodes), edge_key(edges)
        after._touched_nodes = pc.unique(pa.concat_arrays([self._touched_nodes, node_keys]))
        after._touched_edges = pc.unique(pa.concat_arrays([self._touched_edges, edge_keys]))
        after._nodes = pa.concat_tables([without(self._nodes, node_key, node_keys), _put(nodes, node_schema())])
        after._edges = pa.concat_tables([without(self._edges, edge_key, edge_keys), _put(edges, edge_schema())])
        return after

    def nodes_by_id(self, ids: pa.Array) -> pa.Table:
        return self._nodes_on_top(self._below.nodes_by_id(ids), "semantic_id", ids)

    def nodes_by_file(self, files: pa.Array) -> pa.Table:
        return self._nodes_on_top(self._below.nodes_by_file(files), "file", files)

    def edges_by_file(self, files: pa.Array) -> pa.Table:
        return self._edges_on_top(self._below.edges_by_file, "file", files)

    def edges_by_source(self, ids: pa.Array) -> pa.Table:
        return self._edges_on_top(self._below.edges_by_source, "source", ids)

    def edges_by_target(self, ids: pa.Array) -> pa.Table:
        return self._edges_on_top(self._below.edges_by_target, "target", ids)

    def _nodes_on_top(self, below: pa.Table, column: str, values: pa.Array) -> pa.Table:
        kept = without(below, node_key, self._touched_nodes)
        return pa.concat_tables([kept, _having(self._nodes, column, values)])

    def _edges_on_top(self, ask: Callable[[pa.Array], pa.Table], column: str, values: pa.Array) -> pa.Table:
        below = ask(values)
        kept = without(below, edge_key, self._touched_edges)
        return pa.concat_tables([kept, _having(self._edges, column, values)])


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
    plain = column.cast(pa.string()).combine_chunks()
    return plain if isinstance(plain, pa.Array) else pa.concat_arrays(plain.chunks)


def _having(table: pa.Table, column: str, values: pa.Array) -> pa.Table:
    return table.filter(pc.is_in(table.column(column), value_set=values.cast(pa.string())))


def _put(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """The records among a segment's rows: what is no tombstone."""
    return rows.filter(pc.invert(rows.column("tombstone"))).select(schema.names).cast(schema)
