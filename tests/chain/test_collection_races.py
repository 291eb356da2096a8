"""The collector against everybody else, each stopped before each of its requests in turn."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import pytest

from holdfast.chain import Chain, Committed, Manifest, ManifestDraft, Move, Outcome, Run, RunState
from holdfast.chain.runs import read_run
from holdfast.errors import (
    Conflict,
    Fenced,
    HoldfastError,
    InvariantViolation,
    RunSwept,
    SnapshotCollected,
    SnapshotNotFound,
)
from holdfast.testing.faulty import Crashed, Fault, FaultyStore
from tests.chain.interleaving import meetings
from tests.chain.publishing import (
    LAYOUTS,
    ChainFactory,
    contents,
    draft_of,
    everything,
    keys_below,
    publish_one,
    write_artifact,
)
from tests.chain.test_history import leave_orphan, publish_many

LEASE_S = 3600.0
FEW = pytest.mark.parametrize("layout_name", ["kv", "graph", "domain"])


@pytest.fixture
def store_kind() -> str:
    """Races are about the order of requests; what a store makes of one is the store contract's business."""
    return "memory"


def world(layout_name: str, snapshots: int = 3) -> Callable[[], ChainFactory]:
    """Makes a fresh chain with some snapshots in it."""

    def make() -> ChainFactory:
        factory = ChainFactory(layout=LAYOUTS[layout_name])
        publish_many(factory(), snapshots)
        return factory

    return make


def runs_of(chain: Chain) -> list[str]:
    return [each.run_id for each in chain.list_manifests(limit=100)]


@dataclass
class Writer:
    """A writer that has written its files and then paused, perhaps past its lease."""

    chain: Chain
    run: Run
    draft: ManifestDraft
    base: Manifest | None = None

    @classmethod
    def start(cls, chain: Chain, *, base: Manifest | None = None) -> Writer:
        run = chain.begin_run("paused", base=base, lease_s=LEASE_S)
        return cls(chain=chain, run=run, draft=draft_of(chain, run, b"late", base=base), base=base)

    def publish(self) -> Outcome | HoldfastError:
        with self.chain.lock(ttl_s=10 * LEASE_S) as guard:
            try:
                return self.chain.publish(self.draft, run=self.run, permit=self.chain.permit(guard), base=self.base)
            except (Fenced, InvariantViolation) as error:
                return error


def _publish(writer: Writer, told: list[object]) -> None:
    told.append(writer.publish())


def _collect(factory: ChainFactory, *, retention: int, purge: bool = False) -> None:
    """All of a collector's work, by another process."""
    chain = factory(by="collector")
    chain.collect(retention=retention)
    if purge:
        chain.purge(grace_s=0)


def check_whole(factory: ChainFactory, outcome: object) -> None:
    """What was reported is true, and the chain is whole, now and after everything that may be deleted is deleted."""
    for _ in range(2):
        assert ("paused" in runs_of(factory())) == isinstance(outcome, Committed), outcome
        assert factory.breaks() == []
        factory().reconcile(enforce=True)
        assert factory.breaks() == []
        factory().collect(retention=2)
        factory().purge(grace_s=0)


def test_a_swept_run_can_never_be_published(chain: Chain, chain_factory: ChainFactory) -> None:
    """S42, I7: its lease ran out, the collector swept it; the zombie wakes up, is refused, and nothing of it is
    visible."""
    publish_many(chain, 2)
    writer = Writer.start(chain_factory(by="zombie"))
    chain_factory.clock.advance(LEASE_S + 1)
    assert chain.collect(retention=1).runs == ("paused",)
    assert isinstance(writer.publish(), RunSwept)
    chain.purge(grace_s=0)
    assert isinstance(writer.publish(), RunSwept | InvariantViolation), "its files are gone, and so is its record"
    assert runs_of(chain) == ["run-1"]
    with pytest.raises(RunSwept):
        writer.run.renew()
    with pytest.raises(RunSwept):
        writer.run.claim(f"{chain.layout.artifact_prefixes[0]}/more")


@FEW
def test_a_zombie_and_the_collector_wherever_the_collector_comes_in(layout_name: str) -> None:
    """S42, I7: a writer past its lease publishes; a whole collection and purge happen before any one of its requests:
    it is visible and whole, or it was refused."""
    outcomes = set()
    for meeting in meetings(world(layout_name)):
        chain = meeting.chain()
        writer = Writer.start(chain)
        meeting.factory.clock.advance(LEASE_S + 1)
        meeting.intrude = partial(_collect, meeting.factory, retention=1, purge=True)
        outcome = writer.publish()
        outcomes.add(type(outcome))
        check_whole(meeting.factory, outcome)
    assert outcomes >= {Committed, RunSwept}


