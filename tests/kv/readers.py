"""The three readers behind one face, so that one test can ask them all."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from holdfast.chain import Chain, Refreshed
from holdfast.kv import AsyncShardedReader, ConcurrentShardedReader, Health, Key, ShardedReader, SnapshotInfo
from holdfast.kv.dataset import DataSet, Shard

KINDS = ("sharded", "concurrent", "async")
MODES = ("cache", "direct")


class AnyReader(Protocol):
    """What every reader can do."""

    def get(self, key: Key, default: object = None, /) -> object: ...

    def multi_get(self, keys: Iterable[Key]) -> dict[Key, object]: ...

    def get_arrow(self, keys: object, *, missing: str = "null") -> pa.Table: ...

    def contains(self, key: Key) -> bool: ...

    def route_key(self, key: Key) -> int: ...

    def shard_for_key(self, key: Key) -> Shard | None: ...

    def shard(self, number: int) -> Shard | None: ...

    def shard_details(self) -> list[Shard | None]: ...

    def snapshot_info(self) -> SnapshotInfo: ...

    def health(self) -> Health: ...

    def refresh(self) -> Refreshed: ...

    def close(self) -> None: ...

    @property
    def dataset(self) -> DataSet: ...


class _Awaited:
    """An async reader, each of whose answers is waited for on a loop of its own."""

    def __init__(self, reader: AsyncShardedReader, runner: asyncio.Runner) -> None:
        self._reader = reader
        self._runner = runner

    def get(self, key: Key, default: object = None, /) -> object:
        return self._runner.run(self._reader.get(key, default))

    def multi_get(self, keys: Iterable[Key]) -> dict[Key, object]:
        return self._runner.run(self._reader.multi_get(keys))

    def get_arrow(self, keys: object, *, missing: str = "null") -> pa.Table:
        return self._runner.run(self._reader.get_arrow(keys, missing=missing))

    def contains(self, key: Key) -> bool:
        return self._runner.run(self._reader.contains(key))

    def refresh(self) -> Refreshed:
        return self._runner.run(self._reader.refresh())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)


@contextmanager
def opened(kind: str, place: str | Chain, *, mode: str, cache: Path, **options: Any) -> Iterator[AnyReader]:
    """A reader of one kind, closed in the end."""
    if kind == "async":
        with asyncio.Runner() as runner:
            reader = runner.run(AsyncShardedReader.open(place, mode=mode, cache=cache, **options))
            try:
                yield _Awaited(reader, runner)
            finally:
                reader.close()
        return
    make = ShardedReader if kind == "sharded" else ConcurrentShardedReader
    with make.open(place, mode=mode, cache=cache, **options) as plain:
        yield plain
