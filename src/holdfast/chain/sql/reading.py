"""How a record is found in the tables, without doing any input or output itself.

Each function is a generator that yields the queries it wants made and is sent the rows, so that the sync and the
async half share every decision (as `holdfast.chain.serving` does for readers).

Where a chain has manifests and no pointer row, the newest manifest is what is visible (S34). The pointer is then
made up from it, always the same bytes: one move, ADOPT. The first swap writes it down.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum, auto
from typing import TypeVar

from holdfast.chain.ids import is_ulid
from holdfast.chain.layout import Layout
from holdfast.chain.legacy import decode_any_manifest
from holdfast.chain.pointer import Move, MoveKind, Pointer
from holdfast.chain.sql.dialect import Dialect, Row
from holdfast.codec import content_hash
from holdfast.errors import ObjectNotFound
from holdfast.storage.objects import ObjectInfo, StoredObject, Version

__all__ = [
    "ADOPTED",
    "Kind",
    "Place",
    "drive",
    "drive_async",
    "info_steps",
    "kind_of",
    "made_up_pointer",
    "manifest_version",
    "pointer_version",
    "read_steps",
    "record_number",
    "record_version",
]

ADOPTED = "adopted-"
"""How the version of a made-up pointer begins."""

_HASH_DIGITS = 20
_POINTER_LOOKS_MAX = 3
_NUMBER_MAX = 2**63 - 1
_NUMBER_DIGITS_MAX = 19
_ULID_ZERO = "0" * 26

_POINTER = """
SELECT version, {body}, length(data), updated_at FROM holdfast_pointer WHERE chain = ? ORDER BY sequence DESC LIMIT 1
"""
_MANIFEST = "SELECT content_hash, {body}, length(data), created_at FROM holdfast_manifests WHERE chain = ? AND name = ?"
_RECORD = "SELECT version, {body}, length(data), modified_at FROM holdfast_records WHERE chain = ? AND key = ?"
_NEWEST_MANIFEST = """
SELECT (SELECT count(*) FROM (SELECT 1 FROM holdfast_pointer WHERE chain = ? LIMIT 1) AS pointers),
    newest.name, newest.data, newest.created_at, highest.epoch, highest.commit_ulid, highest.id
FROM (
    SELECT max(epoch) AS epoch, max(commit_ulid) AS commit_ulid, max(manifest_id) AS id
    FROM holdfast_manifests WHERE chain = ?
) AS highest
LEFT JOIN (
    SELECT name, data, created_at FROM holdfast_manifests WHERE chain = ?
    ORDER BY manifest_id DESC, created_at DESC, name DESC LIMIT 1
) AS newest ON 1 = 1
"""

_R = TypeVar("_R")
Query = tuple[str, Sequence[object]]
Steps = Generator[Query, list[Row], _R]


class Kind(Enum):
    """Which table a key belongs to."""

    POINTER = auto()
    MANIFEST = auto()
    RECORD = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One chain in one database."""

    chain: str
    layout: Layout
    dialect: Dialect


def kind_of(layout: Layout, key: str) -> Kind:
    if key == layout.pointer_key:
        return Kind.POINTER
    return Kind.RECORD if layout.parse_manifest_key(key) is None else Kind.MANIFEST


def drive(steps: Steps[_R], answer: Callable[[str, Sequence[object]], list[Row]]) -> _R:
    """Run the steps to their end, making one query after the other."""
    try:
        query = next(steps)
        while True:  # ends with the generator, whose loops are bounded
            query = steps.send(answer(*query))
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]


async def drive_async(steps: Steps[_R], answer: Callable[[str, Sequence[object]], Awaitable[list[Row]]]) -> _R:
    """The same, awaiting each answer."""
    try:
        query = next(steps)
        while True:  # ends with the generator, whose loops are bounded
            query = steps.send(await answer(*query))
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]


# -- versions --------------------------------------------------------------------------------------------------------


def pointer_version(sequence: int, data: bytes) -> Version:
    """The sequence decides; the hash is there for a database that was set back to a backup."""
    return Version(f"p{sequence}-{_digits(data)}")


def manifest_version(digest: str) -> Version:
    """A manifest never changes, so its content is its version."""
    return Version(f"m-{digest.rpartition(':')[2][:_HASH_DIGITS]}")


def record_version(number: int) -> Version:
    return Version(f"r{number}")


def record_number(version: str) -> int | None:
    """The inverse, or None for what never was a record's version."""
    digits = version.removeprefix("r")
    if (
        not version.startswith("r")
        or not (digits.isascii() and digits.isdigit())
        or len(digits) > len(str(_NUMBER_MAX))
    ):
        return None
    number = int(digits)
    return number if record_version(number) == version and number <= _NUMBER_MAX else None


