"""Reconcile: find what an interrupted writer left undone, and finish it (S43). Looks first; writes only when told to.

It never deletes: orphan manifests and abandoned runs are reported here and taken by the collector, which fences first.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta

from holdfast.chain.collect import corrected, plan_collection, sweep
from holdfast.chain.fence import touch
from holdfast.chain.handle import ChainHandle
from holdfast.chain.history import require_pointer
from holdfast.chain.legacy import mirror_is_current, sync_mirror
from holdfast.chain.root import root_is_current, sync_root
from holdfast.chain.runs import RunState
from holdfast.chain.survey import Fate, Survey, fate_of, last_published, survey_chain
from holdfast.errors import CorruptRecord, Damaged
from holdfast.fencing.lock import LockRecord, read_lock

__all__ = ["Finding", "reconcile"]

SEQUENCE_JUMP = 1_000_000
"""A lock that cannot be read may have had any sequence; the next one starts this far above the pointer's epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something undone. `repaired` says whether it is done now; `advice` what to do where this is not the place."""

    what: str
    key: str
    repaired: bool
    advice: str = ""


def reconcile(handle: ChainHandle, *, by: str, enforce: bool = False) -> list[Finding]:
    """What is undone, repaired if `enforce`.

    Running it twice finds nothing the second time but what the collector must take.
    """
    pointer = require_pointer(handle).pointer
    findings = [*_lock(handle, epoch=pointer.epoch, by=by, enforce=enforce)]
    if not _is_current(mirror_is_current, handle):
        if enforce:
            sync_mirror(handle)
        findings.append(
            Finding(what="legacy mirror is not current", key=handle.layout.mirror_key or "", repaired=enforce)
        )
    if not _is_current(root_is_current, handle):
        if enforce:
            sync_root(handle)
        findings.append(
            Finding(what="root does not name this chain", key=handle.layout.root_key or "", repaired=enforce)
        )
    if pointer.publishing == "legacy":
        return findings  # which runs are in use cannot be told while the pointer does not say
    return findings + _runs(handle, by=by, enforce=enforce) + _orphans(handle)


def _is_current(check: object, handle: ChainHandle) -> bool:
    assert callable(check)
    try:
        return bool(check(handle))
    except CorruptRecord:
        return False


def _sweep_and_fence(handle: ChainHandle, survey: Survey, *, by: str) -> None:
    """As the collector does it: who read the pointer before the sweep must fail, or be seen to have published."""
    fates = sweep(handle, survey)
    newly = [record for record, _ in survey.runs if record.state is not RunState.SWEPT]
    if any(fates[record.run_id] is Fate.ABANDONED for record in newly):
        touch(handle, by=by, why="reconcile: runs were swept")
        sweep(handle, survey_chain(handle))


def _runs(handle: ChainHandle, *, by: str, enforce: bool) -> list[Finding]:
    """Abandoned runs, and ones that were swept although they had been published."""
    survey = survey_chain(handle)
    if enforce:
        _sweep_and_fence(handle, survey, by=by)
    found = []
    published = last_published(survey.moves)
    for record, _ in survey.runs:
        key = handle.layout.run_key(record.run_id)
        changed = corrected(record, fate_of(handle, record, published))
        if changed is None:
            continue
        if changed.state is RunState.COMMITTED:
            what, advice = f"run {record.run_id} was swept, but had been published", ""
        else:
            what, advice = f"run {record.run_id} was abandoned", "its files go with the next `gc collect`"
        found.append(Finding(what=what, key=key, repaired=enforce, advice=advice))
    return found


def _orphans(handle: ChainHandle) -> list[Finding]:
    """Manifests and files that nothing names. Harmless; the collector takes them."""
    try:
        plan = plan_collection(handle, retention=2**62)
    except Damaged as error:
        return [Finding(what=str(error), key=handle.layout.pointer_key, repaired=False, advice="run `holdfast verify`")]
    return [
        Finding(
            what=f"{item.what} that no snapshot names", key=item.key, repaired=False, advice="run `holdfast gc collect`"
        )
        for item in plan.condemned
        if item.what != "run"
    ]


def _lock(handle: ChainHandle, *, epoch: int, by: str, enforce: bool) -> list[Finding]:
    """A lock file that cannot be read would keep every writer out.

    It is replaced by an expired one with a higher sequence.
    """
    key = handle.layout.lock_key
    try:
        read_lock(handle.records, key)
        return []
    except CorruptRecord as error:
        problem = str(error)
    if enforce:
        now = handle.clock.now()
        record = LockRecord(
            holder=by,
            acquired_at=now,
            expires_at=now - timedelta(seconds=1),
            sequence=epoch + SEQUENCE_JUMP,
            operation="reconcile",
            attempt=handle.token(),
        )
        handle.records.swap(key, replace(record).encode(), expected=handle.records.get(key).version)
    return [Finding(what=problem, key=key, repaired=enforce)]
