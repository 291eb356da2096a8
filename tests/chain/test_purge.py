"""Purge: deletes what was collected, after its grace, all of it, however often it is killed on the way."""

from __future__ import annotations

import contextlib
import os
from functools import partial

import pytest

from holdfast.chain import Chain
from holdfast.chain.purge import GRACE_S_DEFAULT
from holdfast.errors import BadInput, Conflict, HoldfastError, SnapshotCollected
from holdfast.storage import LocalStore, MemoryStore
from holdfast.storage.local_io import temporary_name
from holdfast.testing.clock import SeededRandomness, VirtualClock
from holdfast.testing.faulty import CountingStore, Crashed, Fault, FaultyStore, Operation, Plan
from tests.chain.interleaving import meetings
from tests.chain.publishing import (
    LAYOUTS,
    ChainFactory,
    contents,
    everything,
    keys_below,
    overwrite,
    publish_one,
    write_artifact,
)
from tests.chain.test_history import leave_orphan, publish_many

LEASE_S = 3600.0


def crash_at(serial: int, fault: Fault) -> Plan:
    """The process dies at its how-manieth request."""
    return lambda operation: fault if operation.serial == serial else Fault.PASS


def world(layout_name: str) -> ChainFactory:
    """Four snapshots, an orphan, an abandoned run and its files."""
    factory = ChainFactory(layout=LAYOUTS[layout_name])
    chain = factory()
    publish_many(chain, 4)
    leave_orphan(factory, "crashed")
    write_artifact(chain, chain.begin_run("abandoned", lease_s=LEASE_S), "garbage", b"garbage")
    factory.clock.advance(2 * LEASE_S)
    return factory


def collected_world(layout_name: str) -> ChainFactory:
    """The same: two snapshots and all the garbage are condemned, and nothing is purged."""
    factory = world(layout_name)
    factory().collect(retention=2)
    return factory


def clone(factory: ChainFactory) -> ChainFactory:
    """The same chain in a store of its own."""
    store = MemoryStore()
    for key, data in everything(factory.store).items():
        store.put_new(key, data)
    return ChainFactory(
        layout=factory.layout,
        store=store,
        clock=VirtualClock(factory.clock.now()),
        randomness=SeededRandomness(1),
    )


def collection_of(chain: Chain) -> str:
    ((pending, _),) = chain.pending_collections()
    return pending.collection


def test_nothing_is_deleted_before_its_grace_has_passed(chain: Chain, clock: VirtualClock) -> None:
    """S39: a purge a moment too early deletes nothing; a moment later it deletes all of it; seven days unless told."""
    publish_many(chain, 3)
    condemned = {item.key for item in chain.collect(retention=1).condemned}
    before = everything(chain.store)
    clock.advance(GRACE_S_DEFAULT - 1)
    assert chain.purge().deleted == ()
    assert everything(chain.store) == before
    clock.advance(1)
    done = chain.purge()
    assert {item.key for item in done.deleted} == condemned
    assert not condemned & set(keys_below(chain.store))
    assert done.byte_size == sum(item.byte_size for item in done.deleted) > 0
    assert chain.pending_collections() == []
    assert contents(chain) == {"part-0": b"v2"}
    with pytest.raises(BadInput, match="grace"):
        chain.purge(grace_s=-1)


def test_each_collection_has_its_own_grace(chain: Chain, clock: VirtualClock) -> None:
    """S39: of two collections the older is purged, and the younger can still be restored."""
    publish_many(chain, 3)
    first = chain.collect(retention=2).collection
    clock.advance(100)
    publish_one(chain, run_id="newer")
    second = chain.collect(retention=2).collection
    assert second is not None
    assert chain.purge(grace_s=100).collections == (first,)
    chain.restore(second)
    assert [each.run_id for each in chain.list_manifests()] == ["newer", "run-2", "run-1"]


def test_a_purged_snapshot_cannot_be_restored(chain: Chain) -> None:
    """S39: once purged it is gone for good, and its id is never used again."""
    published = publish_many(chain, 2)
    collection = chain.collect(retention=1).collection
    assert collection is not None
    chain.purge(grace_s=0)
    with pytest.raises(BadInput, match="no collection"):
        chain.restore(collection)
    with pytest.raises(SnapshotCollected):
        chain.load_manifest(published[0].ref)
    assert publish_one(chain).manifest.manifest_id == published[1].manifest.manifest_id + 1


def test_what_became_needed_again_is_spared(chain: Chain) -> None:
    """S39, I6: of two collections that share files the older is restored: the purge of the younger leaves what it
    needs."""
    base = publish_one(chain, b"shared", run_id="first")
    publish_one(chain, {"more": b"more"}, run_id="second", base=base.manifest)
    publish_one(chain, b"third", run_id="third")
    first = chain.collect(retention=2).collection
    assert first is not None
    chain.collect(retention=1)
    chain.restore(first)
    done = chain.purge(grace_s=0)
    assert base.manifest.artifacts[0].path in done.spared
    assert [each.run_id for each in chain.list_manifests()] == ["third", "first"]
    chain.rollback(run_id="first")
    assert contents(chain) == {"part-0": b"shared"}


