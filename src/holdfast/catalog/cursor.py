"""How far anti-entropy has looked through a ledger, kept by the compactor, which may write it (C18).

1. There is one record per domain, and it moves by compare-and-swap, and only up: of two who advance it the one that was
   further wins, whatever comes last.
2. Who finds what was missed lists and reads, and writes nothing (C9). It hands the cursor to the compactor together
   with the paths it found, and the compactor writes it once all of them are folded. So a crash anywhere makes the next
   round look again at what may have been missed, and never skip it.
3. It is a hint: everything behind it can be looked through again at any time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from holdfast.catalog.layout import cursor_key
from holdfast.chain.ids import is_ulid
from holdfast.clock import Clock, Randomness, SystemClock, SystemRandomness, format_time
from holdfast.codec import Fields, encode_record, format_stamp
from holdfast.errors import (
    AlreadyExists,
    BadInput,
    Conflict,
    CorruptRecord,
    ObjectNotFound,
    StoreUnavailable,
    VersionConflict,
)
from holdfast.storage.capabilities import ManifestSwap, Reader
from holdfast.storage.objects import Version

__all__ = ["Cursor", "CursorKeeper", "read_cursor"]

ATTEMPTS_MAX = 16
_KIND = "anti-entropy-cursor"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """Every event up to this id was looked at, and folded if it was missed."""

    domain: str
    event_id: str
    updated_at: datetime
    revision: int
    """+1 on every write, so that no two have the same bytes."""
    token: str
    """Unique to one write."""
    unknown: Mapping[str, object] = field(default_factory=dict)

    def encode(self) -> bytes:
        record = {
            "format": format_stamp(_KIND),
            "domain": self.domain,
            "event_id": self.event_id,
            "updated_at": format_time(self.updated_at),
            "revision": self.revision,
            "token": self.token,
        }
        return encode_record({**record, **self.unknown})

    @classmethod
    def decode(cls, data: bytes, *, key: str) -> Cursor:
        fields = Fields.decode(data, key=key, kind=_KIND)
        found = cls(
            domain=fields.text("domain"),
            event_id=fields.text("event_id"),
            updated_at=fields.time("updated_at"),
            revision=fields.number("revision"),
            token=fields.text("token"),
            unknown=fields.rest(),
        )
        if not is_ulid(found.event_id):
            raise CorruptRecord(key, "field 'event_id' should be a ULID")
        return found


def read_cursor(read: Reader, domain: str) -> Cursor | None:
    """Where the domain's cursor is; None before the first round."""
    found = _read(read, domain)
    return None if found is None else found[0]


def _read(read: Reader, domain: str) -> tuple[Cursor, Version] | None:
    key = cursor_key(domain)
    try:
        stored = read.get(key)
    except ObjectNotFound:
        return None
    cursor = Cursor.decode(stored.data, key=key)
    if cursor.domain != domain:
        raise CorruptRecord(key, f"it is the cursor of {cursor.domain!r}")
    return cursor, stored.version


class CursorKeeper:
    """Moves the cursors of a workspace, with the rights of the compactor that publishes."""

    def __init__(
        self, swap: ManifestSwap, read: Reader, *, clock: Clock | None = None, randomness: Randomness | None = None
    ) -> None:
        self._swap = swap
        self._read = read
        self._clock: Clock = clock or SystemClock()
        self._randomness: Randomness = randomness or SystemRandomness()

    def advance(self, domain: str, event_id: str) -> Cursor:
        """The cursor, which is at `event_id` now, or further if somebody was further. It never goes back."""
        if not is_ulid(event_id):
            raise BadInput(f"{event_id!r} is no event id, so no cursor can be there; it is a ULID of 26 characters")
        key, reason = cursor_key(domain), ""
        for _ in range(ATTEMPTS_MAX):
            found = _read(self._read, domain)
            if found is not None and found[0].event_id >= event_id:
                return found[0]
            moved = Cursor(
                domain=domain,
                event_id=event_id,
                updated_at=self._clock.now(),
                revision=1 if found is None else found[0].revision + 1,
                token=f"{self._randomness.bits(96):024x}",
                unknown={} if found is None else found[0].unknown,
            )
            try:
                if found is None:
                    self._swap.put_manifest(key, moved.encode())
                else:
                    self._swap.swap_pointer(key, moved.encode(), expected=found[1])
            except (AlreadyExists, VersionConflict, StoreUnavailable) as error:
                # Perhaps another was first, perhaps it is written and the answer was lost: reading tells both.
                reason = str(error)
                self._clock.sleep(0.01 * (1 + self._randomness.bits(4)))
                continue
            return moved
        raise Conflict(f"the cursor {key!r} did not move in {ATTEMPTS_MAX} attempts ({reason}); advance it again later")
