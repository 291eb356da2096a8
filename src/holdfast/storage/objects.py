"""The store protocol: bytes at keys, an opaque version per object, and conditional writes.

Promises every store keeps (the contract test in `holdfast.testing.store_contract` checks them):

- `put_new` creates a key or raises `AlreadyExists`; of many racers exactly one succeeds.
- `swap` replaces an object only while it is at `expected`, or raises `VersionConflict`; a missing object, a stale
  version and a version that was never one are all the same conflict. Of many racers exactly one succeeds.
- There is no unconditional write.
- A version is opaque text. Two different contents at one key never have the same version. (On S3 the version is made
  from the content, so the same bytes may come back with the same version: records that are swapped carry a sequence.)
- A reader sees an object whole, old or new.
- An error other than `AlreadyExists` and `VersionConflict` says nothing about whether a write happened; and because
  transports retry by themselves, even those two may be the echo of our own write. Whoever needs to know reads back and
  looks for a token of its own (`holdfast.chain.commit.classify`).

Stores pickle, so that Spark executors can use them; none touches the network when it is imported, made or unpickled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import NewType, Protocol, runtime_checkable

__all__ = [
    "PAGE_SIZE_DEFAULT",
    "AsyncObjectReader",
    "ObjectInfo",
    "ObjectStore",
    "RecordStore",
    "StoredObject",
    "Version",
    "list_keys_of",
    "local_path_of",
    "sizes_of",
]

Version = NewType("Version", str)
"""An object's version. Compare for equality only."""

PAGE_SIZE_DEFAULT = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectInfo:
    """What a store knows of an object without reading it."""

    key: str
    size: int
    version: Version
    modified_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredObject:
    """An object's bytes with the version they were read at."""

    key: str
    data: bytes
    version: Version


class RecordStore(Protocol):
    """The part of a store that small records need. Any `ObjectStore` is one; a SQL database can be one too."""

    @property
    def url(self) -> str: ...

    def put_new(self, key: str, data: bytes, *, durable: bool = True) -> Version: ...

    def swap(self, key: str, data: bytes, *, expected: Version, durable: bool = True) -> Version: ...

    def get(self, key: str) -> StoredObject: ...

    def get_if_changed(self, key: str, known: Version) -> StoredObject | None: ...

    def list(
        self, prefix: str, *, after: str | None = None, page_size: int = PAGE_SIZE_DEFAULT
    ) -> Iterator[list[ObjectInfo]]: ...

    def delete(self, keys: Iterable[str]) -> None: ...


@runtime_checkable
class ObjectStore(Protocol):
    """Bytes at keys. Keys are relative, `/`-separated and checked by `holdfast.storage.keys.check_key`."""

    @property
    def url(self) -> str:
        """The URL that opens this store again, without credentials."""
        ...

    def put_new(self, key: str, data: bytes, *, durable: bool = True) -> Version:
        """Create `key`, or raise AlreadyExists.

        `durable=False` marks a record that can be derived again after a power cut.
        """
        ...

    def swap(self, key: str, data: bytes, *, expected: Version, durable: bool = True) -> Version:
        """Replace `key` if it is at `expected`, or raise VersionConflict."""
        ...

    def upload(self, key: str, chunks: Iterable[bytes]) -> ObjectInfo:
        """Create a large object from chunks in bounded memory, or raise AlreadyExists. Visible whole or not at all."""
        ...

    def get(self, key: str) -> StoredObject:
        """Read the whole object, or raise ObjectNotFound."""
        ...

    def get_if_changed(self, key: str, known: Version) -> StoredObject | None:
        """Read the object unless it is still at `known`: then None, and no body was moved. Raises ObjectNotFound."""
        ...

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Read `length` bytes from `start`; fewer only where the object ends. Raises ObjectNotFound."""
        ...

    def head(self, key: str) -> ObjectInfo:
        """What is known of the object, or raise ObjectNotFound."""
        ...

    def head_many(self, keys: Sequence[str]) -> list[ObjectInfo | None]:
        """`head` of each key, in parallel where that pays; None for a missing one."""
        ...

    def list_folders(self, prefix: str) -> list[str]:
        """The names of the folders directly below the folder `prefix`, sorted."""
        ...

    def list(
        self, prefix: str, *, after: str | None = None, page_size: int = PAGE_SIZE_DEFAULT
    ) -> Iterator[list[ObjectInfo]]:
        """Pages of all objects below the folder `prefix` (`""` is all), in key order, with keys above `after`."""
        ...

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects; a missing one is no error. Only the collector may hold this."""
        ...

    def as_async(self) -> AsyncObjectReader:
        """The read half for asyncio, over the same objects."""
        ...


@runtime_checkable
class AsyncObjectReader(Protocol):
    """The read half of a store, natively async."""

    @property
    def url(self) -> str: ...

    async def get(self, key: str) -> StoredObject: ...

    async def get_if_changed(self, key: str, known: Version) -> StoredObject | None: ...

    async def get_range(self, key: str, start: int, length: int) -> bytes: ...

    async def head(self, key: str) -> ObjectInfo: ...


def sizes_of(store: ObjectStore, keys: Sequence[str]) -> list[int | None]:
    """The size of each object, in its place; None for a missing one. It is all that a commit asks of its artifacts.

    A store that can tell sizes more cheaply than the rest of what it knows has a method `sizes`; none has to.
    """
    tell: Callable[[Sequence[str]], list[int | None]] | None = getattr(store, "sizes", None)
    if tell is not None:
        return tell(keys)
    return [None if info is None else info.size for info in store.head_many(keys)]


def list_keys_of(store: ObjectStore, prefix: str) -> Iterator[tuple[str, int | None]]:
    """The keys of all objects below the folder `prefix`, in order, each with its size where that came with the listing.

    A store that has to ask for each size has a method `list_keys`: a collector asks it of the few that it condemns.
    """
    tell: Callable[[str], Iterator[tuple[str, int | None]]] | None = getattr(store, "list_keys", None)
    if tell is not None:
        return tell(prefix)
    return ((info.key, info.size) for page in store.list(prefix) for info in page)


def local_path_of(store: ObjectStore, key: str) -> Path | None:
    """The file of this machine that an object is, or None where a store does not keep its objects as files here.

    Whoever only reads may use the file itself: it is never rewritten, and stays usable while it is open, even deleted.
    """
    tell: Callable[[str], Path | None] | None = getattr(store, "local_path", None)
    return None if tell is None else tell(key)