@pytest.mark.parametrize("layout_name", ["domain", "orchestration"])
def test_a_chain_that_began_as_a_legacy_one_can_be_purged(chain: Chain) -> None:
    """S39, S41: the adopted manifest stays, reported by each collection, and keeps nobody from purging the others."""
    assert chain.layout.mirror_key is not None
    chain.store.put_new(chain.layout.mirror_key, b'{"tables": ["users"]}')
    publish_many(chain, 4)
    plan = chain.collect(retention=2)
    assert len(plan.unreadable) == 1
    done = chain.purge(grace_s=0)
    assert set(done.deleted) == set(plan.condemned)
    assert [each.run_id for each in chain.list_manifests()] == ["run-3", "run-2", "legacy"]


def test_an_unreadable_snapshot_keeps_whatever_it_may_share(chain: Chain, chain_factory: ChainFactory) -> None:
    """S41, I6: outside the window and unreadable, it may name any file that another snapshot named: the purge goes on,
    and those stay; once it is readable again it is whole."""
    base = publish_one(chain, b"shared", run_id="base")
    child = publish_one(chain, {"more": b"more"}, run_id="child", base=base.manifest)
    publish_many(chain, 2)
    failed = chain.begin_run("failed")
    garbage = write_artifact(chain, failed, "garbage", b"garbage")
    failed.fail("no matter")
    good = chain.store.get(child.manifest_path).data
    chain_factory.expect_damage()
    overwrite(chain.store, child.manifest_path, b"{")
    chain.collect(retention=2)
    done = chain.purge(grace_s=0)
    assert base.manifest.artifacts[0].path in done.spared
    assert garbage.path in {item.key for item in done.deleted}
    assert base.manifest_path in {item.key for item in done.deleted}
    assert chain.pending_collections() == []
    overwrite(chain.store, child.manifest_path, good)
    assert chain_factory.breaks() == []
    assert [each.run_id for each in chain.list_manifests()] == ["run-1", "run-0", "child"]


@pytest.mark.parametrize("layout_name", ["kv", "domain", "graph"])
@pytest.mark.parametrize("fault", [Fault.CRASH_BEFORE, Fault.CRASH_AFTER])
def test_a_purge_that_dies_anywhere_is_finished_by_the_next(layout_name: str, fault: Fault) -> None:
    """S39, I6: killed before or after any one of its requests, the chain is whole, and a second purge deletes the
    rest."""
    collected = collected_world(layout_name)
    reference = clone(collected)
    counting = CountingStore(reference.store)
    condemned = {item.key for item in reference(store=counting).purge(grace_s=0).deleted}
    assert len(condemned) > 8
    for serial in range(1, counting.total + 1):
        factory = clone(collected)
        with pytest.raises(Crashed):
            factory(store=FaultyStore(factory.store, crash_at(serial, fault))).purge(grace_s=0)
        assert factory.breaks() == [], serial
        factory().purge(grace_s=0)
        assert factory.breaks() == [], serial
        assert set(keys_below(factory.store)) == set(keys_below(reference.store))
        assert factory().pending_collections() == []
        assert factory().collect(retention=2).is_empty
        publish_one(factory())


@pytest.mark.parametrize("layout_name", ["kv"])
@pytest.mark.parametrize("fault", [Fault.ERROR_BEFORE, Fault.ERROR_AFTER, Fault.ECHO])
def test_a_purge_survives_lost_answers(layout_name: str, fault: Fault) -> None:
    """S39, S17: an answer is lost anywhere: the purge goes on or gives up with an error, and the next one completes
    it."""
    collected = collected_world(layout_name)
    reference = clone(collected)
    counting = CountingStore(reference.store)
    reference(store=counting).purge(grace_s=0)
    for serial in range(1, counting.total + 1):
        factory = clone(collected)
        with contextlib.suppress(HoldfastError):
            factory(store=FaultyStore(factory.store, crash_at(serial, fault))).purge(grace_s=0)
        assert factory.breaks() == [], serial
        factory().purge(grace_s=0)
        assert factory().pending_collections() == []
        assert factory.breaks() == [], serial


def test_a_purge_that_has_begun_cannot_be_restored(chain: Chain, chain_factory: ChainFactory) -> None:
    """S39: files may be gone already, so `restore` is refused from the first moment; the purge can only be finished."""
    publish_many(chain, 3)
    collection = chain.collect(retention=1).collection
    assert collection is not None
    plan = lambda operation: Fault.CRASH_BEFORE if operation.kind == "delete" else Fault.PASS  # noqa: E731
    with pytest.raises(Crashed):
        chain_factory(store=FaultyStore(chain_factory.store, plan)).purge(grace_s=0)
    with pytest.raises(Conflict, match="being purged"):
        chain.restore(collection)
    chain_factory.clock.advance(1)
    assert chain.purge(grace_s=10**6).collections == (collection,), "it was due once, so it is due"
    assert [each.run_id for each in chain.list_manifests()] == ["run-2"]


