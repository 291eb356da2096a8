"""The rollout switch: legacy-only writes and back, per chain, with readers reading at every step (S45).

To legacy: the mirror must be exactly what the pointer names and the root must name the chain; then one swap of the
pointer says `publishing: legacy`, and whoever resolves the pointer reads the legacy path instead.

Back: the legacy manifest is first rewritten with a fence mark, so that no legacy writer that read it before can still
replace it; then it is adopted as a snapshot, byte for byte, by the same swap that says `publishing: pointer`.
"""

from __future__ import annotations

from dataclasses import replace

import orjson

from holdfast.chain.commit import (
    Committed,
    Landed,
    Lost,
    Outcome,
    Superseded,
    Undecided,
    Unknown,
    move_pointer,
    require_artifacts,
)
from holdfast.chain.fence import write_in_place
from holdfast.chain.handle import ChainHandle, SeenPointer
from holdfast.chain.history import require_pointer
from holdfast.chain.legacy import Mirror, mirror_is_current, read_mirror
from holdfast.chain.manifest import Manifest, ManifestDraft
from holdfast.chain.pointer import Move, MoveKind, Pointer
from holdfast.chain.root import root_is_current, sync_root
from holdfast.chain.runs import Run
from holdfast.chain.successor import highest_id
from holdfast.codec import content_hash, encode_record
from holdfast.errors import (
    AlreadyExists,
    BadInput,
    Conflict,
    CorruptRecord,
    InvariantViolation,
    StaleFencingToken,
    StoreError,
    StoreUnavailable,
    VersionConflict,
)
from holdfast.fencing.permit import PublishPermit

__all__ = ["adopt_legacy", "publish_legacy", "switch_to_legacy", "switch_to_pointer"]

FENCE_FIELD = "fenced_for_pointer"


def switch_to_legacy(handle: ChainHandle, *, by: str, why: str) -> SeenPointer:
    """From now on the legacy path is what counts. Refused until `verify` would find root and mirror current."""
    _require_mirror(handle)
    for attempt in range(handle.attempts_max):
        seen = require_pointer(handle)
        if seen.pointer.publishing == "legacy":
            return seen
        if not mirror_is_current(handle) or not root_is_current(handle):
            raise InvariantViolation(
                "root or legacy manifest is not current; run `holdfast reconcile --apply`, then switch"
            )
        change = lambda pointer: replace(pointer, publishing="legacy")  # noqa: E731
        now = write_in_place(handle, seen, kind=MoveKind.SWITCH, by=by, why=why, change=change)
        if now is not None:
            sync_root(handle)
            return now
        handle.back_off(attempt)
    raise Conflict(f"the pointer kept changing for {handle.attempts_max} attempts; nothing was switched, try again")


def switch_to_pointer(handle: ChainHandle, *, by: str, why: str) -> SeenPointer:
    """From now on the pointer is what counts again; what the legacy path holds becomes its newest snapshot."""
    _require_mirror(handle)
    for attempt in range(handle.attempts_max):
        seen = require_pointer(handle)
        if seen.pointer.publishing == "pointer":
            sync_root(handle)
            return seen
        mirror = _fence_mirror(handle)
        if mirror is not None and mirror.hash != seen.pointer.manifest_hash:
            now = _adopt(handle, mirror, seen=seen, by=by, why=why)
        else:
            change = lambda pointer: replace(pointer, publishing="pointer")  # noqa: E731
            now = write_in_place(handle, seen, kind=MoveKind.SWITCH, by=by, why=why, change=change)
        if now is not None:
            sync_root(handle)
            return now
        handle.back_off(attempt)
    raise Conflict(f"the pointer kept changing for {handle.attempts_max} attempts; nothing was switched, try again")


def adopt_legacy(handle: ChainHandle, *, by: str) -> SeenPointer | None:
    """Give a chain that has only a legacy manifest its pointer. None where there is no legacy manifest either."""
    mirror = read_mirror(handle)
    if mirror is None:
        return None
    if not mirror.manifest.legacy:
        seen = handle.read_pointer()  # somebody may have published the first snapshot since the caller looked
        if seen is not None:
            return seen
        # A pointer was there before this was written. A new one would start a second log, and forget the whole history.
        raise CorruptRecord(handle.layout.pointer_key, "the pointer is missing; put back the object that was there")
    seen = _adopt(handle, mirror, seen=None, by=by, why="first pointer publish") or handle.read_pointer()
    sync_root(handle)
    return seen


def _require_mirror(handle: ChainHandle) -> None:
    if handle.layout.mirror_key is None:
        raise BadInput(f"a {handle.layout.name} chain has no legacy path to switch to")


def _fence_mirror(handle: ChainHandle) -> Mirror | None:
    """Rewrite the legacy manifest with a mark: a legacy writer that read it before can no longer replace it."""
    key = handle.layout.mirror_key
    for attempt in range(handle.attempts_max):
        mirror = read_mirror(handle)
        if mirror is None or key is None or FENCE_FIELD in mirror.manifest.payload:
            return mirror
        marked = encode_record({**orjson.loads(mirror.data), FENCE_FIELD: handle.token()})
        try:
            handle.records.swap(key, marked, expected=mirror.version)
        except (VersionConflict, StoreUnavailable):
            handle.back_off(attempt)
    raise Conflict(f"{key!r} kept changing for {handle.attempts_max} attempts; nothing was switched, try again")


