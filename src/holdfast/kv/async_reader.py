"""The reader for asyncio (K14): the pointer, the manifest and look-ups by range requests are read natively async.

Look-ups in mapped files are reads of memory and wait for nothing; only large ones go to a thread, so that the loop goes
on meanwhile. Downloads into the cache, which write files, are made by threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import pyarrow as pa

from holdfast.chain import AsyncChainReader, Chain, Manifest, Refreshed
from holdfast.errors import CorruptShard, ReaderStateError
from holdfast.kv.cache import ShardCache
from holdfast.kv.direct_snapshot import AsyncDirectLoader, AsyncDirectSnapshot
from holdfast.kv.keys import Key
from holdfast.kv.loading import MappedLoader
from holdfast.kv.opened import Opened, Snapshot
from holdfast.kv.pinning import Pinned, Which, chain_at
from holdfast.kv.request import Missing
from holdfast.kv.serving import Serving, Source, check_mode, key_columns, listed

__all__ = ["AsyncShardedReader"]

KEYS_ON_LOOP_MAX = 4096
"""Look-ups of more keys than this are made on a thread."""

_T = TypeVar("_T")


class AsyncShardedReader(Serving):
    """Serves one snapshot of a KV data set to the tasks of one loop. Made by `await AsyncShardedReader.open(...)`."""

    def __init__(
        self, chain: Chain, *, mode: str, which: Which, cache: ShardCache | Path | str | None, check_shards: bool
    ) -> None:
        super().__init__(chain, mode=check_mode(mode), pinned=bool(which))
        self._loader: MappedLoader | AsyncDirectLoader = (
            MappedLoader(chain.store, ShardCache.of(cache))
            if mode == "cache"
            else AsyncDirectLoader(chain.store, check_shards=check_shards)
        )
        self._source: AsyncChainReader[Opened[Any]] | Pinned[Opened[Any]] | None = None
        self._refreshing = asyncio.Lock()

    @classmethod
    async def open(
        cls,
        place: str | Chain,
        *,
        mode: str = "cache",
        cache: ShardCache | Path | str | None = None,
        ref: str | None = None,
        run_id: str | None = None,
        offset: int | None = None,
        tag: tuple[str, str] | None = None,
        at: datetime | None = None,
        max_fallback_attempts: int = 3,
        check_shards: bool = False,
    ) -> Self:
        """As `ShardedReader.open`. To name a snapshot is to read the history, which a thread does."""
        which = Which(ref=ref, run_id=run_id, offset=offset, tag=tag, at=at)
        chain = chain_at(place)
        reader = cls(chain, mode=mode, which=which, cache=cache, check_shards=check_shards)
        if which:
            found = await asyncio.to_thread(which.find, chain)
            reader._source = Pinned(chain, found, await reader._load(found.manifest))
        else:
            reader._source = await chain.async_reader(reader._load, max_fallback_attempts=max_fallback_attempts)
        reader._serve()
        return reader

    # -- look-ups -----------------------------------------------------------------------------------------------------

    async def get(self, key: Key, default: object = None) -> object:
        """A key's value: a dict of columns, bytes or a JSON value, as the data set's values are; else `default`."""
        opened = self._current()
        if isinstance(opened.snapshot, AsyncDirectSnapshot):
            return await opened.snapshot.get(key, default)
        try:
            return opened.snapshot.get(key, default)
        except CorruptShard:
            return await asyncio.to_thread(opened.ask, lambda snapshot: snapshot.get(key, default))

    async def multi_get(self, keys: Iterable[Key]) -> dict[Key, object]:
        """The values of the keys that are there, all from one snapshot."""
        wanted = listed(keys)
        snapshot = self._current().snapshot
        if isinstance(snapshot, AsyncDirectSnapshot):
            return await snapshot.multi_get(wanted)
        return await self._ask(len(wanted), lambda snapshot: snapshot.multi_get(wanted))

    async def get_arrow(self, keys: object, *, missing: str = "null") -> pa.Table:
        """One table in the order of the keys, with null, no row, or an error for those that are not there."""
        rule = Missing.parse(missing)
        wanted = key_columns(self.dataset.key, keys)
        snapshot = self._current().snapshot
        if isinstance(snapshot, AsyncDirectSnapshot):
            return await snapshot.get_arrow(wanted, rule)
        return await self._ask(len(wanted), lambda snapshot: snapshot.get_arrow(wanted, rule))

    async def contains(self, key: Key) -> bool:
        snapshot = self._current().snapshot
        if isinstance(snapshot, AsyncDirectSnapshot):
            return await snapshot.contains(key)
        return await self._ask(1, lambda snapshot: snapshot.contains(key))

    async def _ask(self, count: int, question: Callable[[Snapshot], _T]) -> _T:
        opened = self._current()
        if count > KEYS_ON_LOOP_MAX:
            return await asyncio.to_thread(opened.ask, question)
        try:
            return question(opened.snapshot)
        except CorruptShard:
            return await asyncio.to_thread(opened.ask, question)

    # -- the served snapshot ------------------------------------------------------------------------------------------

    async def refresh(self) -> Refreshed:
        """As `ShardedReader.refresh`; one at a time, and look-ups go on meanwhile."""
        self._current()
        source = self._source
        assert source is not None
        async with self._refreshing:
            try:
                done = source.refresh() if isinstance(source, Pinned) else await source.refresh()
            except ReaderStateError:
                self._current()  # closed meanwhile: say so in this reader's own words
                raise
            self._current()
            self._serve()
            return done

    def close(self) -> None:
        """Stop serving. Look-ups that have begun may finish."""
        self._opened = None
        if self._source is not None:
            self._source.close()

    async def _load(self, manifest: Manifest) -> Opened[Any]:
        if isinstance(self._loader, AsyncDirectLoader):
            return await self._loader.load(manifest)
        return await asyncio.to_thread(self._loader.load, manifest)

    def _source_now(self) -> Source:
        assert self._source is not None
        return self._source

    def _serve(self) -> None:
        if isinstance(self._source, Pinned):
            self._opened = self._source.resource
        elif self._source is not None:
            with self._source.borrow() as served:
                self._opened = served.resource

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
