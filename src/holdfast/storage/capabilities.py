"""What each component may do with a store, as types.

A capability is an object with only its own methods and only its own folders. It holds the store privately: there is no
method and no attribute that leads from it to more. What a process may do is what it was handed.

| principal              | ledger | state, l0 | manifests | datasets | locks | head | list      | read         | delete
| |------------------------|--------|-----------|-----------|----------|-------|------|-----------|--------------|------
--| | api                    | put    |           |           |          | swap  |      |           | all          |
| | pipeline               | put    |           |           | put      | swap  | yes  |           | all          |
| | compactor-fastpath     |        | put       | swap      |          |       | yes  |           | all          |
| | compactor-antientropy  |        |           |           |          |       |      | `ledger/` | state, l0, manifests
| | | reader                 |        |           |           |          |       |      |           | all          |
|
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from holdfast.errors import InvalidKey, ScopeEscape
from holdfast.storage.keys import check_key, check_prefix, leaves_scope
from holdfast.storage.objects import PAGE_SIZE_DEFAULT, ObjectInfo, ObjectStore, StoredObject, Version

__all__ = [
    "DatasetPut",
    "Deleter",
    "LedgerPut",
    "Lister",
    "LockSwap",
    "ManifestSwap",
    "MetadataHead",
    "Reader",
    "StatePut",
]


def _within(key: str, folders: tuple[str, ...]) -> str:
    """The key, if it lies below one of the folders; no folders means all of them."""
    try:
        check_key(key)
    except InvalidKey as error:
        if leaves_scope(key):
            raise ScopeEscape(f"the key {key!r} would leave its scope") from error
        raise
    if folders and not key.startswith(tuple(f"{folder}/" for folder in folders)):
        raise ScopeEscape(f"this capability covers {', '.join(folders)} only, not {key!r}")
    return key


class LedgerPut:
    """May add events to the ledger, and nothing else: not even read them back."""

    __slots__ = ("__store",)

    def __init__(self, store: ObjectStore) -> None:
        self.__store = store

    def put_event(self, key: str, data: bytes) -> Version:
        """Create an event below `ledger/`, or raise AlreadyExists."""
        return self.__store.put_new(_within(key, ("ledger",)), data)


class StatePut:
    """May add compacted state and recent deltas. They are created once and never replaced."""

    __slots__ = ("__store",)

    def __init__(self, store: ObjectStore) -> None:
        self.__store = store

    def put_state(self, key: str, data: bytes) -> Version:
        """Create a file below `state/` or `l0/`, or raise AlreadyExists."""
        return self.__store.put_new(_within(key, ("state", "l0")), data)

    def upload_state(self, key: str, chunks: Iterable[bytes]) -> ObjectInfo:
        """Create a large file below `state/` or `l0/`, or raise AlreadyExists."""
        return self.__store.upload(_within(key, ("state", "l0")), chunks)


class ManifestSwap:
    """May publish: add a manifest, and move a pointer that is still where it was read."""

    __slots__ = ("__store",)

    def __init__(self, store: ObjectStore) -> None:
        self.__store = store

    def put_manifest(self, key: str, data: bytes) -> Version:
        """Create a manifest or the first pointer below `manifests/`, or raise AlreadyExists."""
        return self.__store.put_new(_within(key, ("manifests",)), data)

    def swap_pointer(self, key: str, data: bytes, *, expected: Version) -> Version:
        """Move a pointer below `manifests/` if it is at `expected`, or raise VersionConflict."""
        return self.__store.swap(_within(key, ("manifests",)), data, expected=expected)


class DatasetPut:
    """May build and publish data sets, each a chain with manifests of its own."""

    __slots__ = ("__store",)

    def __init__(self, store: ObjectStore) -> None:
        self.__store = store

    def put_data(self, key: str, data: bytes) -> Version:
        """Create a file below `datasets/`, or raise AlreadyExists."""
        return self.__store.put_new(_within(key, ("datasets",)), data)

    def upload_data(self, key: str, chunks: Iterable[bytes]) -> ObjectInfo:
        """Create a large file below `datasets/`, or raise AlreadyExists."""
        return self.__store.upload(_within(key, ("datasets",)), chunks)

    def swap_record(self, key: str, data: bytes, *, expected: Version) -> Version:
        """Replace a pointer or run record below `datasets/` if it is at `expected`, or raise VersionConflict."""
        return self.__store.swap(_within(key, ("datasets",)), data, expected=expected)


class LockSwap:
    """May take, renew and release locks."""

    __slots__ = ("__store",)

    def __init__(self, store: ObjectStore) -> None:
        self.__store = store

    def get_lock(self, key: str) -> StoredObject:
        """Read a lock below `locks/`, or raise ObjectNotFound."""
        return self.__store.get(_within(key, ("locks",)))

    def put_lock(self, key: str, data: bytes) -> Version:
        """Create a lock below `locks/`, or raise AlreadyExists."""
        return self.__store.put_new(_within(key, ("locks",)), data)

    def swap_lock(self, key: str, data: bytes, *, expected: Version) -> Version:
        """Replace a lock below `locks/` if it is at `expected`, or raise VersionConflict."""
        return self.__store.swap(_within(key, ("locks",)), data, expected=expected)


class MetadataHead:
    """May ask whether objects exist and how large they are. Reads no bytes and lists nothing."""

    __slots__ = ("__store",)

    def __init__(self, store: ObjectStore) -> None:
        self.__store = store

    def head(self, key: str) -> ObjectInfo:
        """What is known of the object, or raise ObjectNotFound."""
        return self.__store.head(_within(key, ()))

    def head_many(self, keys: Sequence[str]) -> list[ObjectInfo | None]:
        """`head` of each key; None for a missing one."""
        return self.__store.head_many([_within(key, ()) for key in keys])


class Reader:
    """May read objects whole or in part, everywhere or below some folders. Lists nothing."""

    __slots__ = ("__folders", "__store")

    def __init__(self, store: ObjectStore, folders: tuple[str, ...] = ()) -> None:
        self.__store = store
        self.__folders = folders

    def get(self, key: str) -> StoredObject:
        """Read the whole object, or raise ObjectNotFound."""
        return self.__store.get(_within(key, self.__folders))

    def get_if_changed(self, key: str, known: Version) -> StoredObject | None:
        """Read the object unless it is still at `known`."""
        return self.__store.get_if_changed(_within(key, self.__folders), known)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Read part of the object."""
        return self.__store.get_range(_within(key, self.__folders), start, length)


class Lister:
    """May list one folder. Reads nothing."""

    __slots__ = ("__folder", "__store")

    def __init__(self, store: ObjectStore, folder: str) -> None:
        self.__store = store
        self.__folder = check_key(folder)

    def list(
        self, prefix: str, *, after: str | None = None, page_size: int = PAGE_SIZE_DEFAULT
    ) -> Iterator[list[ObjectInfo]]:
        """Pages of the objects below `prefix`, which lies in the folder of this capability."""
        folder = check_prefix(prefix)
        if folder != self.__folder:
            _within(folder or "/", (self.__folder,))
        return self.__store.list(folder, after=after, page_size=page_size)


class Deleter:
    """May delete. The collector's, and nobody else's."""

    __slots__ = ("__store",)

    def __init__(self, store: ObjectStore) -> None:
        self.__store = store

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects; a missing one is no error."""
        self.__store.delete([_within(key, ()) for key in keys])
