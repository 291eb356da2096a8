"""Locks with fencing tokens, kept in a store by compare-and-swap (S22).

1. Acquire creates the lock record, or takes over an expired one, with sequence + 1. A live one is `LockHeld`.
2. The sequence never falls, not even when the lock file is lost: the caller passes the epoch of what the lock protects
   as `floor`.
3. Release writes an expired record; nothing is ever deleted.
4. Extend needs the same holder, the same sequence and a lock that has not expired.

A lock only makes it unlikely that two writers work at once. What makes it harmless is the token: the commit compares it
with the pointer's epoch, so a holder that was paused past its lease can do nothing, whatever it believes.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from types import TracebackType
from typing import Self

from holdfast.clock import Clock, Randomness, format_time
from holdfast.codec import Fields, encode_record, format_stamp
from holdfast.errors import (
    AlreadyExists,
    Conflict,
    LockHeld,
    LockLost,
    ObjectNotFound,
    StoreError,
    StoreUnavailable,
    VersionConflict,
)
from holdfast.fencing.token import FencingToken, TokenSeal
from holdfast.storage.objects import RecordStore, Version

__all__ = ["LockGuard", "LockRecord", "acquire_lock", "borrow_lock", "read_lock"]

ATTEMPTS_MAX = 8
_log = logging.getLogger("holdfast.lock")
_SEAL = TokenSeal()


@dataclass(frozen=True, slots=True, kw_only=True)
class LockRecord:
    """What a lock file says."""

    holder: str
    acquired_at: datetime
    expires_at: datetime
    sequence: int
    operation: str
    attempt: str
    """Unique to one acquisition: tells our own write from another's when the store's answer was lost."""
    unknown: Mapping[str, object] = field(default_factory=dict)

    def is_live(self, now: datetime) -> bool:
        """Whether it keeps others out. One that expired when it was acquired was released: that holds by any clock."""
        return self.expires_at > max(now, self.acquired_at)

    def encode(self) -> bytes:
        return encode_record(
            {
                "format": format_stamp("lock"),
                "holder": self.holder,
                "acquired_at": format_time(self.acquired_at),
                "expires_at": format_time(self.expires_at),
                "sequence": self.sequence,
                "operation": self.operation,
                "attempt": self.attempt,
                **self.unknown,
            }
        )

    @classmethod
    def decode(cls, data: bytes, *, key: str) -> LockRecord:
        fields = Fields.decode(data, key=key, kind="lock")
        return cls(
            holder=fields.text("holder"),
            acquired_at=fields.time("acquired_at"),
            expires_at=fields.time("expires_at"),
            sequence=fields.number("sequence"),
            operation=fields.text("operation"),
            attempt=fields.text("attempt"),
            unknown=fields.rest(),
        )


def read_lock(store: RecordStore, key: str) -> LockRecord | None:
    """Who holds or held the lock; None if nobody ever did."""
    found = _read(store, key)
    return None if found is None else found[0]


def _read(store: RecordStore, key: str) -> tuple[LockRecord, Version] | None:
    try:
        stored = store.get(key)
    except ObjectNotFound:
        return None
    return LockRecord.decode(stored.data, key=key), stored.version


def acquire_lock(
    store: RecordStore,
    key: str,
    *,
    holder: str,
    operation: str,
    ttl_s: float,
    clock: Clock,
    randomness: Randomness,
    floor: int = 0,
) -> LockGuard:
    """Take the lock, or raise LockHeld. `floor` is the epoch the sequence must exceed."""
    attempt = f"{randomness.bits(96):024x}"
    for _ in range(ATTEMPTS_MAX):
        now = clock.now()
        found = _read(store, key)
        if found is not None and found[0].attempt == attempt:  # our own earlier write, whose answer was lost
            return LockGuard(store=store, key=key, record=found[0], version=found[1], clock=clock)
        if found is not None and found[0].is_live(now):
            raise LockHeld(
                f"{key!r} is held by {found[0].holder!r} for {found[0].operation!r} until "
                f"{format_time(found[0].expires_at)}; wait for it to finish or to expire"
            )
        record = LockRecord(
            holder=holder,
            acquired_at=now,
            expires_at=now + timedelta(seconds=ttl_s),
            sequence=max(floor, 0 if found is None else found[0].sequence) + 1,
            operation=operation,
            attempt=attempt,
            unknown={} if found is None else found[0].unknown,
        )
        try:
            if found is None:
                version = store.put_new(key, record.encode())
            else:
                version = store.swap(key, record.encode(), expected=found[1])
        except (AlreadyExists, VersionConflict, StoreUnavailable):
            clock.sleep(0.01 * (1 + randomness.bits(4)))
            continue
        return LockGuard(store=store, key=key, record=record, version=version, clock=clock)
    raise Conflict(
        f"{key!r} was not acquired in {ATTEMPTS_MAX} attempts: others keep taking it, or the store does not answer"
    )


def borrow_lock(store: RecordStore, key: str, *, ticket: str, clock: Clock) -> LockGuard:
    """Work under a lock that somebody else holds and has sent the ticket of (`LockGuard.ticket`); costs one read.

    LockLost unless the lock is held, now, by whoever got that ticket. What is borrowed is neither extended nor released
    here: it ends when its holder ends it, and the commit compares its token all the same.
    """
    found = _read(store, key)
    if found is None or f"{found[0].sequence}.{found[0].attempt}" != ticket or not found[0].is_live(clock.now()):
        raise LockLost(f"the ticket is not that of who holds lock {key!r} now; acquire it again for a new run")
    return LockGuard(store=store, key=key, record=found[0], version=found[1], clock=clock, is_borrowed=True)


class LockGuard:
    """A held lock. A context manager that releases it; `token` is what a publish is made with."""

    def __init__(
        self,
        *,
        store: RecordStore,
        key: str,
        record: LockRecord,
        version: Version,
        clock: Clock,
        is_borrowed: bool = False,
    ) -> None:
        self._is_borrowed = is_borrowed
        self._store = store
        self._record = record
        self._version = version
        self._clock = clock
        self._lost: str | None = None
        self._writing = threading.Lock()  # the keep-alive thread extends while the worker may release
        self._token = FencingToken(record.sequence, seal=_SEAL)
        self.key = key

    @property
    def token(self) -> FencingToken:
        return self._token

    @property
    def ticket(self) -> str:
        """What another process needs to work under this lock (`borrow_lock`). Whoever has it can: never log it."""
        return f"{self._record.sequence}.{self._record.attempt}"

    @property
    def record(self) -> LockRecord:
        return self._record

    @property
    def clock(self) -> Clock:
        return self._clock

    @property
    def resource(self) -> str:
        """What is locked, for error messages and permits."""
        return f"{self._store.url}#{self.key}"

    def check(self) -> None:
        """Raise LockLost once this guard is known to be released, lost or expired. Costs no request."""
        if self._lost is not None:
            raise LockLost(f"lock {self.key!r}: {self._lost}; acquire it again for a new run")
        if self._record.expires_at <= self._clock.now():
            raise LockLost(
                f"lock {self.key!r} expired at {format_time(self._record.expires_at)}; acquire it again for a new run"
            )

    def extend(self, ttl_s: float) -> None:
        """Push the expiry out to `ttl_s` from now, or raise LockLost.

        Never makes it shorter, whatever the clock does.
        """
        with self._writing:
            self.check()
            if self._is_borrowed:
                raise LockLost(f"lock {self.key!r} is borrowed: use the holder's guard to extend it")
            until = max(self._record.expires_at, self._clock.now() + timedelta(seconds=ttl_s))
            self._replace(replace(self._record, expires_at=until))

    def release(self) -> None:
        """Write an expired record, so that the next holder need not wait. A lock that was lost is left alone."""
        with self._writing:
            if self._lost is not None or self._is_borrowed:
                return
            try:
                self._replace(replace(self._record, expires_at=min(self._record.acquired_at, self._clock.now())))
            except LockLost:
                return
            self._lost = "it was released"

    def _replace(self, record: LockRecord) -> None:
        data = record.encode()
        reason = ""
        for _ in range(ATTEMPTS_MAX):
            try:
                self._version = self._store.swap(self.key, data, expected=self._version)
                self._record = record
                return
            except (VersionConflict, StoreUnavailable) as error:
                reason = str(error)
            try:
                found = _read(self._store, self.key)
            except StoreUnavailable:
                continue
            if found is None or found[0].attempt != self._record.attempt:
                self._lost = "it was lost" if found is None else f"it was taken over by {found[0].holder!r}"
                self.check()
            elif found[0] == record:  # it was written, only the answer was lost
                self._version, self._record = found[1], record
                return
            else:
                self._version = found[1]
        raise StoreUnavailable(f"lock {self.key!r} could not be written in {ATTEMPTS_MAX} attempts: {reason}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self.release()
        except StoreError as failure:
            # What was done under the lock is done: a release without an answer must not make it look failed.
            _log.warning("lock %r was not released and will expire by itself: %s", self.key, failure)
