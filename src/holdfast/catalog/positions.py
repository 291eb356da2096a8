"""Places in a domain's ledger: positions and event ids that only grow, whoever asks (C14, C15).

1. One small record per domain says which position is next and which event id was the last. It moves by
   compare-and-swap, and only up. A position and its id are taken in one swap: in a domain, the order of ids is the
   order of positions, for all writers, whatever their clocks say.
2. Places are taken after the append was called and for nobody else: while one thread swaps, others of its process
   wait, and the next swap takes a block for all of them. So an append that has returned is below every append that is
   called after that, in any process.
3. Every id is above every id that was given before, and above the watermark that the writer saw: a clock that went
   back, or a watermark from the future, costs nothing but a random step beyond it.
4. A write that may have landed is never relied upon and never repeated; its places stay unused. Each write carries a
   token, by which the writer knows its own again.
5. A record that cannot be read or is missing is an error, not a new beginning: `Workspace.initialize` makes it, above
   everything that the ledger holds.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from holdfast.catalog.backpressure import Admission, Gate, LagWarning
from holdfast.catalog.layout import LedgerLayout
from holdfast.catalog.metrics import LedgerMetrics
from holdfast.chain.ids import is_ulid, next_ulid
from holdfast.clock import Clock, Randomness
from holdfast.codec import Fields, encode_record, format_stamp
from holdfast.errors import (
    AlreadyExists,
    BadInput,
    Conflict,
    CorruptRecord,
    NotFound,
    ObjectNotFound,
    StoreUnavailable,
    VersionConflict,
)
from holdfast.storage.capabilities import LockSwap, Reader
from holdfast.storage.objects import Version

__all__ = ["BLOCK_MAX", "Counter", "Place", "Places", "PositionRecord", "create_counter"]

BLOCK_MAX = 1_000
"""How many places one swap takes at most."""
CONFLICTS_MAX = 64
"""How often somebody else may be first. Each of these conflicts is a success of another, so there may be many."""
RECENT_MAX = 8
"""How many of the newest swaps the record remembers: more than are in flight at once, mostly."""

RECOVERY_GAP = 1_000_000
"""How far above everything that is known a lost counter begins again: above all that was in flight when it was lost.
The gap looks like a lag until the first event behind it is folded; only then is the next one let in."""

_KIND = "positions"


class Place(NamedTuple):
    """Where one event goes. An empty id stands for one that is not known."""

    position: int
    event_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """What one caller got."""

    places: tuple[Place, ...]
    warning: LagWarning | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionRecord:
    """The record. Positions below `next` were given out; `written` of them is one that is known to be used."""

    next: int
    last_id: str | None
    written: int
    recent: tuple[Place, ...]
    """The last place of each of the newest swaps, oldest first."""
    revision: int
    """+1 on every write."""
    token: str
    """Unique to one write."""
    unknown: Mapping[str, object] = field(default_factory=dict)

    def encode(self) -> bytes:
        record = {
            "format": format_stamp(_KIND),
            "next": self.next,
            "last_id": self.last_id,
            "written": self.written,
            "recent": [{"position": place.position, "event_id": place.event_id} for place in self.recent],
            "revision": self.revision,
            "token": self.token,
        }
        return encode_record({**record, **self.unknown})

    @classmethod
    def decode(cls, data: bytes, *, key: str) -> PositionRecord:
        fields = Fields.decode(data, key=key, kind=_KIND)
        record = cls(
            next=fields.number("next"),
            last_id=fields.optional_text("last_id"),
            written=fields.number("written"),
            recent=fields.records("recent", lambda one: Place(one.number("position"), one.text("event_id"))),
            revision=fields.number("revision"),
            token=fields.text("token"),
            unknown=fields.rest(),
        )
        ids = [place.event_id for place in record.recent] + ([] if record.last_id is None else [record.last_id])
        if record.next < 1 or not all(map(is_ulid, ids)):
            raise CorruptRecord(key, "its positions begin at 1, and its ids are ULIDs")
        return record


def create_counter(
    layout: LedgerLayout, lock: LockSwap, *, randomness: Randomness, highest: Place | None = None
) -> bool:
    """Make a domain's counter, unless there is one. `highest` is the last place that anything is known to have."""
    written = 0 if highest is None else highest.position
    record = PositionRecord(
        next=1 if highest is None else written + 1 + RECOVERY_GAP,
        last_id=None if highest is None else highest.event_id or None,
        written=written,
        recent=(),
        revision=0,
        token=f"{randomness.bits(96):024x}",
    )
    try:
        lock.put_lock(layout.positions_key, record.encode())
    except AlreadyExists:
        return False
    return True


@dataclass(slots=True, eq=False)
class _Ticket:
    """One caller who waits for places. No two are equal, whatever they ask for."""

    count: int
    got: Places | None = None
    error: Exception | None = None