@FEW
def test_a_zombie_and_the_collector_wherever_the_zombie_comes_in(layout_name: str) -> None:
    """S42, I7: the collector works from what it has listed; the zombie publishes before any one of its requests."""
    outcomes = set()
    for meeting in meetings(world(layout_name)):
        writer = Writer.start(meeting.factory(by="zombie"))
        meeting.factory.clock.advance(LEASE_S + 1)
        told: list[object] = []
        meeting.intrude = partial(_publish, writer, told)
        meeting.chain().collect(retention=1)
        if meeting.met:
            outcomes.add(type(told[0]))
            check_whole(meeting.factory, told[0])
    assert outcomes == {Committed, RunSwept}


@FEW
def test_a_zombie_that_dies_right_after_its_swap_is_not_collected(layout_name: str) -> None:
    """S42, I7: the same, and the zombie never learns that it was published: a sweep of its run is taken back."""
    for meeting in meetings(world(layout_name)):
        key = meeting.factory.layout.pointer_key
        plan = lambda operation, key=key: (  # noqa: E731
            Fault.CRASH_AFTER if operation.kind == "swap" and operation.key == key else Fault.PASS
        )
        writer = Writer.start(meeting.factory(by="zombie", store=FaultyStore(meeting.factory.store, plan)))
        meeting.factory.clock.advance(LEASE_S + 1)
        died: list[bool] = []

        def publish(writer: Writer = writer, died: list[bool] = died) -> None:
            try:
                died.append(isinstance(writer.publish(), Committed))
            except Crashed:
                died.append(True)

        meeting.intrude = publish
        meeting.chain().collect(retention=1)
        if meeting.met:
            chain = meeting.factory()
            chain.reconcile(enforce=True)
            assert ("paused" in runs_of(chain)) == died[0]
            assert meeting.factory.breaks() == []
            chain.purge(grace_s=0)
            assert meeting.factory.breaks() == []
            if died[0]:
                assert contents(chain) == {"part-0": b"late"}
                found = read_run(chain.handle, "paused")
                assert found is not None
                assert found[0].state is not RunState.SWEPT


@FEW
def test_a_live_run_is_never_collected(layout_name: str) -> None:
    """S42: within its lease a run publishes, whatever is collected and purged around it, before any of its requests."""
    for meeting in meetings(world(layout_name)):
        meeting.intrude = partial(_collect, meeting.factory, retention=1, purge=True)
        writer = Writer.start(meeting.chain())
        assert isinstance(writer.publish(), Committed)
        assert contents(meeting.factory()) == {"part-0": b"late"}
        assert meeting.factory.breaks() == []


def test_a_renewed_lease_keeps_a_run(chain: Chain, chain_factory: ChainFactory) -> None:
    """S42: a run that renews in time is kept for as long as it does; the collector judges by the lease, not by age."""
    publish_one(chain)
    writer = Writer.start(chain_factory())
    for _ in range(3):
        chain_factory.clock.advance(LEASE_S - 1)
        writer.run.renew()
        assert chain.collect(retention=1).is_empty
    chain_factory.clock.advance(LEASE_S - 1)
    assert isinstance(writer.publish(), Committed)


def test_a_published_run_is_kept_whatever_its_record_and_its_lease_say(
    chain: Chain, chain_factory: ChainFactory
) -> None:
    """S42, S20: a publish writes no mark into its run record; the log says it was published, so it stays."""
    publish_many(chain, 2)
    outcome = Writer.start(chain_factory()).publish()
    assert isinstance(outcome, Committed)
    assert outcome.repair_pending == ()
    chain_factory.clock.advance(10 * LEASE_S)
    chain.collect(retention=1)
    chain.purge(grace_s=0)
    assert runs_of(chain) == ["paused"]
    assert contents(chain) == {"part-0": b"late"}
    found = read_run(chain.handle, "paused")
    assert found is not None
    assert found[0].state is RunState.WRITING


def _tag(chain: Chain, target: Move) -> bool:
    try:
        chain.tag(target, {"keep": "me"})
    except SnapshotCollected:
        return False
    return True


def _tag_and_tell(chain: Chain, target: Move, told: list[bool]) -> None:
    told.append(_tag(chain, target))


@FEW
def test_a_tagger_and_the_collector_wherever_the_tagger_comes_in(layout_name: str) -> None:
    """S36, S42: a tag that was accepted keeps its snapshot, whenever the collector had looked; one that came late is
    refused."""
    answers = set()
    for meeting in meetings(world(layout_name)):
        tagger = meeting.factory(by="tagger")
        target = tagger.find(run_id="run-0")
        told: list[bool] = []
        meeting.intrude = partial(_tag_and_tell, tagger, target, told)
        meeting.chain().collect(retention=1)
        meeting.factory().purge(grace_s=0)
        if meeting.met:
            answers.add(told[0])
            assert ("run-0" in runs_of(tagger)) == told[0]
            assert [each.snapshot.run_id for each in tagger.list_snapshots("keep")] == (["run-0"] if told[0] else [])
            assert meeting.factory.breaks() == []
    assert True in answers


