"""Changes that somebody waits for: whoever comes while one is being published goes along with the next (C17, C20).

One change is lock, event, compaction, release. Under load most of that is waiting, so the first who waits does it for
all who wait: their events are appended together and folded together, and one publish makes them all visible. A change
whose condition does not hold is refused alone; the others go on.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from holdfast.catalog.compactor import Compaction
from holdfast.catalog.domain_state import DomainState
from holdfast.catalog.events import EventDraft
from holdfast.catalog.expected import Expected
from holdfast.catalog.former import load_visible
from holdfast.catalog.ledger import Receipt
from holdfast.catalog.state_files import StateFiles
from holdfast.catalog.workspace import Workspace
from holdfast.errors import Conflict, HoldfastError, LockHeld
from holdfast.fencing import LockGuard
from holdfast.storage.capabilities import Reader

__all__ = ["Applied", "Change", "GroupCommit"]

TOGETHER_MAX = 256
LOCK_ATTEMPTS_MAX = 100
LOCK_WAIT_S = 0.05
LOCK_TTL_S = 30.0

Compact = Callable[[Sequence[str], str], Compaction]
"""Folds the events at some paths under the lock whose ticket is given: a `Compactor`, or a call to its service."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What to tell, and what must hold when it is told: `check` raises if it does not, and is given what is there."""

    draft: EventDraft
    check: Callable[[Expected], None] = lambda _: None
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

    def __init__(self, workspace: Workspace, domain: str, compact: Compact, *, files: StateFiles | None = None) -> None:
        """`files` are those that whoever compacts in this process has read, if anybody does."""
        self._workspace = workspace
        self._files = files or StateFiles(Reader(workspace.store))
        self._domain = domain
        self._compact = compact
        self._ledger = workspace.ledger(domain)
        self._queue: deque[_Waiting] = deque()
        self._guard = threading.Lock()
        self._is_led = False
        self.told: dict[str, bytes] = {}
        """The events of the changes that are being published, by their paths: who folds them here has them."""

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
            self.told = {receipt.path: receipt.data for receipt in receipts}
            compaction = self._compact(list(self.told), guard.ticket)
            for waiting, receipt in zip(admitted, receipts, strict=True):
                waiting.applied = Applied(receipt=receipt, compaction=compaction, together=len(admitted))

    def _admitted(self, batch: Sequence[_Waiting]) -> list[_Waiting]:
        """Those whose condition holds, each after the ones before it."""
        needs = sorted({name for waiting in batch for name in waiting.change.needs})
        expected = Expected({})
        if needs:
            manifest = load_visible(self._workspace.domain(self._domain))
            state = DomainState.of_manifest(self._domain, manifest)
            self._files.keep(state.files)
            expected = Expected({name: self._files.tables(state, name) for name in needs})
        admitted = []
        for waiting in batch:
            try:
                waiting.change.check(expected)
            except HoldfastError as error:
                waiting.error = error
                continue
            admitted.append(waiting)
            expected.tell(waiting.change.draft.payload)
        return admitted
