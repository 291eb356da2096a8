"""The record of one collection: what was condemned, where it was, and which snapshot named it last (S44).

Collecting moves nothing: on object storage a move is a copy, and a copy of every shard is neither cheap nor atomic. A
collection is a record; what it names is out of every reader's sight at once, by one swap of the pointer, and comes back
by another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from holdfast.chain.handle import ChainHandle
from holdfast.clock import format_time
from holdfast.codec import Fields, Json, encode_record, format_stamp
from holdfast.errors import CorruptRecord, ObjectNotFound

__all__ = ["CollectionRecord", "Condemned", "read_collection", "read_condemned_keys"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Condemned:
    """One object that a purge will delete."""

    key: str
    what: str
    """`artifact`, `manifest`, `orphan manifest` or `run`."""
    byte_size: int
    last_id: int | None = None
    """The newest snapshot that named it; None if none ever did."""
    attempt: str | None = None
    """For a run record: which registration of its id. A later run with the same id is not meant."""

    def to_json(self) -> Json:
        record: Json = {"key": self.key, "what": self.what, "byte_size": self.byte_size, "last_id": self.last_id}
        return record if self.attempt is None else {**record, "attempt": self.attempt}

    @classmethod
    def from_fields(cls, fields: Fields) -> Condemned:
        return cls(
            key=fields.text("key"),
            what=fields.text("what"),
            byte_size=fields.number("byte_size"),
            last_id=fields.optional_number("last_id"),
            attempt=fields.optional_text("attempt"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectionRecord:
    """One collection, whole. Written once, before the pointer makes it count; kept as the log of what was deleted."""

    collection: str
    """A ULID; also the ULID of the pointer's move that made it count."""
    collected_at: datetime
    by: str
    retention: int
    snapshots: tuple[int, ...]
    runs: tuple[str, ...]
    """Runs that were declared abandoned."""
    condemned: tuple[Condemned, ...]
    unknown: Mapping[str, object] = field(default_factory=dict)

    @property
    def byte_size(self) -> int:
        return sum(item.byte_size for item in self.condemned)

    def encode(self) -> bytes:
        return encode_record(
            {
                "format": format_stamp("collection"),
                "collection": self.collection,
                "collected_at": format_time(self.collected_at),
                "by": self.by,
                "retention": self.retention,
                "snapshots": list(self.snapshots),
                "runs": list(self.runs),
                "condemned": [item.to_json() for item in self.condemned],
                **self.unknown,
            }
        )

    @classmethod
    def decode(cls, data: bytes, *, key: str) -> CollectionRecord:
        fields = Fields.decode(data, key=key, kind="collection")
        return cls(
            collection=fields.text("collection"),
            collected_at=fields.time("collected_at"),
            by=fields.text("by"),
            retention=fields.number("retention"),
            snapshots=fields.numbers("snapshots"),
            runs=fields.texts("runs"),
            condemned=fields.records("condemned", Condemned.from_fields),
            unknown=fields.rest(),
        )


def read_collection(handle: ChainHandle, collection: str) -> CollectionRecord:
    key = handle.layout.collection_key(collection)
    return CollectionRecord.decode(_record_bytes(handle, key), key=key)


def read_condemned_keys(handle: ChainHandle, collection: str) -> tuple[str, ...]:
    """Only the keys that it condemned: the next collection asks no more of it."""
    key = handle.layout.collection_key(collection)
    fields = Fields.decode(_record_bytes(handle, key), key=key, kind="collection")
    return fields.records("condemned", lambda item: item.text("key"))


def _record_bytes(handle: ChainHandle, key: str) -> bytes:
    try:
        return handle.records.get(key).data
    except ObjectNotFound:
        raise CorruptRecord(key, "the record of a collection is missing") from None
