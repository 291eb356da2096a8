"""Collect: take out of sight what nothing needs (S39, S40, S42). Fence, then sweep; nothing is deleted here.

1. Look at the chain (`survey.py`), the pointer first.
2. Runs whose lease is gone: compare-and-swap their records to `swept`, unless the log says they were published.
3. Condemn snapshots outside the retention, and every object that no kept manifest names and no live run claims.
4. Write the collection's record, then swap the pointer against the version read in 1: sequence + 1, same target, the
   condemned ids among `collected`. If it was moved meanwhile, start again. This one write is the fence for 2 and makes
   3 count.

Why no interleaving breaks it: a publisher that saw its record `writing` read the pointer before that, hence before the
sweep, hence before the fence: its swap was already in (then 4 fails and the next look sees it) or fails (then it finds
`swept`). Orphan manifests found in 1 were built on a pointer no newer than the one read in 1; their sequence is taken
by the fence. Whoever tags or pins a snapshot touches the pointer after writing the tag or pin: before 4, and the swap
fails; or after it, and they see that the snapshot is gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from holdfast.chain.collection import CollectionRecord, Condemned
from holdfast.chain.fence import write_in_place
from holdfast.chain.handle import ChainHandle, SeenPointer
from holdfast.chain.history import list_move_target
from holdfast.chain.listed import Listed
from holdfast.chain.parts import PartReader
from holdfast.chain.pointer import Move, MoveKind, PendingCollection, Pointer
from holdfast.chain.runs import RunRecord, RunState, swap_run
from holdfast.chain.survey import (
    Fate,
    Survey,
    fate_of,
    kept_moves,
    last_published,
    needed_by,
    survey_chain,
)
from holdfast.errors import BadInput, Conflict, Damaged, VersionConflict
from holdfast.storage.objects import sizes_of

__all__ = ["CollectionPlan", "collect", "plan_collection"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectionPlan:
    """What a collection would do, or did."""

    snapshots: tuple[Move, ...]
    kept: tuple[Move, ...]
    runs: tuple[str, ...]
    """Runs that are (to be) declared abandoned."""
    condemned: tuple[Condemned, ...]
    unreadable: tuple[str, ...]
    """Snapshots outside the window that cannot be read. They stay, and so does what they may name."""
    collection: str | None = None
    """Set once it has been carried out; `restore` takes it."""

    @property
    def byte_size(self) -> int:
        return sum(item.byte_size for item in self.condemned)

    @property
    def is_empty(self) -> bool:
        return not (self.snapshots or self.runs or self.condemned)


def plan_collection(handle: ChainHandle, *, retention: int) -> CollectionPlan:
    """What `collect` would do now. Writes nothing."""
    _check_retention(retention)
    survey = survey_chain(handle)
    return _plan(handle, survey, _fates(handle, survey), retention=retention)


def collect(handle: ChainHandle, *, retention: int, by: str) -> CollectionPlan:
    """Carry it out. What it returns can be restored until it is purged."""
    _check_retention(retention)
    for attempt in range(handle.attempts_max):
        survey = survey_chain(handle)
        plan = _plan(handle, survey, sweep(handle, survey), retention=retention)
        if plan.is_empty:
            return plan
        done = _enforce(handle, survey.seen, plan, retention=retention, by=by)
        if done is not None:
            return done
        handle.back_off(attempt)
    raise Conflict(f"the pointer kept changing for {handle.attempts_max} attempts; nothing was collected, try again")


def _check_retention(retention: int) -> None:
    if retention < 1:
        raise BadInput(f"retention {retention} would leave nothing to roll back to; keep at least 1")


def _fates(handle: ChainHandle, survey: Survey) -> dict[str, Fate]:
    published = last_published(survey.moves)
    return {record.run_id: fate_of(handle, record, published) for record, _ in survey.runs}


def corrected(record: RunRecord, fate: Fate) -> RunRecord | None:
    """The record as it should be, or None if nothing is wrong with it.

    A published run needs no mark: the log has it.
    """
    if fate is Fate.ABANDONED and record.state is not RunState.SWEPT:
        return replace(record, state=RunState.SWEPT, revision=record.revision + 1)
    if fate is Fate.PUBLISHED and record.state is RunState.SWEPT:
        return replace(record, state=RunState.COMMITTED, revision=record.revision + 1)
    return None


def sweep(handle: ChainHandle, survey: Survey) -> dict[str, Fate]:
    """Declare abandoned runs swept, and take that back for one that was published. Returns what became of each run."""
    fates = _fates(handle, survey)
    for record, version in survey.runs:
        changed = corrected(record, fates[record.run_id])
        if changed is None:
            continue
        try:
            swap_run(handle, changed, expected=version)
        except VersionConflict:
            # Its writer is alive after all, or another collector was first. Leave it to the next look.
            fates[record.run_id] = Fate.LIVE
    return fates


def _plan(handle: ChainHandle, survey: Survey, fates: dict[str, Fate], *, retention: int) -> CollectionPlan:
    kept = kept_moves(handle, survey, retention)
    reader = PartReader(handle)
    needed = needed_by(handle, reader, kept)
    leaving, last, unreadable = _leaving(handle, reader, survey, {move.target_id for move in kept})
    condemned = [
        *_condemned_objects(handle, survey, fates, needed, last, cautious=bool(unreadable)),
        *_condemned_manifests(survey, leaving),
        *_condemned_runs(handle, survey, fates, leaving),
    ]
    return CollectionPlan(
        snapshots=tuple(leaving),
        kept=tuple(kept),
        runs=tuple(
            record.run_id
            for record, _ in survey.runs
            if fates[record.run_id] is Fate.ABANDONED and record.state is not RunState.SWEPT
        ),
        condemned=tuple(item for item in condemned if item.key not in survey.condemned),
        unreadable=unreadable,
    )


@dataclass(frozen=True, slots=True)
class LastNamed:
    """What snapshots outside the window name: the newest of them to do so, and the size that they say."""

    ids: dict[str, int] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)

    def add(self, manifest_id: int, listed: Listed, named: Mapping[str, Mapping[str, int]]) -> None:
        """Newest first, so that the first to name a path is the last that did."""
        self.sizes.update(listed.sizes)
        for path, inside in named.items():
            if path not in self.ids:  # nor is a part looked into again that a newer one shares
                self.ids[path] = manifest_id
                self.sizes.update(inside)
                for held in inside:
                    self.ids.setdefault(held, manifest_id)


def _leaving(
    handle: ChainHandle, reader: PartReader, survey: Survey, kept: set[int]
) -> tuple[list[Move], LastNamed, tuple[str, ...]]:
    """Snapshots outside the window, the newest of them to name each artifact, and those that cannot be read."""
    leaving: list[Move] = []
    last = LastNamed()
    unreadable: list[str] = []
    for move in sorted(survey.published, key=lambda move: -move.target_id):
        if move.target_id in kept:
            continue
        try:
            listed = list_move_target(handle, move)
            named = reader.named_by(listed)
        except Damaged as error:
            unreadable.append(str(error))
            continue
        if listed.legacy:
            unreadable.append(f"{move.manifest_path!r} is in a legacy format whose files are not known")
            continue
        leaving.append(move)
        last.add(move.target_id, listed, named)
    return leaving, last, tuple(unreadable)


def _condemned_objects(
    handle: ChainHandle, survey: Survey, fates: dict[str, Fate], needed: set[str], last: LastNamed, *, cautious: bool
) -> list[Condemned]:
    """Objects that no kept manifest names and no live run claims. `cautious`: an unreadable manifest may name anything,
    so take only what a readable one named or an abandoned run wrote."""
    live = ClaimIndex(record.claims for record, _ in survey.runs if fates[record.run_id] is Fate.LIVE)
    abandoned = ClaimIndex(record.claims for record, _ in survey.runs if fates[record.run_id] is Fate.ABANDONED)
    doomed = {
        key: last.sizes.get(key) if size is None else size
        for key, size in survey.objects
        if key not in needed and not live.covers(key) and (not cautious or key in last.ids or abandoned.covers(key))
    }
    unnamed = [key for key, size in doomed.items() if size is None]
    doomed |= zip(unnamed, sizes_of(handle.store, unnamed), strict=True)
    return [
        Condemned(key=key, what="artifact", byte_size=size, last_id=last.ids.get(key))
        for key, size in doomed.items()
        if size is not None  # gone meanwhile
    ]


def _condemned_manifests(survey: Survey, leaving: list[Move]) -> list[Condemned]:
    """Manifests of the snapshots that leave, and orphans: manifests that no pointer ever named."""
    named = {move.manifest_path: move for move in survey.moves}
    out = {move.manifest_path for move in leaving}
    return [
        Condemned(
            key=info.key,
            what="manifest" if info.key in named else "orphan manifest",
            byte_size=info.size,
            last_id=named[info.key].target_id if info.key in named else None,
        )
        for info in survey.manifests
        if info.key in out or info.key not in named
    ]


def _condemned_runs(
    handle: ChainHandle, survey: Survey, fates: dict[str, Fate], leaving: list[Move]
) -> list[Condemned]:
    """Records of runs that can do nothing any more: swept ones, and those whose snapshot leaves or is gone."""
    gone = {move.run_id for move in survey.moves if move.target_id in survey.seen.pointer.collected}
    gone |= {move.run_id for move in leaving}
    done = [
        Condemned(
            key=handle.layout.run_key(record.run_id), what="run", byte_size=len(record.encode()), attempt=record.attempt
        )
        for record, _ in survey.runs
        if fates[record.run_id] is Fate.ABANDONED or (fates[record.run_id] is Fate.PUBLISHED and record.run_id in gone)
    ]
    return [*done, *(Condemned(key=key, what="run", byte_size=0) for key in survey.empty_runs)]


def _enforce(
    handle: ChainHandle, seen: SeenPointer, plan: CollectionPlan, *, retention: int, by: str
) -> CollectionPlan | None:
    """Record it, then make it count by one swap. None if the pointer was moved meanwhile."""
    collection = handle.ulid(after=seen.pointer.commit_ulid)
    now = handle.clock.now()
    record = CollectionRecord(
        collection=collection,
        collected_at=now,
        by=by,
        retention=retention,
        snapshots=tuple(move.target_id for move in plan.snapshots),
        runs=plan.runs,
        condemned=plan.condemned,
    )
    handle.records.put_new(handle.layout.collection_key(collection), record.encode())
    manifests = (item.key for item in plan.condemned if item.what in {"manifest", "orphan manifest"})
    highest = max((_manifest_id(handle, key) for key in manifests), default=0)

    def condemn(pointer: Pointer) -> Pointer:
        return replace(
            pointer,
            collected=pointer.collected.add(record.snapshots),
            collections=(*pointer.collections, PendingCollection(collection=collection, at=now)),
            # An orphan's key must not be taken again: a purge may still be about to delete it.
            high_water_id=max(pointer.high_water_id, highest),
        )

    why = f"collect: keep {retention}"
    fenced = write_in_place(handle, seen, kind=MoveKind.COLLECT, by=by, why=why, change=condemn, commit_ulid=collection)
    if fenced is None:
        return None
    return replace(plan, collection=collection)


def _manifest_id(handle: ChainHandle, key: str) -> int:
    parsed = handle.layout.parse_manifest_key(key)
    return 0 if parsed is None or parsed.manifest_id is None else parsed.manifest_id


class ClaimIndex:
    """Many claims, asked about many keys: by the key's folders instead of claim by claim."""

    __slots__ = ("_claims",)

    def __init__(self, claims: Iterable[tuple[str, ...]]) -> None:
        self._claims = {claim for many in claims for claim in many}

    def covers(self, key: str) -> bool:
        if not self._claims:
            return False
        position = len(key)
        while position > 0:  # a key has few folders
            if key[:position] in self._claims:
                return True
            position = key.rfind("/", 0, position)
        return False
