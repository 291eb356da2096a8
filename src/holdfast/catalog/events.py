"""Events: what happened, in an envelope that says who told it, when, and in which place of the ledger (C12, C16).

What an event says is its type, its version and its payload. Two events that say the same are the same event (C13);
the rest of the envelope, its id, position, time, source and trace, is about the telling.

Reading never fails: bytes that are no event of this release become an `UnknownEvent` that keeps them and says why, for
a fold to quarantine. A later release may understand them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

import orjson

from holdfast.catalog.layout import LedgerLayout
from holdfast.catalog.payload import Payload, check_name_text
from holdfast.catalog.payloads import PAYLOAD_TYPES
from holdfast.chain.ids import is_ulid
from holdfast.clock import format_time
from holdfast.codec import Fields, Json, encode_record, format_stamp
from holdfast.errors import BadInput, Damaged

__all__ = [
    "EVENT_BYTES_MAX",
    "IDEMPOTENCY_KEY_CHARACTERS_MAX",
    "Event",
    "EventDraft",
    "UnknownEvent",
    "content_of",
    "decode_event",
    "payload_from_json",
]

EVENT_BYTES_MAX = 1 << 20
"""How large an event may be as it is stored. A table with ten thousand columns fits."""
IDEMPOTENCY_KEY_CHARACTERS_MAX = 256

_KIND = "event"
_DERIVED = "sha256:"
_POSITION_FIRST = 1
_NUMBER_MAX = 2**63 - 1
"""What a column of the state holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventDraft:
    """What somebody wants to tell. The ledger gives it its id and its place."""

    payload: Payload
    idempotency_key: str | None = None
    """Names this telling for ever. Without one the content names itself: saying it again is the same event."""
    occurred_at: datetime | None = None
    trace_id: str | None = None

    def __post_init__(self) -> None:
        key = self.idempotency_key
        if key is not None:
            check_name_text(key, "the idempotency key")
            if len(key) > IDEMPOTENCY_KEY_CHARACTERS_MAX:
                raise BadInput(
                    f"the idempotency key has {len(key)} characters, more than {IDEMPOTENCY_KEY_CHARACTERS_MAX}"
                )
            if key.startswith(_DERIVED) and key != self.derived_key:
                raise BadInput(f"the idempotency key begins with {_DERIVED!r}, which is kept for derived ones")
        if self.trace_id is not None:
            check_name_text(self.trace_id, "the trace id")
        if self.occurred_at is not None and self.occurred_at.tzinfo is None:
            raise BadInput("occurred_at has no zone; give a time with one")

    @property
    def derived_key(self) -> str:
        """The key of an event that was given none: made from what it says."""
        digest = hashlib.sha256(content_of(self.payload.TYPE, self.payload.VERSION, self.payload.to_json()))
        return _DERIVED + digest.hexdigest()

    @property
    def key(self) -> str:
        return self.derived_key if self.idempotency_key is None else self.idempotency_key


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One event of the ledger."""

    event_id: str
    position: int
    idempotency_key: str
    occurred_at: datetime
    source: str
    payload: Payload
    trace_id: str | None = None
    unknown: Mapping[str, object] = field(default_factory=dict)
    """Fields of the envelope that a newer release has added."""

    def __post_init__(self) -> None:
        if not is_ulid(self.event_id):
            raise BadInput(f"event id {self.event_id!r} is not a ULID")
        if self.position < _POSITION_FIRST:
            raise BadInput(f"event position {self.position} is below {_POSITION_FIRST}")
        if self.position > _NUMBER_MAX:
            raise BadInput(f"event position {self.position} is above {_NUMBER_MAX}")
        check_name_text(self.idempotency_key, "the idempotency key")
        check_name_text(self.source, "the source of an event")

    @property
    def event_type(self) -> str:
        return self.payload.TYPE

    @property
    def event_version(self) -> int:
        return self.payload.VERSION

    @property
    def domain(self) -> str:
        return self.payload.DOMAIN

    @property
    def content(self) -> bytes:
        """What it says, in one spelling."""
        return content_of(self.event_type, self.event_version, self.payload.to_json())

    def to_json(self) -> Json:
        record: Json = {
            "format": format_stamp(_KIND),
            "event_type": self.event_type,
            "event_version": self.event_version,
            "event_id": self.event_id,
            "idempotency_key": self.idempotency_key,
            "occurred_at": format_time(self.occurred_at),
            "source": self.source,
        }
        if self.trace_id is not None:
            record["trace_id"] = self.trace_id
        return {**record, "sequence_position": self.position, "payload": self.payload.to_json(), **self.unknown}

    def encode(self) -> bytes:
        """As it is stored; BadInput if it is too large."""
        data = encode_record(self.to_json())
        if len(data) > EVENT_BYTES_MAX:
            raise BadInput(
                f"the {self.event_type} event has {len(data)} bytes, more than {EVENT_BYTES_MAX}; split it, or keep "
                "large content in a file and name that"
            )
        return data

    @classmethod
    def decode(cls, data: bytes, *, path: str) -> Event:
        """Parse one event, strictly: Damaged or BadInput says what is wrong with it."""
        fields = Fields.decode(data, key=path, kind=_KIND)
        event_type, version = fields.text("event_type"), fields.number("event_version")
        payload = payload_from_json(event_type, version, fields.mapping("payload"))
        return cls(
            event_id=fields.text("event_id"),
            position=fields.number("sequence_position"),
            idempotency_key=fields.text("idempotency_key"),
            occurred_at=fields.time("occurred_at"),
            source=fields.text("source"),
            trace_id=fields.optional_text("trace_id"),
            payload=payload,
            unknown=fields.rest(),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownEvent:
    """Something in the ledger that this release cannot read. It is kept: quarantine it with its reason."""

    path: str
    reason: str
    data: bytes
    """As it is stored; its beginning, if it is larger than an event may be."""
    event_id: str
    """From its path."""
    event_type: str | None = None
    event_version: int | None = None
    position: int | None = None


def content_of(event_type: str, event_version: int, payload: Mapping[str, object]) -> bytes:
    """What an event says, in one spelling: sorted JSON of type, version and payload, and nothing of the telling."""
    content = {"event_type": event_type, "event_version": event_version, "payload": payload}
    return orjson.dumps(content, option=orjson.OPT_SORT_KEYS)


def payload_from_json(event_type: str, event_version: int, payload: object) -> Payload:
    """The payload of a type that this release knows; BadInput says what is wrong with it."""
    kind = PAYLOAD_TYPES.get((event_type, event_version))
    if kind is not None:
        return kind.from_json(payload)
    known = sorted(version for name, version in PAYLOAD_TYPES if name == event_type)
    if not known:
        raise BadInput(f"event type {event_type!r} is not known to this release")
    raise BadInput(f"version {event_version} of {event_type!r} is not known to this release, which reads {known[-1]}")


def decode_event(data: bytes, *, path: str, layout: LedgerLayout) -> Event | UnknownEvent:
    """What is at a path of this ledger. Never raises on account of the bytes."""
    event_id = layout.parse_event_key(path)
    if event_id is None:
        raise BadInput(f"{path!r} is no event of the {layout.domain!r} ledger")
    if len(data) > EVENT_BYTES_MAX:
        reason = f"it has more than {EVENT_BYTES_MAX} bytes"
        return UnknownEvent(path=path, reason=reason, data=data, event_id=event_id)
    try:
        event = Event.decode(data, path=path)
    except (BadInput, Damaged) as error:
        return _unknown(data, path, event_id, getattr(error, "reason", None) or str(error))
    if event.event_id != event_id:
        return _unknown(data, path, event_id, f"it says that its id is {event.event_id}")
    if event.domain != layout.domain:
        return _unknown(data, path, event_id, f"{event.event_type!r} belongs to the {event.domain!r} ledger")
    return event


def _unknown(data: bytes, path: str, event_id: str, reason: str) -> UnknownEvent:
    """As much of the envelope as can be read."""
    try:
        parsed = orjson.loads(data)
    except orjson.JSONDecodeError:
        parsed = None
    found = parsed if isinstance(parsed, dict) else {}
    event_type, version, position = (found.get(name) for name in ("event_type", "event_version", "sequence_position"))
    return UnknownEvent(
        path=path,
        reason=reason,
        data=data,
        event_id=event_id,
        event_type=event_type if isinstance(event_type, str) else None,
        event_version=version if type(version) is int and abs(version) <= _NUMBER_MAX else None,
        position=position if type(position) is int and _POSITION_FIRST <= position <= _NUMBER_MAX else None,
    )
