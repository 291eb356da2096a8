"""Collection: what is kept, what goes, what stops it, and that it can be taken back."""

from __future__ import annotations

import pytest

from holdfast.chain import Chain, Committed, ManifestDraft, ManifestRef
from holdfast.errors import BadInput, CorruptRecord, InvariantViolation, NotAChain, SnapshotCollected
from holdfast.testing.clock import VirtualClock
from tests.chain.publishing import ChainFactory, contents, everything, overwrite, publish_one, write_artifact
from tests.chain.test_history import leave_orphan, publish_many

LEASE_S = 3600.0


def kept(chain: Chain) -> list[str]:
    return [each.run_id for each in chain.list_manifests(limit=100)]


def collected(chain: Chain, retention: int) -> str:
    """Collect something, and return what `restore` takes."""
    collection = chain.collect(retention=retention).collection
    assert collection is not None
    return collection


def test_retention_keeps_exactly_the_newest(chain: Chain) -> None:
    """S40: retention 3 of ten snapshots keeps v8, v9 and v10, and nothing else, now and after the purge."""
    publish_many(chain, 10)
    plan = chain.collect(retention=3)
    assert [move.run_id for move in plan.kept] == ["run-9", "run-8", "run-7"]
    assert [move.run_id for move in plan.snapshots] == [f"run-{number}" for number in range(6, -1, -1)]
    assert kept(chain) == ["run-9", "run-8", "run-7"]
    if chain.layout.name == "graph":
        assert [each.ref for each in chain.list_manifests()] == ["000010", "000009", "000008"]
    chain.purge(grace_s=0)
    assert kept(chain) == ["run-9", "run-8", "run-7"]
    assert {key.split("run_id=")[1].split("/")[0] for key in everything(chain.store) if "part-0" in key} == {
        "run-9",
        "run-8",
        "run-7",
    }


@pytest.mark.parametrize("store_kind", ["memory"])
@pytest.mark.parametrize("retention", [0, -1])
def test_a_retention_of_nothing_is_refused(chain: Chain, retention: int) -> None:
    """S40: retention=0 would leave nothing to roll back to; neither the plan nor the collection accepts it."""
    publish_one(chain)
    before = everything(chain.store)
    for call in (chain.collect, chain.plan_collection):
        with pytest.raises(BadInput, match="keep at least 1"):
            call(retention=retention)
    assert everything(chain.store) == before


def test_an_empty_place_has_nothing_to_collect(chain: Chain) -> None:
    """S39: without a pointer there is no telling what is needed, so the collector does not begin."""
    with pytest.raises(NotAChain):
        chain.collect(retention=1)


def test_the_pointer_target_is_kept_after_a_rollback(chain: Chain) -> None:
    """S40: rolled back to v2 of ten, v2 stays besides the newest three, and is still whole after the purge."""
    publish_many(chain, 10)
    chain.rollback(run_id="run-1")
    chain.collect(retention=3)
    chain.purge(grace_s=0)
    assert kept(chain) == ["run-9", "run-8", "run-7", "run-1"]
    assert contents(chain) == {"part-0": b"v1"}
    assert publish_one(chain).manifest.manifest_id == chain.layout.first_id + 10


def test_tagged_snapshots_are_kept(chain: Chain) -> None:
    """S40: a tag at birth or later keeps a snapshot outside the window, whole."""
    publish_one(chain, b"born", run_id="born", tags={"release": "1"})
    publish_many(chain, 4)
    chain.tag(chain.find(run_id="run-0"), {"audit": "yes"})
    chain.collect(retention=2)
    chain.purge(grace_s=0)
    assert kept(chain) == ["run-3", "run-2", "run-0", "born"]
    chain.rollback(run_id="born")
    assert contents(chain) == {"part-0": b"born"}


def test_what_a_kept_snapshot_shares_is_kept(chain: Chain) -> None:
    """S40: the artifacts that a kept snapshot took over from a collected one stay; those that it did not go."""
    base = publish_one(chain, {"shared": b"shared", "own": b"own"}, run_id="base").manifest
    run = chain.begin_run("child", base=base)
    shared = next(each for each in base.artifacts if each.path.endswith("shared"))
    with chain.lock() as guard:
        new = write_artifact(chain, run, "new", b"new")
        draft = ManifestDraft(artifacts=(shared, new))
        assert isinstance(chain.publish(draft, run=run, permit=chain.permit(guard), base=base), Committed)
    plan = chain.collect(retention=1)
    assert [item.key.rpartition("/")[2] for item in plan.condemned if item.what == "artifact"] == ["own"]
    chain.purge(grace_s=0)
    assert contents(chain) == {"shared": b"shared", "new": b"new"}


