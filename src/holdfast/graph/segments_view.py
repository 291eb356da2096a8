"""The records of a version where they lie: by id, by file, by type, by the ends of edges (G4, G7).

Zone maps choose segments; the directory and the index inside a segment choose row groups; only those are read.

A tombstone stands under the type and file of what it hides, and so does a record that moved elsewhere: choosing by
type, by file or by key before newer segments hide older ones is right. By name or metadata it would not be: these
choose ids, and the ids choose records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.errors import BadInput
from holdfast.graph.arrays import one_piece
from holdfast.graph.encoding import conformed
from holdfast.graph.merge import live_edges, live_nodes
from holdfast.graph.metadata import rows_with_metadata
from holdfast.graph.records import edge_schema, hash_texts, id_hash, node_id, node_schema
from holdfast.graph.segment import SegmentDescriptor, segment_schema
from holdfast.graph.segment_reader import RowGroupCache, SegmentReader
from holdfast.graph.state import GraphState
from holdfast.graph.zone_map import matches_type
from holdfast.storage.objects import ObjectStore

__all__ = ["SegmentsView", "filter_records"]

READERS = 8
T = TypeVar("T")


class SegmentsView:
    """One version, as a `view.GraphView`. Any number of threads may ask."""

    def __init__(self, store: ObjectStore, state: GraphState) -> None:
        cache = RowGroupCache()
        self._nodes = [SegmentReader(store, segment, cache) for segment in state.nodes]
        self._edges = [SegmentReader(store, segment, cache) for segment in state.edges]

    def nodes_by_id(self, ids: pa.Array) -> pa.Table:
        """Newest first: a node that was found, or found removed, is not looked for in older segments."""
        left, found = _sorted_texts(ids), []
        for reader in reversed(self._nodes):
            if not len(left):
                break
            rows = _matching(reader.read(reader.groups_of_ids(left.to_pylist())), "semantic_id", left)
            if len(rows):
                found.append(rows)
                left = left.filter(pc.invert(pc.is_in(left, value_set=one_piece(rows.column("semantic_id")))))
        return _records(live_nodes(found[::-1]), node_schema())

    def missing(self, ids: pa.Array) -> pa.Array:
        found = one_piece(self.nodes_by_id(ids).column("semantic_id"))
        return ids.filter(pc.invert(pc.is_in(ids, value_set=found)))

    def nodes_by_file(self, files: pa.Array) -> pa.Table:
        return self._by_file(self._nodes, files, live_nodes, node_schema())

    def edges_by_file(self, files: pa.Array) -> pa.Table:
        return self._by_file(self._edges, files, live_edges, edge_schema())

    def edges_by_source(self, ids: pa.Array) -> pa.Table:
        wanted = _sorted_texts(ids)
        texts = wanted.to_pylist()
        return self._merged_edges(
            self._each(
                self._edges, lambda reader: _matching(reader.read(reader.groups_of_ids(texts)), "source", wanted)
            )
        )

    def edges_by_target(self, ids: pa.Array) -> pa.Table:
        wanted = _sorted_texts(ids)
        if not len(wanted):
            return edge_schema().empty_table()
        hashes = hash_texts(wanted)
        return self._merged_edges(
            self._each(
                self._edges, lambda reader: _matching(reader.read(reader.groups_of_hashes(hashes)), "target", wanted)
            )
        )

    def _by_file(
        self,
        readers: Sequence[SegmentReader],
        files: pa.Array,
        live: Callable[[Sequence[pa.Table]], pa.Table],
        schema: pa.Schema,
    ) -> pa.Table:
        wanted = _sorted_texts(files)
        texts = wanted.to_pylist()
        chosen = [
            reader
            for reader in readers
            if any(reader.descriptor.zone_map.may_contain(file_path=file) for file in texts)
        ]
        found = self._each(chosen, lambda reader: _matching(reader.read(reader.groups_of_files(texts)), "file", wanted))
        return _records(live([rows for rows in found if len(rows)]), schema)

    def _merged_edges(self, found: Iterable[pa.Table]) -> pa.Table:
        return _records(live_edges([rows for rows in found if len(rows)]), edge_schema())

    # -- by more than keys ---------------------------------------------------------------------------------------------

    def ids_with_hash(self, given: bytes) -> list[str]:
        """The semantic id that has a 128-bit id, if any segment names one."""
        hashes = np.array([id_hash(given)], np.uint64)
        for reader in self._nodes:
            for rows in reader.read(reader.groups_of_hashes(hashes)):
                ids = one_piece(rows.column("semantic_id"))
                for text in ids.filter(pa.array(hash_texts(ids) == hashes[0])).to_pylist():
                    if node_id(text) == given:
                        return [text]
        return []

    def nodes_by_type(self, types: Sequence[str]) -> pa.Table:
        """All nodes, if no types are given."""
        return self._by_type(self._nodes, types, live_nodes, node_schema())

    def edges_by_type(self, types: Sequence[str]) -> pa.Table:
        return self._by_type(self._edges, types, live_edges, edge_schema())

    def count_by_type(self, kind: str) -> dict[str, int]:
        """How many nodes, or edges, there are of each type, by name."""
        if kind not in {"nodes", "edges"}:
            raise BadInput(f"{kind!r} cannot be counted; use nodes or edges")
        readers, live = (self._nodes, live_nodes) if kind == "nodes" else (self._edges, live_edges)
        keys = ["semantic_id", "type"] if kind == "nodes" else ["source", "target", "type"]
        plain = all(not (one.descriptor.hidden_count or one.descriptor.tombstone_count) for one in readers)
        columns = ["type"] if plain else [*keys, "tombstone"]
        tables = [pa.concat_tables(pieces) for pieces in self._each(readers, lambda reader: reader.scan(columns))]
        if not tables:
            return {}
        types = (pa.concat_tables(tables) if plain else live(tables)).column("type").cast(pa.string())
        return dict(sorted((entry["values"].as_py(), entry["counts"].as_py()) for entry in types.value_counts()))

    def ids_that_fit(self, types: Sequence[str], name: str | None, metadata: Mapping[str, object]) -> pa.Array:
        """Nodes that some segment describes so: whether it still holds is seen when they are read by their ids."""
        columns = ["semantic_id", *(["name"] if name is not None else []), *(["metadata"] if metadata else [])]

        def fitting(reader: SegmentReader) -> pa.Array:
            found = [pa.array([], pa.string())]
            for rows in reader.scan(columns):
                found += filter_records(rows, [], [], name, metadata).column("semantic_id").chunks
            return pa.concat_arrays(found)

        chosen = [reader for reader in self._nodes if _may_have_type(reader.descriptor, types)]
        return pc.unique(pa.concat_arrays([pa.array([], pa.string()), *self._each(chosen, fitting)]))

    def _by_type(
        self,
        readers: Sequence[SegmentReader],
        types: Sequence[str],
        live: Callable[[Sequence[pa.Table]], pa.Table],
        schema: pa.Schema,
    ) -> pa.Table:
        """Whole segments, filtered row group by row group: what is kept is what is asked for."""
        columns = segment_schema("nodes" if schema == node_schema() else "edges").names

        def fitting(reader: SegmentReader) -> pa.Table:
            return pa.concat_tables([filter_records(rows, types, [], None, {}) for rows in reader.scan(columns)])

        chosen = [reader for reader in readers if _may_have_type(reader.descriptor, types)]
        found = [_plain(rows) for rows in self._each(chosen, fitting) if len(rows)]
        return _records(live(found), schema)

    def _each(self, readers: Sequence[SegmentReader], work: Callable[[SegmentReader], T]) -> list[T]:
        """Ask several segments at the same time; the answers in their order."""
        if len(readers) < 2:
            return [work(reader) for reader in readers]
        with ThreadPoolExecutor(min(READERS, len(readers))) as pool:
            return list(pool.map(work, readers))


def _may_have_type(descriptor: SegmentDescriptor, types: Sequence[str]) -> bool:
    zone = descriptor.zone_map
    if not types:
        return True
    return any(
        zone.may_contain(node_type=kind) if descriptor.kind == "nodes" else zone.may_contain(edge_type=kind)
        for kind in types
    )


def _matching(tables: Sequence[pa.Table], column: str, values: pa.Array) -> pa.Table:
    """The rows with one of these values, as plain text."""
    found = [_plain(rows.filter(_is_in(rows.column(column), values))) for rows in tables]
    return pa.concat_tables(found) if found else pa.table({})


def _is_in(column: pa.ChunkedArray, values: pa.Array) -> pa.ChunkedArray:
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if pa.types.is_dictionary(column.type):
        column = column.cast(kind)
    return pc.is_in(column, value_set=values.cast(kind))


def filter_records(
    table: pa.Table, types: Sequence[str], files: Sequence[str], name: str | None, metadata: Mapping[str, object]
) -> pa.Table:
    if types and len(table):
        known = pc.unique(table.column("type").cast(pa.string())).to_pylist()
        fits = [kind for kind in known if any(matches_type(pattern, kind) for pattern in types)]
        table = table.filter(_is_in(table.column("type"), pa.array(fits, pa.string())))
    if files and len(table):
        table = table.filter(_is_in(table.column("file"), pa.array(files, pa.string())))
    if name is not None and len(table):
        table = table.filter(pc.equal(table.column("name"), name))
    if metadata and len(table):
        table = table.take(pa.array(rows_with_metadata(one_piece(table.column("metadata")), metadata)))
    return table


def _sorted_texts(texts: pa.Array) -> pa.Array:
    unique = pc.unique(texts.cast(pa.string()))
    return unique.take(pc.sort_indices(unique))


def _plain(table: pa.Table) -> pa.Table:
    schema = segment_schema("nodes" if "semantic_id" in table.column_names else "edges")
    return conformed(table, schema)


def _records(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    return conformed(rows.select(schema.names), schema)
