"""A plain-dict model beside the real chain: whatever is done to both, they say the same, and `verify` finds nothing."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from holdfast.chain import Chain, Run
from holdfast.errors import RunSwept, SnapshotCollected, SnapshotNotFound
from holdfast.testing.faulty import Crashed, Fault, FaultyStore, Operation
from tests.chain.publishing import LAYOUTS, ChainFactory, draft_of, publish_one, write_artifact

LEASE_S = 3600.0
CRASH_LATEST = 30
names = st.sampled_from(["red", "green", "blue"])
picks = st.integers(min_value=0, max_value=30)


@dataclass
class Snapshot:
    """What the model knows of one snapshot."""

    run_id: str
    files: dict[str, bytes]
    """By key: shared ones are under the key of whoever wrote them."""
    tags: dict[str, str] = field(default_factory=dict)
    order: int = 0
    """The how-manieth publish it was; a run may be published long after a younger one."""


@dataclass
class Model:
    """The chain as a person would keep it on paper."""

    history: list[Snapshot] = field(default_factory=list)
    current: Snapshot | None = None
    rolled_back: list[Snapshot] = field(default_factory=list)
    """What `forward` would come back to, in order."""
    collections: dict[str, list[Snapshot]] = field(default_factory=dict)
    publishes: int = 0

    def publish(self, snapshot: Snapshot) -> None:
        self.publishes += 1
        snapshot.order = self.publishes
        self.history.append(snapshot)
        self.current = snapshot
        self.rolled_back.clear()

    def collect(self, retention: int) -> list[Snapshot]:
        newest = self.history[-retention:]
        leaving = [each for each in self.history if each not in newest and each is not self.current and not each.tags]
        self.history = [each for each in self.history if each not in leaving]
        return leaving

    def restore(self, snapshots: list[Snapshot]) -> None:
        self.history = sorted([*self.history, *snapshots], key=lambda each: each.order)


class ChainMachine(RuleBasedStateMachine):
    """S10, S32a, S35, S36, S40, S42:

    history, what is visible, tags and bytes are what the model says, after every step.
    """

    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        self.numbers = 0
        self.abandoned: list[Run] = []

    @initialize(layout=st.sampled_from(sorted(LAYOUTS)))
    def begin(self, layout: str) -> None:
        self.factory = ChainFactory(layout=LAYOUTS[layout])
        self.chain = self.factory()
        self._publish(None, {})

    # -- what is done ------------------------------------------------------------------------------------------------

    def _next(self) -> str:
        self.numbers += 1
        return f"run-{self.numbers}"

    def _publish(self, base: Snapshot | None, tags: dict[str, str], chain: Chain | None = None) -> None:
        run_id = self._next()
        writer = chain or self.chain
        shared = None if base is None else writer.load_manifest(writer.find(run_id=base.run_id).manifest_path)
        done = publish_one(writer, run_id.encode(), run_id=run_id, base=shared, tags=tags)
        files = {} if base is None else dict(base.files)
        files[done.manifest.artifacts[-1].path] = run_id.encode()
        self.model.publish(Snapshot(run_id, files, dict(tags)))

    @rule(tags=st.dictionaries(names, names, max_size=1))
    def publish(self, tags: dict[str, str]) -> None:
        self._publish(None, tags)

    @rule(pick=picks)
    def publish_on_a_base(self, pick: int) -> None:
        self._publish(self.model.history[pick % len(self.model.history)], {})

    @rule(pick=picks)
    def rollback(self, pick: int) -> None:
        target = self.model.history[pick % len(self.model.history)]
        assert self.model.current is not None
        self.model.rolled_back.append(self.model.current)
        self.chain.rollback(run_id=target.run_id)
        self.model.current = target

    @rule()
    def forward(self) -> None:
        if not self.model.rolled_back:
            with pytest.raises(SnapshotNotFound):
                self.chain.forward()
            return
        target = self.model.rolled_back[-1]
        if target not in self.model.history:
            with pytest.raises(SnapshotCollected):
                self.chain.forward()
            return
        self.chain.forward()
        self.model.rolled_back.pop()
        self.model.current = target

    @rule(pick=picks, name=names, value=st.none() | names)
    def tag(self, pick: int, name: str, value: str | None) -> None:
        target = self.model.history[pick % len(self.model.history)]
        self.chain.tag(self.chain.find(run_id=target.run_id), {name: value})
        target.tags.pop(name, None)
        if value is not None:
            target.tags[name] = value

    @rule(retention=st.integers(min_value=1, max_value=4))
    def collect(self, retention: int) -> None:
        plan = self.factory(by="collector").collect(retention=retention)
        leaving = self.model.collect(retention)
        assert {move.run_id for move in plan.snapshots} == {each.run_id for each in leaving}
        if plan.collection is not None:
            self.model.collections[plan.collection] = leaving

    @precondition(lambda self: self.model.collections)
    @rule(pick=picks)
    def restore(self, pick: int) -> None:
        collection = sorted(self.model.collections)[pick % len(self.model.collections)]
        self.factory(by="operator").restore(collection)
        self.model.restore(self.model.collections.pop(collection))

    @rule()
    def purge(self) -> None:
        self.factory(by="collector").purge(grace_s=0)
        self.model.collections.clear()

    @rule()
    def abandon_a_run(self) -> None:
        run = self.chain.begin_run(self._next(), lease_s=LEASE_S)
        write_artifact(self.chain, run, "half", b"half of it")
        self.abandoned.append(run)

    @rule(seconds=st.sampled_from([0.0, 1.0, LEASE_S + 1, -30.0]))
    def turn_the_clock(self, seconds: float) -> None:
        self.factory.clock.advance(seconds)

    @precondition(lambda self: self.abandoned)
    @rule()
    def publish_the_abandoned_run(self) -> None:
        """Its writer wakes up: it publishes, or is told that it was swept."""
        run = self.abandoned.pop()
        writer = self.factory(by="zombie")
        with writer.lock(ttl_s=60) as guard:
            draft = draft_of(writer, run, run.run_id.encode())
            with contextlib.suppress(RunSwept):
                writer.publish(draft, run=run, permit=writer.permit(guard))
                self.model.publish(Snapshot(run.run_id, {draft.artifacts[0].path: run.run_id.encode()}))

    @rule(serial=st.integers(min_value=1, max_value=CRASH_LATEST), fault=st.sampled_from(list(Fault)))
    def publish_with_a_fault(self, serial: int, fault: Fault) -> None:
        """A writer that crashes or whose answers are lost: what it left decides, and the chain says which it was."""
        run_id = f"run-{self.numbers + 1}"

        def plan(operation: Operation) -> Fault:
            return fault if operation.serial == serial else Fault.PASS

        doomed = self.factory(by="doomed", store=FaultyStore(self.factory.store, plan))
        before = len(self.model.history)
        try:
            self._publish(None, {}, chain=doomed)
        except (Crashed, AssertionError, Exception):  # noqa: BLE001 - whatever it was told, the pointer knows
            self.factory.clock.advance(120)
            self.chain = self.factory()
            if any(each.run_id == run_id for each in self.chain.list_manifests(1)):
                manifest = self.chain.load_current()
                assert manifest is not None
                if len(self.model.history) == before:
                    self.model.publish(Snapshot(run_id, {manifest.artifacts[0].path: run_id.encode()}))
        self.chain = self.factory()
        self.chain.reconcile(enforce=True)

    # -- what must hold ----------------------------------------------------------------------------------------------

    @invariant()
    def the_history_is_the_models(self) -> None:
        if self.numbers == 0:
            return
        shown = [each.run_id for each in self.chain.list_manifests(limit=1000)]
        assert shown == [each.run_id for each in reversed(self.model.history)]
        current = self.chain.current()
        assert current is not None
        assert self.model.current is not None
        assert current.run_id == self.model.current.run_id

    @invariant()
    def the_tags_are_the_models(self) -> None:
        if self.numbers == 0:
            return
        assert {each.snapshot.run_id: dict(each.tags) for each in self.chain.list_snapshots()} == {
            each.run_id: each.tags for each in self.model.history
        }

    @invariant()
    def every_snapshot_reads_back(self) -> None:
        if self.numbers == 0:
            return
        for each in self.model.history:
            manifest = self.chain.load_manifest(self.chain.find(run_id=each.run_id).manifest_path)
            assert {one.path: self.chain.store.get(one.path).data for one in manifest.artifacts} == each.files

    @invariant()
    def nothing_is_broken(self) -> None:
        if self.numbers:
            assert self.factory.breaks() == []


TestChainMachine = ChainMachine.TestCase
TestChainMachine.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
