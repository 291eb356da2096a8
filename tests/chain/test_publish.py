"""A publish, step by step: what is written when, what is visible when, and what each failure leaves behind."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from holdfast.chain import Chain, Committed, ManifestDraft, MoveKind, Superseded
from holdfast.chain.fence import touch
from holdfast.errors import (
    InvariantViolation,
    SnapshotNotFound,
    StoreUnavailable,
)
from holdfast.testing.faulty import CountingStore, Crashed, Fault, FaultyStore, Operation, Plan
from tests.chain.publishing import (
    ChainFactory,
    contents,
    draft_of,
    everything,
    keys_below,
    overwrite,
    publish_one,
    sha256,
    try_publish,
)


def at(kind: str, key: str | None, fault: Fault) -> Plan:
    """A plan that does this to every such request."""
    return lambda operation: fault if (operation.kind, operation.key) == (kind, key) else Fault.PASS


def on_manifests(chain_factory: ChainFactory, fault: Fault) -> Plan:
    """A plan that does this to every write of a manifest."""

    def plan(operation: Operation) -> Fault:
        is_manifest = chain_factory.layout.parse_manifest_key(operation.key) is not None
        return fault if is_manifest and operation.kind == "put_new" else Fault.PASS

    return plan


# -- the protocol ------------------------------------------------------------------------------------------------------


def test_a_publish_writes_manifest_then_pointer_then_the_rest(chain_factory: ChainFactory) -> None:
    """S10: run and artifacts are checked, the manifest created, the pointer swapped; only then the mirror, if any."""
    publish_one(chain_factory(by="before"))
    store = CountingStore(chain_factory.store)
    chain = chain_factory(store=store)
    with chain.lock() as guard:
        run = chain.begin_run()
        draft = draft_of(chain, run)
        permit = chain.permit(guard)
        pointer_reads = [each.kind for each in store.log if each.key == chain.layout.pointer_key]
        store.reset()
        done = chain.publish(draft, run=run, permit=permit)
        steps = [(each.kind, each.key) for each in store.log]
    assert isinstance(done, Committed)
    assert pointer_reads == ["get"]
    artifact, run_key, pointer = draft.artifacts[0].path, chain.layout.run_key(run.run_id), chain.layout.pointer_key
    protocol = [("get", run_key), ("head", artifact), ("put_new", done.manifest_path), ("swap", pointer)]
    assert steps[: len(protocol)] == protocol
    writes = [key for kind, key in steps[len(protocol) :] if kind in {"put_new", "swap"}]
    assert writes == ([chain.layout.mirror_key] if chain.layout.mirror_key else [])


def test_the_next_manifest_follows_what_is_visible(chain_factory: ChainFactory) -> None:
    """S10: the next manifest carries the hash of the raw bytes of its predecessor, and its place."""
    first, second = publish_one(chain_factory(by="a"), b"one"), publish_one(chain_factory(by="b"), b"two")
    raw = chain_factory.store.get(first.manifest_path).data
    assert (first.manifest.parent_hash, first.manifest.previous_manifest_path) == (None, None)
    assert second.manifest.parent_hash == sha256(raw)
    assert second.manifest.previous_manifest_path == first.manifest_path
    assert contents(chain_factory()) == {"part-0": b"two"}


def test_what_the_pointer_does_not_name_is_invisible(chain_factory: ChainFactory) -> None:
    """S11: a writer that died between manifest and pointer has published nothing, by whatever name it is asked for."""
    first = publish_one(chain_factory(), b"one")
    pointer = chain_factory.layout.pointer_key
    dying = chain_factory(by="dying", store=FaultyStore(chain_factory.store, at("swap", pointer, Fault.CRASH_BEFORE)))
    with pytest.raises(Crashed):
        try_publish(dying, b"two", run_id="dead", tags={"stage": "dead"})
    reader = chain_factory()
    manifests = [key for key in keys_below(chain_factory.store) if reader.layout.parse_manifest_key(key)]
    orphan = next(key for key in manifests if key != first.manifest_path)
    assert reader.load_current() == first.manifest
    assert [each.ref for each in reader.list_manifests()] == [first.ref]
    assert reader.list_snapshots("stage") == []
    for find in (
        lambda: reader.load_manifest(reader.layout.ref_of(orphan)),
        lambda: reader.find(run_id="dead"),
        lambda: reader.find(tag=("stage", "dead")),
        lambda: reader.rollback(ref=reader.layout.ref_of(orphan)),
    ):
        with pytest.raises(SnapshotNotFound):
            find()


def test_a_manifest_is_written_once_and_keeps_its_bytes(chain_factory: ChainFactory) -> None:
    """S12: publish, rollback, forward, tags, collection and reconcile leave every manifest as it was created."""
    store = CountingStore(chain_factory.store)
    chain = chain_factory(store=store)
    born: dict[str, bytes] = {}
    for turn in range(4):
        done = publish_one(chain, b"%d" % turn, tags={"turn": str(turn)})
        born[done.manifest_path] = chain_factory.store.get(done.manifest_path).data
    chain.rollback(offset=2)
    chain.forward()
    chain.tag(chain.find(offset=1), {"later": "yes", "turn": None})
    chain.collect(retention=2)
    chain.reconcile(enforce=True)
    for path, data in born.items():
        assert chain_factory.store.get(path).data == data
        assert [each.kind for each in store.log if each.key == path and each.kind != "get"] == ["put_new"]


# -- artifacts ---------------------------------------------------------------------------------------------------------


def _missing(chain: Chain, draft: ManifestDraft) -> None:
    chain.store.delete([draft.artifacts[1].path])


def _shorter(chain: Chain, draft: ManifestDraft) -> None:
    overwrite(chain.store, draft.artifacts[1].path, b"")


@pytest.mark.parametrize("break_it, message", [(_missing, "is missing"), (_shorter, "has 0 bytes instead of 3")])
def test_an_artifact_that_is_not_there_whole_stops_the_publish(
    chain_factory: ChainFactory, break_it: Callable[[Chain, ManifestDraft], None], message: str
) -> None:
    """S16: a missing or wrong-sized artifact is InvariantViolation; nothing is written, nothing becomes visible."""
    before = publish_one(chain_factory(), b"old")
    store = CountingStore(chain_factory.store)
    chain = chain_factory(store=store)
    with chain.lock() as guard:
        run = chain.begin_run()
        draft = draft_of(chain, run, {"a": b"one", "b": b"two", "c": b"three"})
        break_it(chain, draft)
        permit = chain.permit(guard)
        untouched = everything(chain_factory.store)
        store.reset()
        with pytest.raises(InvariantViolation, match=message):
            chain.publish(draft, run=run, permit=permit)
    asked = [(each.kind, each.key) for each in store.log if each.key in {item.path for item in draft.artifacts}]
    assert asked == [("head", item.path) for item in draft.artifacts]
    assert "list" not in {each.kind for each in store.log}
    assert {**everything(chain_factory.store), chain.layout.lock_key: b""} == {**untouched, chain.layout.lock_key: b""}
    assert chain_factory().load_current() == before.manifest


# -- conflicts ---------------------------------------------------------------------------------------------------------


def _interrupted_by(
    chain_factory: ChainFactory, intrude: Callable[[Chain], object], *, times: int, attempts_max: int = 5
) -> tuple[Chain, FaultyStore]:
    """A writer before each of whose first `times` pointer swaps somebody else does something."""
    intruder = chain_factory(by="intruder")
    pointer = chain_factory.layout.pointer_key
    done = 0

    def plan(operation: Operation) -> Fault:
        nonlocal done
        if (operation.kind, operation.key) == ("swap", pointer) and done < times:
            done += 1
            intrude(intruder)
        return Fault.PASS

    store = FaultyStore(chain_factory.store, plan)
    return chain_factory(store=store, attempts_max=attempts_max), store


def test_a_conflict_says_who_won(chain_factory: ChainFactory) -> None:
    """S19: the loser learns whose move took its place, and the log has that very move and nothing of the loser."""
    publish_one(chain_factory(), b"one")
    publish_one(chain_factory(), b"two")
    chain, _ = _interrupted_by(chain_factory, lambda other: other.rollback(offset=1, why="urgent"), times=1)
    outcome = try_publish(chain, b"mine")
    assert isinstance(outcome, Superseded)
    assert (outcome.winner.by, outcome.winner.why, outcome.winner.kind) == ("intruder", "urgent", MoveKind.ROLLBACK)
    seen = chain_factory().handle.read_pointer()
    assert seen is not None
    assert seen.pointer.last_move == outcome.winner
    assert contents(chain_factory()) == {"part-0": b"one"}


def test_of_two_writers_under_one_lock_the_second_is_superseded_by_the_first(chain_factory: ChainFactory) -> None:
    """S10, S19: both read the same pointer; one swap wins, and the other is told which commit did."""
    publish_one(chain_factory(), b"one")
    first, second = chain_factory(by="first"), chain_factory(by="second")
    with first.lock() as guard:
        runs = first.begin_run("r1"), second.begin_run("r2")
        drafts = draft_of(first, runs[0], b"first"), draft_of(second, runs[1], b"second")
        permits = first.permit(guard), second.permit(guard)
        won = first.publish(drafts[0], run=runs[0], permit=permits[0])
        lost = second.publish(drafts[1], run=runs[1], permit=permits[1])
    assert isinstance(won, Committed)
    assert isinstance(lost, Superseded)
    assert (lost.winner.commit_ulid, lost.winner.by, lost.winner.run_id) == (won.commit_ulid, "first", "r1")
    assert contents(chain_factory()) == {"part-0": b"first"}


def test_a_draft_that_depends_on_nothing_may_go_on_top_of_the_winner(chain_factory: ChainFactory) -> None:
    """S10, S19: with `rebase` the loser builds its manifest again on what is visible now, and both are history."""
    publish_one(chain_factory(), b"one")
    publish_one(chain_factory(), b"two")
    chain, _ = _interrupted_by(chain_factory, lambda other: other.rollback(offset=1), times=1)
    done = try_publish(chain, b"mine", rebase=True)
    assert isinstance(done, Committed)
    rolled_back_to = chain_factory().list_manifests()[2]
    assert done.manifest.previous_manifest_path == rolled_back_to.manifest_path
    assert contents(chain_factory()) == {"part-0": b"mine"}


def test_a_pointer_that_was_only_touched_does_not_stop_a_publish(chain_factory: ChainFactory) -> None:
    """S10, S42: a fence makes the writer read the pointer again; it may then go on."""
    publish_one(chain_factory(), b"one")
    chain, _ = _interrupted_by(chain_factory, lambda other: touch(other.handle, by="f", why="fence"), times=3)
    done = try_publish(chain, b"mine")
    assert isinstance(done, Committed)
    assert contents(chain_factory()) == {"part-0": b"mine"}
    seen = chain_factory().handle.read_pointer()
    assert seen is not None
    assert [move.kind for move in seen.pointer.moves][-4:] == [MoveKind.FENCE] * 3 + [MoveKind.PUBLISH]


def test_retries_end_and_the_last_conflict_says_who_won(chain_factory: ChainFactory) -> None:
    """S19: a pointer that changes before every swap is tried `attempts_max` times, then given up with the evidence."""
    publish_one(chain_factory(), b"one")
    chain, store = _interrupted_by(
        chain_factory, lambda other: touch(other.handle, by="busy", why="again"), times=10**6, attempts_max=5
    )
    outcome = try_publish(chain, b"mine")
    assert isinstance(outcome, Superseded)
    assert (outcome.winner.by, outcome.winner.kind) == ("busy", MoveKind.FENCE)
    swaps = [each for each in store.log if (each.kind, each.key) == ("swap", chain.layout.pointer_key)]
    assert len(swaps) == 5
    assert contents(chain_factory()) == {"part-0": b"one"}


def test_waits_between_retries_have_jitter_and_a_ceiling(chain_factory: ChainFactory) -> None:
    """S19: two writers never wait in step, and the wait grows no further than its ceiling."""
    handle = chain_factory().handle
    waits = []
    for attempt in range(64):
        before = chain_factory.clock.now()
        handle.back_off(attempt)
        waits.append((chain_factory.clock.now() - before).total_seconds())
    assert all(0 < wait <= handle.backoff_s * 64 for wait in waits)
    assert len(set(waits[6:])) > len(waits[6:]) // 2
    assert max(waits[:3]) <= handle.backoff_s * 4


# -- the failure table -------------------------------------------------------------------------------------------------


def test_when_the_manifest_cannot_be_written_nothing_is_visible_and_a_retry_works(chain_factory: ChainFactory) -> None:
    """S20, first row: manifest write fails: bounded tries, an error, the old state; the next attempt commits."""
    publish_one(chain_factory(), b"one")
    store = FaultyStore(chain_factory.store, on_manifests(chain_factory, Fault.ERROR_BEFORE))
    chain = chain_factory(store=store, attempts_max=3)
    with pytest.raises(StoreUnavailable):
        try_publish(chain, b"two")
    tried = [each for each in store.log if each.kind == "put_new" and chain.layout.parse_manifest_key(each.key)]
    assert len(tried) == 3
    assert contents(chain_factory()) == {"part-0": b"one"}
    store.plan = lambda _: Fault.PASS
    publish_one(chain, b"two")
    assert contents(chain_factory()) == {"part-0": b"two"}


def test_when_the_swap_is_lost_the_old_state_stays_and_the_orphan_is_collectable(chain_factory: ChainFactory) -> None:
    """S20, second row: manifest written, swap lost: the orphan is harmless, and the collector finds it."""
    publish_one(chain_factory(), b"one")
    publish_one(chain_factory(), b"two")
    chain, _ = _interrupted_by(chain_factory, lambda other: other.rollback(offset=1), times=1)
    assert isinstance(try_publish(chain, b"mine", run_id="lost"), Superseded)
    assert contents(chain_factory()) == {"part-0": b"one"}
    published = {each.manifest_path for each in chain_factory().list_manifests()}
    orphans = [
        key for key in keys_below(chain_factory.store) if chain.layout.parse_manifest_key(key) and key not in published
    ]
    condemned = chain_factory().plan_collection(retention=9).condemned
    assert orphans == [item.key for item in condemned if item.what == "orphan manifest"]
    assert chain_factory.breaks() == []


def test_when_both_are_done_the_snapshot_is_visible_whole(chain_factory: ChainFactory) -> None:
    """S20, third row: right after the pointer swap, before anything else, readers see the new snapshot."""
    publish_one(chain_factory(), b"one")
    pointer = chain_factory.layout.pointer_key
    dying = chain_factory(store=FaultyStore(chain_factory.store, at("swap", pointer, Fault.CRASH_AFTER)))
    with pytest.raises(Crashed):
        try_publish(dying, {"a": b"1", "b": b"2"})
    assert contents(chain_factory()) == {"a": b"1", "b": b"2"}
    chain_factory().reconcile(enforce=True)


@pytest.mark.parametrize("first", [True, False], ids=["first", "later"])
def test_when_bookkeeping_fails_the_result_says_so_and_reconcile_repairs_it(
    chain_factory: ChainFactory, first: bool
) -> None:
    """S20, last row: visible; `repair_pending` names what is open; reconcile finds exactly that and repairs it."""
    if not first:
        publish_one(chain_factory(), b"one")
    layout = chain_factory.layout
    store = FaultyStore(chain_factory.store)
    chain = chain_factory(store=store, attempts_max=3)
    after_commit = {layout.mirror_key, layout.root_key}
    swapped = False

    def plan(operation: Operation) -> Fault:
        nonlocal swapped
        swapped = swapped or (operation.key == layout.pointer_key and operation.kind in {"put_new", "swap"})
        return Fault.ERROR_BEFORE if swapped and operation.key in after_commit else Fault.PASS

    store.plan = plan
    done = try_publish(chain, b"mine", run_id="mine")
    assert isinstance(done, Committed)
    expected = {"legacy mirror"} if layout.mirror_key else set()
    expected |= {"root"} if first and layout.mirror_key else set()
    assert set(done.repair_pending) == expected
    assert contents(chain_factory()) == {"part-0": b"mine"}
    clean = chain_factory(by="operator")
    assert bool(clean.reconcile()) == bool(layout.mirror_key)
    assert all(not found.repaired for found in clean.reconcile())
    assert all(found.repaired for found in clean.reconcile(enforce=True))
    assert clean.reconcile() == []


# -- orphans -----------------------------------------------------------------------------------------------------------


def test_a_crashed_attempt_does_not_wedge_the_next(chain_factory: ChainFactory) -> None:
    """S21: an orphan at the next id is stepped over, on the first snapshot of a chain and on later ones."""
    for turn in range(3):
        store = FaultyStore(chain_factory.store, on_manifests(chain_factory, Fault.CRASH_AFTER))
        dying = chain_factory(by="dying", store=store)
        with pytest.raises(Crashed):
            try_publish(dying, b"never", run_id=f"dead-{turn}")
        done = publish_one(chain_factory(), b"%d" % turn)
        assert contents(chain_factory()) == {"part-0": b"%d" % turn}
        assert done.manifest.run_id not in {"dead-0", "dead-1", "dead-2"}
    ids = [each.manifest_id for each in chain_factory().list_manifests()]
    assert ids == sorted(set(ids), reverse=True)


def test_a_hundred_orphans_are_stepped_over_at_once(chain_factory: ChainFactory) -> None:
    """S21: however many attempts crashed in a row, the next publish finds a free id in a bounded number of requests."""
    first = publish_one(chain_factory(), b"one").manifest
    layout = chain_factory.layout
    for number in range(1, 101):
        key = layout.manifest_key(
            first.manifest_id + number, published_at=chain_factory.clock.now(), run_id=f"dead-{number}"
        )
        chain_factory.store.put_new(key, b"the work of a crashed writer")
    store = CountingStore(chain_factory.store)
    chain = chain_factory(store=store)
    done = publish_one(chain, b"two")
    tried = [each for each in store.log if each.kind == "put_new" and layout.parse_manifest_key(each.key)]
    assert len(tried) <= 2
    assert contents(chain_factory()) == {"part-0": b"two"}
    expected = 1 if layout.timed_manifests else 101
    assert done.manifest.manifest_id == first.manifest_id + expected
    publish_one(chain, b"three")
    assert [each.manifest_id for each in chain.list_manifests()][:1] == [first.manifest_id + expected + 1]
