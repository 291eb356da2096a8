"""The system calls of the local store, each with its reason.

- A version is made of a file's modification time, size and inode. A writer sets the time itself, so that versions at a
  key differ even where the kernel's clock is coarse, stands still or jumps back.
- The lock is an advisory `flock` on the folder's own descriptor: no lock files to leave behind, the kernel lets go when
  a process dies, and two stores with different roots over the same files still exclude each other.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Iterable
from datetime import UTC, datetime

from holdfast.clock import Clock
from holdfast.errors import (
    HoldfastError,
    InvalidKey,
    StoreDenied,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
    UnsafeStore,
)
from holdfast.storage.keys import RESERVED_PREFIX
from holdfast.storage.objects import ObjectInfo, Version

__all__ = [
    "TEMPORARY_SUFFIX",
    "info_of",
    "is_temporary",
    "lock_folder",
    "make_folders",
    "modified_at",
    "read_all",
    "read_range",
    "stamp",
    "sync_folder",
    "temporary_name",
    "translate",
    "version_of",
    "write_all",
]

TEMPORARY_SUFFIX = ".tmp"

LOCK_WAIT_MAX_S = 30.0
"""A lock is held for two system calls. Whoever waits this long waits for a stopped process, and should say so."""

_LOCK_PAUSE_FIRST_S = 0.0001
_LOCK_PAUSE_MAX_S = 0.005

_STAMP_NOISE_BITS = 20
"""About a millisecond of a file's time is noise: it tells apart two files with one inode in one tick of the clock."""

# What to add to the previous time until the file system shows a later one: some keep microseconds, some whole seconds
# or two.
_STAMP_STEPS_NS = (1, 1_000, 1_000_000_000, 4_000_000_000)

_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC

_BY_ERRNO: dict[int, type[HoldfastError]] = {
    errno.ENOSPC: StoreFull,
    errno.EDQUOT: StoreFull,
    errno.EFBIG: StoreFull,
    errno.EROFS: StoreReadOnly,
    errno.EACCES: StoreDenied,
    errno.EPERM: StoreDenied,
    errno.ENAMETOOLONG: InvalidKey,
    errno.EISDIR: InvalidKey,
    errno.ENOTDIR: InvalidKey,
    errno.ELOOP: InvalidKey,
}


def translate(error: OSError, key: str) -> HoldfastError:
    """The error of our tree that says what to do about this one."""
    kind = _BY_ERRNO.get(error.errno or 0, StoreUnavailable)
    return kind(f"{key!r}: {error.strerror or error}")


def version_of(status: os.stat_result) -> Version:
    """The version of the bytes that this status describes."""
    return Version(f"{status.st_mtime_ns:x}-{status.st_size:x}-{status.st_ino:x}")


def modified_at(status: os.stat_result) -> datetime:
    return datetime.fromtimestamp(status.st_mtime, UTC)


def info_of(key: str, status: os.stat_result) -> ObjectInfo:
    return ObjectInfo(key=key, size=status.st_size, version=version_of(status), modified_at=modified_at(status))


def temporary_name(unique: int) -> str:
    return f"{RESERVED_PREFIX}{unique:x}{TEMPORARY_SUFFIX}"


def is_temporary(name: str) -> bool:
    return name.startswith(RESERVED_PREFIX) and name.endswith(TEMPORARY_SUFFIX)


def write_all(descriptor: int, chunks: Iterable[bytes]) -> None:
    """Write every byte; the kernel may take fewer at a time, and says so before it says that the disk is full."""
    for chunk in chunks:
        written = os.write(descriptor, chunk)
        if written < len(chunk):
            rest = memoryview(chunk)[written:]
            while rest:
                rest = rest[os.write(descriptor, rest) :]


def stamp(descriptor: int, *, noise: int, previous_ns: int) -> os.stat_result:
    """Give the file a time later than `previous_ns` and return its final status, from which its version is made."""
    now_ns = os.fstat(descriptor).st_mtime_ns
    candidate_ns = ((now_ns >> _STAMP_NOISE_BITS) << _STAMP_NOISE_BITS) | (noise & ((1 << _STAMP_NOISE_BITS) - 1))
    status = _set_time(descriptor, max(candidate_ns, previous_ns + 1))
    if status.st_mtime_ns > previous_ns:
        return status
    for step_ns in _STAMP_STEPS_NS:
        status = _set_time(descriptor, previous_ns + step_ns)
        if status.st_mtime_ns > previous_ns:
            return status
    raise UnsafeStore("this file system does not keep modification times, so versions cannot be told apart")


def _set_time(descriptor: int, time_ns: int) -> os.stat_result:
    os.utime(descriptor, ns=(time_ns, time_ns))
    # Read back rather than believed: a file system may round, and the version must be what a reader will see.
    return os.fstat(descriptor)


def read_all(descriptor: int, size: int) -> bytes:
    """The whole file. Files are replaced and never rewritten, so its size is the one that was asked for."""
    data = os.read(descriptor, size + 1)
    if len(data) == size:
        return data
    parts = [data]
    while part := os.read(descriptor, max(size, 1 << 20)):
        parts.append(part)
    return b"".join(parts)


def read_range(descriptor: int, start: int, length: int) -> bytes:
    """At most `length` bytes from `start`; fewer only at the end of the file."""
    data = os.pread(descriptor, length, start)
    if len(data) == length or not data:
        return data
    parts = [data]
    got = len(data)
    while got < length and (part := os.pread(descriptor, length - got, start + got)):
        parts.append(part)
        got += len(part)
    return b"".join(parts)


def open_folder(path: str) -> int:
    return os.open(path, _FOLDER_FLAGS)


def sync_folder(path: str) -> None:
    """Make the names in a folder survive a power cut."""
    descriptor = open_folder(path)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folders(path: str, *, durable: bool) -> None:
    """Create the folder and its missing parents, each made durable in its parent before anything is put into it."""
    missing: list[str] = []
    current = path
    while current and not os.path.isdir(current):
        missing.append(current)
        parent = os.path.dirname(current)
        if parent == current:
            break
        current = parent
    for folder in reversed(missing):
        try:
            os.mkdir(folder)
        except FileExistsError:
            if not stat.S_ISDIR(os.stat(folder).st_mode):
                raise NotADirectoryError(errno.ENOTDIR, "a parent of the key is an object", folder) from None
        # Also when somebody else made it a moment ago: they may not have come to this line yet.
        if durable:
            sync_folder(os.path.dirname(folder))


def lock_folder(descriptor: int, clock: Clock) -> None:
    """Take the folder's lock; closing the descriptor lets it go."""
    pause_s = _LOCK_PAUSE_FIRST_S
    waited_s = 0.0
    while waited_s < LOCK_WAIT_MAX_S:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            clock.sleep(pause_s)
            waited_s += pause_s
            pause_s = min(pause_s * 2, _LOCK_PAUSE_MAX_S)
        except OSError as error:
            if error.errno in {errno.EBADF, errno.ENOLCK, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS}:
                raise UnsafeStore(f"this file system cannot lock a folder ({error.strerror})") from error
            raise
        else:
            return
    raise StoreUnavailable(f"the folder's lock was not free for {LOCK_WAIT_MAX_S:.0f} s: is a writer stopped?")
