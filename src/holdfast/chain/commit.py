"""The commit protocol: how a snapshot becomes visible. Read `publish` top-down.

Invariants (each number returns in `verify.py`, in `holdfast.testing.invariants` and in a test):

I1  A pointer is only ever replaced by compare-and-swap against the version that was read.
I2  Pointer bytes never repeat: every write has the next `sequence`.
I3  A manifest is created once and never changes; its bytes hash to what its successor and the pointer say.
I4  Ids and commit ULIDs only grow; an id is never used for two contents, even after collection (`high_water_id`).
I5  Epochs never go down, on pointers and on published manifests.
I6  What a pointer names exists whole, with every artifact, until the pointer has left it, its retention and its tags
    have gone and the grace period has passed.
I7  A collected run can never be published; a published run can never be collected by a stale list.
I8  What a writer reports (committed, superseded, unknown) is true.
I9  Readers see some published snapshot, whole; the served one never goes backwards except by a rollback.
I10 Nothing outside the collector deletes.

Errors: `Fenced` (stale token, spent permit, swept run) means stop. `InvariantViolation` means nothing became visible
and the input is wrong. `StoreError` means nothing became visible: the pointer swap was never sent. Whether a swap that
*was* sent took effect is never an exception but an `Outcome`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import Enum, auto

from holdfast.chain.handle import ChainHandle, SeenPointer
from holdfast.chain.layout import folders_of
from holdfast.chain.manifest import Artifact, Manifest, ManifestDraft
from holdfast.chain.moves import find_move, moves_newest_first, shorten
from holdfast.chain.parts import PartReader, parts_of
from holdfast.chain.pointer import Move, MoveKind, Pointer
from holdfast.chain.runs import Run
from holdfast.chain.successor import write_manifest
from holdfast.codec import content_hash
from holdfast.errors import (
    AlreadyExists,
    CorruptRecord,
    Damaged,
    InvariantViolation,
    PermitRefused,
    RunIdInUse,
    StaleFencingToken,
    StoreError,
    VersionConflict,
)
from holdfast.fencing.permit import PublishPermit
from holdfast.storage.objects import sizes_of

__all__ = [
    "Committed",
    "Landed",
    "Lost",
    "Outcome",
    "Superseded",
    "Undecided",
    "Unknown",
    "classify",
    "move_pointer",
    "publish",
    "require_artifacts",
    "same_target",
]


# -- what a writer is told -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """The snapshot is visible, or was: others may have moved on since."""

    commit_ulid: str
    manifest: Manifest
    manifest_path: str
    manifest_hash: str
    ref: str
    seen: SeenPointer
    repair_pending: tuple[str, ...] = ()
    """Bookkeeping that failed after the snapshot became visible; `reconcile` repairs it (S20)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Superseded:
    """Somebody else moved the pointer first; this snapshot never was and never will be visible."""

    commit_ulid: str
    winner: Move


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """The store did not say, and still does not. Ask `status(commit_ulid)` when it answers again."""

    commit_ulid: str
    reason: str


Outcome = Committed | Superseded | Unknown


# -- the one way to write a pointer ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Landed:
    """The pointer write took effect."""

    seen: SeenPointer


@dataclass(frozen=True, slots=True)
class Lost:
    """Another write took its place; it can never take effect."""

    seen: SeenPointer
    winner: Move


@dataclass(frozen=True, slots=True)
class Undecided:
    """Sent, but the store neither confirms nor denies it."""

    reason: str


class _Verdict(Enum):
    LANDED = auto()
    LOST = auto()
    OPEN = auto()


def classify(now: Pointer | None, planned: Move, at_sequence: Move | None) -> _Verdict:
    """What a read-back says about a pointer write whose answer cannot be trusted (S17).

    `at_sequence` is the move that the log has at the planned sequence. Our ULID there: it landed. Another: it lost, and
    since its precondition names a version that is gone, it stays lost. Nothing yet: a delayed request may still take
    effect.
    """
    if now is None or at_sequence is None:
        return _Verdict.OPEN
    return _Verdict.LANDED if at_sequence.commit_ulid == planned.commit_ulid else _Verdict.LOST


def move_pointer(handle: ChainHandle, seen: SeenPointer | None, pointer: Pointer) -> Landed | Lost | Undecided:
    """Swap the pointer from `seen` to `pointer`, or create it where there was none.

    There is no other way in (I1, S13).
    """
    planned = pointer.last_move
    pointer = shorten(handle, pointer)
    data = pointer.encode(handle.layout.id_field)
    key = handle.layout.pointer_key
    reason = ""
    for attempt in range(handle.attempts_max):
        try:
            if seen is None:
                version = handle.records.put_new(key, data)
            else:
                version = handle.records.swap(key, data, expected=seen.version)
            return Landed(SeenPointer(pointer=pointer, version=version))
        except (AlreadyExists, VersionConflict, StoreError) as error:
            reason = str(error)  # even a conflict may be the echo of our own write: read back before believing it
        try:
            now = handle.read_pointer()
            at_sequence = None if now is None else find_move(handle, now.pointer, planned.sequence)
        except (StoreError, Damaged) as error:  # it was sent: from here on it is an outcome, never an exception
            reason = str(error)
            handle.back_off(attempt)
            continue
        match classify(None if now is None else now.pointer, planned, at_sequence):
            case _Verdict.LANDED if now is not None:
                return Landed(now)
            case _Verdict.LOST if now is not None and at_sequence is not None:
                return Lost(now, at_sequence)
            case _:
                handle.back_off(attempt)  # the same bytes against the same version: sending it again cannot do it twice
    return Undecided(reason)


