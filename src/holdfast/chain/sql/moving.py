"""Moving the pointer in a database: one transaction makes a manifest and the pointer row that names it.

1. The row for sequence n + 1 is inserted only while row n is the newest, is the one that was read, and has no higher
   epoch.
2. Two writers that both pass 1 meet at the primary key: one inserts, the other finds the row taken. No isolation
   above the default is needed, and no lock is held while anybody thinks.
3. The manifest is inserted after the pointer row. So a manifest that cannot be inserted undoes the move; and a move
   that was made before, its answer lost, is recognised as a conflict on the pointer and not as a manifest that
   exists.
4. Rows of the pointer are never changed and never deleted.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import orjson

from holdfast.chain.legacy import decode_any_manifest
from holdfast.chain.pointer import Pointer
from holdfast.chain.sql.dialect import Row, Transaction
from holdfast.chain.sql.listing import key_range
from holdfast.chain.sql.reading import ADOPTED, Place, drive, made_up_pointer, pointer_version
from holdfast.codec import content_hash
from holdfast.errors import (
    AlreadyExists,
    CorruptRecord,
    InvariantViolation,
    RunIdInUse,
    StaleFencingToken,
    VersionConflict,
)
from holdfast.storage.objects import Version

__all__ = ["move_pointer_row", "parse_move"]

_CONTENT_TYPE = "application/json"
_INSERT_POINTER = (
    "INSERT INTO holdfast_pointer "
    "(chain, sequence, manifest_ref, epoch, kind, commit_ulid, who, why, updated_at, version, data) "
)
_INSERT_MANIFEST = (
    "INSERT INTO holdfast_manifests (chain, run_id, name, payload, content_type, created_at, manifest_id, epoch, "
    "fencing_token, commit_ulid, parent_hash, content_hash, data) "
    "VALUES (?, ?, ?, {json_value}, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
)


def parse_move(place: Place, data: bytes) -> Pointer:
    """The pointer that is to be written. One that disagrees with itself is not written at all."""
    try:
        return Pointer.decode(data, key=place.layout.pointer_key, id_field=place.layout.id_field)
    except CorruptRecord as error:
        raise InvariantViolation(f"{error}; nothing was written") from error


def move_pointer_row(
    tx: Transaction, place: Place, pointer: Pointer, data: bytes, *, expected: Version | None, staged: bytes | None
) -> Version:
    """Append the pointer's next row, and the manifest it makes visible where that is not there yet."""
    if expected is None:
        version = _first_row(tx, place, pointer, data)
    else:
        if expected.startswith(ADOPTED):
            expected = _write_down_adopted(tx, place, expected)
        version = _next_row(tx, place, pointer, data, expected)
    if staged is not None:
        _insert_manifest(tx, place, pointer.manifest_path, staged)
    elif not _has_manifest(tx, place, pointer.manifest_path):
        raise InvariantViolation(f"manifest {pointer.manifest_path!r} does not exist; nothing was made visible")
    return version


def _first_row(tx: Transaction, place: Place, pointer: Pointer, data: bytes) -> Version:
    """Where there is nothing yet: not even a manifest, or else there is a made-up pointer that must be swapped."""
    version = pointer_version(pointer.sequence, data)
    written = tx.run(
        f"{_INSERT_POINTER} SELECT {_values(place)} "
        "WHERE NOT EXISTS (SELECT 1 FROM holdfast_pointer WHERE chain = ?) "
        "AND NOT EXISTS (SELECT 1 FROM holdfast_manifests WHERE chain = ?) ON CONFLICT DO NOTHING",
        (*_columns(place, pointer, data, version), place.chain, place.chain),
    )
    if written == 0:
        raise AlreadyExists(place.layout.pointer_key)
    return version


def _next_row(tx: Transaction, place: Place, pointer: Pointer, data: bytes, expected: Version) -> Version:
    version = pointer_version(pointer.sequence, data)
    written = tx.run(
        f"{_INSERT_POINTER} SELECT {_values(place)} "
        "WHERE EXISTS (SELECT 1 FROM holdfast_pointer WHERE chain = ? AND sequence = ? AND version = ? AND epoch <= ?) "
        "AND NOT EXISTS (SELECT 1 FROM holdfast_pointer WHERE chain = ? AND sequence >= ?) ON CONFLICT DO NOTHING",
        (
            *_columns(place, pointer, data, version),
            place.chain,
            pointer.sequence - 1,
            expected,
            pointer.epoch,
            place.chain,
            pointer.sequence,
        ),
    )
    if written == 0:
        raise _why_not(tx, place, pointer, expected)
    return version


