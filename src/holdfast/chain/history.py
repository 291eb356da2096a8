"""What was visible, when, and moving the pointer back and forth (S32, S32a, S35).

History is read from the pointer's moves, so an orphan manifest is not history and a rolled-back one is, and the newest
snapshots cost no request beyond the pointer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from holdfast.chain.commit import Landed, Lost, Undecided, move_pointer, require_artifacts, same_target
from holdfast.chain.handle import ChainHandle, SeenPointer
from holdfast.chain.legacy import decode_any_manifest, read_mirror
from holdfast.chain.listed import Listed
from holdfast.chain.manifest import Artifact, Manifest
from holdfast.chain.moves import find_move, moves_newest_first
from holdfast.chain.parts import PartReader, parts_of
from holdfast.chain.pointer import MAKES_VISIBLE, Move, MoveKind, Pointer
from holdfast.codec import content_hash
from holdfast.errors import (
    BadInput,
    Conflict,
    CorruptRecord,
    NotAChain,
    ObjectNotFound,
    SnapshotCollected,
    SnapshotNotFound,
    StoreUnavailable,
)

__all__ = [
    "ManifestRef",
    "Rollback",
    "forward",
    "history",
    "list_move_target",
    "load_current",
    "load_move_target",
    "require_pointer",
    "resolve",
    "set_current",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestRef:
    """One snapshot of the history."""

    ref: str
    run_id: str
    published_at: datetime
    manifest_id: int
    manifest_path: str
    manifest_hash: str
    commit_ulid: str
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollback:
    """What a move of the pointer did."""

    left: ManifestRef
    current: ManifestRef
    seen: SeenPointer


def ref_from_move(handle: ChainHandle, move: Move) -> ManifestRef:
    return ManifestRef(
        ref=handle.layout.ref_of(move.manifest_path),
        run_id=move.run_id,
        published_at=move.at,
        manifest_id=move.target_id,
        manifest_path=move.manifest_path,
        manifest_hash=move.manifest_hash,
        commit_ulid=move.commit_ulid,
        by=move.by,
    )


def legacy_ref(handle: ChainHandle) -> ManifestRef | None:
    """What the legacy path holds, where that is what counts."""
    mirror = read_mirror(handle)
    if mirror is None or handle.layout.mirror_key is None:
        return None
    return ManifestRef(
        ref=handle.layout.mirror_key,
        run_id=mirror.manifest.run_id,
        published_at=mirror.manifest.published_at,
        manifest_id=mirror.manifest.manifest_id,
        manifest_path=handle.layout.mirror_key,
        manifest_hash=mirror.hash,
        commit_ulid=mirror.manifest.commit_ulid,
        by="",
    )


def require_pointer(handle: ChainHandle) -> SeenPointer:
    seen = handle.read_pointer()
    if seen is None:
        raise NotAChain(
            f"no {handle.layout.name} chain at {handle.records.url!r}: {handle.layout.pointer_key!r} does not exist"
        )
    return seen


def published_moves(handle: ChainHandle, pointer: Pointer, *, down_to: int = 0) -> Iterator[Move]:
    """The moves that made a snapshot visible, newest first, collected ones left out."""
    for move in moves_newest_first(handle, pointer, down_to=down_to):
        if move.kind in MAKES_VISIBLE and move.target_id not in pointer.collected:
            yield move


def history(handle: ChainHandle, pointer: Pointer) -> Iterator[ManifestRef]:
    """Every snapshot that was ever visible and has not been collected, newest first."""
    return (ref_from_move(handle, move) for move in published_moves(handle, pointer))


def load_move_target(handle: ChainHandle, move: Move) -> Manifest:
    """The manifest that a move leads to, checked against the hash the move carries (I3)."""
    return load_manifest_at(handle, move.manifest_path, move.manifest_hash)


def list_move_target(handle: ChainHandle, move: Move) -> Listed:
    """Only what that manifest lists, by path: for whoever asks it of very many."""
    data = _manifest_bytes(handle, move.manifest_path, move.manifest_hash)
    return Listed.of_manifest(data, key=move.manifest_path, names=handle.layout.names)


def load_manifest_at(handle: ChainHandle, path: str, expected_hash: str) -> Manifest:
    data = _manifest_bytes(handle, path, expected_hash)
    return decode_any_manifest(data, key=path, names=handle.layout.names)


def _manifest_bytes(handle: ChainHandle, path: str, expected_hash: str) -> bytes:
    try:
        data = handle.records.get(path).data
    except ObjectNotFound:
        raise CorruptRecord(path, "the manifest is missing") from None
    if (found_hash := content_hash(data)) != expected_hash:
        raise CorruptRecord(path, f"its bytes hash to {found_hash}, not to {expected_hash}")
    return data


def load_current(handle: ChainHandle) -> Manifest | None:
    """The visible manifest, by the pointer or, without one, from the legacy path (S26). None for an empty chain."""
    seen = handle.read_pointer()
    if seen is None or seen.pointer.publishing == "legacy":
        mirror = read_mirror(handle)
        return None if mirror is None else mirror.manifest
    return load_manifest_at(handle, seen.pointer.manifest_path, seen.pointer.manifest_hash)


def find_published(handle: ChainHandle, pointer: Pointer, path: str) -> Move:
    """The move that made the manifest at `path` visible; SnapshotNotFound for an orphan (S11)."""
    try:
        manifest = decode_any_manifest(handle.records.get(path).data, key=path, names=handle.layout.names)
        likely: Move | None = find_move(handle, pointer, manifest.pointer_sequence)
    except (ObjectNotFound, CorruptRecord):
        likely = None  # it cannot say where its move is
    if likely is not None and likely.manifest_path == path:
        moves = iter([likely])
    else:
        moves = moves_newest_first(handle, pointer)
    for move in moves:
        if move.kind in MAKES_VISIBLE and move.manifest_path == path:
            if move.target_id in pointer.collected:
                raise SnapshotCollected(
                    f"snapshot {handle.layout.ref_of(path)} was collected; `holdfast gc restore` may bring it back"
                )
            return move
    raise SnapshotNotFound(
        f"no snapshot {handle.layout.ref_of(path)!r} was ever visible; `holdfast history` lists them"
    )


def resolve(
    handle: ChainHandle,
    pointer: Pointer,
    *,
    ref: str | None = None,
    run_id: str | None = None,
    offset: int | None = None,
    at: datetime | None = None,
) -> Move:
    """One snapshot by ref, run id, offset in the history (newest first) or time; the pointer's target if nothing is
    given."""
    given = [
        name for name, value in (("ref", ref), ("run_id", run_id), ("offset", offset), ("at", at)) if value is not None
    ]
    if len(given) > 1:
        raise BadInput(f"give one of ref, run id, offset and time, not {' and '.join(given)}")
    if ref is not None:
        return find_published(handle, pointer, handle.layout.path_of(ref))
    if at is not None:
        return _visible_at(handle, pointer, at)
    if offset is not None and offset < 0:
        raise BadInput(f"offset {offset} is negative: 0 is the newest snapshot")
    if run_id is None and offset is None:
        return find_published(handle, pointer, pointer.manifest_path)
    for position, move in enumerate(published_moves(handle, pointer)):
        if position == offset or (run_id is not None and move.run_id == run_id):
            return move
    wanted = f"run id {run_id!r}" if run_id is not None else f"offset {offset}"
    raise SnapshotNotFound(f"no snapshot with {wanted}; `holdfast history` lists them")


def _visible_at(handle: ChainHandle, pointer: Pointer, moment: datetime) -> Move:
    for move in moves_newest_first(handle, pointer):
        if move.at <= moment:
            return find_published(handle, pointer, move.manifest_path)
    raise SnapshotNotFound(f"nothing was visible yet at {moment.isoformat()}; `holdfast history` lists what was")


def _files_of(handle: ChainHandle, manifest: Manifest) -> tuple[Artifact, ...]:
    """All files of a snapshot, its parts and what they list included: whatever the pointer is to name must be there."""
    parts = parts_of(handle.layout.names, manifest.artifacts)
    return (*manifest.artifacts, *(artifact for held in PartReader(handle).load_all(parts) for artifact in held))


def set_current(
    handle: ChainHandle,
    target: Move,
    *,
    seen: SeenPointer,
    by: str,
    why: str,
    kind: MoveKind = MoveKind.ROLLBACK,
) -> Rollback:
    """Point to `target`, a snapshot of the history of `seen`. Nothing is deleted, so it can be undone."""
    if seen.pointer.publishing == "legacy":
        raise Conflict("this chain is switched to legacy-only writes; switch it back before moving its pointer")
    require_artifacts(handle, _files_of(handle, load_move_target(handle, target)))
    left = ref_from_move(handle, find_published(handle, seen.pointer, seen.pointer.manifest_path))
    ulid = ""
    for attempt in range(handle.attempts_max):
        pointer = seen.pointer
        if target.target_id in pointer.collected:
            raise SnapshotCollected(
                f"snapshot {handle.layout.ref_of(target.manifest_path)} was collected; restore it first"
            )
        ulid = handle.ulid(after=pointer.commit_ulid)
        move = Move(
            sequence=pointer.sequence + 1,
            kind=kind,
            commit_ulid=ulid,
            source_id=pointer.manifest_id,
            target_id=target.target_id,
            manifest_path=target.manifest_path,
            manifest_hash=target.manifest_hash,
            run_id=target.run_id,
            epoch=pointer.epoch,
            at=max(handle.clock.now(), pointer.updated_at),
            by=by,
            why=why,
        )
        match move_pointer(handle, seen, pointer.moved(move)):
            case Landed(now):
                return Rollback(left=left, current=ref_from_move(handle, target), seen=now)
            case Lost(now, winner):
                if not same_target(seen, now):
                    raise Conflict(
                        f"{winner.by!r} moved the pointer first ({winner.kind.value} to {winner.target_id}); "
                        "look at `history` again"
                    )
                seen = now
                handle.back_off(attempt)
            case Undecided(reason):
                raise StoreUnavailable(
                    f"the store did not say whether the pointer moved ({reason}); ask `status {ulid}`"
                )
    raise Conflict(f"the pointer kept changing for {handle.attempts_max} attempts; try again")


def forward(handle: ChainHandle, *, seen: SeenPointer, by: str, why: str) -> Rollback:
    """Undo the newest rollback that has not been undone."""
    undone = 0
    for move in moves_newest_first(handle, seen.pointer):
        if move.kind is MoveKind.PUBLISH:
            break
        if move.kind is MoveKind.FORWARD:
            undone += 1
        elif move.kind is MoveKind.ROLLBACK:
            if undone == 0 and move.source_id is not None:
                path = next(
                    found.manifest_path
                    for found in moves_newest_first(handle, seen.pointer)
                    if found.target_id == move.source_id and found.sequence < move.sequence
                )
                target = find_published(handle, seen.pointer, path)
                return set_current(handle, target, seen=seen, by=by, why=why, kind=MoveKind.FORWARD)
            undone -= 1
    raise SnapshotNotFound("nothing was rolled back since the last publish, so there is nothing to roll forward to")