# -- publish ---------------------------------------------------------------------------------------------------------


def publish(
    handle: ChainHandle,
    draft: ManifestDraft,
    *,
    run: Run,
    permit: PublishPermit,
    seen: SeenPointer | None,
    by: str,
    why: str = "",
    base: Manifest | None = None,
    rebase: bool = False,
    finish: Callable[[Manifest, bytes], tuple[str, ...]] | None = None,
) -> Outcome:
    """Make `draft` the visible snapshot, or say truthfully why not.

    `seen` is the pointer as it was read when the permit was issued. `base` is the manifest whose artifacts the draft
    shares. `rebase` publishes on top of whoever was first instead of giving up: right only for a draft that does not
    depend on what was visible (it has no base). `finish` mirrors the manifest where the chain has a legacy path, and
    says what is left to repair.
    """
    token = permit.use(chain=handle.identity).sequence
    if (None if seen is None else seen.version) != permit.expected_pointer_version:
        raise PermitRefused(
            "this permit was issued for another version of the pointer; read it again and ask for a new one"
        )
    named = _require_owned(handle, run, draft, base, seen)
    not_before = handle.clock.now()
    for attempt in range(handle.attempts_max):
        _require_fresh(seen, token)
        _require_unpublished(handle, seen, run)
        run.require_writing()  # after the pointer was read: see runs.py
        # And the artifacts after that, every time: a purge deletes a run's files before its record, so a record that
        # a delayed request brought back from the dead says `writing` again, but its files are gone.
        require_artifacts(handle, named)
        manifest, path, data = write_manifest(
            handle, draft, seen=seen, run_id=run.run_id, token=token, not_before=not_before
        )
        not_before = manifest.published_at + timedelta(microseconds=1)  # a key that lost is never tried again
        move = _publish_move(manifest, path, data, seen=seen, by=by, why=why)
        match move_pointer(handle, seen, _next_pointer(seen, move, draft)):
            case Landed(now):
                repairs = () if finish is None else finish(manifest, data)
                return Committed(
                    commit_ulid=manifest.commit_ulid,
                    manifest=manifest,
                    manifest_path=path,
                    manifest_hash=move.manifest_hash,
                    ref=handle.layout.ref_of(path),
                    seen=now,
                    repair_pending=repairs,
                )
            case Undecided(reason):
                return Unknown(commit_ulid=manifest.commit_ulid, reason=reason)
            case Lost(now, winner):
                _require_fresh(now, token)
                moved_on = not same_target(seen, now)
                if (moved_on and not (rebase and base is None)) or attempt + 1 == handle.attempts_max:
                    return Superseded(commit_ulid=manifest.commit_ulid, winner=winner)
                seen = now  # it was only touched, or we may go on top: build the next manifest on what is there now
                handle.back_off(attempt)
    raise InvariantViolation("attempts_max must be at least 1")


def require_artifacts(handle: ChainHandle, artifacts: Sequence[Artifact]) -> None:
    """Every artifact exists with its size, asked by metadata and never by listing (S16), or InvariantViolation."""
    sizes = sizes_of(handle.store, [artifact.path for artifact in artifacts])
    if sizes == [artifact.byte_size for artifact in artifacts]:
        return
    problems = []
    for artifact, size in zip(artifacts, sizes, strict=True):
        if size is None:
            problems.append(f"{artifact.path!r} is missing")
        elif size != artifact.byte_size:
            problems.append(f"{artifact.path!r} has {size} bytes instead of {artifact.byte_size}")
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise InvariantViolation(f"artifact {problems[0]}{more}; nothing was published")


def same_target(before: SeenPointer | None, now: SeenPointer) -> bool:
    """Whether the pointer was only written in place in between, as the collector does: nothing was published or moved.

    The high-water id may have grown all the same: the collector lifts it above the orphans it condemns.
    """
    if before is None or before.pointer.publishing != now.pointer.publishing:
        return False
    since = [move for move in now.pointer.moves if move.sequence > before.pointer.sequence]
    if len(since) != now.pointer.sequence - before.pointer.sequence:
        return False  # so long ago that older moves are in the log: read it again rather than look there
    return all(move.source_id == move.target_id for move in since)


