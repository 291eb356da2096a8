"""From files to a visible state of a domain: what every way of folding ends with (C6, C22-C24).

A fold may be small and run here under the lock, or be long and run elsewhere. The first is `Compactor`. The second is
`rebuild_domain`: nobody waits for a lock while it works, because a fold of files and events is right whatever was
published meanwhile, as long as the files that it began with are still part of the state. Were they merged or rolled
back meanwhile, nothing is published.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass

from holdfast.catalog.domain_state import BASE, DomainState, StateFile
from holdfast.catalog.former import move_forward
from holdfast.catalog.watermark import Watermark
from holdfast.catalog.workspace import Workspace
from holdfast.chain import Chain, Committed, Manifest, ManifestDraft, Run, Superseded, Unknown
from holdfast.errors import Conflict, LockHeld, StoreUnavailable
from holdfast.fencing import KeepAlive, LockGuard

__all__ = [
    "LOCK_TTL_S",
    "Compaction",
    "Fold",
    "Rebuilt",
    "next_version",
    "publish_state",
    "rebuild_domain",
    "unchanged",
    "visible_manifest",
]

LOCK_TTL_S = 60.0
LEASE_S = 3600.0
LOCK_WAIT_S = 0.25
LOCK_WAITS_MAX = 240


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction:
    """What a compaction did. Without any change there is no new snapshot."""

    published: bool
    snapshot_version: int
    manifest_id: int | None
    commit_ulid: str | None
    watermark: Watermark
    events: int
    quarantined: int
    merged: tuple[str, ...] = ()
    """Tables whose deltas became a base."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuilt:
    """What a fold has made of a state and of events."""

    tables: Mapping[str, tuple[StateFile, ...]]
    """The new bases of the tables that have changed."""
    watermark: Watermark
    """The highest place among the events."""
    events: int
    quarantined: int


Fold = Callable[[Run, DomainState], Rebuilt]
"""Folds events into a state, and writes what has changed as files of the run."""


def visible_manifest(chain: Chain) -> Manifest | None:
    """The manifest that the next permit is for."""
    seen = chain.look()
    if seen is None:
        return None  # a manifest of the legacy path would have got its pointer by looking
    if seen.pointer.publishing == "legacy":
        return chain.load_current()  # the legacy path is what is visible (S45)
    return chain.load_manifest(chain.layout.ref_of(seen.pointer.manifest_path))


def next_version(chain: Chain, state: DomainState) -> int:
    """Above every one that was ever published, also those that a rollback has left."""
    seen, first = chain.seen, chain.layout.first_id
    return max(state.snapshot_version, 0 if seen is None else seen.pointer.high_water_id - first + 1) + 1


def publish_state(
    chain: Chain, run: Run, guard: LockGuard, state: DomainState, *, base: Manifest | None, why: str = "compacted"
) -> Committed:
    """Make a state visible; Conflict if another publisher was first, StoreUnavailable if nobody knows."""
    draft = ManifestDraft(artifacts=tuple(file.to_artifact() for file in state.files), payload=state.payload())
    outcome = chain.publish(draft, run=run, permit=chain.permit(guard), why=why, base=base)
    match outcome:
        case Committed():
            return outcome
        case Superseded(winner=winner):
            raise Conflict(f"another compactor published first ({winner}); nothing was lost: tell it again")
        case Unknown(commit_ulid=ulid, reason=reason):
            raise StoreUnavailable(
                f"whether the commit happened is not known yet ({reason}); telling it again is safe ({ulid})"
            )


def unchanged(state: DomainState, manifest: Manifest | None, *, events: int, quarantined: int) -> Compaction:
    """What is said where everything was folded before."""
    return Compaction(
        published=False,
        snapshot_version=state.snapshot_version,
        manifest_id=None if manifest is None else manifest.manifest_id,
        commit_ulid=None if manifest is None else manifest.commit_ulid,
        watermark=state.watermark,
        events=events,
        quarantined=quarantined,
    )


def rebuild_domain(workspace: Workspace, domain: str, fold: Fold, *, why: str = "compacted in bulk") -> Compaction:
    """Fold without the lock, then publish under it. Whatever fails, what was visible still is.

    Conflict if the files that it began with are no longer part of the state: nothing happened, and it may be repeated.
    """
    chain = workspace.domain(domain)
    base = visible_manifest(chain)
    if base is None or base.legacy:
        with ExitStack() as stack:
            lock = lambda: stack.enter_context(_lock_when_free(chain, domain))  # noqa: E731
            base = move_forward(chain, domain, base, lock) or base
    began = DomainState.of_manifest(domain, base)
    run = chain.begin_run(base=base, lease_s=LEASE_S)
    try:
        with KeepAlive(run.renew, every_s=LEASE_S / 3) as lease:
            made = fold(run, began)
            lease.check()
        if not made.tables and made.watermark.position <= began.watermark.position:
            run.fail("everything was folded before")
            return unchanged(began, base, events=made.events, quarantined=made.quarantined)
        with _lock_when_free(chain, domain) as guard:
            current = visible_manifest(chain)
            state = DomainState.of_manifest(domain, current)
            after = DomainState(
                domain=domain,
                files=_next_files(began, state, made),
                watermark=max(state.watermark, made.watermark, key=lambda mark: mark.position),
                snapshot_version=next_version(chain, state),
            )
            outcome = publish_state(chain, run, guard, after, base=current, why=why)
    except BaseException as error:
        if not isinstance(error, StoreUnavailable):  # an outcome that nobody knows is left to the lease
            run.give_up(error)
        raise
    return Compaction(
        published=True,
        snapshot_version=after.snapshot_version,
        manifest_id=outcome.manifest.manifest_id,
        commit_ulid=outcome.commit_ulid,
        watermark=after.watermark,
        events=made.events,
        quarantined=made.quarantined,
        merged=tuple(made.tables),
    )


def _next_files(began: DomainState, now: DomainState, made: Rebuilt) -> tuple[StateFile, ...]:
    """The new bases, and on top of them what was published meanwhile."""
    folded = {file.path for file in began.files}
    there = {file.path for file in now.files}
    fresh = [file for file in now.files if file.path not in folded]
    if not folded <= there or any(file.level == BASE and file.table in made.tables for file in fresh):
        raise Conflict(
            f"the state of {now.domain} was merged or rolled back while it was folded; nothing was published: "
            "fold it again"
        )
    kept = [file for file in now.files if file.path in folded and file.table not in made.tables]
    return (*(file for files in made.tables.values() for file in files), *kept, *fresh)


def _lock_when_free(chain: Chain, domain: str) -> LockGuard:
    """Whoever changes something holds the lock for a moment only: after minutes of work that is worth waiting for."""
    for _ in range(LOCK_WAITS_MAX):
        try:
            return chain.lock(operation=f"compact {domain}", ttl_s=LOCK_TTL_S)
        except LockHeld:
            chain.handle.clock.sleep(LOCK_WAIT_S)
    return chain.lock(operation=f"compact {domain}", ttl_s=LOCK_TTL_S)
