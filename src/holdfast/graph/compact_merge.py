"""Merging segments that are neighbours in age: sorted rows in, sorted rows out, in bounded memory (G16, G17).

For each key the newest row of the range decides. Where older segments are left below, what they may hold must stay
hidden from every query, whether it asks by key, by type or by file:

1. A key that is gone leaves a tombstone; one that moved to another type or file leaves a tombstone and a record.
2. That tombstone has the type and file of the oldest row of the range. A commit writes a tombstone of what it hides,
   or a record of the same type and file: so the oldest row says where the record below stands, if there is one.
3. Where nothing older is left, no tombstone is needed, and none is kept.

Row groups are read as the merge comes to their ids, those of several segments at a time. What is in memory is about
`BUFFER_ROWS` rows; more only if more segments than that have rows around the same id (a row group of each is needed
then), and for a node with more edges than that (the edges of one node are merged at once).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.graph.arrays import one_piece
from holdfast.graph.encoding import encoded_column
from holdfast.graph.merge import edge_numbers
from holdfast.graph.segment import SegmentDescriptor, SegmentKind, segment_schema, sorted_edges, sorted_nodes
from holdfast.graph.segment_reader import RowGroupCache, SegmentReader
from holdfast.storage.objects import ObjectStore

__all__ = ["BUFFER_ROWS", "merge_rows", "merge_segments"]

BUFFER_ROWS = 262_144
READERS = 4
_ID = {"nodes": "semantic_id", "edges": "source"}


def merge_rows(kind: SegmentKind, rows: pa.Table, *, drop_tombstones: bool) -> pa.Table:
    """What a segment needs that takes the place of these rows, the oldest first, in a segment's order."""
    keys = encoded_column(rows, "semantic_id")[1] if kind == "nodes" else edge_numbers(rows)
    gone = one_piece(rows.column("tombstone")).to_numpy(zero_copy_only=False)
    order = np.argsort(keys, kind="stable")
    turns = np.flatnonzero(np.diff(keys[order])) + 1
    oldest = order[np.concatenate(([0], turns))] if len(order) else order
    newest = order[np.concatenate((turns, [len(order)])) - 1] if len(order) else order
    records = rows.take(pa.array(newest[~gone[newest]]))
    if not drop_tombstones:
        moved = np.zeros(len(oldest), np.bool_)
        for name in ("type", "file"):
            codes = encoded_column(rows, name)[1]
            moved |= codes[oldest] != codes[newest]
        hiding = rows.take(pa.array(oldest[moved | gone[newest]]))
        place = rows.schema.get_field_index("tombstone")
        marks = pa.repeat(pa.scalar(True), len(hiding))
        records = pa.concat_tables([records, hiding.set_column(place, rows.schema.field(place), marks)])
    return sorted_nodes(records) if kind == "nodes" else sorted_edges(records)


def merge_segments(
    store: ObjectStore,
    segments: Sequence[SegmentDescriptor],
    *,
    drop_tombstones: bool,
    buffer_rows: int = BUFFER_ROWS,
) -> Iterator[pa.Table]:
    """The merged rows of segments of one kind, the oldest first: tables that follow each other, no id in two."""
    kind = segments[0].kind
    sources = [_Source(store, segment) for segment in segments]
    waiting = [(source.frontier, number) for number, source in enumerate(sources)]
    heapq.heapify(waiting)
    with ThreadPoolExecutor(READERS) as pool:
        while waiting or any(source.rows for source in sources):
            wanted = buffer_rows
            while True:
                _read_ahead(pool, sources, waiting, wanted)
                bound = waiting[0][0] if waiting else None
                ready = [table for source in sources for table in source.taken(bound)]
                if ready or not waiting:
                    break
                wanted = 1 + sum(source.rows for source in sources)  # many rows of one id: read on
            if ready:
                yield merge_rows(kind, pa.concat_tables(ready), drop_tombstones=drop_tombstones)


class _Source:
    """One segment that is read from its beginning to its end, a row group at a time."""

    def __init__(self, store: ObjectStore, segment: SegmentDescriptor) -> None:
        self._reader: SegmentReader | None = SegmentReader(store, segment, RowGroupCache(0))
        self._columns = segment_schema(segment.kind)
        self._id = _ID[segment.kind]
        self._next = 0
        self._held: list[pa.Table] = []
        self.frontier: str = segment.zone_map.min_id
        """All rows with a smaller id have been read."""

    @property
    def is_read(self) -> bool:
        return self._reader is None

    @property
    def rows(self) -> int:
        return sum(map(len, self._held))

    def read_on(self) -> None:
        reader = cast(SegmentReader, self._reader)
        (rows,) = reader.scan(self._columns.names, [self._next])
        self._held.append(rows.cast(self._columns))
        self._next += 1
        self.frontier = reader.row_groups[self._next - 1].last_id
        if self._next == len(reader.row_groups):
            self._reader = None

    def taken(self, bound: str | None) -> list[pa.Table]:
        """What is held with an id below the bound, or all of it; it is held no longer."""
        if bound is None:
            found, self._held = self._held, []
            return found
        found, kept = [], []
        for rows in self._held:
            below = pc.sum(pc.less(rows.column(self._id), bound)).as_py() or 0
            if below:
                found.append(rows.slice(0, below))
            if below < len(rows):
                kept.append(rows.slice(below))
        self._held = kept
        return found


def _read_ahead(
    pool: ThreadPoolExecutor, sources: Sequence[_Source], waiting: list[tuple[str, int]], wanted: int
) -> None:
    """Read where the merge will come first, until so many rows are held or nothing is left to read."""
    held = sum(source.rows for source in sources)
    while waiting and held < wanted:
        first = [heapq.heappop(waiting)[1] for _ in range(min(READERS, len(waiting)))]
        before = sum(sources[number].rows for number in first)
        list(pool.map(lambda number: sources[number].read_on(), first))
        held += sum(sources[number].rows for number in first) - before
        for number in first:
            if not sources[number].is_read:
                heapq.heappush(waiting, (sources[number].frontier, number))
