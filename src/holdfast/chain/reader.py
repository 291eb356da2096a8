"""Readers: serve one snapshot, refresh to the next, survive a bad publish, and say how stale they are (S26-S31).

`ChainReader` is safe for many threads; `AsyncChainReader` is the same for asyncio. Both hold one served state at a
time. A state is borrowed while it is used and closed when it has been replaced and its last borrower is done, so a
refresh blocks nobody and no borrower sees two snapshots.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from types import TracebackType
from typing import Generic, TypeVar, cast

from holdfast.chain.handle import ChainHandle
from holdfast.chain.manifest import Manifest
from holdfast.chain.pointer import Pointer
from holdfast.chain.serving import (
    Answer,
    Found,
    ListKeys,
    Open,
    Opened,
    Request,
    cold_start,
    drive,
    drive_async,
    refreshed,
)
from holdfast.errors import Damaged, ReaderStateError
from holdfast.storage.objects import AsyncObjectReader

__all__ = ["AsyncChainReader", "ChainReader", "ReaderStatus", "Refreshed", "Served", "visible_since"]

FALLBACK_ATTEMPTS_DEFAULT = 3

_log = logging.getLogger("holdfast.reader")
_T = TypeVar("_T")


class Refreshed(StrEnum):
    """What a refresh did."""

    UNCHANGED = "unchanged"
    SWAPPED = "swapped"
    KEPT = "kept"
    """The new snapshot is damaged: the old one is still served."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderStatus:
    """What a reader serves, and how far that is from the head (S30)."""

    served_id: int
    served_path: str
    served_published_at: datetime
    head_id: int | None
    """What the pointer named when it was last read; None where it could not be read."""
    fell_back: bool
    skipped: tuple[str, ...]
    checked_at: datetime
    staleness_s: float
    """0 while the head is served; else the seconds since the head became visible."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Served(Generic[_T]):
    """A borrowed snapshot and what was loaded for it."""

    manifest: Manifest
    manifest_path: str
    resource: _T


class _State(Generic[_T]):
    """One served snapshot with its borrowers."""

    def __init__(self, found: Found, close: Callable[[_T], None]) -> None:
        self.found = found
        self.resource = cast("_T", found.resource)
        self._close = close
        self._borrowers = 0
        self._retired = False
        self._lock = threading.Lock()

    def borrow(self) -> bool:
        with self._lock:
            if self._retired and self._borrowers == 0:
                return False
            self._borrowers += 1
            return True

    def give_back(self) -> None:
        with self._lock:
            self._borrowers -= 1
            last = self._retired and self._borrowers == 0
        if last:
            self._close(self.resource)

    def retire(self) -> None:
        with self._lock:
            already, self._retired = self._retired, True
            idle = not already and self._borrowers == 0
        if idle:
            self._close(self.resource)


class _Serving(Generic[_T]):
    """What both readers share: the served state, and everything that needs no waiting."""

    def __init__(
        self,
        handle: ChainHandle,
        close: Callable[[_T], None],
        max_fallback_attempts: int,
    ) -> None:
        self._handle = handle
        self._close_resource = close
        self._max_fallback_attempts = max_fallback_attempts
        self._state: _State[_T] | None = None
        self._closed = False
        self._head_id: int | None = None
        self._head_at: datetime | None = None
        self._checked_at = handle.clock.now()
        self._skipped: tuple[str, ...] = ()

    def _serve(self, found: Found) -> None:
        """Swap the served state. The resource of an unchanged manifest is kept."""
        old = self._state
        self._checked_at = self._handle.clock.now()
        self._skipped = found.skipped
        self._see_head(found)
        if old is not None and old.found.manifest_hash == found.manifest_hash:
            old.found = found
            return
        self._state = _State(found, self._close_resource)
        if old is not None:
            old.retire()
        if self._closed:  # while this was being fetched
            self.close()
            self._current()

    def _see_head(self, found: Found) -> None:
        if found.pointer is not None and found.pointer.publishing != "legacy":
            self._see_pointer(found.pointer)
        elif found.pointer_version is not None:
            self._head_id, self._head_at = found.manifest.manifest_id, found.manifest.published_at

    def _see_pointer(self, pointer: Pointer) -> None:
        if pointer.publishing != "legacy":
            self._head_id, self._head_at = pointer.manifest_id, visible_since(pointer)

    def _keep(self, error: Damaged) -> Refreshed:
        _log.warning("refresh kept snapshot %s: %s", self._current().found.manifest.manifest_id, error)
        self._checked_at = self._handle.clock.now()
        self._skipped = (str(error),)
        return Refreshed.KEPT

    def _current(self) -> _State[_T]:
        if self._state is None:
            raise ReaderStateError("this reader is closed; open a new one")
        return self._state

    @contextmanager
    def borrow(self) -> Iterator[Served[_T]]:
        """The served snapshot, which stays open until the block ends even if a refresh replaces it meanwhile."""
        state = self._current()
        while not state.borrow():  # it was replaced and closed between the two lines: its successor is there already
            state = self._current()
        try:
            yield Served(
                manifest=state.found.manifest, manifest_path=state.found.manifest_path, resource=state.resource
            )
        finally:
            state.give_back()

    @property
    def manifest(self) -> Manifest:
        return self._current().found.manifest

    def status(self) -> ReaderStatus:
        """What is served now, without any request."""
        found = self._current().found
        behind = self._skipped != () or self._head_id != found.manifest.manifest_id
        reference = self._head_at or found.manifest.published_at
        staleness = max(0.0, (self._handle.clock.now() - reference).total_seconds()) if behind else 0.0
        return ReaderStatus(
            served_id=found.manifest.manifest_id,
            served_path=found.manifest_path,
            served_published_at=found.manifest.published_at,
            head_id=self._head_id,
            fell_back=found.skipped != (),
            skipped=self._skipped,
            checked_at=self._checked_at,
            staleness_s=staleness,
        )

    def close(self) -> None:
        """Stop serving, for good. Borrowers may finish."""
        self._closed = True
        state, self._state = self._state, None
        if state is not None:
            state.retire()


def _nothing(resource: object) -> None:
    del resource


def visible_since(pointer: Pointer) -> datetime:
    """When the pointer came to what it names.

    Writes that left it there, such as the collector's, do not make it younger.
    """
    since = pointer.updated_at
    for move in reversed(pointer.moves):
        if move.target_id != pointer.manifest_id:
            break
        since = move.at
    return since


class ChainReader(_Serving[_T]):
    """Serves one snapshot of a chain to any number of threads."""

    def __init__(
        self,
        handle: ChainHandle,
        *,
        load: Callable[[Manifest], _T],
        close: Callable[[_T], None] = _nothing,
        max_fallback_attempts: int = FALLBACK_ATTEMPTS_DEFAULT,
    ) -> None:
        super().__init__(handle, close, max_fallback_attempts)
        self._load = load
        self._refreshing = threading.Lock()
        steps = cold_start(handle.layout, fallback_attempts_max=max_fallback_attempts)
        self._serve(drive(steps, self._answer))

    def refresh(self) -> Refreshed:
        """Serve what the pointer names now. Damage keeps what is served; a store that does not answer raises."""
        with self._refreshing:
            before = self._current()
            try:
                found = drive(refreshed(self._handle.layout, before.found, saw=self._see_pointer), self._answer)
                if found is None:
                    self._checked_at = self._handle.clock.now()
                    return Refreshed.UNCHANGED
                self._serve(found)
            except Damaged as error:
                return self._keep(error)
            return Refreshed.UNCHANGED if self._state is before else Refreshed.SWAPPED

    def _answer(self, request: Request) -> Answer:
        records = self._handle.records
        if isinstance(request, Open):
            return Opened(self._load(request.manifest))
        if isinstance(request, ListKeys):
            return [info.key for page in records.list(request.prefix) for info in page]
        if request.known is not None:
            return records.get_if_changed(request.key, request.known)
        return records.get(request.key)

    def __enter__(self) -> ChainReader[_T]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class AsyncChainReader(_Serving[_T]):
    """The same for asyncio. Made by `await AsyncChainReader.open(...)`."""

    def __init__(
        self,
        handle: ChainHandle,
        records: AsyncObjectReader,
        load: Callable[[Manifest], _T | Awaitable[_T]],
        close: Callable[[_T], None],
        max_fallback_attempts: int,
    ) -> None:
        super().__init__(handle, close, max_fallback_attempts)
        self._records = records
        self._load = load
        self._refreshing = asyncio.Lock()

    @classmethod
    async def open(
        cls,
        handle: ChainHandle,
        records: AsyncObjectReader,
        *,
        load: Callable[[Manifest], _T | Awaitable[_T]],
        close: Callable[[_T], None] = _nothing,
        max_fallback_attempts: int = FALLBACK_ATTEMPTS_DEFAULT,
    ) -> AsyncChainReader[_T]:
        """`load` may be a coroutine function."""
        reader = cls(handle, records, load, close, max_fallback_attempts)
        steps = cold_start(handle.layout, fallback_attempts_max=max_fallback_attempts)
        reader._serve(await drive_async(steps, reader._answer))
        return reader

    async def refresh(self) -> Refreshed:
        """As `ChainReader.refresh`."""
        async with self._refreshing:
            before = self._current()
            try:
                found = await drive_async(
                    refreshed(self._handle.layout, before.found, saw=self._see_pointer), self._answer
                )
                if found is None:
                    self._checked_at = self._handle.clock.now()
                    return Refreshed.UNCHANGED
                self._serve(found)
            except Damaged as error:
                return self._keep(error)
            return Refreshed.UNCHANGED if self._state is before else Refreshed.SWAPPED

    async def _answer(self, request: Request) -> Answer:
        if isinstance(request, Open):
            made = self._load(request.manifest)
            return Opened(await made if inspect.isawaitable(made) else made)
        if isinstance(request, ListKeys):  # fallback only, and rare: the sync list on a thread will do
            listed = await asyncio.to_thread(lambda: list(self._handle.records.list(request.prefix)))
            return [info.key for page in listed for info in page]
        if request.known is not None:
            return await self._records.get_if_changed(request.key, request.known)
        return await self._records.get(request.key)

    async def __aenter__(self) -> AsyncChainReader[_T]:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
