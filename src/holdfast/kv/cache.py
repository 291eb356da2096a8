"""Shards of remote stores, kept as files of this machine (K17).

A file is named by what its bytes hash to, so it is downloaded once, whoever needs it: other processes, other snapshots
and other data sets that share it find it here. Invariants:

1. A name without `.part` is only ever made by renaming a finished file whose size and SHA-256 were right.
2. Who downloads holds a `flock` on the `.part` file. It lets go when it dies, and the next one starts that file anew.
3. Nothing is rewritten. What is removed stays usable for whoever has it mapped.
4. Room is made before a download by removing what was unused longest, never what is being downloaded.

A file that went bad on this machine's disk is found when its index or one of its blocks is first read (see
`holdfast.kv.mapped`), thrown away, and fetched again.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from holdfast.clock import Clock, Randomness, SystemClock, SystemRandomness
from holdfast.errors import (
    BadInput,
    CorruptShard,
    HoldfastError,
    ObjectNotFound,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)
from holdfast.kv.dataset import Shard
from holdfast.storage import local_io
from holdfast.storage.objects import ObjectStore

__all__ = ["ShardCache"]

MAX_BYTES_DEFAULT = 64 << 30
RANGE_BYTES = 8 << 20
"""What one request of a download asks for, and what it holds in memory."""
CLAIM_ATTEMPTS_MAX = 16
STALLED_S = 30.0
"""A download of another process that has not grown for so long is not waited for: it is made a second time."""

_PAUSE_S = 0.02
_PART = ".part"
_SHA256 = re.compile(r"sha256:([0-9a-f]{64})")
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_DENIED = {errno.EROFS, errno.EACCES, errno.EPERM}
_OPEN_PART = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC


@dataclass(frozen=True, slots=True, order=True)
class _Entry:
    used_ns: int
    name: str
    size: int


class ShardCache:
    """A folder of shards, shared by every process that is given the same one."""

    def __init__(
        self,
        directory: Path | str | None = None,
        *,
        max_bytes: int = MAX_BYTES_DEFAULT,
        clock: Clock | None = None,
        randomness: Randomness | None = None,
    ) -> None:
        """`directory` is made when it is first needed; the default is $HOLDFAST_CACHE, else ~/.cache/holdfast."""
        if max_bytes < 1:
            raise BadInput(f"max_bytes is {max_bytes}: a cache needs room for at least one snapshot")
        self._directory = Path(os.path.abspath(directory if directory is not None else _default_directory()))
        if self._directory.exists() and not self._directory.is_dir():
            raise BadInput(f"the cache {str(self._directory)!r} is a file: name a folder")
        self._max_bytes = max_bytes
        self._clock = clock or SystemClock()
        self._randomness = randomness or SystemRandomness()

    @classmethod
    def of(cls, given: ShardCache | Path | str | None) -> ShardCache:
        """The cache that a caller means."""
        return given if isinstance(given, ShardCache) else cls(given)

    @property
    def directory(self) -> Path:
        return self._directory

    @property
    def max_bytes(self) -> int:
        return self._max_bytes

    def used_bytes(self) -> int:
        """What the finished files take."""
        return sum(entry.size for entry in self._entries())

    def holds(self, shard: Shard) -> bool:
        return self._is_whole(self._path(shard), shard)

    # -- fetching -----------------------------------------------------------------------------------------------------

    def prepare(self, shards: Sequence[Shard]) -> None:
        """Make room for a snapshot's shards that are not here yet, and mark the others as used."""
        sizes = {self._path(shard).name: shard.byte_size for shard in shards}
        if (total := sum(sizes.values())) > self._max_bytes:
            raise BadInput(
                f"the snapshot has {total:,} bytes and the cache may have {self._max_bytes:,}: "
                "raise max_bytes, or open with mode='direct'"
            )
        needed = 0
        for name, size in sizes.items():
            if not self._touch(self._directory / name):
                needed += size
        if needed:
            self._make_folder()
            self._make_room(needed, keep=frozenset(sizes))

    def fetch(self, store: ObjectStore, shard: Shard) -> Path:
        """The shard's file, downloaded unless it is here. Safe for any number of threads and processes."""
        path = self._path(shard)
        try:
            for _ in range(CLAIM_ATTEMPTS_MAX):
                if self._is_whole(path, shard):
                    self._touch(path)
                    return path
                self._make_folder()
                claim = self._claim(path)
                if claim is not None:
                    with claim:
                        if self._is_whole(path, shard):
                            claim.remove()
                        else:
                            _download(claim, store, shard)
                            claim.finish(path)
                    return path
        except OSError as error:
            raise self._translated(error) from error
        raise StoreUnavailable(f"{str(path)!r} was taken away {CLAIM_ATTEMPTS_MAX} times while it was being fetched")

    def discard(self, shard: Shard) -> None:
        """Throw away a file that is not what it should be."""
        try:
            self._path(shard).unlink(missing_ok=True)
        except OSError as error:
            raise self._translated(error) from error

    def _claim(self, path: Path) -> _Claim | None:
        """The right to download one file, or None where the world has changed: then look again."""
        part = path.with_name(path.name + _PART)
        descriptor = os.open(part, _OPEN_PART, 0o600)
        claim = _Claim(part, descriptor)
        try:
            idle_s, size = 0.0, -1
            while not claim.lock():
                grown = os.fstat(descriptor).st_size
                idle_s, size = (idle_s + _PAUSE_S, size) if grown == size else (0.0, grown)
                if idle_s > STALLED_S:
                    break
                self._clock.sleep(_PAUSE_S)
            else:
                if claim.is_current():
                    return claim
                claim.close()
                return None
        except BaseException:
            claim.close()
            raise
        claim.close()
        own = path.with_name(f"{path.name}.{self._randomness.bits(64):016x}{_PART}")
        claim = _Claim(own, os.open(own, _OPEN_PART | os.O_EXCL, 0o600))
        claim.lock()
        return claim

    # -- making room --------------------------------------------------------------------------------------------------

    def _make_room(self, needed: int, *, keep: frozenset[str]) -> None:
        """Remove what was unused longest until so much fits; and what dead processes left half-way."""
        self._sweep()
        entries = self._entries()
        total = sum(entry.size for entry in entries)
        for entry in sorted(entries):
            if total + needed <= self._max_bytes:
                return
            if entry.name not in keep:
                try:
                    (self._directory / entry.name).unlink(missing_ok=True)
                except OSError as error:
                    raise self._translated(error) from error
                total -= entry.size

    def _sweep(self) -> None:
        for part in self._directory.glob(f"*{_PART}"):
            try:
                claim = _Claim(part, os.open(part, os.O_RDWR | os.O_CLOEXEC))
            except OSError:
                continue  # finished meanwhile, or not ours to touch
            with claim:
                if claim.lock() and claim.is_current():
                    claim.remove()

    def _entries(self) -> list[_Entry]:
        found = []
        try:
            with os.scandir(self._directory) as entries:
                for entry in entries:
                    if len(entry.name) == _NAME_LENGTH and not entry.name.endswith(_PART):
                        try:
                            status = entry.stat()
                        except FileNotFoundError:
                            continue
                        found.append(_Entry(status.st_mtime_ns, entry.name, status.st_size))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise self._translated(error) from error
        return found

    # -- files --------------------------------------------------------------------------------------------------------

    def _path(self, shard: Shard) -> Path:
        match = _SHA256.fullmatch(shard.checksum)
        if match is None:
            raise CorruptShard(shard.path, f"its checksum {shard.checksum!r:.80} is not one that this release knows")
        return self._directory / match[1]

    def _is_whole(self, path: Path, shard: Shard) -> bool:
        try:
            return path.stat().st_size == shard.byte_size
        except (FileNotFoundError, NotADirectoryError):
            return False

    def _touch(self, path: Path) -> bool:
        """Whether a file is here; it counts as used now, unless the cache is read-only and so never evicts."""
        try:
            os.utime(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            if error.errno not in _DENIED:
                raise self._translated(error) from error
        return True

    def _make_folder(self) -> None:
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise self._translated(error) from error

    def _translated(self, error: OSError) -> HoldfastError:
        where = str(self._directory)
        if error.errno in _FULL:
            return StoreFull(
                f"no space is left for the cache {where!r}: free some, lower max_bytes, or open with mode='direct'"
            )
        if error.errno in _DENIED:
            return StoreReadOnly(
                f"the cache {where!r} cannot be written to: name another (HOLDFAST_CACHE), or open with mode='direct'"
            )
        if isinstance(error, NotADirectoryError | FileExistsError):
            return BadInput(f"the cache {where!r} is not a folder: name one")
        return StoreUnavailable(f"the cache {where!r}: {error.strerror or error}")


_NAME_LENGTH = 64


class _Claim:
    """An open `.part` file, locked while it is filled."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self.descriptor = descriptor

    def lock(self) -> bool:
        try:
            fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def is_current(self) -> bool:
        """Whether the name still means the file that is locked."""
        try:
            return os.path.samestat(os.fstat(self.descriptor), self.path.stat())
        except FileNotFoundError:
            return False

    def finish(self, path: Path) -> None:
        """The name that readers look for."""
        self.path.rename(path)
        self.close()

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)
        self.close()

    def close(self) -> None:
        """Also lets the lock go."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self.descriptor >= 0 and error[0] is not None:
            self.remove()  # a full disk wants its space back
        self.close()


def _download(claim: _Claim, store: ObjectStore, shard: Shard) -> None:
    """Fill a file with a shard's bytes, checked on the way, a range at a time."""
    os.ftruncate(claim.descriptor, 0)
    digest = hashlib.sha256()
    done = 0
    while done < shard.byte_size:
        try:
            data = store.get_range(shard.path, done, min(RANGE_BYTES, shard.byte_size - done))
        except ObjectNotFound:
            raise CorruptShard(shard.path, "the file is missing") from None
        if not data:
            raise CorruptShard(shard.path, f"it has {done} bytes, and the manifest says {shard.byte_size}")
        digest.update(data)
        local_io.write_all(claim.descriptor, (data,))
        done += len(data)
    if (found := f"sha256:{digest.hexdigest()}") != shard.checksum:
        raise CorruptShard(shard.path, f"its bytes hash to {found}, not to {shard.checksum}")


def _default_directory() -> Path:
    named = os.environ.get("HOLDFAST_CACHE")
    return Path(named) if named else Path.home() / ".cache" / "holdfast"
