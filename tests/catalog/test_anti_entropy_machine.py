"""Anti-entropy explored: appends under way, lost notifications, a job and a compactor that die anywhere.

A compactor with a queue in memory, as a service has one, stands for the real one: what it was told is lost when it
dies. The fold, the cursor, the ledger and the job are the real ones.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from contextlib import suppress

import pyarrow as pa
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from holdfast.catalog import Workspace, ledger_layout
from holdfast.catalog import payloads as p
from holdfast.catalog.anti_entropy import AntiEntropy, fold_here
from holdfast.catalog.compactor import Compactor, MergeLimits
from holdfast.catalog.cursor import CursorKeeper, read_cursor
from holdfast.catalog.event_rows import rows_of
from holdfast.catalog.events import Event
from holdfast.catalog.fold import fold
from holdfast.catalog.reading import read_state
from holdfast.chain.ids import ulid_time
from holdfast.errors import HoldfastError
from holdfast.storage import MemoryStore, ObjectStore, grant
from holdfast.storage.capabilities import Reader
from holdfast.testing.clock import SeededRandomness, VirtualClock
from holdfast.testing.faulty import Crashed, Fault, FaultyStore, Operation
from tests.catalog.auditing import audit

DOMAIN = "lineage"
SETTLE_S = 60.0
PAGE_SIZE = 3
LAYOUT = ledger_layout(DOMAIN)


class QueueingCompactor:
    """Takes notifications into memory, and folds them one after the other."""

    def __init__(self) -> None:
        self.queue: deque[tuple[tuple[str, ...], str | None]] = deque()

    def notify(self, domain: str, paths: Sequence[str], cursor: str | None) -> None:
        assert domain == DOMAIN
        assert len(paths) <= PAGE_SIZE, "a notification is as bounded as a page"
        self.queue.append((tuple(paths), cursor))

    def die(self) -> None:
        self.queue.clear()


class Missed(RuleBasedStateMachine):
    """One ledger, appenders who may be slow, a job, and a compactor."""

    @initialize()
    def begin(self) -> None:
        self.root, self.clock = MemoryStore(), VirtualClock()
        self.seed = 0
        self.workspace().initialize()
        self.compactor = QueueingCompactor()
        self.job = self.new_job(self.compactor.notify)
        self.under_way: dict[str, bytes] = {}
        """Events whose place is taken and that are not in the ledger yet."""
        self.told_at_all: set[str] = set()

    def workspace(self, root: ObjectStore | None = None) -> Workspace:
        self.seed += 1
        return Workspace(
            root=root or self.root, tenant="acme", name="prod", by="machine", clock=self.clock,
            randomness=SeededRandomness(self.seed),
        )  # fmt: skip

    def new_job(self, notify: object) -> AntiEntropy:
        rights = grant(self.workspace().store, "compactor-antientropy")
        return AntiEntropy(
            DOMAIN, rights=rights, notify=notify, clock=self.clock, settle_s=SETTLE_S, page_size=PAGE_SIZE,  # type: ignore[arg-type]
        )  # fmt: skip

    # -- appenders ----------------------------------------------------------------------------------------------------

    @rule(edges=st.lists(st.tuples(st.sampled_from("abcd"), st.booleans()), min_size=1, max_size=4), told=st.booleans())
    def append(self, edges: list[tuple[str, bool]], told: bool) -> None:
        """Some events on few keys, so that they supersede each other; the compactor is told, or is not."""
        for target, removed in edges:
            path = self._append(target, removed)
            if told:
                self.compactor.notify(DOMAIN, [path], None)

    @rule(edge=st.sampled_from("abcd"), removed=st.booleans())
    def begin_an_append(self, edge: str, removed: bool) -> None:
        """It has its place, and its event comes later: below those that are appended meanwhile."""
        path = self._append(edge, removed)
        store = self.workspace().store
        self.under_way[path] = store.get(path).data
        store.delete([path])

    def _append(self, target: str, removed: bool) -> str:
        kind = p.LineageEdgesRemoved if removed else p.LineageEdgesAdded
        self.seed += 1
        payload = kind(edges=(p.Edge(source="raw", target=target),))
        return self.workspace().ledger(DOMAIN).append(payload, idempotency_key=f"key-{self.seed}").path

    @precondition(lambda self: self.under_way)
    @rule(data=st.data())
    def finish_an_append(self, data: st.DataObject) -> None:
        self._finish(data.draw(st.sampled_from(sorted(self.under_way))))

    def _finish(self, path: str) -> None:
        self.workspace().store.put_new(path, self.under_way.pop(path))

    @rule(seconds=st.sampled_from([1.0, 20.0, SETTLE_S / 2, SETTLE_S, 3 * SETTLE_S]))
    def time_passes(self, seconds: float) -> None:
        """No append is under way for longer than events take to settle."""
        later = self.clock.now().timestamp() + seconds - SETTLE_S
        for path in sorted(self.under_way):
            if ulid_time(LAYOUT.parse_event_key(path) or "").timestamp() <= later:
                self._finish(path)
        self.clock.advance(seconds)

    # -- the job ------------------------------------------------------------------------------------------------------

    @rule()
    def look(self) -> None:
        self.job.round()

    @rule(after=st.integers(0, 3))
    def look_and_die(self, after: int) -> None:
        """The job is killed with some notifications sent; another begins with nothing but the cursor."""
        sent = 0

        def dying(domain: str, paths: Sequence[str], cursor: str | None) -> None:
            nonlocal sent
            if sent == after:
                raise Crashed
            sent += 1
            self.compactor.notify(domain, paths, cursor)

        with suppress(Crashed):
            self.new_job(dying).round()
        self.job = self.new_job(self.compactor.notify)

    # -- the compactor ------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.compactor.queue)
    @rule(count=st.integers(1, 4), files_max=st.integers(1, 3))
    def fold(self, count: int, files_max: int) -> None:
        for _ in range(min(count, len(self.compactor.queue))):
            self._fold_one(self.workspace(), files_max)
            self.compactor.queue.popleft()

    @precondition(lambda self: self.compactor.queue)
    @rule(step=st.integers(1, 30), after=st.booleans())
    def fold_and_die(self, step: int, after: bool) -> None:
        """Killed at any request of a fold or of the cursor, with all that waits."""

        def plan(operation: Operation) -> Fault:
            if operation.serial != step:
                return Fault.PASS
            return Fault.CRASH_AFTER if after else Fault.CRASH_BEFORE

        with suppress(Crashed):
            self._fold_one(self.workspace(FaultyStore(self.root, plan)), 2)
        self.compactor.die()
        self.time_passes(120.0)  # until the lock of the dead has expired

    @rule()
    def die(self) -> None:
        self.compactor.die()

    def _fold_one(self, workspace: Workspace, files_max: int) -> None:
        paths, cursor = self.compactor.queue[0]
        if paths:
            Compactor(workspace, DOMAIN, limits=MergeLimits(files_max=files_max)).compact(paths)
        if cursor is not None:
            rights = grant(workspace.store, "compactor-fastpath")
            keeper = CursorKeeper(rights.manifest, rights.read, clock=self.clock, randomness=SeededRandomness(1))
            keeper.advance(DOMAIN, cursor)

    # -- what must be true --------------------------------------------------------------------------------------------

    def _state(self) -> dict[str, pa.Table]:
        workspace = self.workspace()
        return read_state(workspace, DOMAIN)[0].read(Reader(workspace.store), ["edges"])

    def _events(self, up_to: str | None = None) -> list[Event]:
        workspace = self.workspace()
        paths = [info.key for page in workspace.store.list(LAYOUT.event_prefix) for info in page]
        wanted = [path for path in paths if up_to is None or path <= LAYOUT.event_key(up_to)]
        return [event for event in workspace.ledger_reader(DOMAIN).read(wanted) if isinstance(event, Event)]

    @invariant()
    def the_cursor_has_not_passed_an_event_that_is_not_folded(self) -> None:
        if not hasattr(self, "root"):
            return
        found = read_cursor(Reader(self.workspace().store), DOMAIN)
        if found is None:
            return
        assert not [path for path in self.under_way if path <= LAYOUT.event_key(found.event_id)]
        state = self._state()
        assert fold(state, rows_of(self._events(found.event_id), domain=DOMAIN)) == state

    def teardown(self) -> None:
        """From here on nothing fails: whatever was lost, everything is folded as if it had been told once."""
        if not hasattr(self, "root"):
            return
        self.compactor.die()
        for path in sorted(self.under_way):
            self._finish(path)
        self.time_passes(3 * SETTLE_S)
        events = self._events()
        job = self.new_job(fold_here(self.workspace()))
        for _ in range(2):
            with suppress(HoldfastError):
                job.round()
        assert self._state()["edges"].equals(
            fold({"edges": self._state()["edges"].slice(0, 0)}, rows_of(events, domain=DOMAIN)).get(
                "edges", self._state()["edges"].slice(0, 0)
            )
        )
        done = job.round()
        assert (done.events, done.told) == (0, 0), "the cursor is at the end"
        assert audit(self.workspace().store) == []


Missed.TestCase.settings = settings(
    max_examples=25,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
TestMissed = Missed.TestCase
TestMissed.__doc__ = (
    """C18: whatever is lost or dies, every event is folded, and the cursor never passes one that is not."""
)
