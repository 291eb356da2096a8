"""A store confined to a folder: tenants and workspaces cannot name each other's objects.

Every key is checked before it is joined to the folder, so `..`, absolute, backslashed and percent-encoded spellings
never reach the store below. There is no way back from a scoped store to the one it was made from.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from holdfast.errors import AlreadyExists, InvalidKey, ObjectNotFound, ScopeEscape, VersionConflict
from holdfast.storage.keys import check_key, check_prefix, leaves_scope
from holdfast.storage.objects import (
    PAGE_SIZE_DEFAULT,
    AsyncObjectReader,
    ObjectInfo,
    ObjectStore,
    StoredObject,
    Version,
    list_keys_of,
    local_path_of,
    sizes_of,
)

__all__ = ["AsyncScopedReader", "ScopedStore", "scope"]


def scope(store: ObjectStore, prefix: str) -> ObjectStore:
    """The part of `store` below the folder `prefix`, as a store of its own; the empty prefix is the store itself."""
    return ScopedStore(store, prefix) if _checked_folder(prefix) else store


def _checked_folder(prefix: str) -> str:
    if leaves_scope(prefix):
        raise ScopeEscape(f"the folder {prefix!r} would leave its scope")
    return check_prefix(prefix)


class _Confinement:
    """Joins keys to a folder and takes them apart again. The one place where a key can be refused or widened."""

    __slots__ = ("folder",)

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def inside(self, key: str) -> str:
        """The key in the store below."""
        try:
            check_key(key)
        except InvalidKey as error:
            if leaves_scope(key):
                raise ScopeEscape(f"the key {key!r} would leave {self.folder!r}") from error
            raise
        return check_key(f"{self.folder}/{key}")

    def folder_inside(self, prefix: str) -> str:
        """The folder in the store below."""
        if leaves_scope(prefix):
            raise ScopeEscape(f"the folder {prefix!r} would leave {self.folder!r}")
        folder = check_prefix(prefix)
        return f"{self.folder}/{folder}" if folder else self.folder

    def outside(self, info: ObjectInfo) -> ObjectInfo:
        """What is known of an object, under the key that the caller knows it by."""
        key = info.key[len(self.folder) + 1 :]
        return ObjectInfo(key=key, size=info.size, version=info.version, modified_at=info.modified_at)


class ScopedStore:
    """An ObjectStore that holds the objects below one folder of another. Pickles if the other does."""

    __slots__ = ("__store", "_conditional_writes_trusted", "_confinement")

    def __init__(self, store: ObjectStore, prefix: str) -> None:
        folder = _checked_folder(prefix)
        if not folder:
            raise ScopeEscape("a scope needs a folder: the empty one is the whole store")
        self.__store = store
        self._confinement = _Confinement(folder)
        self._conditional_writes_trusted = bool(getattr(store, "conditional_writes_trusted", False))

    @property
    def conditional_writes_trusted(self) -> bool:
        """Whether the store below is one whose conditions need no probe."""
        return self._conditional_writes_trusted

    @property
    def url(self) -> str:
        return f"{self.__store.url.rstrip('/')}/{self._confinement.folder}"

    def __repr__(self) -> str:
        return f"ScopedStore({self.url!r})"

    def __reduce__(self) -> tuple[type[ScopedStore], tuple[ObjectStore, str]]:
        return type(self), (self.__store, self._confinement.folder)

    def _pages(self, pages: Iterator[list[ObjectInfo]]) -> Iterator[list[ObjectInfo]]:
        for page in pages:
            yield [self._confinement.outside(info) for info in page]

    def put_new(self, key: str, data: bytes, *, durable: bool = True) -> Version:
        try:
            return self.__store.put_new(self._confinement.inside(key), data, durable=durable)
        except AlreadyExists as error:
            raise AlreadyExists(key) from error

    def swap(self, key: str, data: bytes, *, expected: Version, durable: bool = True) -> Version:
        try:
            return self.__store.swap(self._confinement.inside(key), data, expected=expected, durable=durable)
        except VersionConflict as error:
            raise VersionConflict(key) from error

    def upload(self, key: str, chunks: Iterable[bytes]) -> ObjectInfo:
        try:
            return self._confinement.outside(self.__store.upload(self._confinement.inside(key), chunks))
        except AlreadyExists as error:
            raise AlreadyExists(key) from error

    def get(self, key: str) -> StoredObject:
        try:
            found = self.__store.get(self._confinement.inside(key))
        except ObjectNotFound as error:
            raise ObjectNotFound(key) from error
        return StoredObject(key=key, data=found.data, version=found.version)

    def get_if_changed(self, key: str, known: Version) -> StoredObject | None:
        try:
            found = self.__store.get_if_changed(self._confinement.inside(key), known)
        except ObjectNotFound as error:
            raise ObjectNotFound(key) from error
        return None if found is None else StoredObject(key=key, data=found.data, version=found.version)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        try:
            return self.__store.get_range(self._confinement.inside(key), start, length)
        except ObjectNotFound as error:
            raise ObjectNotFound(key) from error

    def head(self, key: str) -> ObjectInfo:
        try:
            return self._confinement.outside(self.__store.head(self._confinement.inside(key)))
        except ObjectNotFound as error:
            raise ObjectNotFound(key) from error

    def head_many(self, keys: Sequence[str]) -> list[ObjectInfo | None]:
        found = self.__store.head_many([self._confinement.inside(key) for key in keys])
        return [None if info is None else self._confinement.outside(info) for info in found]

    def sizes(self, keys: Sequence[str]) -> list[int | None]:
        return sizes_of(self.__store, [self._confinement.inside(key) for key in keys])

    def list_folders(self, prefix: str) -> list[str]:
        return self.__store.list_folders(self._confinement.folder_inside(prefix))

    def list(
        self, prefix: str, *, after: str | None = None, page_size: int = PAGE_SIZE_DEFAULT
    ) -> Iterator[list[ObjectInfo]]:
        folder = self._confinement.folder_inside(prefix)
        # `after` is only compared, never opened; but joined it must still sort inside this folder, which any text does.
        start = None if after is None else f"{self._confinement.folder}/{after}"
        return self._pages(self.__store.list(folder, after=start, page_size=page_size))

    def list_keys(self, prefix: str) -> Iterator[tuple[str, int | None]]:
        above = len(self._confinement.folder) + 1
        found = list_keys_of(self.__store, self._confinement.folder_inside(prefix))
        return ((key[above:], size) for key, size in found)

    def delete(self, keys: Iterable[str]) -> None:
        self.__store.delete(self._confinement.inside(key) for key in keys)

    def local_path(self, key: str) -> Path | None:
        """Where an object is on this machine, if the store below keeps its objects as files here."""
        return local_path_of(self.__store, self._confinement.inside(key))

    def as_async(self) -> AsyncObjectReader:
        return AsyncScopedReader(self.__store.as_async(), self._confinement.folder)


class AsyncScopedReader:
    """The read half of a scoped store."""

    __slots__ = ("__reader", "_confinement")

    def __init__(self, reader: AsyncObjectReader, folder: str) -> None:
        self.__reader = reader
        self._confinement = _Confinement(_checked_folder(folder))

    @property
    def url(self) -> str:
        return f"{self.__reader.url.rstrip('/')}/{self._confinement.folder}"

    async def get(self, key: str) -> StoredObject:
        try:
            found = await self.__reader.get(self._confinement.inside(key))
        except ObjectNotFound as error:
            raise ObjectNotFound(key) from error
        return StoredObject(key=key, data=found.data, version=found.version)

    async def get_if_changed(self, key: str, known: Version) -> StoredObject | None:
        try:
            found = await self.__reader.get_if_changed(self._confinement.inside(key), known)
        except ObjectNotFound as error:
            raise ObjectNotFound(key) from error
        return None if found is None else StoredObject(key=key, data=found.data, version=found.version)

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        try:
            return await self.__reader.get_range(self._confinement.inside(key), start, length)
        except ObjectNotFound as error:
            raise ObjectNotFound(key) from error

    async def head(self, key: str) -> ObjectInfo:
        try:
            return self._confinement.outside(await self.__reader.head(self._confinement.inside(key)))
        except ObjectNotFound as error:
            raise ObjectNotFound(key) from error
