"""A stored shard from its first row to its last, through the store, a few megabytes at a time (K9).

No index is needed for that but the directory, which says where each block is and what its bytes hash to, and which the
manifest's fingerprint vouches for: a block is checked before any of its rows is used. The hashes of the keys are not
stored; they are computed again, and must be in order.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from holdfast.errors import CorruptShard, ObjectNotFound
from holdfast.kv.dataset import Shard
from holdfast.kv.keys import KeySchema
from holdfast.kv.shard_format import DIRECTORY_ENTRY_BYTES, END_OF_STREAM, DirectoryEntry, place
from holdfast.kv.shard_writer import SortedRows
from holdfast.storage.objects import ObjectStore

__all__ = ["StoredRows"]

_RANGE_BYTES = 4 << 20
"""How much is read by one request, unless a single block is larger."""
_ENTRIES = 16_384
"""How many entries of the directory are read by one request."""


class StoredRows:
    """The rows of one shard file, in the order of their hashes."""

    def __init__(self, store: ObjectStore, shard: Shard, *, schema: pa.Schema, key: KeySchema) -> None:
        self._store = store
        self._shard = shard
        self._schema = schema
        self._key = key
        self._head = schema.serialize().to_pybytes()

    def block_of(self, hashed: int) -> int:
        """Which block has the rows with this hash, if there are any."""
        return place(hashed, self._shard.block_count)[0]

    def rows(self, start_block: int = 0, end_block: int | None = None) -> Iterator[SortedRows]:
        """The rows of these blocks. CorruptShard if any of them is not what was written."""
        end = self._shard.block_count if end_block is None else end_block
        last: int | None = None
        for blocks in self._ranges(start_block, end):
            rows = self._read(blocks)
            signed = rows.hashes.view(np.int64)
            if (last is not None and signed[0] < last) or (signed[1:] < signed[:-1]).any():
                raise CorruptShard(self._shard.path, "its rows are not in the order of their hashes")
            last = int(signed[-1])
            yield rows

    def _ranges(self, start: int, end: int) -> Iterator[list[tuple[int, DirectoryEntry]]]:
        """Neighbouring blocks that have rows, as many as one request should read."""
        taken: list[tuple[int, DirectoryEntry]] = []
        for block, entry in self._entries(start, end):
            if entry.rows == 0:
                continue
            if taken:
                begin, (_, before) = taken[0][1].offset, taken[-1]
                adjoins = entry.offset == before.offset + before.length
                if not adjoins or entry.offset + entry.length - begin > _RANGE_BYTES:
                    yield taken
                    taken = []
            taken.append((block, entry))
        if taken:
            yield taken

    def _entries(self, start: int, end: int) -> Iterator[tuple[int, DirectoryEntry]]:
        for first in range(start, end, _ENTRIES):
            count = min(_ENTRIES, end - first)
            offset = self._shard.directory_offset + first * DIRECTORY_ENTRY_BYTES
            data = memoryview(self._get(offset, count * DIRECTORY_ENTRY_BYTES))
            for index in range(count):
                at = index * DIRECTORY_ENTRY_BYTES
                yield (
                    first + index,
                    DirectoryEntry.unpack(
                        data[at : at + DIRECTORY_ENTRY_BYTES],
                        first + index,
                        fingerprint=self._shard.fingerprint,
                        key=self._shard.path,
                    ),
                )

    def _read(self, blocks: list[tuple[int, DirectoryEntry]]) -> SortedRows:
        start = blocks[0][1].offset
        data = self._get(start, blocks[-1][1].offset + blocks[-1][1].length - start)
        view = memoryview(data)
        for block, entry in blocks:
            at = entry.offset - start
            entry.check_block(view[at : at + entry.length], block, key=self._shard.path)
        # Blocks are the messages of an Arrow stream: with the schema before and the mark after them they are one.
        with pa.ipc.open_stream(pa.py_buffer(b"".join((self._head, data, END_OF_STREAM)))) as stream:
            batch = pa.concat_batches(list(stream))
        arrays = [batch.column(index) for index in range(len(self._key.columns))]
        return SortedRows(batch, self._key.hash_arrays(arrays))

    def _get(self, start: int, length: int) -> bytes:
        try:
            return self._store.get_range(self._shard.path, start, length)
        except ObjectNotFound:
            raise CorruptShard(self._shard.path, "its file is missing") from None