def test_collecting_deletes_nothing(chain: Chain) -> None:
    """S39: the first phase only takes out of sight: every object is there, and `restore` brings all of it back."""
    publish_many(chain, 5)
    before = everything(chain.store)
    listed: list[ManifestRef] = chain.list_manifests()
    collection = collected(chain, 2)
    assert set(before) <= set(everything(chain.store))
    assert kept(chain) == ["run-4", "run-3"]
    record = chain.restore(collection)
    assert len(record.snapshots) == 3
    assert chain.list_manifests() == listed
    for each in listed:
        assert chain.load_manifest(each.ref).run_id == each.run_id
    with pytest.raises(BadInput, match="no collection"):
        chain.restore(collection)
    assert chain.collect(retention=2).collection != collection
    assert kept(chain) == ["run-4", "run-3"]


def test_a_dry_run_writes_nothing(chain: Chain, chain_factory: ChainFactory, clock: VirtualClock) -> None:
    """S39: planning a collection and a purge shows what they would do, and changes no byte."""
    publish_many(chain, 4)
    chain.begin_run("abandoned", lease_s=LEASE_S)
    clock.advance(LEASE_S + 1)
    before = everything(chain.store)
    planned = chain.plan_collection(retention=1)
    assert everything(chain.store) == before
    assert [move.run_id for move in planned.snapshots] == ["run-2", "run-1", "run-0"]
    assert planned.runs == ("abandoned",)
    assert planned.byte_size > 0
    assert planned.collection is None
    done = chain.collect(retention=1)
    assert (done.snapshots, done.runs, done.condemned) == (planned.snapshots, planned.runs, planned.condemned)
    before = everything(chain.store)
    purge = chain.plan_purge(grace_s=0)
    assert everything(chain.store) == before
    assert set(purge.deleted) == set(done.condemned)
    assert set(chain.purge(grace_s=0).deleted) == set(done.condemned)


def test_a_collection_with_nothing_to_do_writes_nothing(chain: Chain) -> None:
    """S39: the second of two collections finds nothing, and does not even touch the pointer."""
    publish_many(chain, 3)
    chain.collect(retention=2)
    before = everything(chain.store)
    assert chain.collect(retention=2).is_empty
    assert everything(chain.store) == before


def test_gaps_in_the_ids_do_not_stop_a_collection(chain: Chain, chain_factory: ChainFactory) -> None:
    """S41: orphans that were stepped over and purged snapshots leave gaps; the window counts snapshots, not ids."""
    publish_many(chain, 2)
    leave_orphan(chain_factory, "crash-1")
    leave_orphan(chain_factory, "crash-2")
    publish_one(chain, run_id="after-gap")
    chain.collect(retention=2)
    chain.purge(grace_s=0)
    publish_one(chain, run_id="newest")
    chain.collect(retention=2)
    chain.purge(grace_s=0)
    assert kept(chain) == ["newest", "after-gap"]


@pytest.mark.parametrize("damage", ["missing", "malformed"])
def test_an_unreadable_manifest_in_the_window_stops_the_collection(
    chain: Chain, chain_factory: ChainFactory, damage: str
) -> None:
    """S41: what it needs cannot be known, so nothing is collected: fail closed."""
    published = publish_many(chain, 5)
    chain_factory.expect_damage()
    if damage == "missing":
        chain.store.delete([published[3].manifest_path])
    else:
        overwrite(chain.store, published[3].manifest_path, b"{")
    before = everything(chain.store)
    with pytest.raises(InvariantViolation, match="nothing was collected") as stopped:
        chain.collect(retention=3)
    assert published[3].ref in str(stopped.value)
    assert everything(chain.store) == before


def test_an_unreadable_manifest_outside_the_window_is_reported_and_stays(
    chain: Chain, chain_factory: ChainFactory
) -> None:
    """S41: the collection goes on without it; it stays where it is, and so does everything that only it may name."""
    published = publish_many(chain, 5)
    chain_factory.expect_damage()
    overwrite(chain.store, published[1].manifest_path, b"{")
    plan = chain.collect(retention=2)
    assert [published[1].manifest_path in problem for problem in plan.unreadable] == [True]
    assert [move.run_id for move in plan.snapshots] == ["run-2", "run-0"]
    condemned = {item.key for item in plan.condemned}
    assert published[1].manifest_path not in condemned
    assert not condemned & {artifact.path for artifact in published[1].manifest.artifacts}
    assert kept(chain) == ["run-4", "run-3", "run-1"]


