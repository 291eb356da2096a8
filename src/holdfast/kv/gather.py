"""Many rows at once: find them by hash in all shards together, and gather their columns into Arrow arrays (K14).

No Python runs per row here. `find` answers where each key is; `gather` copies one column of the rows that were found.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.errors import BadInput
from holdfast.kv.columns import column_readers
from holdfast.kv.keys import KeySchema, fixed_values
from holdfast.kv.mapped import MappedShard
from holdfast.kv.shard_format import places
from holdfast.kv.window import NEAR, Window
from holdfast.kv.xxh64 import Hashes

__all__ = ["Gatherer", "Places"]

Indices = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Tags = npt.NDArray[np.uint16]
Bytes = npt.NDArray[np.uint8]

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


class Gatherer:
    """The mapped shards of one snapshot, seen as one."""

    def __init__(self, shards: Sequence[MappedShard], *, schema: pa.Schema, key: KeySchema) -> None:
        self._shards = list(shards)
        self._schema = schema
        self._readers = column_readers(schema)
        self._key_count = len(key.columns)
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
        """Where each key is; `shards` are positions among the shards that have rows, below 0 for a key that is nowhere."""
        everywhere = bool((shards >= 0).all())
        asked = np.arange(len(hashes)) if everywhere else np.flatnonzero(shards >= 0)
        if not everywhere:
            hashes, shards = hashes[asked], shards[asked]
        bases = self._window.bases[shards]
        blocks, tags = places(hashes, self._block_counts[shards])
        at = self._tables[shards] + blocks * self._stride
        first = self._tags[shards] + self._window.i64[at]
        end = self._tags[shards] + self._window.i64[at + self._stride]
        candidate, open_ = self._candidates(tags, first, end)
        hit = np.zeros(len(asked), dtype=bool)
        while len(open_):  # almost always once: two rows of a block share a tag in one of five hundred
            whole = len(open_) == len(asked)
            some = Places(
                found=hit,
                shard=shards if whole else shards[open_],
                block=blocks if whole else blocks[open_],
                row=candidate - first if whole else candidate[open_] - first[open_],
                at=at if whole else at[open_],
                base=bases if whole else bases[open_],
            )
            self._verify(some)
            same = self._same_keys(arrays, None if whole and everywhere else asked[open_], some)
            if whole and same.all():
                return replace(some, found=np.ones(len(asked), bool) if everywhere else _marked(len(arrays[0]), asked))
            hit[open_[same]] = True
            open_ = open_[~same]
            candidate[open_] += 1
            open_ = open_[candidate[open_] < end[open_]]
            open_ = open_[self._window.u16[candidate[open_]] == tags[open_]]
        found = _marked(len(arrays[0]), asked[hit])
        return Places(found, shards[hit], blocks[hit], (candidate - first)[hit], at[hit], bases[hit])

    def _candidates(self, tags: Tags, first: Indices, end: Indices) -> tuple[Indices, Indices]:
        """The first row of its block that has the tag, for each; and which of them have one at all.

        Tags are spread evenly, so most are found close to where they should be: a few dozen tags around there are
        looked at together. Only where those do not decide is the block bisected.
        """
        count = end - first
        begin = np.maximum(first, first + ((tags.astype(np.int64) * count) >> 16) - NEAR // 2)
        at_least = self._window.near[begin] >= tags[:, None]
        nth = at_least.argmax(axis=1)
        candidate = begin + nth
        # Where the first that was seen is not below the tag, there may be one before it; unless it is the block's first.
        undecided = (nth == 0) & (begin > first)
        beyond = (nth == 0) & ~at_least[:, 0]
        if undecided.any() or beyond.any():
            rest = np.flatnonzero(undecided | beyond)
            candidate[rest] = _lower_bound(self._window.u16, tags[rest], first[rest], end[rest])
        np.minimum(candidate, end, out=candidate)
        has = (self._window.u16[candidate] == tags) & (candidate < end)
        return candidate, np.arange(len(tags)) if has.all() else np.flatnonzero(has)

    def _same_keys(self, arrays: Sequence[pa.Array], asked: Indices | None, where: Places) -> Flags:
        """Whether each row has the key that was asked for: `asked` of the arrays, or all."""
        same: Flags | None = None
        for index in range(self._key_count):
            wanted = arrays[index] if asked is None else arrays[index].take(pa.array(asked))
            if pa.types.is_integer(wanted.type):
                width = wanted.type.byte_width
                found = self._fixed_values(index, width, where).view(f"<i{width}")
                equal = found == fixed_values(wanted, f"<i{width}")
            else:
                equal = pc.equal(_plain(self.gather(index, where)), _plain(wanted)).to_numpy(zero_copy_only=False)
            same = equal if same is None else same & equal
        assert same is not None
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

    def _fixed_values(self, column: int, width: int, where: Places) -> npt.NDArray[np.generic]:
        starts = self._buffer(column, 1, where)
        if width == 8:
            return self._window.i64[(starts >> 3) + where.row]
        if width == 4:
            return self._window.i32[(starts >> 2) + where.row]
        return self._window.pieces(starts + where.row * width, width)

    def _gather_variable(self, column: int, kind: pa.DataType, where: Places, validity: pa.Buffer | None) -> pa.Array:
        numbers, shift = (self._window.i64, 3) if _is_wide(kind) else (self._window.i32, 2)
        index = (self._buffer(column, 1, where) >> shift) + where.row
        within, ends = numbers[index], numbers[index + 1]
        lengths = ends - within
        offsets = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        if offsets[-1] > np.iinfo(numbers.dtype).max:
            raise BadInput("the values asked for are more than two gigabytes together: ask for fewer keys at a time")
        data = self._copy(self._buffer(column, 2, where) + within, lengths, offsets)
        return pa.Array.from_buffers(
            kind, len(lengths), [validity, pa.py_buffer(offsets.astype(numbers.dtype)), pa.py_buffer(data)]
        )

    def _copy(self, starts: Indices, lengths: npt.NDArray[np.signedinteger], offsets: Indices) -> bytes | Bytes:
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
        view = memoryview(self._window.u8)
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


def _marked(count: int, places: Indices) -> Flags:
    flags = np.zeros(count, dtype=bool)
    flags[places] = True
    return flags


def _bitmap(bits: npt.NDArray[np.bool_]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(bits, bitorder="little"))


def _plain(array: pa.Array) -> pa.Array:
    return array.storage.cast(pa.binary()) if isinstance(array, pa.ExtensionArray) else array


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_wide(kind: pa.DataType) -> bool:
    return bool(pa.types.is_large_binary(kind) or pa.types.is_large_string(kind))


def _is_variable(kind: pa.DataType) -> bool:
    return bool(_is_text(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind))
