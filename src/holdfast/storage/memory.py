"""A store in this process's memory, for tests, examples and caches.

Handles are names: `MemoryStore("x")` twice is the same objects, and a handle that is pickled and read back in the same
process finds them again. Another process has its own memory: there the name starts out empty.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from holdfast.clock import Clock, Randomness, SystemClock, SystemRandomness
from holdfast.errors import AlreadyExists, ObjectNotFound, VersionConflict
from holdfast.storage.asyncs import DirectAsyncReader
from holdfast.storage.keys import check_key, check_page_size, check_prefix, check_range
from holdfast.storage.objects import PAGE_SIZE_DEFAULT, AsyncObjectReader, ObjectInfo, StoredObject, Version

__all__ = ["MemoryStore"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Held:
    """One object as it is kept."""

    data: bytes
    version: Version
    modified_at: datetime


@dataclass(slots=True, kw_only=True, weakref_slot=True, eq=False)
class _Space:
    """The objects of one name. The counter is never set back, so a version is never given twice, deletes included."""

    clock: Clock
    lock: threading.Lock = field(default_factory=threading.Lock)
    objects: dict[str, _Held] = field(default_factory=dict)
    writes: int = 0

    def store(self, key: str, data: bytes) -> Version:
        """Keep the bytes under a version of their own; the caller holds the lock and has checked its condition."""
        self.writes += 1
        version = Version(f"m{self.writes}")
        self.objects[key] = _Held(data=data, version=version, modified_at=self.clock.now())
        return version


_registry_lock = threading.Lock()
_named: dict[str, _Space] = {}
# An unnamed store can only be found through a handle or a pickle of one, so its objects go with its last handle.
_unnamed: weakref.WeakValueDictionary[str, _Space] = weakref.WeakValueDictionary()

_UNNAMED_PREFIX = "unnamed-"


class MemoryStore:
    """`memory://name`. Thread-safe; every write is checked and made under one lock."""

    __slots__ = ("_name", "_space")

    conditional_writes_trusted = True
    """The conditions are our own code: there is nothing to probe."""

    def __init__(
        self, name: str | None = None, *, clock: Clock | None = None, randomness: Randomness | None = None
    ) -> None:
        if name is None:
            name = f"{_UNNAMED_PREFIX}{(randomness or SystemRandomness()).bits(96):024x}"
        else:
            check_key(name)
        registry = _unnamed if name.startswith(_UNNAMED_PREFIX) else _named
        with _registry_lock:
            space = registry.get(name)
            if space is None:
                space = _Space(clock=clock or SystemClock())
                registry[name] = space
        self._name = name
        self._space = space

    @property
    def url(self) -> str:
        return f"memory://{self._name}"

    def __repr__(self) -> str:
        return f"MemoryStore({self._name!r})"

    def __reduce__(self) -> tuple[type[MemoryStore], tuple[str]]:
        return type(self), (self._name,)

    def _pages(self, start: str, after: str | None, page_size: int) -> Iterator[list[ObjectInfo]]:
        with self._space.lock:
            keys = sorted(
                key for key in self._space.objects if key.startswith(start) and (after is None or key > after)
            )
        page: list[ObjectInfo] = []
        for key in keys:
            held = self._space.objects.get(key)
            if held is None:
                continue
            page.append(_info(key, held))
            if len(page) == page_size:
                yield page
                page = []
        if page:
            yield page

    def put_new(self, key: str, data: bytes, *, durable: bool = True) -> Version:
        check_key(key)
        space = self._space
        with space.lock:
            if key in space.objects:
                raise AlreadyExists(key)
            return space.store(key, bytes(data))

    def swap(self, key: str, data: bytes, *, expected: Version, durable: bool = True) -> Version:
        check_key(key)
        space = self._space
        with space.lock:
            held = space.objects.get(key)
            if held is None or held.version != expected:
                raise VersionConflict(key)
            return space.store(key, bytes(data))

    def upload(self, key: str, chunks: Iterable[bytes]) -> ObjectInfo:
        check_key(key)
        data = b"".join(chunks)
        self.put_new(key, data)
        return self.head(key)

    def get(self, key: str) -> StoredObject:
        held = self._held(key)
        return StoredObject(key=key, data=held.data, version=held.version)

    def get_if_changed(self, key: str, known: Version) -> StoredObject | None:
        held = self._held(key)
        if held.version == known:
            return None
        return StoredObject(key=key, data=held.data, version=held.version)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        check_range(start, length)
        return self._held(key).data[start : start + length]

    def head(self, key: str) -> ObjectInfo:
        held = self._held(key)
        return _info(key, held)

    def head_many(self, keys: Sequence[str]) -> list[ObjectInfo | None]:
        for key in keys:
            check_key(key)
        space = self._space
        with space.lock:
            found = [(key, space.objects.get(key)) for key in keys]
        return [None if held is None else _info(key, held) for key, held in found]

    def list_folders(self, prefix: str) -> list[str]:
        folder = check_prefix(prefix)
        start = f"{folder}/" if folder else ""
        with self._space.lock:
            below = [key[len(start) :] for key in self._space.objects if key.startswith(start)]
        return sorted({rest.partition("/")[0] for rest in below if "/" in rest})

    def list(
        self, prefix: str, *, after: str | None = None, page_size: int = PAGE_SIZE_DEFAULT
    ) -> Iterator[list[ObjectInfo]]:
        check_page_size(page_size)
        folder = check_prefix(prefix)
        return self._pages(f"{folder}/" if folder else "", after, page_size)

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            check_key(key)
            with self._space.lock:
                self._space.objects.pop(key, None)

    def as_async(self) -> AsyncObjectReader:
        return DirectAsyncReader(self)

    def _held(self, key: str) -> _Held:
        check_key(key)
        # A dict read is atomic, and what it returns never changes: readers need no lock.
        held = self._space.objects.get(key)
        if held is None:
            raise ObjectNotFound(key)
        return held


def _info(key: str, held: _Held) -> ObjectInfo:
    return ObjectInfo(key=key, size=len(held.data), version=held.version, modified_at=held.modified_at)