def test_a_collection_is_logged(chain: Chain, clock: VirtualClock) -> None:
    """S44: its record says who and when, each object with its place and size, and the last snapshot that named it."""
    published = publish_many(chain, 3)
    abandoned = chain.begin_run("abandoned", lease_s=LEASE_S)
    garbage = write_artifact(chain, abandoned, "garbage", b"garbage")
    clock.advance(LEASE_S + 1)
    collection = collected(chain, 1)
    ((pending, record),) = chain.pending_collections()
    assert (pending.collection, record.collection) == (collection, collection)
    assert (record.by, record.retention, record.collected_at) == ("writer", 1, clock.now())
    assert record.snapshots == (published[1].manifest.manifest_id, published[0].manifest.manifest_id)
    assert record.runs == ("abandoned",)
    logged = {item.key: item for item in record.condemned}
    for outcome in published[:2]:
        (artifact,) = outcome.manifest.artifacts
        item = logged[artifact.path]
        assert (item.what, item.byte_size, item.last_id) == ("artifact", 2, outcome.manifest.manifest_id)
        assert logged[outcome.manifest_path].what == "manifest"
    assert (logged[garbage.path].byte_size, logged[garbage.path].last_id) == (7, None)
    assert logged[chain.layout.run_key("abandoned")].what == "run"
    stored = chain.store.get(chain.layout.collection_key(collection)).data
    chain.purge(grace_s=0)
    assert chain.store.get(chain.layout.collection_key(collection)).data == stored, "the log outlives what was deleted"


def test_a_shared_artifact_is_logged_with_the_last_snapshot_that_named_it(chain: Chain) -> None:
    """S44: named by three snapshots that leave together, it is logged with the newest of them."""
    first = publish_one(chain, b"shared", run_id="first")
    second = publish_one(chain, {"b": b"b"}, run_id="second", base=first.manifest)
    publish_one(chain, b"newest", run_id="newest")
    ((_, record),) = (collected(chain, 1), chain.pending_collections())[1]
    (artifact,) = first.manifest.artifacts
    assert [item.last_id for item in record.condemned if item.key == artifact.path] == [second.manifest.manifest_id]


def test_what_is_collected_is_out_of_sight(chain: Chain) -> None:
    """S39: a collected snapshot is not history, cannot be loaded, tagged, built on or pointed to."""
    first = publish_one(chain, run_id="first")
    move = chain.find()
    publish_one(chain, run_id="second")
    chain.collect(retention=1)
    assert kept(chain) == ["second"]
    assert [each.snapshot.run_id for each in chain.list_snapshots()] == ["second"]
    with pytest.raises(SnapshotCollected):
        chain.load_manifest(first.ref)
    with pytest.raises(SnapshotCollected):
        chain.tag(move, {"a": "b"})
    with pytest.raises(SnapshotCollected):
        chain.begin_run("child", base=first.manifest)
    with pytest.raises(SnapshotCollected):
        chain.rollback(ref=first.ref)


def test_the_files_of_a_run_that_failed_are_garbage_at_once(chain: Chain) -> None:
    """S42: a run that says it will not publish goes without waiting for its lease; a live one beside it does not."""
    publish_one(chain, run_id="good")
    failed, live = chain.begin_run("failed"), chain.begin_run("live")
    gone = write_artifact(chain, failed, "gone", b"gone")
    stays = write_artifact(chain, live, "stays", b"stays")
    failed.fail("a task ran out of memory")
    plan = chain.collect(retention=1)
    assert {item.key for item in plan.condemned} == {gone.path, chain.layout.run_key("failed")}
    chain.purge(grace_s=0)
    assert gone.path not in everything(chain.store)
    assert stays.path in everything(chain.store)


def test_objects_that_nobody_claims_are_garbage(chain: Chain) -> None:
    """S42: a file where artifacts live that no manifest names and no run claims goes, whoever put it there."""
    publish_one(chain)
    stray = f"{chain.layout.artifact_prefixes[0]}/left-behind.bin"
    chain.store.upload(stray, [b"?"])
    assert [item.key for item in chain.collect(retention=1).condemned] == [stray]


def test_a_run_record_that_a_power_cut_left_empty_stops_nobody(chain: Chain) -> None:
    """S47, S42: run records are not waited for on disk; an empty one is garbage, and so is what its run wrote."""
    publish_one(chain, b"one")
    run = chain.begin_run("cut-off")
    path = write_artifact(chain, run, "part", b"never published").path
    overwrite(chain.store, chain.layout.run_key("cut-off"), b"")
    with pytest.raises(CorruptRecord):
        run.require_writing()
    chain.collect(retention=1)
    chain.purge(grace_s=0)
    assert chain.layout.run_key("cut-off") not in everything(chain.store)
    assert path not in everything(chain.store)
