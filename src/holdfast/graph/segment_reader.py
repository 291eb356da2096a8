"""Reading parts of a segment: the row groups that may hold what a query wants, and nothing else (G7).

A small file is read whole and compared with the checksum in the manifest. Of a large one the end is read first (one
range), then row groups (one range each, neighbours together) and, to find ids that are not sorted, one bucket of the
index. Every range is compared with its own checksum before anything in it is decoded.
"""

from __future__ import annotations

import hashlib
import io
import threading
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from xxhash import xxh3_64_hexdigest

from holdfast.errors import CorruptShard, ObjectNotFound
from holdfast.graph.segment import SegmentDescriptor, check_columns, dictionary_columns
from holdfast.graph.segment_file import RowGroup, Tail, decode_tail
from holdfast.graph.segment_index import groups_in_bucket
from holdfast.storage.objects import ObjectStore

__all__ = ["RowGroupCache", "SegmentReader"]

WHOLE_MAX = 256 << 10
"""Up to so many bytes a file is read whole: one request, and the checksum of the manifest holds for all of it."""
CACHE_BYTES = 64 << 20

Hashes = npt.NDArray[np.uint64]


class RowGroupCache:
    """Decoded row groups of many segments, the last used; bounded by bytes. Threads may share it."""

    def __init__(self, bytes_max: int = CACHE_BYTES) -> None:
        self._bytes_max = bytes_max
        self._held: OrderedDict[tuple[str, int], pa.Table] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def get(self, key: tuple[str, int]) -> pa.Table | None:
        with self._lock:
            if key in self._held:
                self._held.move_to_end(key)
            return self._held.get(key)

    def put(self, key: tuple[str, int], table: pa.Table) -> None:
        with self._lock:
            if key not in self._held:
                self._held[key] = table
                self._bytes += table.nbytes
            while self._bytes > self._bytes_max and len(self._held) > 1:
                _, dropped = self._held.popitem(last=False)
                self._bytes -= dropped.nbytes


