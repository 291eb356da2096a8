"""Purge: delete what a collection condemned, after its grace period; restore: take a collection back (S39).

1. Mark the collection `purging` in the pointer: from here on it cannot be restored.
2. Load every manifest of the history, and keep what it names.
3. Delete the rest, artifacts before manifests before run records.
4. Drop the collection from the pointer. A purge that was killed is taken up at 2 by the next.

The grace period is for people who change their minds. Safety does not rest on it: nobody can tag, pin or point to a
collected snapshot (`fence.protect`), and a condemned key is never used again (keys are unique to an attempt, ids are
above the high-water mark), so even a purge that was paused for days deletes only garbage.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta

from holdfast.chain.collection import CollectionRecord, Condemned, read_collection
from holdfast.chain.fence import write_in_place
from holdfast.chain.handle import ChainHandle, Progress, SeenPointer, no_progress
from holdfast.chain.history import list_move_target, published_moves, require_pointer
from holdfast.chain.parts import PartReader
from holdfast.chain.pointer import MoveKind, PendingCollection, Pointer
from holdfast.chain.runs import RunRecord
from holdfast.errors import BadInput, Conflict, Damaged, ObjectNotFound

__all__ = ["GRACE_S_DEFAULT", "Purged", "pending_collections", "plan_purge", "purge", "restore"]

GRACE_S_DEFAULT = 7 * 24 * 3600
_BATCH = 1000
_ORDER = {"artifact": 0, "manifest": 1, "orphan manifest": 1, "run": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Purged:
    """What a purge deleted, or would."""

    collections: tuple[str, ...]
    deleted: tuple[Condemned, ...]
    spared: tuple[str, ...] = ()
    """Condemned keys that something turned out to need."""
    stray_files: tuple[str, ...] = ()
    """Leftovers of killed writers on a file system (S47)."""

    @property
    def byte_size(self) -> int:
        return sum(item.byte_size for item in self.deleted)


def pending_collections(handle: ChainHandle) -> list[tuple[PendingCollection, CollectionRecord]]:
    """Collections that were not purged yet, oldest first."""
    pointer = require_pointer(handle).pointer
    return [(pending, read_collection(handle, pending.collection)) for pending in pointer.collections]


def _due(handle: ChainHandle, pointer: Pointer, grace_s: float) -> list[PendingCollection]:
    if grace_s < 0:
        raise BadInput(f"a grace period of {grace_s} s lies in the future; use 0 or more")
    limit = handle.clock.now() - timedelta(seconds=grace_s)
    return [pending for pending in pointer.collections if pending.purging or pending.at <= limit]


def plan_purge(handle: ChainHandle, *, grace_s: float = GRACE_S_DEFAULT) -> Purged:
    """What `purge` would delete now. Writes nothing."""
    seen = require_pointer(handle)
    due = [pending.collection for pending in _due(handle, seen.pointer, grace_s)]
    items = [
        item for collection in due for item in _to_delete(handle, seen.pointer, read_collection(handle, collection))[0]
    ]
    return Purged(collections=tuple(due), deleted=tuple(items), stray_files=_stray_files(handle, grace_s, remove=False))


def purge(
    handle: ChainHandle,
    *,
    by: str,
    grace_s: float = GRACE_S_DEFAULT,
    progress: Progress = no_progress,
) -> Purged:
    """Delete what every due collection condemned."""
    deleted: list[Condemned] = []
    spared: list[str] = []
    due = _due(handle, require_pointer(handle).pointer, grace_s)
    for pending in due:
        items, needed = _purge_one(handle, pending.collection, by=by, progress=progress)
        deleted += items
        spared += needed
    return Purged(
        collections=tuple(pending.collection for pending in due),
        deleted=tuple(deleted),
        spared=tuple(spared),
        stray_files=_stray_files(handle, grace_s, remove=True),
    )


def _purge_one(
    handle: ChainHandle, collection: str, *, by: str, progress: Progress
) -> tuple[list[Condemned], list[str]]:
    record = read_collection(handle, collection)
    seen = _change(
        handle, MoveKind.PURGE, by, f"purge {collection}", lambda pointer: _marked_purging(pointer, collection)
    )
    if seen is None:
        return [], []  # restored, or purged by somebody else, meanwhile
    doomed, spared = _to_delete(handle, seen.pointer, record)
    for start in range(0, len(doomed), _BATCH):
        batch = doomed[start : start + _BATCH]
        handle.store.delete([item.key for item in batch if item.what == "artifact"])
        handle.records.delete([item.key for item in batch if item.what in {"manifest", "orphan manifest"}])
        handle.records.delete([item.key for item in batch if item.what == "run" and not _is_another(handle, item)])
        progress(start + len(batch), len(doomed))
    _change(handle, MoveKind.PURGE, by, f"purged {collection}", lambda pointer: _without(pointer, collection))
    return doomed, spared


def _is_another(handle: ChainHandle, item: Condemned) -> bool:
    """Whether a new run has taken the id of the one that was condemned. Its files are its own: keys are not shared."""
    try:
        return RunRecord.decode(handle.records.get(item.key).data, key=item.key).attempt != item.attempt
    except (ObjectNotFound, Damaged):
        return False


def _to_delete(handle: ChainHandle, pointer: Pointer, record: CollectionRecord) -> tuple[list[Condemned], list[str]]:
    """What of a collection nothing in the history needs, in the order of deletion; and what is spared.

    A snapshot that cannot be read may share any artifact that another one named: while there is one, those stay (S41).
    A legacy one cannot: its files were never a run's.
    """
    layout = handle.layout
    needed: set[str] = set()
    reader = PartReader(handle)
    unreadable = False
    for move in published_moves(handle, pointer):
        needed |= {move.manifest_path, handle.layout.run_key(move.run_id)}
        try:
            for path, inside in reader.named_by(list_move_target(handle, move)).items():
                if path not in needed:  # a part that another snapshot shares was looked into already
                    needed.add(path)
                    needed.update(inside)
        except Damaged:  # `verify` reports it, and the collection did
            unreadable = True
    spared = {item.key for item in record.condemned if item.key in needed}
    if unreadable:
        spared |= {item.key for item in record.condemned if item.what == "artifact" and item.last_id is not None}
    doomed = [item for item in record.condemned if item.key not in spared]
    # A part goes before what it lists: while one is there, so is all of it, unless a disk has failed.
    doomed.sort(key=lambda item: (_ORDER.get(item.what, 0), layout.parse_segment_part_key(item.key) is None))
    return doomed, [item.key for item in record.condemned if item.key in spared]


def restore(handle: ChainHandle, collection: str, *, by: str) -> CollectionRecord:
    """Take a collection back: its snapshots are history again, whole. Refused once a purge has begun."""
    pointer = require_pointer(handle).pointer
    if collection not in {pending.collection for pending in pointer.collections}:
        raise BadInput(f"no collection {collection!r} is pending; `holdfast gc restore` without one lists what is")
    record = read_collection(handle, collection)

    def given_back(pointer: Pointer) -> Pointer | None:
        mine = [pending for pending in pointer.collections if pending.collection == collection]
        if not mine:
            return None
        if mine[0].purging:
            raise Conflict(f"collection {collection} is being purged and can no longer be restored")
        changed = _without(pointer, collection)
        return changed and replace(changed, collected=pointer.collected.remove(record.snapshots))

    _change(handle, MoveKind.RESTORE, by, f"restore {collection}", given_back)
    return record


def _marked_purging(pointer: Pointer, collection: str) -> Pointer | None:
    if collection not in {pending.collection for pending in pointer.collections}:
        return None
    return replace(
        pointer,
        collections=tuple(
            replace(pending, purging=True) if pending.collection == collection else pending
            for pending in pointer.collections
        ),
    )


def _without(pointer: Pointer, collection: str) -> Pointer | None:
    left = tuple(pending for pending in pointer.collections if pending.collection != collection)
    return None if len(left) == len(pointer.collections) else replace(pointer, collections=left)


def _change(
    handle: ChainHandle, kind: MoveKind, by: str, why: str, change: Callable[[Pointer], Pointer | None]
) -> SeenPointer | None:
    """Write the pointer in place until it sticks. None once `change` finds nothing to do any more."""
    for attempt in range(handle.attempts_max):
        seen = require_pointer(handle)
        if change(seen.pointer) is None:
            return None
        now = write_in_place(handle, seen, kind=kind, by=by, why=why, change=lambda pointer: change(pointer) or pointer)
        if now is not None:
            return now
        handle.back_off(attempt)
    raise Conflict(f"the pointer kept changing for {handle.attempts_max} attempts; try again")


def _stray_files(handle: ChainHandle, grace_s: float, *, remove: bool) -> tuple[str, ...]:
    limit = handle.clock.now() - timedelta(seconds=max(grace_s, 3600))  # a writer may still be at a younger one
    if remove and (remover := getattr(handle.store, "remove_stray", None)) is not None:
        return tuple(remover(limit))
    if not remove and (finder := getattr(handle.store, "stray_temporaries", None)) is not None:
        return tuple(key for key, modified_at in finder() if modified_at <= limit)
    return ()