@FEW
def test_a_tagger_and_the_collector_wherever_the_collector_comes_in(layout_name: str) -> None:
    """S36, S42: the same with the collection (and the purge) before any one of the tagger's requests."""
    answers = set()
    for meeting in meetings(world(layout_name)):
        target = meeting.factory().find(run_id="run-0")
        meeting.intrude = partial(_collect, meeting.factory, retention=1, purge=True)
        accepted = _tag(meeting.chain(), target)
        answers.add(accepted)
        assert ("run-0" in runs_of(meeting.factory())) == accepted
        assert meeting.factory.breaks() == []
    assert answers == {True, False}


@FEW
@pytest.mark.parametrize("first", ["builder", "collector"])
def test_a_base_that_was_accepted_is_never_collected(layout_name: str, first: str) -> None:
    """S40, S42: a run pins the snapshot it builds on. Whoever comes first, an accepted base stays whole until the
    publish."""
    answers = set()
    for meeting in meetings(world(layout_name)):
        base = meeting.factory().load_manifest(meeting.factory().find(run_id="run-0").manifest_path)
        begun: list[Writer] = []

        def begin(chain: Chain, base: Manifest = base, begun: list[Writer] = begun) -> None:
            try:
                begun.append(Writer.start(chain, base=base))
            except SnapshotCollected:
                return

        def collect(chain: Chain) -> None:
            chain.collect(retention=1)
            chain.purge(grace_s=0)

        actors = (begin, collect) if first == "builder" else (collect, begin)
        meeting.intrude = partial(actors[1], meeting.factory(by="second"))
        actors[0](meeting.chain())
        if meeting.met:
            answers.add(bool(begun))
        for writer in begun:
            assert isinstance(writer.publish(), Committed)
        assert meeting.factory.breaks() == []
    assert answers == {True, False}


@FEW
def test_two_collectors_at_once(layout_name: str) -> None:
    """S42: a second collector does its whole work before any one request of the first: the same is kept, and
    restorable."""
    for meeting in meetings(world(layout_name, snapshots=5)):
        factory = meeting.factory
        factory().begin_run("abandoned", lease_s=LEASE_S)
        factory.clock.advance(LEASE_S + 1)
        before = set(keys_below(factory.store))
        meeting.intrude = partial(_collect, factory, retention=3)
        try:
            meeting.chain().collect(retention=2)
        except Conflict:
            factory().collect(retention=2)
        assert runs_of(factory()) == ["run-4", "run-3"]
        assert factory.breaks() == []
        assert before <= set(keys_below(factory.store))
        for pending, _ in factory().pending_collections():
            factory().restore(pending.collection)
        assert runs_of(factory()) == ["run-4", "run-3", "run-2", "run-1", "run-0"]
        assert factory.breaks() == []


@FEW
def test_a_publisher_and_the_collector_wherever_the_publisher_comes_in(layout_name: str) -> None:
    """S42: whole publishes and rollbacks before any one request of a collection: nothing that is history loses a
    byte."""
    for meeting in meetings(world(layout_name, snapshots=4)):
        other = meeting.factory(by="publisher")

        def work(other: Chain = other) -> None:
            with contextlib.suppress(SnapshotNotFound):  # by now it may be collected
                other.rollback(run_id="run-0")
            publish_one(other, b"new", run_id="new")
            other.rollback(run_id="run-1")

        meeting.intrude = work
        meeting.chain().collect(retention=3)
        meeting.factory().purge(grace_s=0)
        assert meeting.factory.breaks() == []
        if meeting.met:
            assert contents(other) == {"part-0": b"v1"}
            assert "new" in runs_of(other)


@pytest.mark.parametrize("layout_name", ["graph", "domain", "orchestration"])
def test_the_id_of_a_condemned_orphan_is_never_used_again(chain: Chain, chain_factory: ChainFactory) -> None:
    """S42, I4: the orphan's key is about to be deleted, so the next publish takes an id above it, and survives the
    purge."""
    publish_many(chain, 2)
    orphan = leave_orphan(chain_factory, "crashed")
    chain_factory.clock.advance(10 * LEASE_S)
    plan = chain.collect(retention=2)
    assert orphan in {item.key for item in plan.condemned}
    after = publish_one(chain, b"after")
    assert after.manifest_path > orphan
    chain.purge(grace_s=0)
    assert orphan not in everything(chain.store)
    assert contents(chain) == {"part-0": b"after"}


def test_a_run_may_have_the_id_of_one_that_was_purged(chain: Chain, chain_factory: ChainFactory) -> None:
    """S42: attempts never share a key, so a second run of the same name is untouched by what was condemned of the
    first."""
    publish_one(chain)
    first = chain.begin_run("nightly", lease_s=LEASE_S)
    old = write_artifact(chain, first, "part-0", b"old")
    first.fail("disk full")
    chain.collect(retention=1)
    chain.purge(grace_s=0)
    outcome = publish_one(chain, b"new", run_id="nightly")
    assert outcome.manifest.artifacts[0].path != old.path
    chain_factory.clock.advance(LEASE_S + 1)
    assert chain.collect(retention=2).is_empty
    assert contents(chain) == {"part-0": b"new"}