class SegmentReader:
    """One segment of a version, read in parts. What was read of its end stays."""

    def __init__(self, store: ObjectStore, descriptor: SegmentDescriptor, cache: RowGroupCache) -> None:
        self.descriptor = descriptor
        self._store = store
        self._cache = cache
        self._whole: bytes | None = None
        self._tail: Tail | None = None
        self._metadata: pq.FileMetaData | None = None

    @property
    def row_groups(self) -> tuple[RowGroup, ...]:
        return self._opened().directory.row_groups

    # -- which row groups ---------------------------------------------------------------------------------------------

    def groups_of_ids(self, ids: Sequence[str]) -> list[int]:
        """Those that may hold one of these ids, given in order: nodes by their id, edges by their source."""
        zone = self.descriptor.zone_map
        ids = ids[bisect_left(ids, zone.min_id) : bisect_right(ids, zone.max_id)]
        if not ids:
            return []
        return [
            number
            for number, group in enumerate(self.row_groups)
            if bisect_right(ids, group.last_id) > bisect_left(ids, group.first_id)
        ]

    def groups_of_hashes(self, hashes: Hashes) -> list[int]:
        """Those that may hold an id with one of these hashes: nodes by their id, edges by their target."""
        index = self._opened().directory.index
        buckets: dict[int, list[int]] = {}
        for hashed in hashes.tolist():
            buckets.setdefault(index.bucket_of(hashed), []).append(hashed)
        found: set[int] = set()
        for bucket, wanted in buckets.items():
            start, end = index.starts[bucket : bucket + 2]
            data = self._bytes(start, end - start)
            found.update(groups_in_bucket(index, bucket, data, np.array(wanted, np.uint64), self.path).tolist())
        return sorted(found)

    def groups_of_files(self, files: Sequence[str]) -> list[int]:
        """Those that may hold a record of one of these files, given in order."""
        return [
            number
            for number, group in enumerate(self.row_groups)
            if bisect_right(files, group.last_file) > bisect_left(files, group.first_file)
        ]

    # -- their rows ---------------------------------------------------------------------------------------------------

    @property
    def path(self) -> str:
        return self.descriptor.path

    def read(self, groups: Sequence[int]) -> list[pa.Table]:
        """The rows of some row groups, each checked before it is decoded."""
        found = {number: self._cache.get((self.path, number)) for number in groups}
        missing = [number for number, table in found.items() if table is None]
        for number, data in self._fetched(missing).items():
            table = self._decoded(number, data)
            self._cache.put((self.path, number), table)
            found[number] = table
        return [found[number] for number in groups]

    def scan(self, columns: Sequence[str], groups: Sequence[int] | None = None) -> list[pa.Table]:
        """Some columns of some row groups, or of all; for what is looked through once and not kept."""
        wanted = range(len(self.row_groups)) if groups is None else groups
        return [self._decoded(number, self._fetched([number])[number], columns) for number in wanted]

    def _fetched(self, groups: Sequence[int]) -> dict[int, bytes]:
        """The bytes of row groups; those that follow each other by one request."""
        found: dict[int, bytes] = {}
        start = 0
        for place in range(1, len(groups) + 1):
            if place < len(groups) and groups[place] == groups[place - 1] + 1:
                continue
            run = groups[start:place]
            first, last = self.row_groups[run[0]], self.row_groups[run[-1]]
            data = self._bytes(first.start, last.start + last.length - first.start)
            for number in run:
                group = self.row_groups[number]
                piece = data[group.start - first.start :][: group.length]
                if xxh3_64_hexdigest(piece) != group.checksum:
                    raise CorruptShard(self.path, f"row group {number} is not what was written")
                found[number] = piece
            start = place
        return found

    def _decoded(self, number: int, data: bytes, columns: Sequence[str] | None = None) -> pa.Table:
        tail = self._opened()
        if self._metadata is None:
            self._metadata = pq.read_metadata(pa.BufferReader(tail.footer))
        try:
            table = pq.ParquetFile(
                pa.PythonFile(_Window(data, self.row_groups[number].start, self.descriptor.byte_size), mode="r"),
                metadata=self._metadata,
                read_dictionary=dictionary_columns(self.descriptor.kind),
            ).read_row_group(number, columns=columns, use_threads=False)
        except (pa.ArrowException, OSError) as error:
            raise CorruptShard(self.path, f"row group {number} cannot be read: {error}") from None
        if columns is None:
            check_columns(table, self.descriptor)
        return table

    # -- bytes --------------------------------------------------------------------------------------------------------

    def _opened(self) -> Tail:
        if self._tail is None:
            size, tail_size = self.descriptor.byte_size, self.descriptor.tail_size
            if size <= WHOLE_MAX:
                whole = self._read(0, size)
                if f"sha256:{hashlib.sha256(whole).hexdigest()}" != self.descriptor.checksum:
                    raise CorruptShard(self.path, "its checksum is not what the manifest says")
                self._whole = whole
            self._tail = decode_tail(self._bytes(size - tail_size, tail_size), self.path)
        return self._tail

    def _bytes(self, start: int, length: int) -> bytes:
        if self._whole is not None:
            return self._whole[start : start + length]
        return self._read(start, length)

    def _read(self, start: int, length: int) -> bytes:
        try:
            data = self._store.get_range(self.path, start, length)
        except ObjectNotFound:
            raise CorruptShard(self.path, "it is missing") from None
        if len(data) != length:
            raise CorruptShard(self.path, f"it ends after {start + len(data)} bytes")
        return data


class _Window(io.RawIOBase):
    """A file of which only a part is there: as much as Parquet needs for one row group."""

    def __init__(self, data: bytes, start: int, size: int) -> None:
        self._data = data
        self._start = start
        self._size = size
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        origin = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = origin + offset
        return self._at

    def read(self, size: int = -1) -> bytes:
        first = self._at - self._start
        end = len(self._data) if size < 0 else min(len(self._data), first + size)
        if first < 0:
            raise OSError("it was read outside of its row group")
        found = self._data[first:end]
        self._at += len(found)
        return found