def _why_not(tx: Transaction, place: Place, pointer: Pointer, expected: Version) -> Exception:
    newest = tx.rows(
        "SELECT version, sequence, epoch FROM holdfast_pointer WHERE chain = ? ORDER BY sequence DESC LIMIT 1",
        (place.chain,),
    )
    if newest and newest[0][0] == expected:
        _, sequence, epoch = newest[0]
        if epoch > pointer.epoch:
            return StaleFencingToken(previous=int(epoch), attempted=pointer.epoch)
        if sequence + 1 != pointer.sequence:
            return InvariantViolation(f"sequence {pointer.sequence} does not follow {sequence}; nothing was written")
    return VersionConflict(place.layout.pointer_key)


def _write_down_adopted(tx: Transaction, place: Place, expected: Version) -> Version:
    """Make the row that readers were shown, so that the log has no gap. Accepted once: then there is a pointer."""
    pointer, _ = drive(made_up_pointer(place), tx.rows)
    if pointer is None:
        raise VersionConflict(place.layout.pointer_key)
    data = pointer.encode(place.layout.id_field)
    version = pointer_version(pointer.sequence, data)
    if expected != Version(f"{ADOPTED}{version.rpartition('-')[2]}"):
        raise VersionConflict(place.layout.pointer_key)
    written = tx.run(
        f"{_INSERT_POINTER} SELECT {_values(place)} "
        "WHERE NOT EXISTS (SELECT 1 FROM holdfast_pointer WHERE chain = ?) ON CONFLICT DO NOTHING",
        (*_columns(place, pointer, data, version), place.chain),
    )
    if written == 0:
        raise VersionConflict(place.layout.pointer_key)
    # The log starts anew at 0. What is left of an earlier one would contradict it; it is kept, under another name.
    tx.run(
        "UPDATE holdfast_records SET key = 'before ' || ? || ': ' || key WHERE chain = ? AND key > ? AND key < ?",
        (pointer.commit_ulid, place.chain, *key_range(place.layout.moves_prefix)),
    )
    return version


def _values(place: Place) -> str:
    """Typed parameters, because a bare one in a SELECT has no column to take its type from."""
    dialect = place.dialect
    key, number = dialect.key_value, dialect.number_value
    when = f"CAST(? AS {dialect.time_type})"
    raw = f"CAST(? AS {dialect.bytes_type})"
    text = "CAST(? AS TEXT)"
    return f"{key}, {number}, {key}, {number}, {text}, {key}, {text}, {text}, {when}, {text}, {raw}"


def _columns(place: Place, pointer: Pointer, data: bytes, version: Version) -> tuple[object, ...]:
    move = pointer.last_move
    return (
        place.chain,
        pointer.sequence,
        pointer.manifest_path,
        pointer.epoch,
        move.kind.value,
        move.commit_ulid,
        move.by,
        move.why,
        place.dialect.time(move.at),
        version,
        data,
    )


def _has_manifest(tx: Transaction, place: Place, name: str) -> bool:
    return bool(tx.rows("SELECT 1 FROM holdfast_manifests WHERE chain = ? AND name = ?", (place.chain, name)))


def _insert_manifest(tx: Transaction, place: Place, name: str, data: bytes) -> None:
    row = manifest_row(place, name, data)
    written = tx.run(_INSERT_MANIFEST.replace("{json_value}", place.dialect.json_value), row)
    if written == 0:
        rows = tx.rows(
            "SELECT run_id, name FROM holdfast_manifests WHERE chain = ? AND (name = ? OR run_id = ?)",
            (place.chain, name, row[1]),
        )
        raise _taken(place, name, rows)


def _taken(place: Place, name: str, rows: Sequence[Row]) -> Exception:
    for run_id, other in rows:
        if other != name:
            return RunIdInUse(f"run {run_id!r} has published {place.layout.ref_of(other)} already; start a new run")
    return InvariantViolation(f"{name!r} exists although no pointer named it; nothing was published, try again")


def manifest_row(place: Place, name: str, data: bytes) -> tuple[object, ...]:
    """The columns of a manifest. What decides is `data`; the others are there to be asked for."""
    manifest = decode_any_manifest(data, key=name, names=place.layout.names)
    # A legacy manifest has no run of its own, and there may be several.
    run_id = f"legacy {manifest.manifest_id}: {name}" if manifest.legacy else manifest.run_id
    published_at: datetime = manifest.published_at
    return (
        place.chain,
        run_id,
        name,
        _payload(data),
        _CONTENT_TYPE,
        place.dialect.time(published_at),
        manifest.manifest_id,
        manifest.epoch,
        manifest.fencing_token,
        manifest.commit_ulid,
        manifest.parent_hash,
        content_hash(data),
        data,
    )


def _payload(data: bytes) -> str:
    """The manifest as JSON that both databases take: JSONB has no place for a NUL character."""
    return orjson.dumps(orjson.loads(data)).decode().replace("\\u0000", "\\ufffd")
