"""Changes that somebody waits for: whoever comes while one is being published goes along with the next (C17, C20).

One change is lock, event, compaction, release. Under load most of that is waiting, so the first who waits does it for
all who wait: their events are appended together and folded together, and one publish makes them all visible. A change
whose condition does not hold is refused alone; the others go on.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from holdfast.catalog.compactor import Compaction
from holdfast.catalog.domain_state import DomainState
from holdfast.catalog.event_rows import rows_of
from holdfast.catalog.events import Event, EventDraft
from holdfast.catalog.fold import alive, fold
from holdfast.catalog.former import load_visible
from holdfast.catalog.ledger import Receipt
from holdfast.catalog.workspace import Workspace
from holdfast.errors import Conflict, HoldfastError, LockHeld
from holdfast.fencing import LockGuard
from holdfast.storage.capabilities import Reader

__all__ = ["Applied", "Change", "GroupCommit", "Tables"]

TOGETHER_MAX = 256
LOCK_ATTEMPTS_MAX = 100
LOCK_WAIT_S = 0.05
LOCK_TTL_S = 30.0
_LAST_ID = "7" + "Z" * 25
_LAST_POSITION = 1 << 62

Compact = Callable[[Sequence[str], str], Compaction]
"""Folds the events at some paths under the lock whose ticket is given: a `Compactor`, or a call to its service."""
Tables = Mapping[str, pa.Table]
"""What is there, by table: without what was deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What to tell, and what must hold when it is told: `check` raises if it does not, and is given what is there."""

    draft: EventDraft
    check: Callable[[Tables], None] = lambda _: None
    needs: tuple[str, ...] = ()
    """The tables that `check` looks at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """A change that is visible now."""

    receipt: Receipt
    compaction: Compaction
    together: int
    """How many changes this publish made visible."""


@dataclass(slots=True)
class _Waiting:
    change: Change
    done: threading.Event = field(default_factory=threading.Event)
    applied: Applied | None = None
    error: HoldfastError | None = None


class GroupCommit:
    """One domain's changes in this process. Any number of threads may apply one."""

    def __init__(self, workspace: Workspace, domain: str, compact: Compact) -> None:
        self._workspace = workspace
        self._domain = domain
        self._compact = compact
        self._ledger = workspace.ledger(domain)
        self._queue: deque[_Waiting] = deque()
        self._guard = threading.Lock()
        self._is_led = False

    def apply(self, change: Change) -> Applied:
        """Returns once it is visible. Conflict and the like say that nothing of it was told."""
        waiting = _Waiting(change)
        with self._guard:
            self._queue.append(waiting)
            leads = not self._is_led
            self._is_led = True
        if leads:
            self._lead()
        waiting.done.wait()
        if waiting.error is not None:
            raise waiting.error
        assert waiting.applied is not None
        return waiting.applied

    def _lead(self) -> None:
        """Publish for all who wait, until nobody does."""
        while True:
            with self._guard:
                batch = [self._queue.popleft() for _ in range(min(TOGETHER_MAX, len(self._queue)))]
                if not batch:
                    self._is_led = False
                    return
            try:
                self._publish(batch)
            except HoldfastError as error:
                for waiting in batch:
                    waiting.error = waiting.error or (None if waiting.applied else error)
            finally:
                for waiting in batch:
                    if waiting.applied is None and waiting.error is None:
                        waiting.error = Conflict("the change was given up; try it again")
                    waiting.done.set()

    def _locked(self) -> LockGuard:
        """The domain's lock, after some waiting if another process has it."""
        chain = self._workspace.domain(self._domain)
        for _ in range(LOCK_ATTEMPTS_MAX - 1):
            try:
                return chain.lock(operation=f"change {self._domain}", ttl_s=LOCK_TTL_S)
            except LockHeld:
                self._workspace.clock.sleep(LOCK_WAIT_S)
        return chain.lock(operation=f"change {self._domain}", ttl_s=LOCK_TTL_S)

    def _publish(self, batch: Sequence[_Waiting]) -> None:
        with self._locked() as guard:
            admitted = self._admitted(batch)
            if not admitted:
                return
            receipts = self._ledger.append_many([waiting.change.draft for waiting in admitted])
            compaction = self._compact([receipt.path for receipt in receipts], guard.ticket)
            for waiting, receipt in zip(admitted, receipts, strict=True):
                waiting.applied = Applied(receipt=receipt, compaction=compaction, together=len(admitted))

    def _admitted(self, batch: Sequence[_Waiting]) -> list[_Waiting]:
        """Those whose condition holds, each after the ones before it."""
        needs = sorted({name for waiting in batch for name in waiting.change.needs})
        tables: dict[str, pa.Table] = {}
        if needs:
            manifest = load_visible(self._workspace.domain(self._domain))
            tables = DomainState.of_manifest(self._domain, manifest).read(Reader(self._workspace.store), needs)
        admitted = []
        for place, waiting in enumerate(batch):
            try:
                waiting.change.check({name: alive(table) for name, table in tables.items()})
            except HoldfastError as error:
                waiting.error = error
                continue
            admitted.append(waiting)
            if tables and place + 1 < len(batch):
                tables = self._after(tables, waiting.change.draft, place)
        return admitted

    def _after(self, tables: dict[str, pa.Table], draft: EventDraft, place: int) -> dict[str, pa.Table]:
        """What will be there once this is told, which is after all that was: the next of the batch must see it."""
        told = Event(
            event_id=_LAST_ID,
            position=_LAST_POSITION + place,
            idempotency_key=draft.key,
            occurred_at=self._workspace.clock.now(),
            source=self._workspace.by,
            payload=draft.payload,
        )
        said = rows_of([told], domain=self._domain)
        return fold(tables, {name: rows for name, rows in said.items() if name in tables})
