"""Stores that misbehave on purpose, and stores that count.

Both wrap any store and see every request that is made through it, the async half included. What happens to a request is
decided by a plan, a plain function, so a test is three lines:

    def plan(operation: Operation) -> Fault:
        return Fault.ERROR_AFTER if operation.kind == "swap" and operation.number == 1 else Fault.PASS

    store = FaultyStore(MemoryStore(), plan)
"""

from __future__ import annotations

import enum
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from holdfast.errors import AlreadyExists, HoldfastError, StoreUnavailable, VersionConflict
from holdfast.storage.objects import (
    PAGE_SIZE_DEFAULT,
    AsyncObjectReader,
    ObjectInfo,
    ObjectStore,
    StoredObject,
    Version,
)

__all__ = ["CountingStore", "Crashed", "Fault", "FaultyStore", "InterceptedStore", "Operation", "Plan", "pass_all"]

_T = TypeVar("_T")

_CREATES = frozenset({"put_new", "upload"})
_DELETE_BATCH_MAX = 1000


class Crashed(BaseException):
    """The process died here. No `except Exception` may go on after this, as none would after `kill -9`."""


class Fault(enum.Enum):
    """What happens to one request."""

    PASS = "pass"
    CRASH_BEFORE = "crash-before"
    CRASH_AFTER = "crash-after"
    ERROR_BEFORE = "error-before"
    """Refused before it had any effect."""
    ERROR_AFTER = "error-after"
    """The effect happened, whatever it was, and the answer was lost."""
    ECHO = "echo"
    """The write happened, the transport lost the answer and tried again: it comes back as a conflict with itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One request: what, on which key, the how-manieth request overall and of its kind (both from 1)."""

    kind: str
    key: str
    serial: int
    number: int


Plan = Callable[[Operation], Fault]


def pass_all(_operation: Operation) -> Fault:
    """The plan of a store without faults."""
    return Fault.PASS


