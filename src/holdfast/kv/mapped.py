"""One shard, mapped into memory: its index checked when it is opened, each block when it is first used (K17, K18).

The mapping is shared: every process that opens the file uses the same pages. A row is found by its hash (see
`shard_format`), and read where it lies.
"""

from __future__ import annotations

import mmap
import os
from bisect import bisect_left
from pathlib import Path

import numpy as np
import pyarrow as pa
from xxhash import xxh3_64_intdigest

from holdfast.errors import CorruptShard
from holdfast.kv.columns import ArrowColumn, ColumnReader, column_readers
from holdfast.kv.keys import KeySchema
from holdfast.kv.shard_format import (
    DIRECTORY_ENTRY_BYTES,
    TRAILER_BYTES,
    DirectoryEntry,
    Trailer,
    buffer_count,
    trailer_offset,
)

__all__ = ["MappedShard", "Row"]

Row = tuple[int, int]
"""(block, row in the block)."""

_SIGN = 1 << 63
_END_BYTES = 10


class MappedShard:
    """The rows of one shard file. Closed when nothing refers to it any more."""

    __slots__ = (
        "_block_count",
        "_directory_offset",
        "_key_readers",
        "_mapping",
        "_stride",
        "_table",
        "_tags",
        "_trailer",
        "_unverified",
        "_view",
        "name",
        "schema",
        "value_readers",
    )

    def __init__(
        self, path: Path, *, name: str, schema: pa.Schema, key: KeySchema, row_count: int, fingerprint: int
    ) -> None:
        """`row_count` and `fingerprint` are what the manifest says: another shard's file is refused."""
        self.name = name
        self.schema = schema
        descriptor = os.open(path, os.O_RDONLY)
        try:
            size = os.fstat(descriptor).st_size
            if size < TRAILER_BYTES:
                raise CorruptShard(name, "it is cut short")
            self._mapping = mmap.mmap(descriptor, size, access=mmap.ACCESS_READ)
        finally:
            os.close(descriptor)
        self._view = memoryview(self._mapping)
        trailer = self._trailer = self._checked_trailer(size)
        if trailer.fingerprint != fingerprint or trailer.row_count != row_count:
            raise CorruptShard(name, f"it is another shard than the manifest's, with {trailer.row_count} rows")
        self._check_table(sum(buffer_count(field.type) for field in schema), size)
        self._block_count = trailer.block_count
        self._stride = trailer.table_stride
        self._directory_offset = trailer.directory_offset
        self._table = self._section(trailer.table_offset, trailer.table_bytes).cast("Q")
        self._tags = self._section(trailer.tags_offset, trailer.tags_bytes).cast("H")
        self._unverified = bytearray(b"\x01") * trailer.block_count
        readers = column_readers(schema)
        self._key_readers = readers[: len(key.columns)]
        self.value_readers = readers[len(key.columns) :]

    @property
    def block_count(self) -> int:
        return self._block_count

    @property
    def row_count(self) -> int:
        return self._trailer.row_count

    @property
    def trailer(self) -> Trailer:
        return self._trailer

    @property
    def view(self) -> memoryview:
        """The whole file."""
        return self._view

    @property
    def unverified(self) -> bytearray:
        """1 for each block that nobody has looked at yet."""
        return self._unverified

    @property
    def mapping(self) -> mmap.mmap:
        return self._mapping

    # -- one row ------------------------------------------------------------------------------------------------------

    def find(self, hashed: int, parts: tuple[bytes, ...]) -> Row | None:
        """Where the key with this hash and these canonical parts is, or None."""
        position = ((hashed ^ _SIGN) >> 32) * self._block_count
        block, tag = position >> 32, (position >> 16) & 0xFFFF
        table, stride, tags = self._table, self._stride, self._tags
        at = block * stride
        first, end = table[at], table[at + stride]
        index = bisect_left(tags, tag, first, end)
        while index < end and tags[index] == tag:
            if self._unverified[block]:
                self.verify_block(block)
            row = index - first
            if all(
                reader.canonical(self._mapping, table, at + 1, row) == part
                for reader, part in zip(self._key_readers, parts, strict=True)
            ):
                return block, row
            index += 1
        return None

    def read(self, reader: ColumnReader, row: Row) -> object:
        """One column of a row that `find` found."""
        block, index = row
        if type(reader) is ArrowColumn:
            return self.batch(block).column(reader.index)[index].as_py()
        return reader.value(self._mapping, self._table, block * self._stride + 1, index)

    def batch(self, block: int) -> pa.RecordBatch:
        """A block as Arrow sees it, without a copy."""
        entry = self._entry(block)
        data = pa.py_buffer(self._view[entry.offset : entry.offset + entry.length])
        return pa.ipc.read_record_batch(pa.ipc.read_message(data), self.schema)

    # -- checks -------------------------------------------------------------------------------------------------------

    def verify_block(self, block: int) -> None:
        """CorruptShard unless the block is what was written; asked once per block."""
        entry = self._entry(block)
        entry.check_block(self._view[entry.offset : entry.offset + entry.length], block, key=self.name)
        self._unverified[block] = 0

    def verify_all(self) -> None:
        """Every block that was not looked at before."""
        for block in np.flatnonzero(np.frombuffer(self._unverified, np.uint8)).tolist():
            self.verify_block(block)

    def _entry(self, block: int) -> DirectoryEntry:
        start = self._directory_offset + block * DIRECTORY_ENTRY_BYTES
        entry = self._view[start : start + DIRECTORY_ENTRY_BYTES]
        return DirectoryEntry.unpack(entry, block, fingerprint=self._trailer.fingerprint, key=self.name)

    def _checked_trailer(self, size: int) -> Trailer:
        start = trailer_offset(size, bytes(self._view[-_END_BYTES:]), key=self.name)
        trailer = Trailer.unpack(bytes(self._view[start : start + TRAILER_BYTES]), key=self.name)
        for section, offset, length, checksum in (
            ("directory", trailer.directory_offset, trailer.directory_bytes, trailer.directory_checksum),
            ("block table", trailer.table_offset, trailer.table_bytes, trailer.table_checksum),
            ("tags", trailer.tags_offset, trailer.tags_bytes, trailer.tags_checksum),
        ):
            if offset % 8 or offset + length > start or xxh3_64_intdigest(self._section(offset, length)) != checksum:
                raise CorruptShard(self.name, f"its {section} fails its checksum")
        return trailer

    def _check_table(self, buffers: int, size: int) -> None:
        """Many keys at once are looked up in plain memory, so no number of the index may point outside the file."""
        trailer = self._trailer
        if trailer.buffer_count != buffers or not trailer.block_count:
            raise CorruptShard(self.name, f"its rows have {trailer.buffer_count} buffers, the schema's {buffers}")
        section = self._section(trailer.table_offset, trailer.table_bytes)
        table = np.frombuffer(section, "<u8").reshape(trailer.block_count + 1, trailer.table_stride)
        first = table[:, 0]
        if first[0] or first[-1] != trailer.row_count or (first[1:] < first[:-1]).any() or (table[:, 1:] >= size).any():
            raise CorruptShard(self.name, "its block table is not one of this file")

    def _section(self, offset: int, length: int) -> memoryview:
        return self._view[offset : offset + length]
