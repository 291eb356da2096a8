"""Many rows at once: find them by hash in all shards together, and gather their columns into Arrow arrays (K14).

No Python runs per row here. `find` answers where each key is; `gather` copies one column of the rows that were found.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.arrow_memory import fixed_values, variable_parts
from holdfast.errors import BadInput
from holdfast.kv.columns import column_readers
from holdfast.kv.keys import KeySchema
from holdfast.kv.mapped import MappedShard
from holdfast.kv.rows import plain
from holdfast.kv.shard_format import places
from holdfast.kv.window import NEAR, Window
from holdfast.xxh64 import Hashes

__all__ = ["Gatherer", "Places"]

Indices = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Tags = npt.NDArray[np.uint16]
Bytes = npt.NDArray[np.uint8]

_ARROW_BYTES_MAX = (1 << 31) - 1
_SHORT_BYTES = 43
"""Up to this mean length, values are copied byte by byte with one array operation; above it, one by one."""


@dataclass(frozen=True, slots=True)
class Places:
    """Where the found ones of many keys are."""

    found: npt.NDArray[np.bool_]
    """For each key that was asked for."""
    shard: Indices
    """For each key that was found, as counted among the shards that have rows."""
    block: Indices
    row: Indices
    at: Indices
    """Where the block's row of the block table begins, in the window."""
    base: Indices
    """Where the shard's file begins, in the window."""

    def only(self, flags: Flags) -> Places:
        """Some of them."""
        return Places(flags, self.shard[flags], self.block[flags], self.row[flags], self.at[flags], self.base[flags])


