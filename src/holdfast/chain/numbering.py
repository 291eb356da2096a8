"""Numbers that are never given twice, whoever asks, however often, and whatever happens in between (G10).

1. One small record says which number is next. It moves by compare-and-swap, and only up.
2. Numbers belong to whoever's write took effect. Each write carries a token of its own, so an answer that was lost,
   or a conflict that is the echo of our own write, is told from somebody else's by reading back.
3. A write that may have landed is never relied upon and never repeated: the next attempt reads again, and takes numbers
   above whatever is there. So a lost response may waste numbers, and cannot give them twice. Neither can a crash, a
   rollback or a compaction: none of them touches the record.
4. A record that cannot be read is an error, not a new beginning. One that is missing begins above `floor`: the highest
   number that anything is known to be named by.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from holdfast.chain.handle import ChainHandle
from holdfast.codec import Fields, encode_record, format_stamp
from holdfast.errors import (
    AlreadyExists,
    BadInput,
    Conflict,
    ObjectNotFound,
    StoreUnavailable,
    VersionConflict,
)
from holdfast.storage.objects import Version

__all__ = ["CONFLICTS_MAX", "Numbering", "reserve"]

CONFLICTS_MAX = 64
"""How often somebody else may be first. Each of these conflicts is a success of another, so there may be many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbering:
    """The record. The numbers below `next` were given away; whether they were used is nobody's business here."""

    next: int
    revision: int
    """+1 on every write."""
    token: str
    """Unique to one write."""
    unknown: Mapping[str, object] = field(default_factory=dict)

    def encode(self) -> bytes:
        return encode_record(
            {
                "format": format_stamp("numbering"),
                "next": self.next,
                "revision": self.revision,
                "token": self.token,
                **self.unknown,
            }
        )

    @classmethod
    def decode(cls, data: bytes, *, key: str) -> Numbering:
        fields = Fields.decode(data, key=key, kind="numbering")
        return cls(
            next=fields.number("next"),
            revision=fields.number("revision"),
            token=fields.text("token"),
            unknown=fields.rest(),
        )


def reserve(handle: ChainHandle, key: str, count: int = 1, *, floor: int | Callable[[], int] = 0) -> range:
    """`count` numbers that nobody had before and nobody will get again, ascending, from 1.

    `floor` is the highest number that the caller knows to be in use: all of them will be above it. As a function it is
    asked only where the record is missing, so it may list. A damaged record is CorruptRecord: after it was moved away,
    the next call begins above `floor`.
    """
    if count < 1:
        raise BadInput(f"{count} numbers cannot be reserved; ask for at least 1")
    failures = 0
    for attempt in range(CONFLICTS_MAX):
        try:
            found, version = _read(handle, key)
            planned = _planned(handle, found, count, floor)
            if _took_effect(handle, key, planned, version):
                return range(planned.next - count, planned.next)
        except StoreUnavailable:
            failures += 1
            if failures >= handle.attempts_max:
                raise
        handle.back_off(attempt)
    raise Conflict(f"{key!r} kept changing for {CONFLICTS_MAX} attempts; try again")


def _read(handle: ChainHandle, key: str) -> tuple[Numbering | None, Version | None]:
    try:
        stored = handle.records.get(key)
    except ObjectNotFound:
        return None, None
    return Numbering.decode(stored.data, key=key), stored.version


def _planned(handle: ChainHandle, found: Numbering | None, count: int, floor: int | Callable[[], int]) -> Numbering:
    """The record after `count` more numbers."""
    if found is None:
        first = 1 + (floor if isinstance(floor, int) else floor())
        return Numbering(next=max(first, 1) + count, revision=0, token=handle.token())
    first = max(found.next, 1 + floor if isinstance(floor, int) else 0)
    return replace(found, next=first + count, revision=found.revision + 1, token=handle.token())


def _took_effect(handle: ChainHandle, key: str, planned: Numbering, version: Version | None) -> bool:
    """Write the record. False if it did not take effect, or if somebody wrote after it and nobody can tell."""
    try:
        if version is None:
            handle.records.put_new(key, planned.encode())
        else:
            handle.records.swap(key, planned.encode(), expected=version)
        return True
    except (AlreadyExists, VersionConflict, StoreUnavailable):
        now, _ = _read(handle, key)
        return now == planned
