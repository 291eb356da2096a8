"""Look-ups by range requests, without doing any input or output themselves (K17).

A key's hash says which block it is in. The block's directory entry says where that block is and what its bytes hash to;
so a cold look-up is two requests, one for a page of the directory and one for the block, and a warm one is the second,
or none. Many keys take the same two rounds, each made in parallel: the pages that are missing, then the blocks.

Each function is a generator: it yields the ranges of one round and is sent their bytes. `DirectSnapshot` and
`AsyncDirectSnapshot` (`holdfast.kv.direct_snapshot`) make the requests.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from holdfast.errors import CorruptShard
from holdfast.kv.block_cache import BlockCache
from holdfast.kv.dataset import DataSet, Shard, ValueKind
from holdfast.kv.keys import Key
from holdfast.kv.mapped_snapshot import parse_json, to_python
from holdfast.kv.request import KeyColumns, Missing
from holdfast.kv.row_match import match_rows, row_finder
from holdfast.kv.shard_format import DIRECTORY_ENTRY_BYTES, DirectoryEntry, place, places

__all__ = ["DirectLookup", "Range", "Steps"]

WHOLE_DIRECTORY_BYTES = 256 << 10
"""Up to this size a shard's directory is fetched as a whole."""
PAGE_BYTES = 64 << 10
ROUND_BYTES = 32 << 20
"""What the answers of one round may hold in memory; what is more takes another round."""
MERGED_BYTES_MAX = 4 << 20
MERGED_GAP_BYTES = 16 << 10
"""Blocks that are at most so far apart are fetched by one request: fewer requests for a few bytes more."""
KEYS_AT_A_TIME = 65_536

_R = TypeVar("_R")
Indices = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Range:
    """Some bytes of an object."""

    key: str
    start: int
    length: int


Steps = Generator[Sequence[Range], Sequence[bytes], _R]
_Place = tuple[Shard, int]
"""(shard, block)."""