def _digits(data: bytes) -> str:
    return content_hash(data).rpartition(":")[2][:_HASH_DIGITS]


# -- reading ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Found:
    """One record; its bytes are None where they were not asked for."""

    version: Version
    data: bytes | None
    size: int
    modified_at: datetime


def read_steps(place: Place, key: str, *, known: Version | None = None) -> Steps[StoredObject | None]:
    """The record at a key, or ObjectNotFound; None if it is still at `known`, and then no body was moved."""
    found = yield from _find(place, key, known=known)
    if found.version == known or found.data is None:
        return None
    return StoredObject(key=key, data=found.data, version=found.version)


def info_steps(place: Place, key: str) -> Steps[ObjectInfo]:
    """What is known of a record, without its body."""
    found = yield from _find(place, key, known=None, body=False)
    return ObjectInfo(key=key, size=found.size, version=found.version, modified_at=found.modified_at)


def _find(place: Place, key: str, *, known: Version | None, body: bool = True) -> Steps[_Found]:
    match kind_of(place.layout, key):
        case Kind.POINTER:
            return (yield from _find_pointer(place, known=known, body=body))
        case Kind.MANIFEST:
            return (yield from _find_manifest(place, key, body=body))
        case Kind.RECORD:
            return (yield from _find_record(place, key, known=known, body=body))


def _find_record(place: Place, key: str, *, known: Version | None, body: bool) -> Steps[_Found]:
    number = record_number(known) if known is not None else None
    wanted = f"CASE WHEN version = {place.dialect.number_value} THEN NULL ELSE data END" if body else "NULL"
    given = (-1 if number is None else number,) if body else ()
    rows = yield _RECORD.replace("{body}", wanted), (*given, place.chain, key)
    if not rows:
        raise ObjectNotFound(key)
    version, data, size, modified_at = rows[0]
    return _Found(record_version(version), _bytes(data), int(size), place.dialect.read_time(modified_at))


def _find_manifest(place: Place, key: str, *, body: bool) -> Steps[_Found]:
    rows = yield _MANIFEST.replace("{body}", "data" if body else "NULL"), (place.chain, key)
    if not rows:
        raise ObjectNotFound(key)
    digest, data, size, created_at = rows[0]
    return _Found(manifest_version(digest), _bytes(data), int(size), place.dialect.read_time(created_at))


def _find_pointer(place: Place, *, known: Version | None, body: bool) -> Steps[_Found]:
    wanted = "CASE WHEN version = ? THEN NULL ELSE data END" if body else "NULL"
    for _ in range(_POINTER_LOOKS_MAX):
        rows = yield _POINTER.replace("{body}", wanted), (*((known or "",) if body else ()), place.chain)
        if rows:
            version, data, size, updated_at = rows[0]
            return _Found(Version(version), _bytes(data), int(size), place.dialect.read_time(updated_at))
        pointer, pointer_exists = yield from made_up_pointer(place)
        if pointer is not None:
            encoded = pointer.encode(place.layout.id_field)
            return _Found(Version(f"{ADOPTED}{_digits(encoded)}"), encoded, len(encoded), pointer.updated_at)
        if not pointer_exists:
            break
    raise ObjectNotFound(place.layout.pointer_key)


def made_up_pointer(place: Place) -> Steps[tuple[Pointer | None, bool]]:
    """The pointer that follows from the newest manifest where none was ever written; and whether one was meanwhile."""
    rows = yield _NEWEST_MANIFEST, (place.chain, place.chain, place.chain)
    pointers, name, data, created_at, epoch, commit_ulid, highest_id = rows[0]
    if pointers or name is None:
        return None, bool(pointers)
    raw = bytes(data)
    manifest = decode_any_manifest(raw, key=name, names=place.layout.names)
    moment = place.dialect.read_time(created_at).astimezone(UTC)
    move = Move(
        sequence=0,
        kind=MoveKind.ADOPT,
        commit_ulid=commit_ulid if is_ulid(commit_ulid) else _ULID_ZERO,
        source_id=None,
        target_id=int(highest_id),
        manifest_path=name,
        manifest_hash=content_hash(raw),
        run_id=manifest.run_id,
        epoch=int(epoch),
        at=moment,
        by="holdfast",
        why="there was no pointer: the newest manifest is visible",
    )
    pointer = Pointer(
        manifest_id=move.target_id,
        manifest_path=move.manifest_path,
        manifest_hash=move.manifest_hash,
        epoch=move.epoch,
        sequence=0,
        high_water_id=move.target_id,
        commit_ulid=move.commit_ulid,
        updated_at=moment,
        moves=(move,),
        counters=dict(manifest.counters),
    )
    return pointer, False


def _bytes(data: object) -> bytes | None:
    return None if data is None else bytes(data)  # type: ignore[call-overload]
