"""The compactor: folds events that it is told of into a domain's state, and publishes it (C17, C18, C20-C24).

    compactor = Compactor(workspace, "catalog")
    compactor.compact(paths, ticket=guard.ticket)    # under the lock that the API holds: a change somebody waits for
    compactor.compact(paths)                         # under its own: what notifications have brought

1. It reads the events at exactly these paths, and the state of the visible manifest. It lists nothing.
2. What they change is one small file a table more, or a new base once there are many. Events that were folded before
   change nothing, and then nothing is published.
3. Keys are of this attempt only, and the manifest is swapped in by the kernel: a crash anywhere leaves the state that
   was visible, and the next attempt starts from that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import cache

import pyarrow as pa

from holdfast.catalog.domain_state import BASE, DELTA, DomainState, StateFile, encode_table, state_file
from holdfast.catalog.event_rows import rows_of
from holdfast.catalog.events import Event, UnknownEvent
from holdfast.catalog.fold import fold_table, rows_near
from holdfast.catalog.former import move_forward
from holdfast.catalog.ledger_read import LedgerReader
from holdfast.catalog.publishing import (
    LOCK_TTL_S,
    Compaction,
    next_version,
    publish_state,
    unchanged,
    visible_manifest,
)
from holdfast.catalog.state_files import StateFiles
from holdfast.catalog.tables import STATE_TABLES, state_table
from holdfast.catalog.watermark import Watermark
from holdfast.catalog.workspace import Workspace
from holdfast.chain import Chain, Run
from holdfast.chain.legacy import sync_mirror
from holdfast.chain.root import sync_root
from holdfast.errors import BadInput, HoldfastError, StoreUnavailable
from holdfast.fencing import LockGuard, borrow_lock
from holdfast.storage.capabilities import Reader

__all__ = ["Compaction", "Compactor", "MergeLimits"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeLimits:
    """When the deltas of a table become a base again."""

    files_max: int = 16
    rows_max: int = 100_000
    age_max_s: float = 24 * 3600.0
    """Of the oldest delta, when something is published."""

    def __post_init__(self) -> None:
        if self.files_max < 1 or self.rows_max < 1 or self.age_max_s <= 0:
            raise BadInput("deltas are merged by count, by rows and by age; give at least 1 of each")


class Compactor:
    """Publishes one domain. Not for several threads at once; several processes may, and the kernel keeps them apart."""

    def __init__(
        self,
        workspace: Workspace,
        domain: str,
        *,
        limits: MergeLimits | None = None,
        own_lock: Callable[[Chain], AbstractContextManager[LockGuard]] | None = None,
        files: StateFiles | None = None,
    ) -> None:
        """`own_lock` is taken where no ticket is given, once there is something to publish: the domain's, if none."""
        self._own_lock = own_lock
        self._chain: Chain = workspace.domain(domain)
        self._domain = domain
        self._events: LedgerReader = workspace.ledger_reader(domain)
        self._files = files or StateFiles(Reader(workspace.store))
        self._limits = limits or MergeLimits()

    def compact(
        self, paths: Sequence[str], *, ticket: str | None = None, told: Mapping[str, bytes] | None = None
    ) -> Compaction:
        """Fold the events at these paths. LockLost if the ticket is not the current holder's; Conflict if another
        publisher was first: then nothing happened, and telling it again is safe. `told` are events that this process
        has just appended, as they are stored."""
        events = self._events.read(paths, told=told)
        with ExitStack() as stack:
            if ticket is None and (own_lock := self._own_lock) is not None:
                return self._compact(cache(lambda: stack.enter_context(own_lock(self._chain))), events)
            guard = stack.enter_context(self._locked(ticket))
            return self._compact(lambda: guard, events)

    @contextmanager
    def _locked(self, ticket: str | None) -> Iterator[LockGuard]:
        handle, key = self._chain.handle, self._chain.layout.lock_key
        if ticket is not None:
            yield borrow_lock(handle.records, key, ticket=ticket, clock=handle.clock)
            return
        with self._chain.lock(operation=f"compact {self._domain}", ttl_s=LOCK_TTL_S) as guard:
            yield guard

    def _compact(self, lock: Callable[[], LockGuard], events: Sequence[Event | UnknownEvent]) -> Compaction:
        base = visible_manifest(self._chain)
        if base is None or base.legacy:
            base = move_forward(self._chain, self._domain, base, lock) or base
        state = DomainState.of_manifest(self._domain, base)
        changed = self._changed(state, rows_of(events, domain=self._domain))
        watermark = _later(state.watermark, events)
        quarantined = sum(isinstance(event, UnknownEvent) for event in events)
        if not changed and watermark == state.watermark:
            if base is not None:  # who published it may have died before it was done (C24)
                sync_mirror(self._chain.handle)
                sync_root(self._chain.handle)
            return unchanged(state, base, events=len(events), quarantined=quarantined)
        guard, run = lock(), self._chain.begin_run()
        try:
            files, merged = self._write(run, state, changed)
            after = DomainState(
                domain=self._domain,
                files=files,
                watermark=watermark,
                snapshot_version=next_version(self._chain, state),
            )
            outcome = publish_state(self._chain, run, guard, after, base=base)
        except (HoldfastError, OSError) as error:
            if not isinstance(error, StoreUnavailable):  # an outcome that nobody knows is left to the lease
                run.give_up(error)
            raise
        self._files.keep(files)
        return Compaction(
            published=True,
            snapshot_version=after.snapshot_version,
            manifest_id=outcome.manifest.manifest_id,
            commit_ulid=outcome.commit_ulid,
            watermark=watermark,
            events=len(events),
            quarantined=quarantined,
            merged=merged,
        )

    # -- what changes -------------------------------------------------------------------------------------------------

    def _changed(self, state: DomainState, rows: dict[str, pa.Table]) -> dict[str, pa.Table]:
        """The rows that are newer than what is there, by table."""
        found = {}
        for name, said in rows.items():
            spec = state_table(name)
            delta = fold_table(spec, [said])
            near = rows_near(spec, self._files.tables(state, name), delta)
            if not fold_table(spec, [near, delta]).equals(near):
                found[name] = delta
        return found

    # -- writing ------------------------------------------------------------------------------------------------------

    def _write(
        self, run: Run, state: DomainState, changed: dict[str, pa.Table]
    ) -> tuple[tuple[StateFile, ...], tuple[str, ...]]:
        """The files of the next state: those that stay, and those that are written now."""
        merged = tuple(name for name, delta in changed.items() if self._is_due(state.files_of(name), delta))
        files = [file for file in state.files if file.table not in merged]
        layout, attempt = self._chain.layout, run.record.attempt
        deltas = layout.run_delta_prefix(run.run_id, attempt)
        if len(merged) < len(changed):
            run.claim(deltas)
        for name, delta in changed.items():
            spec = STATE_TABLES[name]
            if name in merged:
                rows = fold_table(spec, [*self._files.tables(state, name), delta])
                path, level = run.artifact_key(f"{name}.parquet"), BASE
            else:
                rows, path, level = delta, f"{deltas}/{name}.parquet", DELTA
            data = encode_table(rows)
            self._chain.store.upload(path, [data])
            file = state_file(spec, level, path, rows, data, written_at=self._chain.handle.clock.now())
            self._files.wrote(file, rows)
            files.append(file)
        return tuple(files), merged

    def _is_due(self, files: Sequence[StateFile], delta: pa.Table) -> bool:
        deltas = [file for file in files if file.level == DELTA]
        rows = sum(file.row_count for file in deltas) + len(delta)
        times = [file.written_at for file in deltas if file.written_at is not None]
        oldest = self._chain.handle.clock.now() - timedelta(seconds=self._limits.age_max_s)
        is_old = min(times, default=oldest) < oldest
        return len(deltas) + 1 > self._limits.files_max or rows > self._limits.rows_max or is_old


def _later(watermark: Watermark, events: Sequence[Event | UnknownEvent]) -> Watermark:
    """The highest position that is folded, and its event."""
    places = [(event.position or 0, event.event_id) for event in events]
    position, event_id = max(places, default=(0, ""))
    return Watermark(position=position, event_id=event_id) if position > watermark.position else watermark
