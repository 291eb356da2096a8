"""A store on a file system, with the compare-and-swap that file systems do not have.

Invariants:

1. A name in the tree is only ever made by `link` or `rename` of a finished file: readers see it whole, old or new.
2. The bytes are synced before the name exists, and the folder after: a name that survives a power cut has its bytes.
3. A swap compares and renames while it holds the folder's lock; nothing else replaces a name.
4. A process that dies leaves the old or the new object, and at most a temporary file, which every reader ignores.
5. A version at a key never comes back, not even after a delete.

The tree is the key space: an object cannot be a folder at the same time, and folders without objects are not there.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path

from holdfast.clock import Clock, Randomness, SystemClock, SystemRandomness
from holdfast.errors import (
    AlreadyExists,
    InvalidKey,
    ObjectNotFound,
    StoreUnavailable,
    VersionConflict,
)
from holdfast.storage import local_io as io
from holdfast.storage.asyncs import ThreadedAsyncReader
from holdfast.storage.keys import check_key, check_keys, check_page_size, check_prefix, check_range
from holdfast.storage.local_walk import has_objects, temporaries, walk, walk_keys
from holdfast.storage.objects import PAGE_SIZE_DEFAULT, AsyncObjectReader, ObjectInfo, StoredObject, Version

__all__ = ["LocalStore"]

_READ = os.O_RDONLY | os.O_CLOEXEC
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC

_FOLDER_ATTEMPTS_MAX = 16
"""How often a folder may be pruned away by a delete between our making it and our writing into it."""

_MISSING = (FileNotFoundError, NotADirectoryError)
_NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV})


def _no_step(_name: str) -> None:
    """The failpoint of ordinary life."""


class LocalStore:
    """Objects as files below `root`. `durable=False` leaves out every sync, for tests and scratch data.

    `step` is called with the name of each point that a write passes, so that a test can kill the process exactly there.
    """

    __slots__ = ("_clock", "_durable", "_randomness", "_root", "_step", "_url")

    conditional_writes_trusted = True
    """The conditions are our own code: there is nothing to probe."""

    def __init__(
        self,
        root: Path | str,
        durable: bool = True,
        step: Callable[[str], None] | None = None,
        *,
        clock: Clock | None = None,
        randomness: Randomness | None = None,
    ) -> None:
        self._root = os.path.abspath(root)
        self._url = Path(self._root).as_uri()
        self._durable = durable
        self._step = step or _no_step
        self._clock = clock or SystemClock()
        self._randomness = randomness or SystemRandomness()

    @property
    def url(self) -> str:
        return self._url

    @property
    def root(self) -> Path:
        """The folder that holds the objects; it is made by the first write."""
        return Path(self._root)

    def __repr__(self) -> str:
        return f"LocalStore({self._root!r}, durable={self._durable})"

    def __reduce__(self) -> tuple[type[LocalStore], tuple[str, bool]]:
        # A step, a clock or a source of randomness belongs to the process that set it.
        return type(self), (self._root, self._durable)

    def put_new(self, key: str, data: bytes, *, durable: bool = True) -> Version:
        return io.version_of(self._create(check_key(key), (data,), durable=durable and self._durable))

    def upload(self, key: str, chunks: Iterable[bytes]) -> ObjectInfo:
        check_key(key)
        if os.path.lexists(self._path(key)):
            # Spares the bytes; the link below decides.
            raise AlreadyExists(key)
        return io.info_of(key, self._create(key, chunks, durable=self._durable))

    def swap(self, key: str, data: bytes, *, expected: Version, durable: bool = True) -> Version:
        path = self._path(check_key(key))
        try:
            folder_fd = io.open_folder(os.path.dirname(path))
        except _MISSING as error:
            raise VersionConflict(key) from error
        except OSError as error:
            raise io.translate(error, key) from error
        try:
            return self._swap_in(folder_fd, key, data, expected=expected, durable=durable and self._durable)
        except OSError as error:
            raise io.translate(error, key) from error
        finally:
            # Closing also lets the lock go.
            os.close(folder_fd)

    def get(self, key: str) -> StoredObject:
        descriptor = self._open(key)
        try:
            # The version is that of the very bytes: a file is never rewritten, and its time was set before it had this
            # name.
            status = os.fstat(descriptor)
            data = io.read_all(descriptor, status.st_size)
        except IsADirectoryError as error:
            raise ObjectNotFound(key) from error
        except OSError as error:
            raise io.translate(error, key) from error
        finally:
            os.close(descriptor)
        return StoredObject(key=key, data=data, version=io.version_of(status))

    def get_if_changed(self, key: str, known: Version) -> StoredObject | None:
        return None if io.version_of(self._stat(key)) == known else self.get(key)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        check_range(start, length)
        descriptor = self._open(key)
        try:
            return io.read_range(descriptor, start, length)
        except IsADirectoryError as error:
            raise ObjectNotFound(key) from error
        except OSError as error:
            raise io.translate(error, key) from error
        finally:
            os.close(descriptor)

    def head(self, key: str) -> ObjectInfo:
        return io.info_of(key, self._stat(key))

    def head_many(self, keys: Sequence[str]) -> list[ObjectInfo | None]:
        # A stat takes microseconds: threads would only make it slower.
        found: list[ObjectInfo | None] = []
        for key in keys:
            try:
                found.append(io.info_of(key, self._stat(key)))
            except ObjectNotFound:
                found.append(None)
        return found

    def sizes(self, keys: Sequence[str]) -> list[int | None]:
        # A commit asks this of every artifact: versions and dates that nobody reads would take as long as the stats,
        # and walking down to the same folder for each of its files as long again.
        check_keys(keys)
        found: list[int | None] = [None] * len(keys)
        folders: dict[str, list[tuple[int, str]]] = {}
        for position, key in enumerate(keys):
            folder, _, name = key.rpartition("/")
            folders.setdefault(folder, []).append((position, name))
        for folder, members in folders.items():
            try:
                folder_fd = io.open_folder(self._path(folder))
            except _MISSING:
                continue
            except OSError as error:
                raise io.translate(error, folder) from error
            try:
                for position, name in members:
                    try:
                        status = os.stat(name, dir_fd=folder_fd)
                    except FileNotFoundError:
                        continue
                    if stat.S_ISREG(status.st_mode):
                        found[position] = status.st_size
            except OSError as error:
                raise io.translate(error, folder) from error
            finally:
                os.close(folder_fd)
        return found

    def list_folders(self, prefix: str) -> list[str]:
        folder = check_prefix(prefix)
        return [name for name, path in self._subfolders(self._path(folder)) if has_objects(path)]

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            path = self._path(check_key(key))
            try:
                os.unlink(path)
            except _MISSING:
                continue
            except IsADirectoryError:
                continue
            except OSError as error:
                if os.path.isdir(path):
                    continue
                raise io.translate(error, key) from error
            self._prune(os.path.dirname(path))

    def local_path(self, key: str) -> Path:
        """Where an object is, whether or not it exists: a reader may map the file instead of copying it."""
        return Path(self._path(check_key(key)))

    def as_async(self) -> AsyncObjectReader:
        return ThreadedAsyncReader(self)

    def stray_temporaries(self) -> list[tuple[str, datetime]]:
        """Temporary files below the root, with the time of their last write.

        A writer's that died, or that is still at work.
        """
        return [(key, io.modified_at(status)) for key, status in temporaries(self._root)]

    def remove_stray(self, older_than: datetime) -> list[str]:
        """Delete temporary files last written before `older_than`.

        A slow writer that loses its file fails, and changes nothing.
        """
        removed: list[str] = []
        for key, modified_at in self.stray_temporaries():
            if modified_at >= older_than:
                continue
            path = f"{self._root}/{key}"
            try:
                os.unlink(path)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise io.translate(error, key) from error
            removed.append(key)
            self._prune(os.path.dirname(path))
        return removed

    def list(
        self, prefix: str, *, after: str | None = None, page_size: int = PAGE_SIZE_DEFAULT
    ) -> Iterator[list[ObjectInfo]]:
        check_page_size(page_size)
        folder = check_prefix(prefix)
        return walk(self._path(folder), f"{folder}/" if folder else "", after, page_size)

    def list_keys(self, prefix: str) -> Iterator[tuple[str, None]]:
        # A collector goes through every object and keeps most: a stat of each would be most of its time.
        folder = check_prefix(prefix)
        return ((key, None) for key in walk_keys(self._path(folder), f"{folder}/" if folder else ""))

    # -- writing

    def _create(self, key: str, chunks: Iterable[bytes], *, durable: bool) -> os.stat_result:
        """Put a finished file at a name that must be free."""
        path = self._path(key)
        folder = os.path.dirname(path)
        noise = self._randomness.bits(64)
        temporary = f"{folder}/{io.temporary_name(noise)}"
        try:
            descriptor = self._open_temporary(temporary, folder, durable=durable)
            try:
                status = self._fill(descriptor, chunks, noise=noise, previous_ns=0, durable=durable)
                try:
                    os.link(temporary, path)
                except OSError as error:
                    if error.errno not in _NO_LINKS:
                        raise
                    self._rename_if_free(temporary, path, folder)
                else:
                    self._step("linked")
                    os.unlink(temporary)
                    self._step("unlinked")
            except BaseException:
                _discard(temporary)
                raise
            finally:
                os.close(descriptor)
            if durable:
                io.sync_folder(folder)
            self._step("dir-synced")
        except FileExistsError as error:
            if os.path.isdir(path):
                raise InvalidKey(f"{key!r} is a folder: an object cannot have its name") from error
            raise AlreadyExists(key) from error
        except FileNotFoundError as error:
            raise StoreUnavailable(f"{key!r}: the file was removed while it was being written") from error
        except OSError as error:
            raise io.translate(error, key) from error
        return status

    def _open_temporary(self, temporary: str, folder: str, *, durable: bool) -> int:
        for _ in range(_FOLDER_ATTEMPTS_MAX):
            try:
                return os.open(temporary, _CREATE, 0o666)
            except FileNotFoundError:
                io.make_folders(folder, durable=durable)
        return os.open(temporary, _CREATE, 0o666)

    def _fill(
        self, descriptor: int, chunks: Iterable[bytes], *, noise: int, previous_ns: int, durable: bool
    ) -> os.stat_result:
        """Write and stamp a temporary file, and make its bytes durable."""
        self._step("temp-made")
        io.write_all(descriptor, chunks)
        self._step("temp-written")
        status = io.stamp(descriptor, noise=noise, previous_ns=previous_ns)
        if durable:
            os.fsync(descriptor)
        self._step("temp-synced")
        return status

    def _rename_if_free(self, temporary: str, path: str, folder: str) -> None:
        """`link` for file systems without hard links: there every creator takes this way, so the lock decides."""
        folder_fd = io.open_folder(folder)
        try:
            io.lock_folder(folder_fd, self._clock)
            self._step("locked")
            if os.path.lexists(path):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
            os.rename(temporary, path)
            self._step("renamed")
        finally:
            os.close(folder_fd)

    def _swap_in(self, folder_fd: int, key: str, data: bytes, *, expected: Version, durable: bool) -> Version:
        """Replace a name in an open folder.

        All paths are relative to it, so that a folder made anew is not mistaken for it.
        """
        name = key.rpartition("/")[2]
        previous = _stat_in(folder_fd, name)
        if previous is None or io.version_of(previous) != expected:
            raise VersionConflict(key)
        noise = self._randomness.bits(64)
        temporary = io.temporary_name(noise)
        try:
            descriptor = os.open(temporary, _CREATE, 0o666, dir_fd=folder_fd)
        except FileNotFoundError as error:
            # The folder itself is gone, so the object is, too.
            raise VersionConflict(key) from error
        try:
            # The slow part, the sync of the bytes, comes before the lock: the lock is held for a compare and a rename.
            status = self._fill(descriptor, (data,), noise=noise, previous_ns=previous.st_mtime_ns, durable=durable)
            io.lock_folder(folder_fd, self._clock)
            self._step("locked")
            current = _stat_in(folder_fd, name)
            if current is None or io.version_of(current) != expected:
                raise VersionConflict(key)
            self._step("compared")
            os.rename(temporary, name, src_dir_fd=folder_fd, dst_dir_fd=folder_fd)
            self._step("renamed")
        except BaseException:
            _discard(temporary, folder_fd)
            raise
        finally:
            os.close(descriptor)
        if durable:
            os.fsync(folder_fd)
        self._step("dir-synced")
        return io.version_of(status)

    def _prune(self, folder: str) -> None:
        """Remove folders that have become empty, so that a folder exists only while it holds an object."""
        while len(folder) > len(self._root):
            try:
                os.rmdir(folder)
            except OSError:
                # Not empty, or somebody was faster: either way it is not ours to remove.
                return
            folder = os.path.dirname(folder)

    # -- reading

    def _path(self, key: str) -> str:
        return f"{self._root}/{key}" if key else self._root

    def _open(self, key: str) -> int:
        try:
            return os.open(f"{self._root}/{check_key(key)}", _READ)
        except _MISSING as error:
            raise ObjectNotFound(key) from error
        except OSError as error:
            raise io.translate(error, key) from error

    def _stat(self, key: str) -> os.stat_result:
        try:
            status = os.stat(f"{self._root}/{check_key(key)}")
        except _MISSING as error:
            raise ObjectNotFound(key) from error
        except OSError as error:
            raise io.translate(error, key) from error
        if not stat.S_ISREG(status.st_mode):
            raise ObjectNotFound(key)
        return status

    def _subfolders(self, path: str) -> Iterator[tuple[str, str]]:
        try:
            with os.scandir(path) as entries:
                names = sorted(entry.name for entry in entries if entry.is_dir())
        except _MISSING:
            return
        except OSError as error:
            raise io.translate(error, path[len(self._root) + 1 :]) from error
        for name in names:
            yield name, f"{path}/{name}"


def _stat_in(folder_fd: int, name: str) -> os.stat_result | None:
    try:
        status = os.stat(name, dir_fd=folder_fd)
    except FileNotFoundError:
        return None
    return status if stat.S_ISREG(status.st_mode) else None


def _discard(temporary: str, folder_fd: int | None = None) -> None:
    """Remove a temporary file if it can be removed.

    The failure that led here is the one to report, and readers ignore the file.
    """
    try:
        os.unlink(temporary, dir_fd=folder_fd)
    except OSError:
        return