def _require_fresh(seen: SeenPointer | None, token: int) -> None:
    """Compare-and-swap alone does not stop a stale holder that has just read the pointer (S15)."""
    if seen is not None and seen.pointer.epoch > token:
        raise StaleFencingToken(previous=seen.pointer.epoch, attempted=token)


def _require_unpublished(handle: ChainHandle, seen: SeenPointer | None, run: Run) -> None:
    """A run is published once. The log says so, whatever a duplicated writer believes; it is mostly in the pointer."""
    if seen is None:
        return
    for move in moves_newest_first(handle, seen.pointer, down_to=run.record.earliest_sequence):
        if move.kind is MoveKind.PUBLISH and move.run_id == run.run_id:
            raise RunIdInUse(f"run {run.run_id!r} was published already, as {move.target_id}; start a new run")


def _require_owned(
    handle: ChainHandle, run: Run, draft: ManifestDraft, base: Manifest | None, seen: SeenPointer | None
) -> tuple[Artifact, ...]:
    """A draft may name what its run wrote and what its base has; anything else could be collected under its feet.

    Returns what must be there before the pointer moves: all that the draft lists, and what parts list that its base
    does not have. What is inside the base's own parts was there when that was committed, and the base is kept.
    """
    visible = None if seen is None else seen.pointer.manifest_id
    if base is not None and base.manifest_id != visible and base.manifest_id not in run.record.pins:
        raise InvariantViolation(
            f"base snapshot {base.manifest_id} is neither visible nor pinned by run {run.run_id!r}; "
            "name it when the run begins (`begin_run(base=...)`)"
        )
    try:
        inside, known = _inside_parts(handle, draft, base)
    except CorruptRecord as error:
        raise InvariantViolation(f"{error}; nothing was published") from error
    claims, folders = set(run.record.claims), folders_of(run.record.claims)
    for artifact in (*draft.artifacts, *inside):
        if not artifact.path.startswith(folders) and artifact.path not in claims and artifact.path not in known:
            raise InvariantViolation(
                f"artifact {artifact.path!r} belongs neither to run {run.run_id!r} nor to its base snapshot; "
                "claim it before writing it (`run.claim`)"
            )
    return (*draft.artifacts, *(artifact for artifact in inside if artifact.path not in known))


def _inside_parts(
    handle: ChainHandle, draft: ManifestDraft, base: Manifest | None
) -> tuple[list[Artifact], dict[str, Artifact]]:
    """What is in the parts of a draft that its base does not have; and what the base has, by path.

    What is in the base's parts is looked up only where it matters: in those that the draft gives up for others.
    """
    known = {} if base is None else {artifact.path: artifact for artifact in base.artifacts}
    names = handle.layout.names
    listed = {artifact.path: artifact for artifact in draft.artifacts}
    fresh = [part for part in parts_of(names, draft.artifacts) if known.get(part.path) != part]
    given_up = [part for part in parts_of(names, known.values()) if listed.get(part.path) != part]
    if not fresh and not given_up:
        return [], known
    reader = PartReader(handle)
    known |= {artifact.path: artifact for held in reader.load_all(given_up) for artifact in held}
    inside = [artifact for held in reader.load_all(fresh) for artifact in held]
    for artifact in inside:
        if listed.setdefault(artifact.path, artifact) is not artifact:
            raise InvariantViolation(f"artifact {artifact.path!r} is named twice; nothing was published")
        before = known.get(artifact.path, artifact)
        if (before.byte_size, before.checksum) != (artifact.byte_size, artifact.checksum):
            raise InvariantViolation(f"artifact {artifact.path!r} is not described as in the base snapshot")
    return inside, known


def _publish_move(manifest: Manifest, path: str, data: bytes, *, seen: SeenPointer | None, by: str, why: str) -> Move:
    return Move(
        sequence=manifest.pointer_sequence,
        kind=MoveKind.PUBLISH,
        commit_ulid=manifest.commit_ulid,
        source_id=None if seen is None else seen.pointer.manifest_id,
        target_id=manifest.manifest_id,
        manifest_path=path,
        manifest_hash=content_hash(data),
        run_id=manifest.run_id,
        epoch=manifest.epoch,
        at=manifest.published_at,
        by=by,
        why=why,
        tags=manifest.tags,
    )


def _next_pointer(seen: SeenPointer | None, move: Move, draft: ManifestDraft) -> Pointer:
    if seen is not None:
        moved = seen.pointer.moved(move)
        return replace(moved, counters={**seen.pointer.counters, **draft.counters})
    return Pointer(
        manifest_id=move.target_id,
        manifest_path=move.manifest_path,
        manifest_hash=move.manifest_hash,
        epoch=move.epoch,
        sequence=move.sequence,
        high_water_id=move.target_id,
        commit_ulid=move.commit_ulid,
        updated_at=move.at,
        moves=(move,),
        counters=dict(draft.counters),
    )
