"""Writes of the pointer that leave its target where it is: the collector's fence and everything that rides on it.

Whoever read the pointer before such a write must read it again before it can publish.
"""

from __future__ import annotations

from collections.abc import Callable

from holdfast.chain.commit import Landed, Lost, Undecided, move_pointer
from holdfast.chain.handle import ChainHandle, SeenPointer
from holdfast.chain.pointer import Move, MoveKind, Pointer
from holdfast.errors import Conflict, NotAChain, SnapshotCollected, StoreUnavailable

__all__ = ["protect", "touch", "write_in_place"]


def in_place(
    handle: ChainHandle, pointer: Pointer, *, kind: MoveKind, by: str, why: str, commit_ulid: str | None = None
) -> Pointer:
    """The pointer after a move that goes nowhere: sequence + 1, same target."""
    move = Move(
        sequence=pointer.sequence + 1,
        kind=kind,
        commit_ulid=commit_ulid or handle.ulid(after=pointer.commit_ulid),
        source_id=pointer.manifest_id,
        target_id=pointer.manifest_id,
        manifest_path=pointer.manifest_path,
        manifest_hash=pointer.manifest_hash,
        run_id=pointer.last_move.run_id,
        epoch=pointer.epoch,
        at=max(handle.clock.now(), pointer.updated_at),
        by=by,
        why=why,
    )
    return pointer.moved(move)


def write_in_place(
    handle: ChainHandle,
    seen: SeenPointer,
    *,
    kind: MoveKind,
    by: str,
    why: str,
    change: Callable[[Pointer], Pointer] = lambda pointer: pointer,
    commit_ulid: str | None = None,
) -> SeenPointer | None:
    """One such write against `seen`. None if the pointer was moved meanwhile: look again, then decide again."""
    pointer = change(in_place(handle, seen.pointer, kind=kind, by=by, why=why, commit_ulid=commit_ulid))
    match move_pointer(handle, seen, pointer):
        case Landed(now):
            return now
        case Lost():
            return None
        case Undecided(reason):
            raise StoreUnavailable(
                f"the store did not say whether the pointer was written ({reason}); ask `status {pointer.commit_ulid}`"
            )


def touch(handle: ChainHandle, *, by: str, why: str, above_ulid: str | None = None) -> SeenPointer:
    """Fence whoever has read the pointer before now."""
    for attempt in range(handle.attempts_max):
        seen = handle.read_pointer()
        if seen is None:
            raise NotAChain(f"no {handle.layout.name} chain at {handle.records.url!r}")
        if above_ulid is not None and seen.pointer.commit_ulid >= above_ulid:
            return seen
        ulid = handle.ulid(after=max(seen.pointer.commit_ulid, above_ulid or ""))
        now = write_in_place(handle, seen, kind=MoveKind.FENCE, by=by, why=why, commit_ulid=ulid)
        if now is not None:
            return now
        handle.back_off(attempt)
    raise Conflict(f"the pointer kept changing for {handle.attempts_max} attempts; try again")


def protect(handle: ChainHandle, manifest_id: int, *, by: str, why: str) -> SeenPointer:
    """Make sure that a tag or pin which was just written counts: touch the pointer while `manifest_id` is not
    collected.

    A collector that read the tags and runs before it was written also read the pointer before, so its swap fails and it
    looks again. One whose swap was first has collected the snapshot, and this raises SnapshotCollected.
    """
    for attempt in range(handle.attempts_max):
        seen = handle.read_pointer()
        if seen is None:
            raise NotAChain(f"no {handle.layout.name} chain at {handle.records.url!r}")
        if manifest_id in seen.pointer.collected:
            raise SnapshotCollected(f"snapshot {manifest_id} was collected; `holdfast gc restore` may bring it back")
        now = write_in_place(handle, seen, kind=MoveKind.FENCE, by=by, why=why)
        if now is not None:
            return now
        handle.back_off(attempt)
    raise Conflict(f"the pointer kept changing for {handle.attempts_max} attempts; try again")