def _adopt(handle: ChainHandle, mirror: Mirror, *, seen: SeenPointer | None, by: str, why: str) -> SeenPointer | None:
    """Make the legacy manifest, byte for byte, a snapshot of the chain. None if the pointer was moved meanwhile."""
    floor = handle.layout.first_id if seen is None else seen.pointer.high_water_id + 1
    manifest_id, path = _copy(handle, mirror, manifest_id=max(floor, mirror.manifest.manifest_id))
    move = Move(
        sequence=0 if seen is None else seen.pointer.sequence + 1,
        kind=MoveKind.ADOPT,
        commit_ulid=handle.ulid(
            after=max("" if seen is None else seen.pointer.commit_ulid, mirror.manifest.commit_ulid) or None
        ),
        source_id=None if seen is None else seen.pointer.manifest_id,
        target_id=manifest_id,
        manifest_path=path,
        manifest_hash=mirror.hash,
        run_id=mirror.manifest.run_id,
        epoch=max(mirror.manifest.epoch, 0 if seen is None else seen.pointer.epoch),
        at=handle.clock.now() if seen is None else max(handle.clock.now(), seen.pointer.updated_at),
        by=by,
        why=why,
    )
    if seen is None:
        pointer = Pointer(
            manifest_id=manifest_id,
            manifest_path=path,
            manifest_hash=mirror.hash,
            epoch=move.epoch,
            sequence=0,
            high_water_id=manifest_id,
            commit_ulid=move.commit_ulid,
            updated_at=move.at,
            moves=(move,),
        )
    else:
        pointer = replace(seen.pointer.moved(move), publishing="pointer")
    match move_pointer(handle, seen, pointer):
        case Landed(now):
            return now
        case Lost():
            return None
        case Undecided(reason):
            raise StoreUnavailable(f"the store did not say whether the pointer was written ({reason})")


def _copy(handle: ChainHandle, mirror: Mirror, *, manifest_id: int) -> tuple[int, str]:
    """Put the legacy manifest among the snapshots.

    A copy that a crashed adoption left of an older one is stepped over (S21).
    """
    for _ in range(handle.attempts_max):
        path = handle.layout.manifest_key(
            manifest_id, published_at=mirror.manifest.published_at, run_id=mirror.manifest.run_id
        )
        try:
            handle.records.put_new(path, mirror.data)
            return manifest_id, path
        except AlreadyExists:
            if handle.records.get(path).data == mirror.data:
                return manifest_id, path
            manifest_id = highest_id(handle, above=manifest_id) + 1
    raise Conflict(f"no free manifest id was found in {handle.attempts_max} attempts above {manifest_id}")


def publish_legacy(
    handle: ChainHandle,
    draft: ManifestDraft,
    *,
    run: Run,
    permit: PublishPermit,
    seen: SeenPointer,
    base: Manifest | None = None,
) -> Outcome:
    """Publish by the legacy path alone, while the chain is switched to it.

    The legacy manifest is the gate, by compare-and-swap. A draft that was built on another one than is there, because
    an older writer was first, is superseded: publishing it would undo what that one said.
    """
    key = handle.layout.mirror_key
    mirror = read_mirror(handle)
    if key is None or mirror is None:
        raise InvariantViolation("the legacy manifest is missing; switch back to pointer publishing")
    # After the mirror was read: whoever switches back fences it first, so either this sees that or the swap below
    # fails.
    if FENCE_FIELD in mirror.manifest.payload or require_pointer(handle).pointer.publishing != "legacy":
        raise Conflict("this chain is being switched back to pointer publishing; try again in a moment")
    if base is not None and base != mirror.manifest:
        return Superseded(commit_ulid=handle.ulid(after=None), winner=seen.pointer.last_move)
    token = permit.use(chain=handle.identity).sequence
    epoch = max(seen.pointer.epoch, mirror.manifest.epoch)
    if epoch > token:
        raise StaleFencingToken(previous=epoch, attempted=token)
    require_artifacts(handle, draft.artifacts)
    run.require_writing()
    after = max(seen.pointer.commit_ulid, mirror.manifest.commit_ulid)
    manifest = Manifest(
        manifest_id=max(seen.pointer.high_water_id, mirror.manifest.manifest_id) + 1,
        epoch=token,
        fencing_token=token,
        commit_ulid=handle.ulid(after=after),
        pointer_sequence=seen.pointer.sequence + 1,
        parent_hash=mirror.hash,
        previous_manifest_path=key,
        published_at=handle.clock.now(),
        run_id=run.run_id,
        artifacts=draft.artifacts,
        inputs=draft.inputs,
        counters=draft.counters,
        tags=draft.tags,
        payload=draft.payload,
    )
    data = manifest.encode(handle.layout.names)
    for attempt in range(handle.attempts_max):
        try:
            handle.records.swap(key, data, expected=mirror.version)
        except (VersionConflict, StoreUnavailable):
            try:
                now = read_mirror(handle)
            except StoreUnavailable:
                handle.back_off(attempt)
                continue
            if now is not None and now.version == mirror.version:
                handle.back_off(attempt)
                continue
            if now is not None and now.manifest.parent_hash == mirror.hash and now.hash != content_hash(data):
                return Superseded(commit_ulid=manifest.commit_ulid, winner=seen.pointer.last_move)
            if now is None or content_hash(data) not in (now.hash, now.manifest.parent_hash):
                break  # others have gone on, and the legacy path keeps no log that could tell
        return Committed(
            commit_ulid=manifest.commit_ulid,
            manifest=manifest,
            manifest_path=key,
            manifest_hash=content_hash(data),
            ref=key,
            seen=seen,
            repair_pending=_mark_committed(run),
        )
    return Unknown(
        commit_ulid=manifest.commit_ulid, reason="the legacy manifest does not tell whether this commit was in it"
    )


def _mark_committed(run: Run) -> tuple[str, ...]:
    """Close the run record. The snapshot is visible whatever happens here."""
    try:
        run.mark_committed()
    except (StoreError, Conflict):
        return ("run record",)
    return ()