class Gatherer:
    """The mapped shards of one snapshot, seen as one."""

    def __init__(self, shards: Sequence[MappedShard], *, schema: pa.Schema, key: KeySchema) -> None:
        self._shards = list(shards)
        self._schema = schema
        self._readers = column_readers(schema)
        self._key = key
        self._window = Window([shard.view for shard in shards])
        self._stride = shards[0].trailer.table_stride if shards else 1
        self._block_counts = np.array([shard.block_count for shard in shards], np.uint64)
        self._tables = np.array(
            [(base + s.trailer.table_offset) >> 3 for s, base in zip(shards, self._window.bases, strict=True)], np.int64
        )
        self._tags = np.array(
            [(base + s.trailer.tags_offset) >> 1 for s, base in zip(shards, self._window.bases, strict=True)], np.int64
        )
        counts = [shard.block_count for shard in shards]
        self._first_blocks = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
        self._unverified = np.concatenate(
            [np.frombuffer(shard.unverified, np.uint8) for shard in shards] or [np.empty(0, np.uint8)]
        )

    # -- finding ------------------------------------------------------------------------------------------------------

    def find(self, arrays: Sequence[pa.Array], hashes: Hashes, shards: Indices) -> Places:
        """Where each key is; `shards` count the shards that have rows, below 0 for a key that is nowhere."""
        everywhere = bool((shards >= 0).all())
        asked = np.arange(len(hashes)) if everywhere else np.flatnonzero(shards >= 0)
        if not everywhere:
            hashes, shards = hashes[asked], shards[asked]
        blocks, tags = places(hashes, self._block_counts[shards])
        at = self._tables[shards] + blocks * self._stride
        first = self._tags[shards] + self._window.i64[at]
        end = self._tags[shards] + self._window.i64[at + self._stride]
        candidate, having = self._candidates(tags, first, end)
        where = Places(having, shards, blocks, candidate - first, at, self._window.bases[shards])
        if not having.all():
            asked, hashes, where = asked[having], hashes[having], where.only(having)
        self._verify(where)
        whole = len(asked) == len(arrays[0])
        same = self._same_keys(arrays if whole else [array.take(pa.array(asked)) for array in arrays], where)
        if not same.all():
            self._look_further(arrays, asked, hashes, where, same)
            if not same.all():
                asked, where = asked[same], where.only(same)
        return replace(where, found=_marked(len(arrays[0]), asked))

    def _look_further(
        self, arrays: Sequence[pa.Array], asked: Indices, hashes: Hashes, where: Places, same: Flags
    ) -> None:
        """One by one, the few whose first candidate was another key: of five hundred rows, one shares its tag."""
        for index in np.flatnonzero(~same).tolist():
            parts = tuple(array[int(asked[index])].as_py() for array in arrays)
            key = parts if self._key.is_composite else parts[0]
            row = self._shards[int(where.shard[index])].find(int(hashes[index]), self._key.encode(key))
            if row is not None:
                where.row[index] = row[1]
                same[index] = True

    def _candidates(self, tags: Tags, first: Indices, end: Indices) -> tuple[Indices, Flags]:
        """The first row of its block that has the tag, for each; and whether there is one at all.

        Tags are spread evenly, so most are found close to where they should be: a few dozen tags around there are
        looked at together. Only where those do not decide is the block bisected.
        """
        count = end - first
        begin = np.maximum(first, first + ((tags.astype(np.int64) * count) >> 16) - NEAR // 2)
        at_least = self._window.near[begin] >= tags[:, None]
        nth = at_least.argmax(axis=1)
        candidate = begin + nth
        # Where the first that was seen is not below the tag, there may be one before it.
        # Where all that was seen is below the tag, it may come later.
        undecided = nth == 0
        if undecided.any():
            rest = np.flatnonzero(undecided & ((begin > first) | ~at_least[:, 0]))
            candidate[rest] = _lower_bound(self._window.u16, tags[rest], first[rest], end[rest])
        np.minimum(candidate, end, out=candidate)
        return candidate, (self._window.u16[candidate] == tags) & (candidate < end)

    def _same_keys(self, wanted: Sequence[pa.Array], where: Places) -> Flags:
        """Whether each row has the key that was asked for."""
        same: Flags | None = None
        for index, keys in enumerate(wanted):
            if pa.types.is_integer(keys.type):
                width = keys.type.byte_width
                found = self._fixed_values(index, width, where).view(f"<i{width}")
                equal: Flags = found == fixed_values(keys, f"<i{width}")
            elif _is_variable(keys.type):
                equal = self._same_bytes(index, keys, where)
            else:
                equal = pc.equal(plain(self.gather(index, where)), plain(keys)).to_numpy(zero_copy_only=False)
            same = equal if same is None else same & equal
        assert same is not None
        return same

    def _same_bytes(self, column: int, keys: pa.Array, where: Places) -> Flags:
        """Texts and bytes are compared eight bytes at a time, where they lie."""
        starts, lengths = self._spans(column, keys.type, where)
        data, offsets = variable_parts(keys)
        same: Flags = lengths == np.diff(offsets)
        words = (lengths + 7) >> 3
        padded = np.concatenate((data[offsets[0] : offsets[-1]], np.zeros(8, np.uint8)))
        offsets = offsets - offsets[0]
        # Word n of every key that has so many, for one n after the other: keys are short.
        for number in range(int(words.max(initial=0))):
            rows = np.flatnonzero(same & (words > number))
            rest = np.minimum(lengths[rows] - 8 * number, 8).astype(np.uint64)
            differ = _words(self._window.u8, starts[rows] + 8 * number) ^ _words(padded, offsets[rows] + 8 * number)
            same[rows[(differ << ((np.uint64(8) - rest) << np.uint64(3))) != 0]] = False
        return same

    def _verify(self, where: Places) -> None:
        """Check the blocks that nobody has looked at yet."""
        numbers = self._first_blocks[where.shard] + where.block
        unverified = self._unverified[numbers]
        if not unverified.any():
            return
        fresh = numbers[unverified != 0]
        for number in np.unique(fresh).tolist():
            shard = int(np.searchsorted(self._first_blocks, number, side="right")) - 1
            self._shards[shard].verify_block(number - int(self._first_blocks[shard]))
            self._unverified[number] = 0

    # -- gathering ----------------------------------------------------------------------------------------------------

    def gather(self, column: int, where: Places) -> pa.Array:
        """One column of the rows that were found, in their order."""
        kind = self._schema.field(column).type
        storage = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
        if pa.types.is_nested(storage) or pa.types.is_null(storage):
            return self._gather_from_batches(column, where)
        validity = self._validity(column, where) if self._schema.field(column).nullable else None
        if _is_variable(storage):
            found = self._gather_variable(column, storage, where, validity)
        elif pa.types.is_boolean(storage):
            bits = self._bits(self._buffer(column, 1, where), where.row)
            found = pa.Array.from_buffers(storage, len(bits), [validity, _bitmap(bits)])
        else:
            values = self._fixed_values(column, storage.byte_width, where)
            found = pa.Array.from_buffers(storage, len(values), [validity, pa.py_buffer(values)])
        return pa.ExtensionArray.from_storage(kind, found) if isinstance(kind, pa.BaseExtensionType) else found

    def _buffer(self, column: int, number: int, where: Places) -> Indices:
        """Where one buffer of each row's block starts in the window; nonsense for a buffer that is empty."""
        return self._window.i64[where.at + (1 + self._readers[column].first_buffer + number)] + where.base

    def _bits(self, starts: Indices, rows: Indices) -> Flags:
        return (self._window.u8[starts + (rows >> 3)] >> (rows & 7).astype(np.uint8) & 1).astype(bool)

    def _validity(self, column: int, where: Places) -> pa.Buffer | None:
        offsets = self._window.i64[where.at + (1 + self._readers[column].first_buffer)]
        some = np.flatnonzero(offsets)
        if not len(some):
            return None
        valid = np.ones(len(offsets), dtype=bool)
        valid[some] = self._bits(offsets[some] + where.base[some], where.row[some])
        return None if valid.all() else _bitmap(valid)

    def _fixed_values(self, column: int, width: int, where: Places) -> npt.NDArray[Any]:
        starts = self._buffer(column, 1, where)
        if width == 8:
            words: npt.NDArray[Any] = self._window.i64[(starts >> 3) + where.row]
            return words
        if width == 4:
            halves: npt.NDArray[Any] = self._window.i32[(starts >> 2) + where.row]
            return halves
        return self._window.pieces(starts + where.row * width, width)

    def _gather_variable(self, column: int, kind: pa.DataType, where: Places, validity: pa.Buffer | None) -> pa.Array:
        starts, lengths = self._spans(column, kind, where)
        offsets = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        if offsets[-1] > _ARROW_BYTES_MAX and not _is_wide(kind):
            raise BadInput("the values asked for are more than two gigabytes together: ask for fewer keys at a time")
        data = self._copy(starts, lengths, offsets)
        stored = offsets if _is_wide(kind) else offsets.astype(np.int32)
        return pa.Array.from_buffers(kind, len(lengths), [validity, pa.py_buffer(stored), pa.py_buffer(data)])

    def bytes_of(self, column: int, where: Places) -> list[bytes] | None:
        """The values of a column of bytes as Python has them, if all are there and of one length; None if not."""
        kind = self._schema.field(column).type
        if not (pa.types.is_binary(kind) or pa.types.is_large_binary(kind)) or not len(where.row):
            return None
        if self._schema.field(column).nullable and self._validity(column, where) is not None:
            return None
        starts, lengths = self._spans(column, kind, where)
        length = int(lengths[0])
        if length == 0 or (lengths != length).any():
            return None
        return self._window.pieces(starts, length).tolist()  # type: ignore[no-any-return]

    def _spans(self, column: int, kind: pa.DataType, where: Places) -> tuple[Indices, Indices]:
        """Where each value of a text or binary column starts in the window, and how long it is."""
        numbers, shift = (self._window.i64, 3) if _is_wide(kind) else (self._window.i32, 2)
        index = (self._buffer(column, 1, where) >> shift) + where.row
        within = numbers[index]
        return self._buffer(column, 2, where) + within, (numbers[index + 1] - within).astype(np.int64)

    def _copy(self, starts: Indices, lengths: Indices, offsets: Indices) -> bytes | Bytes:
        """The bytes of all spans, one after the other, in the way that is cheapest for what they look like."""
        total, count = int(offsets[-1]), len(lengths)
        if total == 0:
            return b""
        if total == count * int(lengths[0]) and (lengths == lengths[0]).all():
            return self._window.pieces(starts, int(lengths[0])).view(np.uint8)
        if total < _SHORT_BYTES * count:
            distances = np.repeat(starts - offsets[:-1], lengths)
            distances += np.arange(total)
            return self._window.u8[distances]
        view = self._window.u8.data
        spans = zip(starts.tolist(), (starts + lengths).tolist(), strict=True)
        return b"".join([view[start:end] for start, end in spans])  # one copy per value, whatever its length

    def _gather_from_batches(self, column: int, where: Places) -> pa.Array:
        """Nested columns, block by block."""
        numbers = self._first_blocks[where.shard] + where.block
        order = np.argsort(numbers, kind="stable")
        edges = np.flatnonzero(np.diff(numbers[order])) + 1
        parts = []
        for rows in np.split(order, edges) if len(order) else []:
            batch = self._shards[int(where.shard[rows[0]])].batch(int(where.block[rows[0]]))
            parts.append(batch.column(column).take(pa.array(where.row[rows])))
        if not parts:
            return pa.array([], self._schema.field(column).type)
        inverse = np.empty(len(order), np.int64)
        inverse[order] = np.arange(len(order))
        return pa.concat_arrays(parts).take(pa.array(inverse))


def _lower_bound(
    values: npt.NDArray[np.uint16], wanted: npt.NDArray[np.uint16], first: Indices, end: Indices
) -> Indices:
    """The first place from `first` on, before `end`, whose value is not below the wanted one: one bisection for all."""
    low, high = first.copy(), end.copy()
    widest = int((end - first).max()) if len(first) else 0
    for _ in range(widest.bit_length()):
        middle = (low + high) >> 1
        # Where low has met high, middle is high: outside the block, perhaps, but still inside the file's index.
        below = (values[middle] < wanted) & (low < high)
        low = np.where(below, middle + 1, low)
        high = np.where(below, high, middle)
    return low


def _words(data: Bytes, starts: Indices) -> npt.NDArray[np.uint64]:
    """The eight bytes from each start on, as numbers."""
    return np.ndarray((len(data) - 7,), "<u8", data, strides=(1,))[starts]


def _marked(count: int, places: Indices) -> Flags:
    flags = np.zeros(count, dtype=bool)
    flags[places] = True
    return flags


def _bitmap(bits: npt.NDArray[np.bool_]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(bits, bitorder="little"))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_wide(kind: pa.DataType) -> bool:
    return bool(pa.types.is_large_binary(kind) or pa.types.is_large_string(kind))


def _is_variable(kind: pa.DataType) -> bool:
    return bool(_is_text(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind))