@pytest.mark.parametrize("layout_name", ["kv", "domain"])
@pytest.mark.parametrize("first", ["purge", "restore"])
def test_a_purge_and_a_restore_never_both_win(layout_name: str, first: str) -> None:
    """S39, I6: one comes in before each request of the other: the snapshots are all back and whole, or all gone."""
    results = set()
    for meeting in meetings(partial(collected_world, layout_name)):
        collection = collection_of(meeting.factory())

        def restore(chain: Chain, collection: str = collection) -> None:
            with contextlib.suppress(Conflict, BadInput):
                chain.restore(collection)

        def purge(chain: Chain) -> None:
            chain.purge(grace_s=0)

        actors = (purge, restore) if first == "purge" else (restore, purge)
        meeting.intrude = partial(actors[1], meeting.factory(by="second"))
        actors[0](meeting.chain())
        assert meeting.factory.breaks() == []
        left = [each.run_id for each in meeting.factory().list_manifests()]
        assert left in (["run-3", "run-2"], ["run-3", "run-2", "run-1", "run-0"])
        results.add(len(left))
    assert results == {2, 4}


@pytest.mark.parametrize("layout_name", ["kv", "domain"])
def test_two_purges_at_once(layout_name: str) -> None:
    """S39: a second purge does all its work before any one request of the first: both end, and everything is gone."""
    for meeting in meetings(partial(collected_world, layout_name)):
        other = meeting.factory(by="second")
        meeting.intrude = partial(_purge, other)
        meeting.chain().purge(grace_s=0)
        assert meeting.factory.breaks() == []
        assert other.pending_collections() == []
        assert other.collect(retention=2).is_empty


def _purge(chain: Chain) -> None:
    chain.purge(grace_s=0)


def _purge_and_publish(chain: Chain) -> None:
    chain.purge(grace_s=0)
    publish_one(chain, b"after", run_id="after")


@pytest.mark.parametrize("layout_name", ["graph", "domain", "orchestration"])
def test_a_purge_that_was_paused_deletes_nothing_new(layout_name: str) -> None:
    """S42, I4, I6: before any one of its requests another purge finishes the job and a new snapshot is published: what
    the first still means to delete, an orphan's key included, is never a key of the new one."""
    for meeting in meetings(partial(collected_world, layout_name)):
        other = meeting.factory(by="second")
        meeting.intrude = partial(_purge_and_publish, other)
        meeting.chain().purge(grace_s=0)
        assert meeting.factory.breaks() == []
        if meeting.met:
            assert contents(other) == {"part-0": b"after"}


@pytest.mark.parametrize("layout_name", ["kv", "domain"])
@pytest.mark.parametrize("die_at", ["tag", "pin"])
def test_a_tag_that_nobody_waited_for_does_not_bring_back_what_is_half_deleted(layout_name: str, die_at: str) -> None:
    """S36, S39, I6: a purge dies after its first delete; somebody tags (or builds on) a snapshot of it and dies before
    being refused; the purge that goes on must not make the half-deleted snapshot history again."""
    factory = world(layout_name)
    chain = factory()
    target = chain.find(run_id="run-0")
    base = chain.load_manifest(target.manifest_path)
    chain.collect(retention=2)
    plan = lambda operation: Fault.CRASH_AFTER if operation.kind == "delete" else Fault.PASS  # noqa: E731
    with pytest.raises(Crashed):
        factory(store=FaultyStore(factory.store, plan)).purge(grace_s=0)
    key = factory.layout.tags_key if die_at == "tag" else factory.layout.run_key("builder")

    def die(operation: Operation) -> Fault:
        return Fault.CRASH_AFTER if operation.key == key and operation.kind in {"put_new", "swap"} else Fault.PASS

    dying = factory(store=FaultyStore(factory.store, die))
    protecting = (
        partial(dying.tag, target, {"keep": "me"})
        if die_at == "tag"
        else partial(dying.begin_run, "builder", base=base)
    )
    with pytest.raises(Crashed):
        protecting()
    factory().purge(grace_s=0)
    assert factory.breaks() == []
    assert [each.run_id for each in chain.list_manifests()] == ["run-3", "run-2"]


def test_stray_temporary_files_are_purged(tmp_path_factory: pytest.TempPathFactory) -> None:
    """S47: what a killed writer left on a file system is shown by the plan and deleted by the purge, once it is old."""
    root = tmp_path_factory.mktemp("stray")
    store = LocalStore(root, durable=False)
    factory = ChainFactory(layout=LAYOUTS["kv"], store=store)
    chain = factory()
    publish_one(chain)
    folder = root / "shards" / "run_id=killed"
    folder.mkdir(parents=True)
    leftover, young = folder / temporary_name(1), folder / temporary_name(2)
    for path, written_at_s in ((leftover, 0.0), (young, factory.clock.now().timestamp())):
        path.write_bytes(b"half")
        os.utime(path, (written_at_s, written_at_s))
    name = leftover.relative_to(root).as_posix()
    assert name not in keys_below(store), "no reader sees it"
    assert chain.plan_purge(grace_s=0).stray_files == (name,)
    assert leftover.exists()
    assert chain.purge(grace_s=0).stray_files == (name,)
    assert not leftover.exists()
    assert young.exists(), "a writer may still be at it"
    assert factory.breaks() == []
