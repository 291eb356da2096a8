"""Readers for programs with threads (K14-K18).

    with ShardedReader.open("s3://bucket/users") as users:
        users.get("alice")

`ShardedReader` is for one thread. `ConcurrentShardedReader` is for many: a look-up loads one attribute and never waits;
refreshes come one after the other; a snapshot that was replaced goes when the last look-up in it is done, because
nothing refers to it any more.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import pyarrow as pa

from holdfast.chain import Chain, ChainReader, Refreshed
from holdfast.errors import CorruptShard, ReaderClosed, ReaderStateError
from holdfast.kv.cache import ShardCache
from holdfast.kv.direct_snapshot import DirectLoader
from holdfast.kv.keys import Key
from holdfast.kv.loading import MappedLoader
from holdfast.kv.opened import Get, Opened, Snapshot
from holdfast.kv.pinning import Pinned, Which, chain_at
from holdfast.kv.request import Missing
from holdfast.kv.serving import Serving, Source, check_mode, key_columns, listed

__all__ = ["ConcurrentShardedReader", "ShardedReader"]

_T = TypeVar("_T")


class ShardedReader(Serving):
    """Serves one snapshot of a KV data set to one thread. Made by `ShardedReader.open(...)`."""

    get: Get
    """A key's value: a dict of columns, bytes or a JSON value, as the data set's values are; else `default`."""

    def __init__(
        self,
        chain: Chain,
        *,
        mode: str,
        cache: ShardCache | Path | str | None,
        which: Which,
        max_fallback_attempts: int,
        check_shards: bool,
    ) -> None:
        super().__init__(chain, mode=check_mode(mode), pinned=bool(which))
        self._loader: MappedLoader | DirectLoader = (
            MappedLoader(chain.store, ShardCache.of(cache))
            if mode == "cache"
            else DirectLoader(chain.store, check_shards=check_shards)
        )
        self._source: ChainReader[Opened[Any]] | Pinned[Opened[Any]]
        if which:
            found = which.find(chain)
            self._source = Pinned(chain, found, self._loader.load(found.manifest))
        else:
            self._source = ChainReader(
                chain.handle, load=self._loader.load, max_fallback_attempts=max_fallback_attempts
            )
        self._serve()

    @classmethod
    def open(
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
        """Open the head of the data set at `place`, a URL or a chain; or the snapshot that is named, which then stays.

        mode="cache" serves from files of this machine, in `cache` (a folder, or a `ShardCache`); mode="direct" by range
        requests, where `check_shards` has the size of every shard checked before a snapshot is served.
        """
        return cls(
            chain_at(place),
            mode=mode,
            cache=cache,
            which=Which(ref=ref, run_id=run_id, offset=offset, tag=tag, at=at),
            max_fallback_attempts=max_fallback_attempts,
            check_shards=check_shards,
        )

    # -- look-ups -----------------------------------------------------------------------------------------------------

    def multi_get(self, keys: Iterable[Key]) -> dict[Key, object]:
        """The values of the keys that are there, all from one snapshot."""
        wanted = listed(keys)
        return self._ask(lambda snapshot: snapshot.multi_get(wanted))

    def get_arrow(self, keys: object, *, missing: str = "null") -> pa.Table:
        """One table in the order of the keys, with null, no row, or an error for those that are not there."""
        rule = Missing.parse(missing)
        wanted = key_columns(self.dataset.key, keys)
        return self._ask(lambda snapshot: snapshot.get_arrow(wanted, rule))

    def contains(self, key: Key) -> bool:
        return self._ask(lambda snapshot: snapshot.contains(key))

    def _ask(self, question: Callable[[Snapshot], _T]) -> _T:
        return self._current().ask(question)

    # -- the served snapshot ------------------------------------------------------------------------------------------

    def refresh(self) -> Refreshed:
        """Serve what the pointer names now. Damage keeps what is served; a store that does not answer raises."""
        self._current()
        done = self._source.refresh()
        self._serve()
        return done

    def close(self) -> None:
        """Stop serving. Look-ups that have begun may finish."""
        self._opened = None
        self.get = _closed
        self._source.close()
        self._loader.close()

    def _source_now(self) -> Source:
        return self._source

    def _serve(self) -> None:
        if isinstance(self._source, Pinned):
            opened = self._source.resource
        else:
            with self._source.borrow() as served:
                opened = served.resource
        if opened is not self._opened:
            self._opened = opened
            self.get = _getter(opened)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class ConcurrentShardedReader(ShardedReader):
    """The same for any number of threads. Nobody waits for a refresh but those who ask for one."""

    def __init__(
        self,
        chain: Chain,
        *,
        mode: str,
        cache: ShardCache | Path | str | None,
        which: Which,
        max_fallback_attempts: int,
        check_shards: bool,
    ) -> None:
        self._refreshing = threading.Lock()
        self._serving = threading.Lock()
        self._closed = False
        super().__init__(
            chain,
            mode=mode,
            cache=cache,
            which=which,
            max_fallback_attempts=max_fallback_attempts,
            check_shards=check_shards,
        )

    def refresh(self) -> Refreshed:
        """As `ShardedReader.refresh`; one at a time, so that what is served never goes backwards."""
        with self._refreshing:
            try:
                return super().refresh()
            except ReaderStateError:
                self._current()  # closed meanwhile: say so in this reader's own words
                raise

    def close(self) -> None:
        with self._serving:
            self._closed = True
            super().close()

    def _serve(self) -> None:
        with self._serving:
            if not self._closed:
                super()._serve()


def _getter(opened: Opened[Any]) -> Get:
    """The shortest way to look up one key: the snapshot's own, unless a damaged file could be fetched again."""
    if not opened.can_mend:
        return opened.snapshot.get  # type: ignore[no-any-return]

    def get(key: Key, default: object = None) -> object:
        try:
            return opened.snapshot.get(key, default)
        except CorruptShard:
            return opened.ask(lambda snapshot: snapshot.get(key, default))

    return get


def _closed(key: Key, default: object = None) -> object:  # noqa: ARG001 - as every `get`
    raise ReaderClosed("this reader is closed: open a new one")
