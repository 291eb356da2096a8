"""A chain, as programs use it: one object with the whole surface, each method a call into the module that explains it.

chain = open_chain("file:///data/users", layout="kv")
with chain.lock(operation="nightly build") as guard:
    run = chain.begin_run()
    path = run.artifact_key("part-0")
    info = chain.store.upload(path, chunks)
    outcome = chain.publish(draft, run=run, permit=chain.permit(guard))
match outcome:
    case Committed(): ...      # visible
    case Superseded(): ...     # somebody else was first
    case Unknown(): ...        # ask chain.status(outcome.commit_ulid) later
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from itertools import islice
from typing import TypeVar, overload

from holdfast.chain import collect as collecting
from holdfast.chain import commit, history, purge, reconcile, tags
from holdfast.chain.async_history import AsyncHistory
from holdfast.chain.collection import CollectionRecord
from holdfast.chain.diff import Diff, diff_manifests
from holdfast.chain.fence import protect
from holdfast.chain.handle import ChainHandle, Progress, SeenPointer, no_progress
from holdfast.chain.history import ManifestRef
from holdfast.chain.layout import Layout
from holdfast.chain.legacy import sync_mirror, write_mirror
from holdfast.chain.lineage import find_downstream, undone_by
from holdfast.chain.manifest import InputPin, Manifest, ManifestDraft
from holdfast.chain.moved import RolledBack, tell
from holdfast.chain.pointer import Move, PendingCollection, Pointer
from holdfast.chain.reader import AsyncChainReader, ChainReader
from holdfast.chain.root import sync_root
from holdfast.chain.runs import Run, register_run
from holdfast.chain.switch import adopt_legacy, publish_legacy, switch_to_legacy, switch_to_pointer
from holdfast.chain.verdict import Verdict, status
from holdfast.chain.verify import Break, verify_chain
from holdfast.errors import BadInput, Conflict, Damaged, SnapshotCollected, SnapshotNotFound, StoreError
from holdfast.fencing import LockGuard, PermitIssuer, PublishPermit, acquire_lock
from holdfast.storage.objects import AsyncObjectReader, ObjectStore, Version
from holdfast.storage.probe import ensure_safe

__all__ = ["Chain"]

LOCK_TTL_S_DEFAULT = 60.0
LEASE_S_DEFAULT = 3600.0

_T = TypeVar("_T")


class Chain:
    """One chain. Not safe for use by several threads at once; make one per thread."""

    def __init__(self, handle: ChainHandle, *, by: str) -> None:
        self.handle = handle
        self.by = by
        self._seen: SeenPointer | None = None
        self._mirror_version: Version | None = None
        self._when_moved: Callable[[], None] | None = None
        self._probed = bool(getattr(handle.records, "conditional_writes_trusted", False))

    @property
    def layout(self) -> Layout:
        return self.handle.layout

    @property
    def store(self) -> ObjectStore:
        """Where this chain's artifacts go."""
        return self.handle.store

    @property
    def seen(self) -> SeenPointer | None:
        """The pointer as this chain last read or wrote it; None before that. Taking the lock reads it."""
        return self._seen

    def look(self) -> SeenPointer | None:
        """Read the pointer: what `permit` and `publish` go by from now on. None where nothing was published yet."""
        self._look()
        return self._seen

    # -- writing -----------------------------------------------------------------------------------------------------

    def lock(
        self, *, operation: str = "publish", holder: str | None = None, ttl_s: float = LOCK_TTL_S_DEFAULT
    ) -> LockGuard:
        """Take the chain's lock.

        Its token is above every epoch the pointer has seen, even if the lock file was lost.
        """
        self._probe()
        self._look()
        return acquire_lock(
            self.handle.records,
            self.layout.lock_key,
            holder=holder or self.by,
            operation=operation,
            ttl_s=ttl_s,
            clock=self.handle.clock,
            randomness=self.handle.randomness,
            floor=0 if self._seen is None else self._seen.pointer.epoch,
        )

    def begin_run(
        self,
        run_id: str | None = None,
        *,
        base: Manifest | None = None,
        claims: tuple[str, ...] = (),
        lease_s: float = LEASE_S_DEFAULT,
    ) -> Run:
        """Register a run, before anything of it is written. `base` is the snapshot whose artifacts it will share."""
        if self._seen is None:
            self._look()
        run = register_run(
            self.handle,
            run_id=run_id or f"run-{self.handle.ulid(after=None).lower()}",
            by=self.by,
            lease_s=lease_s,
            earliest_sequence=0 if self._seen is None else self._seen.pointer.sequence + 1,
            claims=claims,
            pins=() if base is None else (base.manifest_id,),
        )
        if base is not None:
            try:
                self._seen = protect(self.handle, base.manifest_id, by=self.by, why=f"base of run {run.run_id}")
            except SnapshotCollected:
                run.fail("its base was collected")
                raise
        return run

    def permit(self, guard: LockGuard) -> PublishPermit:
        """The right to publish once against the pointer as this chain last saw it; costs no request while that is
        known."""
        if self._seen is None:
            self._look()
        expected = None if self._seen is None else self._seen.version
        return PermitIssuer.from_lock(guard).issue(chain=self.handle.identity, expected=expected)

    def publish(
        self,
        draft: ManifestDraft,
        *,
        run: Run,
        permit: PublishPermit,
        why: str = "",
        base: Manifest | None = None,
        rebase: bool = False,
    ) -> commit.Outcome:
        """Make a draft visible; see `holdfast.chain.commit`."""
        seen = self._seen
        if seen is not None and seen.pointer.publishing == "legacy":
            return publish_legacy(self.handle, draft, run=run, permit=permit, seen=seen, base=base)
        self._seen = None  # whatever happens, it must be looked at again, unless the commit itself says what is there
        outcome = commit.publish(
            self.handle,
            draft,
            run=run,
            permit=permit,
            seen=seen,
            by=self.by,
            why=why,
            base=base,
            rebase=rebase,
            finish=None if self.layout.mirror_key is None else lambda _, data: self._finish(data, first=seen is None),
        )
        if isinstance(outcome, commit.Committed):
            self._seen = outcome.seen
            return replace(outcome, repair_pending=(*outcome.repair_pending, *tell(self._when_moved, self.handle)))
        return outcome

    def when_moved(self, told: Callable[[], None]) -> None:
        """Call `told` after every publish and rollback that is made with this object."""
        self._when_moved = told

    def pin(self, ref: ManifestRef | None = None) -> InputPin:
        """This chain's snapshot as the input of another: what a downstream manifest carries."""
        found = ref or self.current()
        if found is None:
            raise SnapshotNotFound("this chain has no snapshot yet")
        return InputPin(
            chain=self.handle.identity, manifest_id=found.manifest_id, manifest_hash=found.manifest_hash, ref=found.ref
        )

    # -- reading -----------------------------------------------------------------------------------------------------

    def current(self) -> ManifestRef | None:
        """The visible snapshot, or None for an empty chain."""
        seen = self.handle.read_pointer()
        if seen is None or seen.pointer.publishing == "legacy":
            return history.legacy_ref(self.handle)
        return history.ref_from_move(self.handle, history.resolve(self.handle, seen.pointer))

    def load_current(self) -> Manifest | None:
        """The visible manifest, or None for an empty chain."""
        return history.load_current(self.handle)

    def load_manifest(self, ref: str) -> Manifest:
        """The manifest of one snapshot of the history."""
        return history.load_move_target(self.handle, self.find(ref=ref))

    def list_manifests(self, limit: int = 10) -> list[ManifestRef]:
        """The newest snapshots that were ever visible and are not collected, newest first."""
        seen = self.handle.read_pointer()
        return [] if seen is None else list(islice(history.history(self.handle, seen.pointer), limit))

    def find(
        self,
        *,
        ref: str | None = None,
        run_id: str | None = None,
        offset: int | None = None,
        at: datetime | None = None,
        tag: tuple[str, str] | None = None,
    ) -> Move:
        """One snapshot, by whatever names it; the visible one if nothing is given."""
        pointer = self._pointer()
        if tag is not None:
            return tags.find_snapshot(self.handle, pointer, *tag)
        return history.resolve(self.handle, pointer, ref=ref, run_id=run_id, offset=offset, at=at)

    def reader(self, load: Callable[[Manifest], _T], *, max_fallback_attempts: int = 3) -> ChainReader[_T]:
        """A reader that serves what `load` makes of the visible manifest."""
        return ChainReader(self.handle, load=load, max_fallback_attempts=max_fallback_attempts)

    def as_async(self) -> AsyncHistory:
        """The read half for asyncio: `load_current`, `load_manifest`, `list_manifests`."""
        return AsyncHistory(self.handle, self._async_records())

    @overload
    async def async_reader(
        self,
        load: Callable[[Manifest], Awaitable[_T]],
        *,
        records: AsyncObjectReader | None = ...,
        max_fallback_attempts: int = ...,
    ) -> AsyncChainReader[_T]: ...

    @overload
    async def async_reader(
        self,
        load: Callable[[Manifest], _T],
        *,
        records: AsyncObjectReader | None = ...,
        max_fallback_attempts: int = ...,
    ) -> AsyncChainReader[_T]: ...

    async def async_reader(
        self,
        load: Callable[[Manifest], _T | Awaitable[_T]],
        *,
        records: AsyncObjectReader | None = None,
        max_fallback_attempts: int = 3,
    ) -> AsyncChainReader[_T]:
        """The same for asyncio; `load` may be a coroutine function."""
        return await AsyncChainReader.open(
            self.handle, records or self._async_records(), load=load, max_fallback_attempts=max_fallback_attempts
        )

    # -- moving the pointer ------------------------------------------------------------------------------------------

    def set_current(self, ref: str, *, why: str = "") -> RolledBack:
        """Point to an older (or newer) snapshot of the history."""
        return self.rollback(ref=ref, why=why)

    def rollback(
        self,
        *,
        ref: str | None = None,
        run_id: str | None = None,
        offset: int | None = None,
        why: str = "",
        downstream_in: Iterable[ChainHandle] = (),
    ) -> RolledBack:
        """Take back what is visible; without arguments, to the snapshot published before it."""
        self._probe_existing()
        seen = history.require_pointer(self.handle)
        if ref is None and run_id is None and offset is None:
            target = self._before(seen.pointer)
        else:
            target = history.resolve(self.handle, seen.pointer, ref=ref, run_id=run_id, offset=offset)
        undone = undone_by(self.handle, seen.pointer, target_id=target.target_id)
        moved = history.set_current(self.handle, target, seen=seen, by=self.by, why=why)
        downstream, unread = find_downstream(self.handle, undone, downstream_in)
        return replace(self._moved(moved), downstream=tuple(downstream), unread=tuple(unread))

    def forward(self, *, why: str = "") -> RolledBack:
        """Undo the newest rollback."""
        self._probe_existing()
        seen = history.require_pointer(self.handle)
        return self._moved(history.forward(self.handle, seen=seen, by=self.by, why=why))

    def status(self, commit_ulid: str, *, settle: bool = False) -> Verdict:
        """What became of a commit, for good."""
        if settle:
            self._probe_existing()
        return status(self.handle, commit_ulid, settle=settle)

    # -- tags and differences ----------------------------------------------------------------------------------------

    def tag(self, target: Move, changes: Mapping[str, str | None]) -> None:
        """Merge tags into a snapshot's; a value of None removes one."""
        self._probe_existing()
        tags.tag_snapshot(self.handle, target, changes, by=self.by)

    def find_snapshot(self, key: str, value: str) -> ManifestRef:
        """The newest snapshot that is tagged key=value."""
        return history.ref_from_move(self.handle, self.find(tag=(key, value)))

    def list_snapshots(
        self, key: str | None = None, value: str | None = None, *, limit: int | None = None
    ) -> list[tags.TaggedSnapshot]:
        """Snapshots with their tags, oldest first; only those that have the tag, and the newest `limit`, if given."""
        seen = self.handle.read_pointer()
        return [] if seen is None else tags.list_snapshots(self.handle, seen.pointer, key=key, value=value, limit=limit)

    def diff(self, source: Move, target: Move) -> Diff:
        """What changed between two snapshots."""
        before, after = (history.load_move_target(self.handle, move) for move in (source, target))
        return diff_manifests(self.handle, before, after)

    # -- keeping house -----------------------------------------------------------------------------------------------

    def verify(self, *, read_artifacts: bool = True, progress: Progress = no_progress) -> list[Break]:
        """Every break from the pointer to the bytes."""
        return verify_chain(self.handle, read_artifacts=read_artifacts, progress=progress)

    def plan_collection(self, *, retention: int) -> collecting.CollectionPlan:
        return collecting.plan_collection(self.handle, retention=retention)

    def collect(self, *, retention: int) -> collecting.CollectionPlan:
        """Take out of sight what nothing needs; can be restored until it is purged."""
        self._probe_existing()
        return collecting.collect(self.handle, retention=retention, by=self.by)

    def pending_collections(self) -> list[tuple[PendingCollection, CollectionRecord]]:
        return purge.pending_collections(self.handle)

    def plan_purge(self, *, grace_s: float = purge.GRACE_S_DEFAULT) -> purge.Purged:
        return purge.plan_purge(self.handle, grace_s=grace_s)

    def purge(
        self,
        *,
        grace_s: float = purge.GRACE_S_DEFAULT,
        progress: Progress = no_progress,
    ) -> purge.Purged:
        """Delete what was collected longer than `grace_s` ago."""
        self._probe_existing()
        return purge.purge(self.handle, by=self.by, grace_s=grace_s, progress=progress)

    def restore(self, collection: str) -> CollectionRecord:
        """Take a collection back."""
        self._probe_existing()
        return purge.restore(self.handle, collection, by=self.by)

    def reconcile(self, *, enforce: bool = False) -> list[reconcile.Finding]:
        """What interrupted writers left undone; repaired if `enforce`."""
        if enforce:
            self._probe_existing()
        return reconcile.reconcile(self.handle, by=self.by, enforce=enforce)

    def switch_publishing(self, to: str, *, why: str = "") -> None:
        """Switch between `pointer` and `legacy` publishing (S45)."""
        switches = {"legacy": switch_to_legacy, "pointer": switch_to_pointer}
        if to not in switches:
            raise BadInput(f"publishing can be switched to legacy or to pointer, not to {to!r}")
        self._probe_existing()
        self._seen = switches[to](self.handle, by=self.by, why=why)

    # -- inside ------------------------------------------------------------------------------------------------------

    def _probe(self) -> None:
        """Before the first write of this process: does the store keep its word? (S48)"""
        if not self._probed:
            ensure_safe(self.handle.records, self.layout.probe_key)
            self._probed = True

    def _probe_existing(self) -> None:
        """The same for what changes a chain: nothing is written where there is none, not even a probe."""
        if not self._probed:
            history.require_pointer(self.handle)
            self._probe()

    def _look(self) -> SeenPointer | None:
        """Read the pointer; give a chain that has only a legacy manifest its pointer first."""
        self._seen = self.handle.read_pointer()
        if self._seen is None and self.layout.mirror_key is not None:
            self._seen = adopt_legacy(self.handle, by=self.by)
        return self._seen

    def _async_records(self) -> AsyncObjectReader:
        # Records in a database have an async half of their own; the artifacts' store knows nothing of them.
        half: Callable[[], AsyncObjectReader] = getattr(self.handle.records, "as_async", self.store.as_async)
        return half()

    def _pointer(self) -> Pointer:
        return history.require_pointer(self.handle).pointer

    def _before(self, pointer: Pointer) -> Move:
        for move in history.published_moves(self.handle, pointer):
            if move.target_id < pointer.manifest_id:
                return move
        raise SnapshotNotFound("there is no earlier snapshot to roll back to; `holdfast history` lists what there is")

    def _moved(self, moved: history.Rollback) -> RolledBack:
        self._seen = moved.seen
        repairs = (*self._mirror(), *tell(self._when_moved, self.handle))
        return RolledBack(left=moved.left, current=moved.current, repair_pending=repairs)

    def _finish(self, data: bytes, *, first: bool) -> tuple[str, ...]:
        """Mirror what was just committed: one request where the mirror's version is known, a full look otherwise."""
        if self._mirror_version is None and not first:
            return self._mirror()
        try:
            self._mirror_version = write_mirror(self.handle, data, known=self._mirror_version)
            if first:
                sync_root(self.handle)
        except (StoreError, Conflict, Damaged):  # whatever it is, the commit has happened
            self._mirror_version = None
            return ("legacy mirror", "root") if first else ("legacy mirror",)
        return () if self._mirror_version is not None else self._mirror()

    def _mirror(self) -> tuple[str, ...]:
        try:
            self._mirror_version = sync_mirror(self.handle)
        except (StoreError, Conflict, Damaged):
            self._mirror_version = None
            return ("legacy mirror",)
        return ()
