"""Writing a segment: sorted rows in, as many at a time as the caller likes; a file and its descriptor out (G3, G7).

Memory is bounded by a row group, and by 12 bytes for each id in the index. What is written is hashed on its way.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable
from types import TracebackType
from typing import BinaryIO, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from xxhash import xxh3_64

from holdfast.errors import BadInput
from holdfast.graph.encoding import conformed, texts_of
from holdfast.graph.records import hash_texts
from holdfast.graph.segment import SegmentDescriptor, SegmentKind, segment_schema
from holdfast.graph.segment_file import RowGroup, SegmentDirectory, encode_tail
from holdfast.graph.segment_index import Hashes, IndexEntries, encode_index
from holdfast.graph.zone_map import ZoneMapBuilder

__all__ = ["ROW_GROUP_ROWS", "SegmentWriter", "encode_segment"]

ROW_GROUP_ROWS = 16_384
"""What a cold look-up decodes. Smaller ones cost space: measured in docs/decisions/0015."""
_SORTED_TEXTS = {"nodes": ("semantic_id", "name"), "edges": ("source",)}
_PLAIN = ("metadata", "tombstone")
_INDEXED = {"nodes": "semantic_id", "edges": "target"}
_ID = {"nodes": "semantic_id", "edges": "source"}


class SegmentWriter:
    """Writes one segment to a binary file that is open for writing. Use it in a `with`: it may not come to its end."""

    def __init__(self, kind: SegmentKind, sink: BinaryIO, *, row_group_rows: int | None = None) -> None:
        self._group_rows = row_group_rows or ROW_GROUP_ROWS
        self._kind: SegmentKind = kind
        self._schema = segment_schema(kind)
        self._out = _Counted(sink)
        texts = _SORTED_TEXTS[kind]
        self._parquet = pq.ParquetWriter(
            pa.PythonFile(self._out, mode="w"),
            self._schema,
            compression="zstd",
            write_page_checksum=True,
            use_dictionary=[name for name in self._schema.names if name not in (*texts, *_PLAIN)],
            column_encoding=dict.fromkeys(texts, "DELTA_BYTE_ARRAY"),
            store_schema=False,
        )
        self._waiting: list[pa.Table] = []
        self._waiting_hashes: list[Hashes] = []
        self._waiting_rows = 0
        self._groups: list[RowGroup] = []
        self._entries = IndexEntries()
        self._zone_map = ZoneMapBuilder(kind)
        self._rows = 0
        self._tombstones = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._out.aside(self._parquet.close)  # nothing, after `finish`

    @property
    def row_count(self) -> int:
        """The rows so far, tombstones included."""
        return self._rows + self._waiting_rows

    def write(self, rows: pa.Table, hashes: Hashes | None = None) -> None:
        """Rows in the segment's order, all behind those already written.

        `hashes` are those of the indexed texts, row by row, from a caller who knows them for all rows that it writes.
        """
        start = 0
        while start < len(rows):
            taken = min(len(rows) - start, self._group_rows - self._waiting_rows)
            self._waiting.append(rows.slice(start, taken))
            if hashes is not None:
                self._waiting_hashes.append(hashes[start : start + taken])
            self._waiting_rows += taken
            start += taken
            if self._waiting_rows == self._group_rows:
                self._write_group()

    def finish(self, *, segment_id: int, path: str, hidden_count: int) -> SegmentDescriptor:
        """Write the index and the end of the file. BadInput if there was no row at all."""
        if self._waiting_rows:
            self._write_group()
        if not self._rows:
            raise BadInput("a segment has at least one row")
        buckets, index = encode_index(_INDEXED[self._kind], self._entries, self._out.position)
        for bucket in buckets:
            self._out.write(bucket)
        footer = self._out.aside(self._parquet.close)
        tail = encode_tail(SegmentDirectory(row_groups=tuple(self._groups), index=index), footer)
        self._out.write(tail)
        return SegmentDescriptor(
            segment_id=segment_id,
            kind=self._kind,
            path=path,
            byte_size=self._out.position,
            tail_size=len(tail),
            record_count=self._rows - self._tombstones,
            tombstone_count=self._tombstones,
            hidden_count=hidden_count,
            checksum=f"sha256:{self._out.sha256.hexdigest()}",
            zone_map=self._zone_map.finish(),
        )

    def _write_group(self) -> None:
        # As plain text: from a dictionary, every row group would be given the whole of it.
        rows = pa.concat_tables([conformed(table, self._schema) for table in self._waiting]).combine_chunks()
        known, self._waiting, self._waiting_hashes, self._waiting_rows = self._waiting_hashes, [], [], 0
        hashes = np.unique(np.concatenate(known)) if known else hash_texts(texts_of(rows, _INDEXED[self._kind]))
        self._entries.add(hashes, len(self._groups))
        self._zone_map.add(rows)
        self._tombstones += pc.sum(rows.column("tombstone")).as_py() or 0
        self._rows += len(rows)
        start = self._out.begin_range()
        self._parquet.write_table(rows, row_group_size=self._group_rows)
        ids = rows.column(_ID[self._kind])
        files = pc.min_max(rows.column("file")).as_py()
        self._groups.append(
            RowGroup(
                start=start,
                length=self._out.position - start,
                rows=len(rows),
                checksum=self._out.range_checksum(),
                first_id=ids[0].as_py(),
                last_id=ids[-1].as_py(),
                first_file=files["min"],
                last_file=files["max"],
            )
        )


def encode_segment(
    kind: SegmentKind,
    rows: pa.Table,
    *,
    segment_id: int,
    path: str,
    hidden_count: int,
    hashes: Hashes | None = None,
) -> tuple[bytes, SegmentDescriptor]:
    """The whole file of sorted rows, and its descriptor."""
    sink = io.BytesIO()
    with SegmentWriter(kind, sink) as writer:
        writer.write(rows, hashes)
        descriptor = writer.finish(segment_id=segment_id, path=path, hidden_count=hidden_count)
    return sink.getvalue(), descriptor


class _Counted(io.RawIOBase):
    """A file that knows how much was written, and its hashes; and that can be told to hand over instead of writing."""

    def __init__(self, sink: BinaryIO) -> None:
        self._sink = sink
        self._aside: io.BytesIO | None = None
        self._range = xxh3_64()
        self.position = 0
        self.sha256 = hashlib.sha256()

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.position

    def write(self, data: object) -> int:
        view = memoryview(data)  # type: ignore[arg-type]
        if self._aside is not None:
            return self._aside.write(view)
        self._sink.write(view)
        self.sha256.update(view)
        self._range.update(view)
        self.position += view.nbytes
        return view.nbytes

    def begin_range(self) -> int:
        """Start counting for a checksum here."""
        self._range.reset()
        return self.position

    def range_checksum(self) -> str:
        return self._range.hexdigest()

    def aside(self, close: Callable[[], None]) -> bytes:
        """What Parquet writes when it ends, kept apart: something stands before it."""
        self._aside = io.BytesIO()
        close()
        data, self._aside = self._aside.getvalue(), None
        return data
