"""What all readers share: everything that is answered from the served manifest, without a request (K14, K18)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from holdfast.chain import Chain, ReaderStatus
from holdfast.errors import BadInput, ReaderClosed, UnknownShard
from holdfast.kv.dataset import DataSet, Shard
from holdfast.kv.info import Health, SnapshotInfo, ref_of
from holdfast.kv.keys import Key, KeySchema
from holdfast.kv.opened import Opened
from holdfast.kv.request import KeyColumns

__all__ = ["MODES", "Serving", "Source", "check_mode", "key_columns", "listed"]

MODES = ("cache", "direct")


class Source(Protocol):
    """Where the served snapshot comes from: a chain's reader, or one pinned snapshot."""

    def status(self) -> ReaderStatus: ...

    def close(self) -> None: ...


class Serving(ABC):
    """The served snapshot, and what its manifest tells."""

    def __init__(self, chain: Chain, *, mode: str, pinned: bool) -> None:
        self._chain = chain
        self._mode = mode
        self._pinned = pinned
        self._opened: Opened[Any] | None = None

    @abstractmethod
    def _source_now(self) -> Source:
        """Where the served snapshot comes from."""

    def _current(self) -> Opened[Any]:
        opened = self._opened
        if opened is None:
            raise ReaderClosed("this reader is closed: open a new one")
        return opened

    @property
    def mode(self) -> str:
        return self._mode

    @property
    def dataset(self) -> DataSet:
        """What the served manifest says."""
        return self._current().dataset

    def route_key(self, key: Key) -> int:
        """The number of the shard that a key belongs to."""
        return _route(self.dataset, key)

    def shard_for_key(self, key: Key) -> Shard | None:
        """The shard that a key belongs to; None if that one is empty."""
        dataset = self.dataset
        return _shard(dataset, _route(dataset, key))

    def shard(self, number: int) -> Shard | None:
        """A shard by its number; None if it is empty."""
        return _shard(self.dataset, number)

    def shard_details(self) -> list[Shard | None]:
        """All shards by number; None for an empty one."""
        return list(self.dataset.shards)

    def snapshot_info(self) -> SnapshotInfo:
        """What is served."""
        opened = self._current()
        return SnapshotInfo.of(self._chain.layout, opened.manifest, opened.dataset)

    def health(self) -> Health:
        """What is served, how old it is, and how far from the head."""
        manifest = self._current().manifest
        status = self._source_now().status()
        age_s = (self._chain.handle.clock.now() - manifest.published_at).total_seconds()
        return Health(
            mode=self._mode,
            ref=ref_of(self._chain.layout, manifest),
            manifest_id=manifest.manifest_id,
            run_id=manifest.run_id,
            published_at=manifest.published_at,
            age_s=max(0.0, age_s),
            head_id=status.head_id,
            pinned=self._pinned,
            fell_back=status.fell_back,
            skipped=status.skipped,
            staleness_s=status.staleness_s,
            checked_at=status.checked_at,
        )

    def __repr__(self) -> str:
        opened = self._opened
        what = "closed" if opened is None else f"snapshot {opened.manifest.manifest_id}"
        return f"{type(self).__name__}({self._chain.store.url!r}, {what}, mode={self._mode!r})"


def _route(dataset: DataSet, key: Key) -> int:
    return dataset.routing.shard_of(key, dataset.key.hash_of(key))


def _shard(dataset: DataSet, number: int) -> Shard | None:
    if not 0 <= number < len(dataset.shards):
        raise UnknownShard(f"no shard {number!r}: this data set has 0 to {len(dataset.shards) - 1}")
    return dataset.shards[number]


def check_mode(mode: str) -> str:
    if mode not in MODES:
        raise BadInput(f"mode {mode!r}: use {' or '.join(MODES)}")
    return mode


def listed(keys: Iterable[Key]) -> Sequence[Key]:
    """Keys for `multi_get`, whatever holds them. A text is a key, not a list of its letters."""
    if isinstance(keys, list):
        return keys
    if isinstance(keys, str | bytes | bytearray | dict) or not isinstance(keys, Iterable):
        raise BadInput(f"give a list of keys, not {type(keys).__name__}; one key goes to `get`")
    if isinstance(keys, pa.Array | pa.ChunkedArray):
        return keys.to_pylist()  # type: ignore[no-any-return]
    return keys.tolist() if isinstance(keys, np.ndarray) else list(keys)


def key_columns(schema: KeySchema, keys: object) -> KeyColumns:
    """Keys for `get_arrow`: Arrow or numpy data, or a list of them."""
    if isinstance(keys, pa.Array | pa.ChunkedArray | pa.Table | pa.RecordBatch | np.ndarray):
        return KeyColumns.of_arrow(schema, keys)
    return KeyColumns.of_keys(schema, listed(keys))  # type: ignore[arg-type]
