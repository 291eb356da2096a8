"""The ledger of a domain: events are appended once, and stay (C12, C13).

An append takes three steps, and a reader of the ledger believes only the last:

1. Take a place: a position and an event id (`positions.py`). Here a fold that is too far behind rejects it (C25).
2. Claim the idempotency key: create `ledger/claims/{domain}/{SHA-256 of the key}.json`. The claim holds the bytes of
   the whole event, its place included. Of all who ever append with this key, in any process, exactly one creates it.
3. Create the event, `ledger/{domain}/{event id}.json`, with the same bytes.

So whoever dies, or loses an answer, leaves nothing that is wrong: without a claim nothing was told, and with one
whoever appends with the same key finds what was said and where it belongs, and finishes step 3 with those very bytes.
An append that fails may be repeated with the same key until it succeeds. It is one event, for ever. Other content
under the same key is refused.

Nothing is listed, replaced or deleted. What a ledger needs is what it is handed: to add below `ledger/`, to swap its
counter below `locks/`, and to read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeVar

from holdfast.catalog.backpressure import Gate, LagWarning, Limits
from holdfast.catalog.events import Event, EventDraft, UnknownEvent, content_of, decode_event
from holdfast.catalog.layout import LedgerLayout, ledger_layout
from holdfast.catalog.metrics import LedgerMetrics
from holdfast.catalog.payload import Payload, check_name_text
from holdfast.catalog.positions import BLOCK_MAX, Counter, Place
from holdfast.catalog.watermark import WatermarkReader
from holdfast.chain.ids import ULID_LAST, is_ulid
from holdfast.clock import Clock, Randomness, SystemClock, SystemRandomness
from holdfast.codec import Fields
from holdfast.errors import (
    AlreadyExists,
    BadInput,
    CorruptRecord,
    IdempotencyConflict,
    ObjectNotFound,
    StoreUnavailable,
)
from holdfast.storage.capabilities import LedgerPut, LockSwap, Reader

__all__ = ["BATCH_MAX", "Ledger", "Receipt"]

BATCH_MAX = BLOCK_MAX
"""How many events one call appends at most: they are let in, or turned away, together."""
ATTEMPTS_MAX = 8
BACKOFF_S = 0.02
APPENDS_IN_FLIGHT_MAX = 16

_SOMEWHERE = Place(10**18, ULID_LAST)
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """An event is in the ledger."""

    domain: str
    event_id: str
    path: str
    position: int
    idempotency_key: str
    duplicate: bool
    """It was told before, and this is where. The same key, the same content: one event."""
    warning: LagWarning | None = None
    data: bytes = field(default=b"", repr=False, compare=False)
    """The event as it is stored: who folds it in this process need not read it again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Claim:
    """What a claim says of its event. It is read without knowing the event's type: a newer release may have told it."""

    event_id: str
    position: int
    content: bytes
    event_type: str
    data: bytes