class DirectLookup:
    """The decisions of look-ups in one snapshot."""

    def __init__(self, dataset: DataSet, cache: BlockCache) -> None:
        self._dataset = dataset
        self._cache = cache
        self._shards = dataset.shards
        self._key_count = len(dataset.key.columns)
        self._value_names = dataset.value_schema.names
        self._row_of = row_finder(dataset.key)
        counts = [0 if shard is None else shard.block_count for shard in dataset.shards]
        self._block_counts = np.array(counts, np.uint64)
        self._first_blocks = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)

    # -- one key ------------------------------------------------------------------------------------------------------

    def get(self, key: Key, default: object) -> Steps[object]:
        found = yield from self._find(key)
        if found is None:
            return default
        batch, row = found
        names = self._value_names
        values = [batch.column(self._key_count + index)[row].as_py() for index in range(len(names))]
        match self._dataset.value:
            case ValueKind.ROW:
                return dict(zip(names, values, strict=True))
            case ValueKind.JSON:
                return parse_json(values[0])
            case ValueKind.BINARY:
                return values[0]

    def contains(self, key: Key) -> Steps[bool]:
        return (yield from self._find(key)) is not None

    def _find(self, key: Key) -> Steps[tuple[pa.RecordBatch, int] | None]:
        dataset = self._dataset
        hashed = dataset.key.hash_of(key)
        number = dataset.routing.shard_of(key, hashed)
        shard = self._shards[number] if 0 <= number < len(self._shards) else None
        if shard is None:
            return None
        block, _ = place(hashed, shard.block_count)
        batch = self._cache.block(shard.path, block)
        if batch is None:
            (entry,) = yield from self._entries([(shard, block)])
            if entry.rows == 0:
                return None
            (data,) = yield [Range(shard.path, entry.offset, entry.length)]
            batch = self._checked(shard, block, entry, data)
        row = self._row_of(batch, key)
        return None if row < 0 else (batch, row)

    # -- many keys ----------------------------------------------------------------------------------------------------

    def multi_get(self, keys: Sequence[Key]) -> Steps[dict[Key, object]]:
        found: dict[Key, object] = {}
        for start in range(0, len(keys), KEYS_AT_A_TIME):
            some = keys[start : start + KEYS_AT_A_TIME]
            hit, columns = yield from self._rows(KeyColumns.of_keys(self._dataset.key, some))
            hits = [key for key, is_hit in zip(some, hit.tolist(), strict=True) if is_hit]
            found.update(zip(hits, self._values(columns, len(hits)), strict=True))
        return found

    def get_arrow(self, keys: KeyColumns, missing: Missing) -> Steps[pa.Table]:
        tables = []
        for some in keys.slices(KEYS_AT_A_TIME):
            hit, columns = yield from self._rows(some)
            missing.check(some, hit)
            tables.append(missing.table(self._dataset.schema, some, hit, columns))
        return pa.concat_tables(tables)

    def _values(self, columns: Sequence[pa.Array], count: int) -> Iterator[object]:
        if self._dataset.value is ValueKind.ROW:
            names = self._value_names
            rows = zip(*(to_python(column) for column in columns), strict=True) if columns else iter([()] * count)
            return (dict(zip(names, row, strict=True)) for row in rows)
        values = to_python(columns[0])
        return map(parse_json, values) if self._dataset.value is ValueKind.JSON else iter(values)

    def _rows(self, keys: KeyColumns) -> Steps[tuple[npt.NDArray[np.bool_], list[pa.Array]]]:
        """Which keys are there, and the other columns of those that are, in their order."""
        numbers = self._dataset.routing.shards_of(keys.arrays, keys.hashes)
        inside = (numbers >= 0) & (numbers < len(self._shards))
        inside &= self._block_counts[np.where(inside, numbers, 0)] > 0
        asked = np.flatnonzero(inside)
        blocks, _ = places(keys.hashes[asked], self._block_counts[numbers[asked]])
        wanted, which = np.unique(self._first_blocks[numbers[asked]] + blocks, return_inverse=True)
        located = [self._place(number) for number in wanted.tolist()]
        entries = yield from self._entries(located)
        order = np.argsort(which, kind="stable")
        edges = np.searchsorted(which[order], np.arange(len(located) + 1))
        places_found: list[Indices] = [np.empty(0, np.int64)]
        parts: list[list[pa.Array]] = []
        for first, end in _rounds([entry.length for entry in entries], ROUND_BYTES):
            batches = yield from self._batches(located[first:end], entries[first:end])
            if not batches:
                continue
            some = asked[order[edges[first] : edges[end]]]
            columns = _columns(batches)
            rows = match_rows(columns[: self._key_count], keys, some)
            hit = rows >= 0
            places_found.append(some[hit])
            parts.append([column.take(pa.array(rows[hit])) for column in columns[self._key_count :]])
        there = np.concatenate(places_found)
        found = np.zeros(len(keys), dtype=bool)
        found[there] = True
        in_order = pa.array(np.argsort(there, kind="stable"))
        gathered = [
            pa.concat_arrays([part[index] for part in parts]).take(in_order) if parts else pa.array([], field.type)
            for index, field in enumerate(self._dataset.value_schema)
        ]
        return found, gathered

    def _place(self, number: int) -> _Place:
        index = int(np.searchsorted(self._first_blocks, number, side="right")) - 1
        shard = self._shards[index]
        assert shard is not None
        return shard, number - int(self._first_blocks[index])

    # -- directories --------------------------------------------------------------------------------------------------

    def _entries(self, located: Sequence[_Place]) -> Steps[list[DirectoryEntry]]:
        """The directory entry of each block: one round for all pages that are not remembered."""
        pages: dict[tuple[str, int], bytes] = {}
        absent: dict[tuple[str, int], Range] = {}
        for shard, block in located:
            page, asked = _page_of(shard, block)
            if (shard.path, page) in pages or (shard.path, page) in absent:
                continue
            held = self._cache.page(shard.path, page)
            if held is None:
                absent[shard.path, page] = asked
            else:
                pages[shard.path, page] = held
        names = list(absent)
        for first, end in _rounds([asked.length for asked in absent.values()], ROUND_BYTES):
            answers = yield [absent[name] for name in names[first:end]]
            for name, data in zip(names[first:end], answers, strict=True):
                pages[name] = data
                self._cache.put_page(*name, data)
        return [self._entry(shard, block, pages) for shard, block in located]

    def _entry(self, shard: Shard, block: int, pages: dict[tuple[str, int], bytes]) -> DirectoryEntry:
        page, asked = _page_of(shard, block)
        start = shard.directory_offset + block * DIRECTORY_ENTRY_BYTES - asked.start
        data = pages[shard.path, page][start : start + DIRECTORY_ENTRY_BYTES]
        try:
            return DirectoryEntry.unpack(data, block, fingerprint=shard.fingerprint, key=shard.path)
        except CorruptShard:
            self._cache.forget_page(shard.path, page)
            raise

    # -- blocks -------------------------------------------------------------------------------------------------------

    def _batches(self, located: Sequence[_Place], entries: Sequence[DirectoryEntry]) -> Steps[list[pa.RecordBatch]]:
        """The blocks that have rows, in their order: one round for all that are not remembered."""
        batches: list[pa.RecordBatch | None] = [None] * len(located)
        absent: list[int] = []
        for index, ((shard, block), entry) in enumerate(zip(located, entries, strict=True)):
            if entry.rows:
                batches[index] = self._cache.block(shard.path, block)
                if batches[index] is None:
                    absent.append(index)
        if absent:
            merged = _merged([(located[index][0].path, entries[index], index) for index in absent])
            answers = yield [asked for asked, _ in merged]
            for (asked, members), data in zip(merged, answers, strict=True):
                view = memoryview(data)
                for index in members:
                    start = entries[index].offset - asked.start
                    # A copy: what is remembered must not hold on to the blocks around it.
                    some = bytes(view[start : start + entries[index].length])
                    batches[index] = self._checked(*located[index], entries[index], some)
        return [batch for batch in batches if batch is not None]

    def _checked(self, shard: Shard, block: int, entry: DirectoryEntry, data: bytes) -> pa.RecordBatch:
        """A block's rows. Nothing of a block is looked at before its checksum was."""
        entry.check_block(data, block, key=shard.path)
        batch = pa.ipc.read_record_batch(pa.ipc.read_message(pa.py_buffer(data)), self._dataset.schema)
        self._cache.put_block(shard.path, block, batch, len(data))
        return batch


