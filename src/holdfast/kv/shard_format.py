"""The shard file, byte by byte: an Arrow IPC file whose record batches are blocks of rows, with an index inside (K17).

    ARROW1 · schema · block · block · … · end-of-stream ·
    directory · block table · tags · trailer · end-of-stream · footer

Any Arrow reader sees an ordinary IPC file: the footer names the blocks, and a reader of streams stops at the first
end-of-stream mark. Rows are ordered by hash. The block of a key follows from its hash alone, without any search:

    position = (((hash ^ 2**63) >> 32) * block_count)        a whole number below block_count * 2**32
    block    = position >> 32
    tag      = (position >> 16) & 0xffff                     where in the block's part of the hash space

so a cold look-up reads one directory entry and one block. The tags of all rows, two bytes each and in order within a
block, tell which row of a block it can be; then the key itself is compared.

Every part has a checksum (XXH3, 64 bits): each block, each directory entry, the three sections of the index, the
trailer. The directory has a fingerprint, which manifests carry: it covers every block, and takes part in the checksum
of every entry, so that one shard is never taken for another.
`docs/format.md` is the normative text; golden files under `tests/golden/` stay readable for ever.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from xxhash import xxh3_64_intdigest

from holdfast.errors import CorruptShard, UnsupportedFormat

__all__ = [
    "BLOCK_ROWS",
    "DIRECTORY_ENTRY_BYTES",
    "DIRECTORY_HEAD_BYTES",
    "END_OF_STREAM",
    "SHARD_FORMAT_MAJOR",
    "TRAILER_BYTES",
    "DirectoryEntry",
    "Trailer",
    "block_target_bytes",
    "buffer_count",
    "buffer_spans",
    "place",
    "places",
    "sealed_entries",
    "trailer_offset",
]

SHARD_FORMAT_MAJOR = 1
SHARD_FORMAT_MINOR = 0

BLOCK_ROWS = 128
"""Rows of a block, on average, unless they are large: a cold look-up moves one block."""

END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"

_SIGN = 1 << 63
_MAGIC = b"HFSHARD\x00"
_TRAILER = Struct("<8sIIQQIIQQQQQQQ")
_TRAILER_CHECKED = 120
TRAILER_BYTES = 128
_FOOTER_END = Struct("<i6s")
_IPC_MAGIC = b"ARROW1"

_ENTRY = Struct("<QIIQQ")
DIRECTORY_ENTRY_BYTES = _ENTRY.size
_ENTRY_HEAD = Struct("<QIIQ")
DIRECTORY_HEAD_BYTES = _ENTRY_HEAD.size

Hashes = npt.NDArray[np.uint64]


def place(hashed: int, block_count: int) -> tuple[int, int]:
    """The block of a hash, and its tag there."""
    position = ((hashed ^ _SIGN) >> 32) * block_count
    return position >> 32, (position >> 16) & 0xFFFF


def places(hashes: Hashes, block_count: int | Hashes) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint16]]:
    """The same for many; `block_count` may be an array, one per hash."""
    position = ((hashes ^ np.uint64(_SIGN)) >> np.uint64(32)) * np.asarray(block_count, np.uint64)
    return (position >> np.uint64(32)).astype(np.int64), (position >> np.uint64(16)).astype(np.uint16)


def block_target_bytes(buffers: int) -> int:
    """How large a block may become before it has fewer than `BLOCK_ROWS` rows: wide rows carry more bookkeeping."""
    return 16_384 + 256 * buffers


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryEntry:
    """Where one block is, and what its bytes hash to."""

    offset: int
    length: int
    rows: int
    checksum: int

    def head(self) -> bytes:
        """All but its checksum: what the directory's fingerprint is made of."""
        return _ENTRY_HEAD.pack(self.offset, self.length, self.rows, self.checksum)

    @classmethod
    def unpack(cls, data: bytes | memoryview, block: int, *, fingerprint: int, key: str) -> DirectoryEntry:
        """Parse and check one entry, which knows its own number and its directory's fingerprint."""
        if len(data) != DIRECTORY_ENTRY_BYTES:
            raise CorruptShard(key, f"directory entry {block} is cut short")
        offset, length, rows, checksum, check = _ENTRY.unpack(data)
        if check != xxh3_64_intdigest(bytes(data[: _ENTRY_HEAD.size]), fingerprint ^ block):
            raise CorruptShard(key, f"directory entry {block} fails its checksum")
        return cls(offset=offset, length=length, rows=rows, checksum=checksum)

    def check_block(self, data: bytes | memoryview, block: int, *, key: str) -> None:
        """CorruptShard unless these are the block's bytes."""
        if len(data) != self.length or xxh3_64_intdigest(data) != self.checksum:
            raise CorruptShard(
                key, f"block {block} (bytes {self.offset} to {self.offset + self.length}) fails its checksum"
            )


