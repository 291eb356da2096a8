"""Async read halves for stores whose own calls are synchronous."""

from __future__ import annotations

import asyncio

from holdfast.storage.objects import ObjectInfo, ObjectStore, StoredObject, Version

__all__ = ["DirectAsyncReader", "ThreadedAsyncReader"]


class DirectAsyncReader:
    """The read half of a store that never waits, such as memory: the call is made right here."""

    __slots__ = ("_store",)

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    @property
    def url(self) -> str:
        return self._store.url

    async def get(self, key: str) -> StoredObject:
        return self._store.get(key)

    async def get_if_changed(self, key: str, known: Version) -> StoredObject | None:
        return self._store.get_if_changed(key, known)

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        return self._store.get_range(key, start, length)

    async def head(self, key: str) -> ObjectInfo:
        return self._store.head(key)


class ThreadedAsyncReader:
    """The read half of a file system. No operating system offers a portable async read of files.

    A thread keeps the loop free.
    """

    __slots__ = ("_store",)

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    @property
    def url(self) -> str:
        return self._store.url

    async def get(self, key: str) -> StoredObject:
        return await asyncio.to_thread(self._store.get, key)

    async def get_if_changed(self, key: str, known: Version) -> StoredObject | None:
        return await asyncio.to_thread(self._store.get_if_changed, key, known)

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        return await asyncio.to_thread(self._store.get_range, key, start, length)

    async def head(self, key: str) -> ObjectInfo:
        return await asyncio.to_thread(self._store.head, key)
