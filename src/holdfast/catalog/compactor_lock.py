"""The lock of a compactor that nobody lends one: it folds what it was notified of (C18, C8).

A compactor may write no lock of the API's (C9), so its own is below `manifests/`. That keeps several compactors from
doing the same work. What keeps them, and the API's changes, from undoing each other is the pointer's compare-and-swap;
so it is enough to be polite:

1. Who changes the domain under its lock goes first: while that is held, this one is not taken.
2. What is published leaves the epoch where it is. Whoever takes the domain's lock in the meantime is above it and is
   not fenced off by what was only folded, and no epoch is ever above the domain's lock (S22).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

from holdfast.catalog.layout import compactor_lock_key
from holdfast.chain import Chain
from holdfast.clock import format_time
from holdfast.errors import AlreadyExists, LockHeld, StoreDenied
from holdfast.fencing import KeepAlive, LockGuard, LockRecord, acquire_lock, read_lock
from holdfast.storage.objects import Version

__all__ = ["LOCK_TTL_S", "compactor_lock"]

LOCK_TTL_S = 15.0


@contextmanager
def compactor_lock(chain: Chain, domain: str, *, ttl_s: float = LOCK_TTL_S) -> Iterator[LockGuard]:
    """Hold it for the block, however long that takes. LockHeld if another compactor has it, or the API the domain's."""
    key = compactor_lock_key(domain)
    _require_free(chain)
    try:
        held = _acquired(chain, key, ttl_s)
    except StoreDenied:  # so some stores answer where nothing is, to who may not list: the first time, it is made
        _create(chain, key)
        held = _acquired(chain, key, ttl_s)
    with held, KeepAlive(lambda: held.extend(ttl_s), every_s=ttl_s / 3):
        yield _AtEpoch(chain, held)


class _AtEpoch(LockGuard):
    """A held lock whose token is the epoch that the pointer has: as good as any, because the pointer is compared."""

    def __init__(self, chain: Chain, held: LockGuard) -> None:
        super().__init__(
            store=chain.handle.records,
            key=held.key,
            record=replace(held.record, sequence=0 if chain.seen is None else chain.seen.pointer.epoch),
            version=Version(""),
            clock=held.clock,
            is_borrowed=True,  # who holds it renews and releases it
        )
        self._held = held

    @property
    def record(self) -> LockRecord:
        return self._held.record

    def check(self) -> None:
        self._held.check()


def _require_free(chain: Chain) -> None:
    """LockHeld if somebody holds the domain's lock."""
    key = chain.layout.lock_key
    try:
        found = read_lock(chain.handle.records, key)
    except StoreDenied:  # as above: nobody ever took it
        return
    if found is not None and found.is_live(chain.handle.clock.now()):
        raise LockHeld(
            f"{key!r} is held by {found.holder!r} for {found.operation!r} until {format_time(found.expires_at)}; wait "
            "for it to finish or to expire"
        )


def _acquired(chain: Chain, key: str, ttl_s: float) -> LockGuard:
    handle = chain.handle
    return acquire_lock(
        handle.records,
        key,
        holder=chain.by,
        operation="fold what was notified",
        ttl_s=ttl_s,
        clock=handle.clock,
        randomness=handle.randomness,
    )


def _create(chain: Chain, key: str) -> None:
    """A lock that nobody holds."""
    now = chain.handle.clock.now()
    record = LockRecord(holder=chain.by, acquired_at=now, expires_at=now, sequence=0, operation="made", attempt="made")
    with suppress(AlreadyExists):
        chain.handle.records.put_new(key, record.encode())
