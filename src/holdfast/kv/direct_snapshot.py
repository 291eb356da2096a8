"""A snapshot that is read by range requests: the same look-ups for threads and for asyncio (K14, K17).

The decisions are in `holdfast.kv.direct`; here the requests are made, one round at a time, the requests of a round in
parallel and never more than a few at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import pyarrow as pa

from holdfast.chain import Manifest
from holdfast.errors import CorruptShard, HoldfastError, ObjectNotFound
from holdfast.kv.block_cache import BlockCache
from holdfast.kv.dataset import DataSet, Shard
from holdfast.kv.direct import DirectLookup, Range, Steps
from holdfast.kv.keys import Key
from holdfast.kv.opened import Opened
from holdfast.kv.request import KeyColumns, Missing
from holdfast.storage.objects import AsyncObjectReader, ObjectStore, sizes_of

__all__ = ["AsyncDirectLoader", "AsyncDirectSnapshot", "DirectLoader", "DirectSnapshot"]

REQUESTS_IN_FLIGHT_MAX = 32

_R = TypeVar("_R")
Fetch = Callable[[Sequence[Range]], list[bytes]]


class DirectSnapshot:
    """Look-ups by range requests. Safe for any number of threads."""

    def __init__(self, lookup: DirectLookup, fetch: Fetch) -> None:
        self._lookup = lookup
        self._fetch = fetch

    def get(self, key: Key, default: object = None) -> object:
        return self._drive(self._lookup.get(key, default))

    def contains(self, key: Key) -> bool:
        return self._drive(self._lookup.contains(key))

    def multi_get(self, keys: Sequence[Key]) -> dict[Key, object]:
        return self._drive(self._lookup.multi_get(keys))

    def get_arrow(self, keys: KeyColumns, missing: Missing) -> pa.Table:
        return self._drive(self._lookup.get_arrow(keys, missing))

    def _drive(self, steps: Steps[_R]) -> _R:
        try:
            wanted = next(steps)
            while True:  # ends with the generator, whose rounds are bounded by the keys that were asked for
                wanted = steps.send(self._fetch(wanted))
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]


class DirectLoader:
    """Opens snapshots for range requests, which all go through one pool of threads and one memory."""

    def __init__(self, store: ObjectStore, *, check_shards: bool) -> None:
        self._store = store
        self._check_shards = check_shards
        self._cache = BlockCache()
        self._pool = ThreadPoolExecutor(REQUESTS_IN_FLIGHT_MAX, "holdfast-range")  # starts threads when it has work

    def load(self, manifest: Manifest) -> Opened[DirectSnapshot]:
        """No request, unless the sizes of all shards are to be checked first."""
        dataset = DataSet.of_manifest(manifest)
        if self._check_shards:
            shards = [shard for shard in dataset.shards if shard is not None]
            for shard, size in zip(shards, sizes_of(self._store, [shard.path for shard in shards]), strict=True):
                _check_size(shard, size)
        return Opened(manifest, dataset, DirectSnapshot(DirectLookup(dataset, self._cache), self._fetch))

    def close(self) -> None:
        self._pool.shutdown(wait=False)

    def _fetch(self, ranges: Sequence[Range]) -> list[bytes]:
        if len(ranges) == 1:
            return [self._read(ranges[0])]
        try:
            return list(self._pool.map(self._read, ranges))
        except RuntimeError:  # the reader was closed while this look-up was on its way: it may still finish
            return [self._read(asked) for asked in ranges]

    def _read(self, asked: Range) -> bytes:
        try:
            return self._store.get_range(asked.key, asked.start, asked.length)
        except ObjectNotFound:
            raise _missing(asked.key) from None


class _SharedRequests:
    """Range requests of many tasks: a few at a time, and one for all who want the same bytes at the same moment.

    A thousand look-ups that begin together would else ask a thousand times for the same page of a directory.
    """

    def __init__(self, reader: AsyncObjectReader) -> None:
        self.reader = reader
        self.limit = asyncio.Semaphore(REQUESTS_IN_FLIGHT_MAX)
        self._under_way: dict[Range, asyncio.Task[bytes]] = {}

    async def read(self, asked: Range) -> bytes:
        task = self._under_way.get(asked)
        if task is None:
            task = self._under_way[asked] = asyncio.create_task(self._read(asked))
            task.add_done_callback(lambda done: self._finished(asked, done))
        return await asyncio.shield(task)  # whoever gives up does not stop the others

    def _finished(self, asked: Range, done: asyncio.Task[bytes]) -> None:
        del self._under_way[asked]
        if not done.cancelled():
            done.exception()  # seen, even if everybody who wanted it has given up

    async def _read(self, asked: Range) -> bytes:
        async with self.limit:
            try:
                return await self.reader.get_range(asked.key, asked.start, asked.length)
            except ObjectNotFound:
                raise _missing(asked.key) from None


class AsyncDirectSnapshot:
    """The same for asyncio."""

    def __init__(self, lookup: DirectLookup, requests: _SharedRequests) -> None:
        self._lookup = lookup
        self._requests = requests

    async def get(self, key: Key, default: object = None) -> object:
        return await self._drive(self._lookup.get(key, default))

    async def contains(self, key: Key) -> bool:
        return await self._drive(self._lookup.contains(key))

    async def multi_get(self, keys: Sequence[Key]) -> dict[Key, object]:
        return await self._drive(self._lookup.multi_get(keys))

    async def get_arrow(self, keys: KeyColumns, missing: Missing) -> pa.Table:
        return await self._drive(self._lookup.get_arrow(keys, missing))

    async def _drive(self, steps: Steps[_R]) -> _R:
        try:
            wanted = next(steps)
            while True:  # ends with the generator, whose rounds are bounded by the keys that were asked for
                wanted = steps.send(await _together([self._requests.read(asked) for asked in wanted]))
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]


class AsyncDirectLoader:
    """As `DirectLoader`, on the store's async half."""

    def __init__(self, store: ObjectStore, *, check_shards: bool) -> None:
        self._requests = _SharedRequests(store.as_async())
        self._check_shards = check_shards
        self._cache = BlockCache()

    async def load(self, manifest: Manifest) -> Opened[AsyncDirectSnapshot]:
        """No request, unless the sizes of all shards are to be checked first."""
        dataset = DataSet.of_manifest(manifest)
        if self._check_shards:
            shards = [shard for shard in dataset.shards if shard is not None]
            for shard, size in zip(shards, await _together([self._size(shard) for shard in shards]), strict=True):
                _check_size(shard, size)
        lookup = DirectLookup(dataset, self._cache)
        return Opened(manifest, dataset, AsyncDirectSnapshot(lookup, self._requests))

    def close(self) -> None:
        """Nothing is held here."""

    async def _size(self, shard: Shard) -> int | None:
        async with self._requests.limit:
            try:
                return (await self._requests.reader.head(shard.path)).size
            except ObjectNotFound:
                return None


async def _together(jobs: Sequence[Coroutine[None, None, _R]]) -> list[_R]:
    """All at once; the first failure ends the others and is the one that is told."""
    if len(jobs) == 1:
        return [await jobs[0]]
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(job) for job in jobs]
    except ExceptionGroup as failures:
        known = failures.subgroup(HoldfastError)
        raise (known or failures).exceptions[0] from None
    return [task.result() for task in tasks]


def _check_size(shard: Shard, size: int | None) -> None:
    if size is None:
        raise _missing(shard.path)
    if size != shard.byte_size:
        raise CorruptShard(shard.path, f"it has {size} bytes, and the manifest says {shard.byte_size}")


def _missing(path: str) -> CorruptShard:
    """A missing file is damage, never an empty shard (K26)."""
    return CorruptShard(path, "the file is missing (if its snapshot was collected meanwhile, refresh)")
