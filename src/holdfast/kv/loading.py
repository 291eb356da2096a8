"""From a manifest to something that answers look-ups: shards mapped from files of this machine (K16, K17).

A store that keeps its objects as files here is mapped as it is. Any other store's shards come through the cache. Shards
that the snapshot before had too stay mapped.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from weakref import ref as weak

from holdfast.chain import Manifest
from holdfast.errors import CorruptShard, StoreUnavailable
from holdfast.kv.cache import ShardCache
from holdfast.kv.dataset import DataSet, Shard
from holdfast.kv.mapped import MappedShard
from holdfast.kv.mapped_snapshot import MappedSnapshot
from holdfast.kv.opened import Opened
from holdfast.storage import local_io
from holdfast.storage.objects import ObjectStore, local_path_of

__all__ = ["MappedLoader"]

SHARDS_IN_FLIGHT_MAX = 8
"""Shards that are fetched and opened at a time."""
FETCH_ATTEMPTS_MAX = 3
"""How often a file may be evicted by another process between its download and its opening."""


class MappedLoader:
    """Opens snapshots of one chain, one at a time."""

    def __init__(self, store: ObjectStore, cache: ShardCache) -> None:
        self._store = store
        self._cache = cache
        self._last: Callable[[], Opened[MappedSnapshot] | None] = _nothing

    def load(self, manifest: Manifest) -> Opened[MappedSnapshot]:
        """Fetch what is not here, map all. CorruptShard names the first shard that is missing or damaged."""
        dataset = DataSet.of_manifest(manifest)
        known = self._known(dataset)
        needed = [shard for shard in dataset.shards if shard is not None and shard.path not in known]
        own = [local_path_of(self._store, shard.path) for shard in needed]
        mended = None
        if any(path is None for path in own) or not all(self._is_own(path) for path in known):
            mended = self._mended
            self._cache.prepare([shard for shard in dataset.shards if shard is not None])
        if len(needed) > 1:
            with ThreadPoolExecutor(min(len(needed), SHARDS_IN_FLIGHT_MAX), "holdfast-open") as pool:
                mapped = list(pool.map(self._map, [dataset] * len(needed), needed, own))
        else:
            mapped = [self._map(dataset, shard, path) for shard, path in zip(needed, own, strict=True)]
        opened = Opened(manifest, dataset, _snapshot(dataset, {**known, **{m.name: m for m in mapped}}), mended)
        self._last = weak(opened)
        return opened

    def close(self) -> None:
        """Nothing is held here."""

    def _known(self, dataset: DataSet) -> dict[str, MappedShard]:
        """What the last snapshot has mapped of this one: a path is used once, so it is the same file."""
        last = self._last()
        if last is None or last.dataset.schema != dataset.schema or last.dataset.key != dataset.key:
            return {}
        before = {shard.path: shard for shard in last.dataset.shards if shard is not None}
        mapped = last.snapshot.shards
        return {
            shard.path: mapped[shard.path]
            for shard in dataset.shards
            if shard is not None and shard.path in mapped and before[shard.path].checksum == shard.checksum
        }

    def _is_own(self, path: str) -> bool:
        return local_path_of(self._store, path) is not None

    def _map(self, dataset: DataSet, shard: Shard, own: Path | None) -> MappedShard:
        if own is not None:
            return _map_file(own, dataset, shard)
        discarded = False
        for _ in range(FETCH_ATTEMPTS_MAX):
            path = self._cache.fetch(self._store, shard)
            try:
                return _map_file(path, dataset, shard)
            except CorruptShard:  # or another process has made room by removing it just now
                if discarded and path.exists():
                    raise
                self._cache.discard(shard)
                discarded = True
        return _map_file(self._cache.fetch(self._store, shard), dataset, shard)

    def _mended(self, opened: Opened[MappedSnapshot], shard: Shard) -> MappedSnapshot:
        """The same snapshot, with one shard fetched again."""
        self._cache.discard(shard)
        others = {path: mapped for path, mapped in opened.snapshot.shards.items() if path != shard.path}
        return _snapshot(opened.dataset, {**others, shard.path: self._map(opened.dataset, shard, None)})


def _nothing() -> None:
    return None


def _snapshot(dataset: DataSet, mapped: Mapping[str, MappedShard]) -> MappedSnapshot:
    return MappedSnapshot(dataset, [None if s is None else Path(s.path) for s in dataset.shards], known=mapped)


def _map_file(path: Path, dataset: DataSet, shard: Shard) -> MappedShard:
    """A missing file is damage, never an empty shard (K26)."""
    try:
        if (size := path.stat().st_size) != shard.byte_size:
            raise CorruptShard(shard.path, f"it has {size} bytes, and the manifest says {shard.byte_size}")
        return MappedShard(
            path,
            name=shard.path,
            schema=dataset.schema,
            key=dataset.key,
            row_count=shard.row_count,
            fingerprint=shard.fingerprint,
        )
    except (FileNotFoundError, NotADirectoryError):
        raise CorruptShard(shard.path, "the file is missing") from None
    except OSError as error:
        if error.errno == errno.EMFILE:
            raise StoreUnavailable(
                f"{len(dataset.shards)} shards are more files than this process may open: raise the limit "
                "(ulimit -n), or open with mode='direct'"
            ) from error
        raise local_io.translate(error, shard.path) from error