def _page_of(shard: Shard, block: int) -> tuple[int, Range]:
    """The page of a shard's directory that has a block's entry: its number, and where it is."""
    total = shard.block_count * DIRECTORY_ENTRY_BYTES
    if total <= WHOLE_DIRECTORY_BYTES:
        return 0, Range(shard.path, shard.directory_offset, total)
    page = block * DIRECTORY_ENTRY_BYTES // PAGE_BYTES
    start = page * PAGE_BYTES
    return page, Range(shard.path, shard.directory_offset + start, min(PAGE_BYTES, total - start))


def _rounds(sizes: Sequence[int], most: int) -> Iterator[tuple[int, int]]:
    """Spans of what fits into one round, at least one at a time."""
    first, total = 0, 0
    for index, size in enumerate(sizes):
        if index > first and total + size > most:
            yield first, index
            first, total = index, 0
        total += size
    if first < len(sizes):
        yield first, len(sizes)


def _merged(wanted: Iterable[tuple[str, DirectoryEntry, int]]) -> list[tuple[Range, list[int]]]:
    """Requests for blocks, neighbours together; each with the blocks that it answers."""
    merged: list[tuple[Range, list[int]]] = []
    for path, entry, index in sorted(wanted, key=lambda one: (one[0], one[1].offset)):
        if merged:
            last, members = merged[-1]
            gap = entry.offset - (last.start + last.length)
            length = entry.offset + entry.length - last.start
            if last.key == path and 0 <= gap <= MERGED_GAP_BYTES and length <= MERGED_BYTES_MAX:
                merged[-1] = Range(path, last.start, length), [*members, index]
                continue
        merged.append((Range(path, entry.offset, entry.length), [index]))
    return merged


def _columns(batches: Sequence[pa.RecordBatch]) -> list[pa.Array]:
    """The columns of some blocks, one after the other."""
    if len(batches) == 1:
        return list(batches[0].columns)
    return [pa.concat_arrays([batch.column(index) for batch in batches]) for index in range(batches[0].num_columns)]