def sealed_entries(heads: bytes, first_block: int, fingerprint: int) -> bytes:
    """Heads of entries as they are stored: each with a checksum that its block's number and the fingerprint go into."""
    width = _ENTRY_HEAD.size
    return b"".join(
        (head := heads[at : at + width]) + xxh3_64_intdigest(head, fingerprint ^ block).to_bytes(8, "little")
        for block, at in enumerate(range(0, len(heads), width), first_block)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Trailer:
    """The last part of the index: what a file needs no manifest to tell."""

    block_count: int
    row_count: int
    buffer_count: int
    directory_offset: int
    table_offset: int
    tags_offset: int
    directory_checksum: int
    table_checksum: int
    tags_checksum: int
    fingerprint: int
    """XXH3 of the heads of all directory entries, one after the other: of every block, therefore."""

    @property
    def table_stride(self) -> int:
        """Numbers per row of the block table: the block's first row, then where each of its buffers is."""
        return 1 + self.buffer_count

    @property
    def directory_bytes(self) -> int:
        return self.block_count * DIRECTORY_ENTRY_BYTES

    @property
    def table_bytes(self) -> int:
        return (self.block_count + 1) * self.table_stride * 8

    @property
    def tags_bytes(self) -> int:
        return self.row_count * 2

    def pack(self) -> bytes:
        head = _TRAILER.pack(
            _MAGIC,
            SHARD_FORMAT_MAJOR,
            SHARD_FORMAT_MINOR,
            self.block_count,
            self.row_count,
            self.buffer_count,
            0,
            self.directory_offset,
            self.table_offset,
            self.tags_offset,
            self.directory_checksum,
            self.table_checksum,
            self.tags_checksum,
            self.fingerprint,
        ).ljust(_TRAILER_CHECKED, b"\x00")
        return head + xxh3_64_intdigest(head).to_bytes(8, "little")

    @classmethod
    def unpack(cls, data: bytes, *, key: str) -> Trailer:
        if len(data) != TRAILER_BYTES or data[: len(_MAGIC)] != _MAGIC:
            raise CorruptShard(key, "it has no shard trailer")
        if int.from_bytes(data[_TRAILER_CHECKED:], "little") != xxh3_64_intdigest(data[:_TRAILER_CHECKED]):
            raise CorruptShard(key, "its trailer fails its checksum")
        _, major, minor, blocks, rows, buffers, _, *offsets_and_checksums = _TRAILER.unpack(data[: _TRAILER.size])
        if not major:
            raise CorruptShard(key, "it has no format version")
        if major > SHARD_FORMAT_MAJOR:
            raise UnsupportedFormat(
                f"shard {key!r} has format {major}.{minor}, newer than this release reads ({SHARD_FORMAT_MAJOR}); "
                "upgrade Holdfast"
            )
        directory, table, tags, directory_checksum, table_checksum, tags_checksum, fingerprint = offsets_and_checksums
        return cls(
            block_count=blocks,
            row_count=rows,
            buffer_count=buffers,
            directory_offset=directory,
            table_offset=table,
            tags_offset=tags,
            directory_checksum=directory_checksum,
            table_checksum=table_checksum,
            tags_checksum=tags_checksum,
            fingerprint=fingerprint,
        )


def trailer_offset(size: int, end: bytes, *, key: str) -> int:
    """Where the trailer starts, from a file's size and its last ten bytes."""
    if len(end) != _FOOTER_END.size:
        raise CorruptShard(key, "it is cut short")
    footer_bytes, magic = _FOOTER_END.unpack(end)
    start: int = size - _FOOTER_END.size - footer_bytes - len(END_OF_STREAM) - TRAILER_BYTES
    if magic != _IPC_MAGIC or footer_bytes < 0 or start < 0:
        raise CorruptShard(key, "it does not end like an Arrow file")
    return start


def buffer_count(kind: pa.DataType) -> int:
    """How many buffers a column of this type has in a record batch, those of its children included."""
    if isinstance(kind, pa.BaseExtensionType):
        return buffer_count(kind.storage_type)
    if pa.types.is_null(kind):
        return 0
    if pa.types.is_struct(kind):
        return 1 + sum(buffer_count(kind.field(index).type) for index in range(kind.num_fields))
    if pa.types.is_fixed_size_list(kind):
        return 1 + buffer_count(kind.value_type)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return 2 + buffer_count(kind.value_type)
    if pa.types.is_map(kind):
        return 2 + 1 + buffer_count(kind.key_type) + buffer_count(kind.item_type)
    if any(
        is_variable(kind)
        for is_variable in (
            pa.types.is_string,
            pa.types.is_binary,
            pa.types.is_large_string,
            pa.types.is_large_binary,
        )
    ):
        return 3
    return 2


_U16 = Struct("<H")
_U32 = Struct("<I")
_I32 = Struct("<i")


def buffer_spans(block: memoryview) -> tuple[int, memoryview]:
    """Where the buffers of an encapsulated record batch are, from the batch's own metadata.

    Answers with where the batch's body begins in the block, and with the (start, length) of every buffer of the body,
    as pairs of little-endian 64-bit numbers, just as they are stored. This is the little of FlatBuffers that it takes:
    two tables and one vector of structs, at the places the Arrow format fixes for ever (Message: `header` is field 2;
    RecordBatch: `buffers` is field 2).
    """
    metadata_bytes = _I32.unpack_from(block, 4)[0]
    message = 8 + _U32.unpack_from(block, 8)[0]
    header = _field(block, message, 2)
    batch = header + _U32.unpack_from(block, header)[0]
    vector = _field(block, batch, 2)
    vector += _U32.unpack_from(block, vector)[0]
    count = _U32.unpack_from(block, vector)[0]
    return 8 + metadata_bytes, block[vector + 4 : vector + 4 + 16 * count]


def _field(data: memoryview, table: int, number: int) -> int:
    """Where a table keeps one of its fields."""
    vtable = table - _I32.unpack_from(data, table)[0]
    return int(table + _U16.unpack_from(data, vtable + 4 + 2 * number)[0])
