"""What was visible, when; and moving the pointer back and forth."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.chain import Chain, Committed, kv_layout
from holdfast.errors import BadInput, Conflict, NotAChain, SnapshotCollected, SnapshotNotFound
from holdfast.storage import LocalStore, MemoryStore, ObjectStore, Version
from holdfast.testing.clock import VirtualClock
from holdfast.testing.faulty import CountingStore, Crashed, Fault, FaultyStore
from tests.chain.publishing import ChainFactory, contents, everything, keys_below, publish_one, try_publish


def leave_orphan(factory: ChainFactory, run_id: str) -> str:
    """A writer dies between its manifest and the pointer; the manifest it leaves behind."""
    key = factory.layout.pointer_key
    before = set(keys_below(factory.store, factory.layout.manifest_prefix))
    plan = lambda operation: (  # noqa: E731
        Fault.CRASH_BEFORE if operation.kind == "swap" and operation.key == key else Fault.PASS
    )
    with pytest.raises(Crashed):
        try_publish(factory(store=FaultyStore(factory.store, plan)), b"orphan", run_id=run_id)
    (orphan,) = set(keys_below(factory.store, factory.layout.manifest_prefix)) - before
    return orphan


def publish_many(chain: Chain, count: int) -> list[Committed]:
    with chain.lock(ttl_s=1e6) as guard:
        return [
            publish_one(chain, f"v{number}".encode(), guard=guard, run_id=f"run-{number}") for number in range(count)
        ]


def test_history_is_newest_first_and_limited(chain: Chain) -> None:
    """S32: `list_manifests` shows the newest ten first; each ref has its run and time, and loads that very manifest."""
    assert chain.list_manifests() == []
    assert chain.current() is None
    assert chain.load_current() is None
    published = publish_many(chain, 12)
    listed = chain.list_manifests()
    assert [each.run_id for each in listed] == [f"run-{number}" for number in range(11, 1, -1)]
    assert [each.run_id for each in chain.list_manifests(limit=2)] == ["run-11", "run-10"]
    assert len(chain.list_manifests(limit=100)) == 12
    assert listed[0] == chain.current()
    for each, outcome in zip(listed, reversed(published), strict=False):
        assert each.ref == outcome.ref
        assert each.published_at == outcome.manifest.published_at
        assert chain.load_manifest(each.ref) == outcome.manifest
    assert chain.load_current() == published[-1].manifest


def test_an_orphan_is_not_history(chain: Chain, chain_factory: ChainFactory) -> None:
    """S32a: a manifest that no pointer ever named is not listed, not found, not loaded and not rolled back to."""
    publish_many(chain, 2)
    orphan = chain.layout.ref_of(leave_orphan(chain_factory, "crashed"))
    assert [each.run_id for each in chain.list_manifests()] == ["run-1", "run-0"]
    with pytest.raises(SnapshotNotFound, match="ever visible"):
        chain.load_manifest(orphan)
    with pytest.raises(SnapshotNotFound):
        chain.find(run_id="crashed")
    with pytest.raises(SnapshotNotFound):
        chain.set_current(orphan)
    publish_one(chain, run_id="after")
    assert [each.run_id for each in chain.list_manifests()] == ["after", "run-1", "run-0"]
    with pytest.raises(SnapshotNotFound):
        chain.rollback(ref=orphan)


def test_what_was_rolled_back_is_history(chain: Chain) -> None:
    """S32a: a snapshot that was visible for a moment stays in the history, however it was taken back."""
    published = publish_many(chain, 3)
    chain.rollback(offset=2)
    assert [each.run_id for each in chain.list_manifests()] == ["run-2", "run-1", "run-0"]
    assert chain.load_manifest(published[2].ref) == published[2].manifest
    current = chain.current()
    assert current is not None
    assert current.run_id == "run-0"


@pytest.mark.parametrize("by", ["nothing", "ref", "run_id", "offset"])
def test_rollback_by_ref_run_or_offset(chain: Chain, by: str) -> None:
    """S35: each way of naming a snapshot leads the pointer to it; nothing is deleted, and what was left is named."""
    published = publish_many(chain, 4)
    before = everything(chain.store)
    match by:
        case "ref":
            done = chain.rollback(ref=published[1].ref, why="bad rows")
        case "run_id":
            done = chain.rollback(run_id="run-1", why="bad rows")
        case "offset":
            done = chain.rollback(offset=2, why="bad rows")
        case _:
            chain.rollback()
            done = chain.rollback(why="bad rows")
    assert done.current.run_id == "run-1"
    assert done.left.run_id == ("run-2" if by == "nothing" else "run-3")
    assert done.repair_pending == ()
    assert contents(chain) == {"part-0": b"v1"}
    assert set(everything(chain.store)) == set(before)
    move = chain.handle.read_pointer()
    assert move is not None
    assert (move.pointer.last_move.why, move.pointer.last_move.by) == ("bad rows", "writer")


def test_a_rollback_can_be_undone_step_by_step(chain: Chain) -> None:
    """S35: two rollbacks are undone by two forwards, in order; then there is nothing left to undo."""
    publish_many(chain, 3)
    chain.rollback()
    chain.rollback()
    assert contents(chain) == {"part-0": b"v0"}
    assert chain.forward().current.run_id == "run-1"
    assert chain.forward().current.run_id == "run-2"
    assert contents(chain) == {"part-0": b"v2"}
    with pytest.raises(SnapshotNotFound, match="nothing to roll forward"):
        chain.forward()
    chain.rollback(offset=2)
    assert chain.forward().current.run_id == "run-2"
    assert [each.run_id for each in chain.list_manifests()] == ["run-2", "run-1", "run-0"]


def test_a_publish_ends_what_can_be_rolled_forward(chain: Chain) -> None:
    """S35: after a new publish the older rollback is settled: `forward` refuses, a rollback by ref still works."""
    published = publish_many(chain, 2)
    chain.rollback()
    publish_one(chain, b"new", run_id="new")
    with pytest.raises(SnapshotNotFound, match="nothing was rolled back"):
        chain.forward()
    assert chain.set_current(published[1].ref).current.run_id == "run-1"
    assert contents(chain) == {"part-0": b"v1"}


def test_a_rollback_to_what_never_was_is_refused(chain: Chain) -> None:
    """S35: an unknown ref, run or offset moves nothing; neither does a call that names two of them."""
    with pytest.raises(NotAChain):
        chain.rollback()
    first = publish_one(chain)
    before = everything(chain.store)
    with pytest.raises(SnapshotNotFound, match="no earlier snapshot"):
        chain.rollback()
    with pytest.raises(SnapshotNotFound):
        chain.rollback(run_id="never-run")
    with pytest.raises(SnapshotNotFound):
        chain.rollback(offset=1)
    with pytest.raises(BadInput, match="negative"):
        chain.rollback(offset=-1)
    with pytest.raises(BadInput, match="not ref and offset"):
        chain.rollback(ref=first.ref, offset=0)
    with pytest.raises(BadInput, match="not a snapshot ref"):
        chain.rollback(ref="../../etc/passwd")
    unknown = (
        "2020-01-01T00:00:00.000000Z_run_id=nobody" if chain.layout.timed_manifests else chain.layout.ref_of("999999")
    )
    with pytest.raises(SnapshotNotFound):
        chain.rollback(ref=unknown)
    assert everything(chain.store) == before


def test_the_publish_after_a_rollback_continues_the_line(chain: Chain) -> None:
    """S35, S7, I4: it takes the highest id ever published + 1; its parent is what is visible, not what is newest."""
    published = publish_many(chain, 3)
    chain.rollback(run_id="run-0")
    after = publish_one(chain, b"after")
    assert after.manifest.manifest_id == published[2].manifest.manifest_id + 1
    assert after.manifest.parent_hash == published[0].manifest_hash
    assert after.manifest.previous_manifest_path == published[0].manifest_path
    assert chain.rollback().current.run_id == "run-2", "the one published before it"


def test_a_rollback_that_lost_against_a_publish_says_who_won(chain: Chain, chain_factory: ChainFactory) -> None:
    """S35, S19, I8: somebody publishes between look and move: the rollback gives up and hides nothing, also while the
    clock stands still and gives both writers the same time."""
    publish_many(chain, 2)
    rival = chain_factory(by="rival")
    published: list[Committed] = []

    class Racing(CountingStore):
        def swap(self, key: str, data: bytes, *, expected: Version, durable: bool = True) -> Version:
            if key == chain.layout.pointer_key and not published:
                published.append(publish_one(rival, b"rival"))
            return super().swap(key, data, expected=expected, durable=durable)

    with pytest.raises(Conflict, match="'rival' moved the pointer first"):
        chain_factory(store=Racing(chain_factory.store)).rollback()
    assert contents(chain) == {"part-0": b"rival"}


def test_a_rollback_names_what_was_built_from_it(store_kind: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """S35: everything published downstream is named, through a second and a third chain, and whether it is visible."""

    def place(name: str) -> ObjectStore:
        return MemoryStore() if store_kind == "memory" else LocalStore(tmp_path_factory.mktemp(name), durable=False)

    factories = {
        name: ChainFactory(layout=kv_layout(), store=place(name)) for name in ("raw", "users", "graph", "other")
    }
    raw, users, graph, other = (factory() for factory in factories.values())
    publish_one(raw, b"good", run_id="raw-good")
    publish_one(users, run_id="users-good", inputs=(raw.pin(),))
    publish_one(raw, b"bad", run_id="raw-bad")
    publish_one(users, run_id="users-bad", inputs=(raw.pin(),))
    publish_one(graph, run_id="graph-bad", inputs=(users.pin(),))
    publish_one(graph, run_id="graph-good", inputs=(users.pin(users.list_manifests()[1]),))
    publish_one(other, run_id="other", inputs=(other.pin(),) if other.current() else ())
    done = raw.rollback(downstream_in=[users.handle, graph.handle, other.handle])
    named = {(each.chain, each.snapshot.run_id): each for each in done.downstream}
    assert set(named) == {(users.handle.identity, "users-bad"), (graph.handle.identity, "graph-bad")}
    assert named[users.handle.identity, "users-bad"].visible
    assert named[users.handle.identity, "users-bad"].built_from == done.left.ref
    assert not named[graph.handle.identity, "graph-bad"].visible, "graph-good was published after it"
    assert all(factory.breaks() == [] for factory in factories.values())


@pytest.mark.parametrize("store_kind", ["memory"])
def test_a_long_history_is_found_across_segments_of_the_log(chain: Chain, chain_factory: ChainFactory) -> None:
    """S32, S35: 120 snapshots are listed in order, and found by offset, run, ref and time however old they are."""
    published = publish_many(chain, 120)
    assert [each.run_id for each in chain.list_manifests(limit=1000)] == [
        f"run-{number}" for number in range(119, -1, -1)
    ]
    for number in (0, 15, 16, 31, 32, 88, 103, 119):
        expected = published[number].manifest
        assert chain.find(offset=119 - number).run_id == f"run-{number}"
        assert chain.find(run_id=f"run-{number}").target_id == expected.manifest_id
        assert chain.load_manifest(published[number].ref) == expected
        assert chain.find(at=expected.published_at).target_id == expected.manifest_id
    counting = CountingStore(chain_factory.store)
    chain_factory(store=counting).find(ref=published[3].ref)
    assert counting.total <= 3, "a manifest says where its move is: pointer, manifest, segment"
    assert chain.rollback(run_id="run-3").current.run_id == "run-3"
    assert publish_one(chain).manifest.parent_hash == published[3].manifest_hash


def test_time_travel_shows_what_was_visible_then(chain: Chain, clock: VirtualClock) -> None:
    """S32: `at` answers by what the pointer named at that time, rolled-back times included."""
    start = clock.now()
    publish_one(chain, run_id="first")
    clock.advance(100)
    publish_one(chain, run_id="second")
    clock.advance(100)
    chain.rollback()
    clock.advance(100)
    chain.forward()
    answers = [chain.find(at=start + timedelta(seconds=seconds)).run_id for seconds in (0, 99, 101, 199, 201, 299, 301)]
    assert answers == ["first", "first", "second", "second", "first", "first", "second"]
    with pytest.raises(SnapshotNotFound, match="nothing was visible yet"):
        chain.find(at=start - timedelta(seconds=1))


def test_a_collected_snapshot_cannot_be_pointed_to(chain: Chain) -> None:
    """S35, I6: a rollback to a collected snapshot is refused with the way out, and works after the restore."""
    published = publish_many(chain, 3)
    collection = chain.collect(retention=1).collection
    assert collection is not None
    with pytest.raises(SnapshotCollected, match="gc restore"):
        chain.rollback(ref=published[0].ref)
    chain.restore(collection)
    assert chain.rollback(ref=published[0].ref).current.run_id == "run-0"