class Ledger:
    """Appends to one domain's ledger. Safe for many threads; those who meet share the cost of their places."""

    def __init__(
        self,
        domain: str,
        *,
        ledger: LedgerPut,
        lock: LockSwap,
        read: Reader,
        source: str,
        limits: Limits | None = None,
        clock: Clock | None = None,
        randomness: Randomness | None = None,
        attempts_max: int = ATTEMPTS_MAX,
        backoff_s: float = BACKOFF_S,
    ) -> None:
        self._layout: LedgerLayout = ledger_layout(domain)
        self._ledger = ledger
        self._read = read
        self._source = check_name_text(source, "the source of events")
        self._clock = clock or SystemClock()
        self._randomness = randomness or SystemRandomness()
        self._attempts_max = attempts_max
        self._backoff_s = backoff_s
        self.metrics = LedgerMetrics()
        watermark = WatermarkReader(read, self._layout.chain, clock=self._clock)
        self._counter = Counter(
            self._layout,
            lock=lock,
            read=read,
            gate=Gate(domain, watermark=watermark, limits=limits or Limits(), metrics=self.metrics),
            metrics=self.metrics,
            clock=self._clock,
            randomness=self._randomness,
            attempts_max=attempts_max,
            backoff_s=backoff_s,
        )

    @property
    def domain(self) -> str:
        return self._layout.domain

    def append(
        self,
        payload: Payload,
        *,
        idempotency_key: str | None = None,
        occurred_at: datetime | None = None,
        trace_id: str | None = None,
    ) -> Receipt:
        """Append one event. Returns when it is in the ledger, for ever.

        LedgerFull: nothing was written, come back later. IdempotencyConflict: the key was used for something else.
        StoreUnavailable: it may or may not be there; append it again with the same key, and it is there once.
        """
        draft = EventDraft(payload=payload, idempotency_key=idempotency_key, occurred_at=occurred_at, trace_id=trace_id)
        return self.append_many([draft])[0]

    def append_many(self, drafts: Sequence[EventDraft]) -> list[Receipt]:
        """Append some events, in the order of their positions, for one swap of the counter.

        They are not one: if some cannot be appended the others are, and the first error is raised. Appending all of
        them again with the same keys is always right.
        """
        if len(drafts) > BATCH_MAX:
            raise BadInput(f"{len(drafts)} events are too many for one call; append at most {BATCH_MAX} at a time")
        if not drafts:
            return []
        for draft in drafts:
            self._check(draft)
        got = self._counter.take(len(drafts))
        if len(drafts) == 1:
            return [self._tell(drafts[0], got.places[0], got.warning)]
        with ThreadPoolExecutor(min(len(drafts), APPENDS_IN_FLIGHT_MAX), "holdfast-ledger") as pool:
            told = [
                pool.submit(self._tell, draft, place, got.warning)
                for draft, place in zip(drafts, got.places, strict=True)
            ]
        return [one.result() for one in told]

    def told(self, idempotency_key: str) -> Event | UnknownEvent | None:
        """What was said with this key, whether or not it is folded yet; None if nothing was. One read."""
        try:
            data = self._read.get(self._layout.claim_key(idempotency_key)).data
        except ObjectNotFound:
            return None
        claim = _decode_claim(data, path=self._layout.claim_key(idempotency_key), idempotency_key=idempotency_key)
        return decode_event(data, path=self._layout.event_key(claim.event_id), layout=self._layout)

    # -- one event ---------------------------------------------------------------------------------------------------

    def _check(self, draft: EventDraft) -> None:
        """BadInput for what could never be appended, before it takes a place."""
        if self.domain != draft.payload.DOMAIN:
            raise BadInput(
                f"a {draft.payload.TYPE} event belongs to the {draft.payload.DOMAIN!r} ledger, not to {self.domain!r}"
            )
        self._event(draft, _SOMEWHERE).encode()

    def _event(self, draft: EventDraft, place: Place) -> Event:
        return Event(
            event_id=place.event_id,
            position=place.position,
            idempotency_key=draft.key,
            occurred_at=draft.occurred_at or self._clock.now(),
            source=self._source,
            trace_id=draft.trace_id,
            payload=draft.payload,
        )

    def _tell(self, draft: EventDraft, place: Place, warning: LagWarning | None) -> Receipt:
        event = self._event(draft, place)
        data = event.encode()
        claimed = self._patiently(lambda: self._claim(event.idempotency_key, data))
        is_ours = claimed == data
        if is_ours:
            event_id, position = event.event_id, event.position
            self._patiently(lambda: self._create(event_id, data))
            self.metrics.add("appended")
        else:
            claim = self._same_event(event, claimed)
            event_id, position = claim.event_id, claim.position
            if self._patiently(lambda: self._finish(claim)):
                self.metrics.add("finished")
            self.metrics.add("duplicates")
        self._counter.wrote(position)
        return Receipt(
            domain=self.domain,
            event_id=event_id,
            path=self._layout.event_key(event_id),
            position=position,
            idempotency_key=event.idempotency_key,
            duplicate=not is_ours,
            warning=warning,
            data=claimed,
        )

    def _claim(self, key: str, data: bytes) -> bytes:
        """The bytes that the key stands for from now on: ours, or those of whoever was first."""
        path = self._layout.claim_key(key)
        try:
            self._ledger.put_event(path, data)
        except AlreadyExists:  # somebody else's, or the echo of our own: its bytes tell
            return self._read.get(path).data
        return data

    def _same_event(self, event: Event, claimed: bytes) -> _Claim:
        """The claim of an event that says what ours says, or IdempotencyConflict."""
        path = self._layout.claim_key(event.idempotency_key)
        claim = _decode_claim(claimed, path=path, idempotency_key=event.idempotency_key)
        if claim.content != event.content:
            self.metrics.add("conflicts")
            raise IdempotencyConflict(
                f"the idempotency key {event.idempotency_key!r} stands for another {claim.event_type} event, "
                f"{claim.event_id}; use a new key for a new event"
            )
        return claim

    def _create(self, event_id: str, data: bytes) -> None:
        """Step 3 of our own append. It may be there already: an echo, or somebody who finished it for us."""
        path = self._layout.event_key(event_id)
        try:
            self._ledger.put_event(path, data)
        except AlreadyExists:
            self._require_same(path, self._read.get(path).data, data)

    def _finish(self, claim: _Claim) -> bool:
        """Step 3 of somebody else's append; True if it was missing."""
        path = self._layout.event_key(claim.event_id)
        try:
            self._require_same(path, self._read.get(path).data, claim.data)
        except ObjectNotFound:
            self._create(claim.event_id, claim.data)
            return True
        return False

    def _require_same(self, path: str, found: bytes, wanted: bytes) -> None:
        if found != wanted:
            raise CorruptRecord(path, "it is not the event that its claim holds; one of them was changed")

    def _patiently(self, step: Callable[[], _T]) -> _T:
        """A step, repeated while the store does not answer. Each step may be repeated: see the module's head."""
        for attempt in range(self._attempts_max - 1):
            try:
                return step()
            except StoreUnavailable:
                ceiling = self._backoff_s * (1 << min(attempt, 6))
                self._clock.sleep(ceiling * (1 + self._randomness.bits(10)) / 1024)
        return step()


def _decode_claim(data: bytes, *, path: str, idempotency_key: str) -> _Claim:
    """What a claim says; CorruptRecord if it is not the claim of this key."""
    fields = Fields.decode(data, key=path, kind=None)
    found, event_id = fields.text("idempotency_key"), fields.text("event_id")
    if found != idempotency_key:
        raise CorruptRecord(path, f"it is the claim of the key {found!r}, not of {idempotency_key!r}")
    if not is_ulid(event_id):
        raise CorruptRecord(path, f"its event id {event_id!r} is not a ULID")
    event_type = fields.text("event_type")
    return _Claim(
        event_id=event_id,
        position=fields.number("sequence_position"),
        content=content_of(event_type, fields.number("event_version"), fields.mapping("payload")),
        event_type=event_type,
        data=data,
    )
