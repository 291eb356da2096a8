"""One snapshot as a reader serves it: the manifest, what it says, and what answers look-ups (K15, K18)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

import pyarrow as pa

from holdfast.chain import Manifest
from holdfast.errors import CorruptShard
from holdfast.kv.dataset import DataSet, Shard
from holdfast.kv.keys import Key
from holdfast.kv.request import KeyColumns, Missing

__all__ = ["Get", "Opened", "Snapshot"]

_T = TypeVar("_T")
_S = TypeVar("_S")


class Get(Protocol):
    """How one key is looked up."""

    def __call__(self, key: Key, default: object = None, /) -> object: ...


class Snapshot(Protocol):
    """What answers look-ups in place."""

    @property
    def get(self) -> Get: ...

    def contains(self, key: Key) -> bool: ...

    def multi_get(self, keys: Sequence[Key]) -> dict[Key, object]: ...

    def get_arrow(self, keys: KeyColumns, missing: Missing) -> pa.Table: ...


class Opened(Generic[_S]):
    """One snapshot as it is served. Goes, with its mappings, when the last look-up in it is done."""

    __slots__ = ("__weakref__", "_mend", "_mended", "_mending", "dataset", "manifest", "snapshot")

    def __init__(
        self,
        manifest: Manifest,
        dataset: DataSet,
        snapshot: _S,
        mend: Callable[[Opened[_S], Shard], _S] | None = None,
    ) -> None:
        self.manifest = manifest
        self.dataset = dataset
        self.snapshot = snapshot
        self._mend = mend
        self._mended: set[str] = set()
        self._mending = threading.Lock()

    @property
    def can_mend(self) -> bool:
        """Whether a damaged shard may be good after another look."""
        return self._mend is not None

    def ask(self, question: Callable[[_S], _T]) -> _T:
        """An answer. A shard whose cached file turns out to be damaged is fetched again, once, and asked again."""
        for _ in range(len(self.dataset.shards)):
            snapshot = self.snapshot
            try:
                return question(snapshot)
            except CorruptShard as error:
                self._mend_shard(snapshot, error)
        return question(self.snapshot)

    def _mend_shard(self, seen: _S, error: CorruptShard) -> None:
        with self._mending:
            if self.snapshot is not seen:
                return  # another thread met the same damage first
            shard = next((s for s in self.dataset.shards if s is not None and s.path == error.key), None)
            if self._mend is None or shard is None or shard.path in self._mended:
                raise error
            self._mended.add(shard.path)
            self.snapshot = self._mend(self, shard)