class Counter:
    """Gives out the places of one domain's ledger. Safe for many threads: those who meet share a swap."""

    def __init__(
        self,
        layout: LedgerLayout,
        *,
        lock: LockSwap,
        read: Reader,
        gate: Gate,
        metrics: LedgerMetrics,
        clock: Clock,
        randomness: Randomness,
        attempts_max: int = 8,
        backoff_s: float = 0.02,
    ) -> None:
        self._layout = layout
        self._lock = lock
        self._read = read
        self._gate = gate
        self._metrics = metrics
        self._clock = clock
        self._randomness = randomness
        self._attempts_max = attempts_max
        self._backoff_s = backoff_s
        self._turn = threading.Condition()
        self._waiting: list[_Ticket] = []
        self._is_swapping = False
        self._known: tuple[PositionRecord, Version] | None = None
        self._written = 0

    def take(self, count: int = 1) -> Places:
        """Places that nobody had before and nobody will get again; LedgerFull if the fold is too far behind."""
        if not 1 <= count <= BLOCK_MAX:
            raise BadInput(f"{count} places cannot be taken at once; take 1 to {BLOCK_MAX}")
        ticket = _Ticket(count)
        with self._turn:
            self._waiting.append(ticket)
            while self._is_swapping and ticket.got is None and ticket.error is None:
                self._turn.wait()
            if ticket.got is None and ticket.error is None:
                self._is_swapping = True
                mine = self._block(ticket)
            else:
                mine = []
        if mine:
            self._lead(ticket, mine)
        if ticket.error is not None:
            raise ticket.error
        assert ticket.got is not None
        return ticket.got

    def wrote(self, position: int) -> None:
        """The event at this position is there. Reported with the next swap."""
        with self._turn:
            self._written = max(self._written, position)

    # -- sharing a swap ----------------------------------------------------------------------------------------------

    def _block(self, leader: _Ticket) -> list[_Ticket]:
        """Whoever waits now, as many as fit. They are served in the order in which they came."""
        self._waiting.remove(leader)
        block, total = [leader], leader.count
        for ticket in list(self._waiting):
            if total + ticket.count > BLOCK_MAX:
                break
            total += ticket.count
            block.append(ticket)
            self._waiting.remove(ticket)
        return block

    def _lead(self, leader: _Ticket, block: list[_Ticket]) -> None:
        """Swap for all of them. Whatever ends this thread, the others go on."""
        try:
            got = self._reserve(sum(ticket.count for ticket in block))
            begin = 0
            for ticket in block:
                ticket.got = Places(places=got.places[begin : begin + ticket.count], warning=got.warning)
                begin += ticket.count
        except Exception as error:  # noqa: BLE001 - raised by everyone whom it concerns
            for ticket in block:
                ticket.error = error
        finally:
            with self._turn:
                # Only where this thread is being ended are some neither served nor refused: another one leads them.
                self._waiting[:0] = [
                    one for one in block if one is not leader and one.got is None and one.error is None
                ]
                self._is_swapping = False
                self._turn.notify_all()

    # -- the swap ----------------------------------------------------------------------------------------------------

    def _reserve(self, count: int) -> Places:
        failures = 0
        for attempt in range(CONFLICTS_MAX):
            try:
                taken = self._attempt(count)
                if taken is not None:
                    return taken
            except StoreUnavailable:
                failures += 1
                if failures >= self._attempts_max:
                    raise
            self._known = None
            self._back_off(attempt)
        raise Conflict(f"{self._layout.positions_key!r} kept changing for {CONFLICTS_MAX} attempts; try again")

    def _attempt(self, count: int) -> Places | None:
        """None if somebody else was first, or if nobody can tell."""
        record, version = self._known or self._look()
        self._known = None
        admission = self._gate.admit(
            given=record.next - 1,
            written=max(record.written, self._written),
            find_written=lambda: self._find_written(record),
            count=count,
        )
        planned, places = self._planned(record, admission, count)
        landed = self._swap(planned, version)
        if landed is None:
            return None
        self._known = planned, landed
        self._metrics.add("reservations")
        return Places(places=places, warning=admission.warning)

    def _look(self) -> tuple[PositionRecord, Version]:
        key = self._layout.positions_key
        try:
            stored = self._lock.get_lock(key)
        except ObjectNotFound:
            raise NotFound(
                f"there is no {key!r}: the workspace was not initialized, or its name is wrong, or the counter was "
                "lost; `holdfast init` makes it, above everything that the ledger holds"
            ) from None
        return PositionRecord.decode(stored.data, key=key), stored.version

    def _planned(
        self, record: PositionRecord, admission: Admission, count: int
    ) -> tuple[PositionRecord, tuple[Place, ...]]:
        """The record after `count` more places."""
        mark = admission.watermark
        first = max(record.next, mark.position + 1)
        last_id = max(record.last_id or "", mark.event_id or "") or None
        places = []
        for position in range(first, first + count):
            try:
                last_id = next_ulid(self._clock, self._randomness, after=last_id)
            except ValueError:
                raise CorruptRecord(self._layout.positions_key, f"no event id is above {last_id}") from None
            places.append(Place(position, last_id))
        planned = replace(
            record,
            next=first + count,
            last_id=last_id,
            written=max(record.written, admission.written),
            recent=(*record.recent, places[-1])[-RECENT_MAX:],
            revision=record.revision + 1,
            token=f"{self._randomness.bits(96):024x}",
        )
        return planned, tuple(places)

    def _swap(self, planned: PositionRecord, version: Version) -> Version | None:
        """The record's version, if the write took effect; None if somebody else was first, or wrote after it."""
        try:
            return self._lock.swap_lock(self._layout.positions_key, planned.encode(), expected=version)
        except (VersionConflict, StoreUnavailable) as error:
            now, found = self._look()
            if now == planned:
                return found
            if isinstance(error, StoreUnavailable):
                raise
            return None

    def _find_written(self, record: PositionRecord) -> int:
        """The newest of the remembered places whose event is there; 0 if none is."""
        for place in reversed(record.recent):
            try:
                self._read.get_range(self._layout.event_key(place.event_id), 0, 1)
            except ObjectNotFound:
                continue
            self.wrote(place.position)
            return place.position
        return 0

    def _back_off(self, attempt: int) -> None:
        """Wait before attempt + 1: exponential, with full jitter (S19)."""
        ceiling = self._backoff_s * (1 << min(attempt, 6))
        self._clock.sleep(ceiling * (1 + self._randomness.bits(10)) / 1024)