class InterceptedStore:
    """A store that shows each request to `_begin` and can change its outcome in `_around`. Base of the two below."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._log: list[Operation] = []

    @property
    def url(self) -> str:
        return self._store.url

    @property
    def conditional_writes_trusted(self) -> bool:
        """As the store below says: the faults here are about answers, never about conditions."""
        return bool(getattr(self._store, "conditional_writes_trusted", False))

    @property
    def log(self) -> tuple[Operation, ...]:
        """Every request so far, in order."""
        with self._lock:
            return tuple(self._log)

    def _begin(self, kind: str, key: str) -> Operation:
        with self._lock:
            self._counts[kind] += 1
            operation = Operation(kind=kind, key=key, serial=len(self._log) + 1, number=self._counts[kind])
            self._log.append(operation)
        return operation

    def _around(self, operation: Operation, effect: Callable[[], _T]) -> _T:
        return effect()

    async def _around_async(self, operation: Operation, effect: Callable[[], Awaitable[_T]]) -> _T:
        return await effect()

    def _pages(self, prefix: str, pages: Iterator[list[ObjectInfo]]) -> Iterator[list[ObjectInfo]]:
        # A store is asked once even when it has nothing to show; later pages are further requests.
        page = self._around(self._begin("list", prefix), lambda: next(pages, None))
        while page is not None:
            yield page
            following = next(pages, None)
            page = None if following is None else self._around(self._begin("list", prefix), _constant(following))

    def put_new(self, key: str, data: bytes, *, durable: bool = True) -> Version:
        operation = self._begin("put_new", key)
        return self._around(operation, lambda: self._store.put_new(key, data, durable=durable))

    def swap(self, key: str, data: bytes, *, expected: Version, durable: bool = True) -> Version:
        operation = self._begin("swap", key)
        return self._around(operation, lambda: self._store.swap(key, data, expected=expected, durable=durable))

    def upload(self, key: str, chunks: Iterable[bytes]) -> ObjectInfo:
        return self._around(self._begin("upload", key), lambda: self._store.upload(key, chunks))

    def get(self, key: str) -> StoredObject:
        return self._around(self._begin("get", key), lambda: self._store.get(key))

    def get_if_changed(self, key: str, known: Version) -> StoredObject | None:
        return self._around(self._begin("get_if_changed", key), lambda: self._store.get_if_changed(key, known))

    def get_range(self, key: str, start: int, length: int) -> bytes:
        return self._around(self._begin("get_range", key), lambda: self._store.get_range(key, start, length))

    def head(self, key: str) -> ObjectInfo:
        return self._around(self._begin("head", key), lambda: self._store.head(key))

    def head_many(self, keys: Sequence[str]) -> list[ObjectInfo | None]:
        # One request per key, as a cloud store makes; the fault of the last one strikes the whole call.
        operation: Operation | None = None
        for key in keys:
            operation = self._begin("head", key)
        if operation is None:
            return []
        return self._around(operation, lambda: self._store.head_many(keys))

    def list_folders(self, prefix: str) -> list[str]:
        return self._around(self._begin("list_folders", prefix), lambda: self._store.list_folders(prefix))

    def delete(self, keys: Iterable[str]) -> None:
        doomed = list(keys)
        for start in range(0, len(doomed), _DELETE_BATCH_MAX):
            batch = doomed[start : start + _DELETE_BATCH_MAX]
            self._around(self._begin("delete", batch[0]), _deletion(self._store, batch))

    def as_async(self) -> AsyncObjectReader:
        return _InterceptedReader(self, self._store.as_async())

    def list(
        self, prefix: str, *, after: str | None = None, page_size: int = PAGE_SIZE_DEFAULT
    ) -> Iterator[list[ObjectInfo]]:
        return self._pages(prefix, self._store.list(prefix, after=after, page_size=page_size))


def _constant(value: _T) -> Callable[[], _T]:
    return lambda: value


def _deletion(store: ObjectStore, batch: Sequence[str]) -> Callable[[], None]:
    return lambda: store.delete(batch)


class _InterceptedReader:
    """The async half: same log, same counts, same faults."""

    __slots__ = ("_outer", "_reader")

    def __init__(self, outer: InterceptedStore, reader: AsyncObjectReader) -> None:
        self._outer = outer
        self._reader = reader

    @property
    def url(self) -> str:
        return self._reader.url

    async def get(self, key: str) -> StoredObject:
        return await self._through("get", key, lambda: self._reader.get(key))

    async def get_if_changed(self, key: str, known: Version) -> StoredObject | None:
        return await self._through("get_if_changed", key, lambda: self._reader.get_if_changed(key, known))

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        return await self._through("get_range", key, lambda: self._reader.get_range(key, start, length))

    async def head(self, key: str) -> ObjectInfo:
        return await self._through("head", key, lambda: self._reader.head(key))

    async def _through(self, kind: str, key: str, effect: Callable[[], Awaitable[_T]]) -> _T:
        outer = self._outer
        return await outer._around_async(outer._begin(kind, key), effect)  # noqa: SLF001 - two halves of one store


class CountingStore(InterceptedStore):
    """Counts requests by kind, for tests of a request budget."""

    @property
    def counts(self) -> dict[str, int]:
        """Requests since the last reset: put_new, swap, upload, get, get_if_changed, get_range, head, list, ..."""
        with self._lock:
            return {kind: count for kind, count in sorted(self._counts.items()) if count}

    @property
    def total(self) -> int:
        """All requests since the last reset."""
        with self._lock:
            return sum(self._counts.values())

    def reset(self) -> None:
        """Start again from nothing."""
        with self._lock:
            self._counts.clear()
            self._log.clear()


class FaultyStore(InterceptedStore):
    """Does to each request what the plan says."""

    def __init__(self, store: ObjectStore, plan: Plan = pass_all) -> None:
        super().__init__(store)
        self.plan = plan

    def _around(self, operation: Operation, effect: Callable[[], _T]) -> _T:
        fault = self.plan(operation)
        _before(fault, operation)
        if fault in {Fault.ERROR_AFTER, Fault.CRASH_AFTER}:
            # Whatever the outcome was, success or conflict, nobody hears of it.
            try:
                effect()
            except HoldfastError as error:
                raise _lost(fault, operation) from error
            raise _lost(fault, operation)
        result = effect()
        if fault is Fault.ECHO:
            raise _echo(operation)
        return result

    async def _around_async(self, operation: Operation, effect: Callable[[], Awaitable[_T]]) -> _T:
        fault = self.plan(operation)
        _before(fault, operation)
        if fault in {Fault.ERROR_AFTER, Fault.CRASH_AFTER}:
            try:
                await effect()
            except HoldfastError as error:
                raise _lost(fault, operation) from error
            raise _lost(fault, operation)
        result = await effect()
        if fault is Fault.ECHO:
            raise _echo(operation)
        return result


def _before(fault: Fault, operation: Operation) -> None:
    if fault is Fault.CRASH_BEFORE:
        raise Crashed(f"before {operation.kind} of {operation.key!r}")
    if fault is Fault.ERROR_BEFORE:
        raise StoreUnavailable(f"injected: {operation.kind} of {operation.key!r} did not reach the store")


def _lost(fault: Fault, operation: Operation) -> BaseException:
    if fault is Fault.CRASH_AFTER:
        return Crashed(f"after {operation.kind} of {operation.key!r}")
    return StoreUnavailable(f"injected: the answer to {operation.kind} of {operation.key!r} was lost")


def _echo(operation: Operation) -> HoldfastError:
    if operation.kind in _CREATES:
        return AlreadyExists(operation.key)
    if operation.kind == "swap":
        return VersionConflict(operation.key)
    # Requests without a condition cannot conflict with themselves: what is left of the story is a lost answer.
    return StoreUnavailable(f"injected: the answer to {operation.kind} of {operation.key!r} was lost")
