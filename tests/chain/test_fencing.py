"""The lock's token stops every stale writer, whatever it believes and however fresh its view of the pointer is."""

from __future__ import annotations

from datetime import timedelta

import orjson
import pytest

from holdfast.chain import Chain
from holdfast.chain.fence import touch
from holdfast.clock import format_time
from holdfast.errors import LockHeld, LockLost, PermitRefused, StaleFencingToken
from holdfast.fencing import LockGuard, acquire_lock, read_lock
from holdfast.storage import ObjectStore
from holdfast.testing.clock import SeededRandomness, VirtualClock
from holdfast.testing.faulty import CountingStore, Fault, FaultyStore
from tests.chain.publishing import ChainFactory, contents, draft_of, everything, publish_one

KEY = "locks/x.lock.json"
RANDOM = SeededRandomness()


@pytest.fixture
def time() -> VirtualClock:
    return VirtualClock()


def take(store: ObjectStore, time: VirtualClock, *, holder: str = "a", ttl_s: float = 60, floor: int = 0) -> LockGuard:
    return acquire_lock(
        store, KEY, holder=holder, operation="build", ttl_s=ttl_s, clock=time, randomness=RANDOM, floor=floor
    )


# -- locks (S22) -------------------------------------------------------------------------------------------------------


def test_a_lock_record_says_who_when_until_when_and_for_what(store: ObjectStore, time: VirtualClock) -> None:
    """S22: holder, acquired_at, expires_at, sequence and operation are in the file, for an operator to read."""
    take(store, time, holder="nightly@host", ttl_s=90)
    record = orjson.loads(store.get(KEY).data)
    assert record["holder"] == "nightly@host"
    assert record["acquired_at"] == format_time(time.now())
    assert record["expires_at"] == format_time(time.now() + timedelta(seconds=90))
    assert record["sequence"] == 1
    assert record["operation"] == "build"


def test_a_chain_keeps_its_lock_in_the_locks_folder(chain_factory: ChainFactory) -> None:
    """S22: locks live at `locks/{name}.lock.json`."""
    chain = chain_factory()
    with chain.lock(operation="x") as guard:
        assert guard.key == chain.layout.lock_key
        assert guard.key.startswith("locks/")
        assert guard.key.endswith(".lock.json")
        assert read_lock(chain_factory.store, guard.key) == guard.record


def test_a_held_lock_is_refused_with_its_holder(store: ObjectStore, time: VirtualClock) -> None:
    """S22: whoever comes second learns who has it, for what and until when, and changes nothing."""
    take(store, time, holder="first")
    before = store.get(KEY)
    with pytest.raises(LockHeld, match=r"'first' for 'build' until 2026-03-14T10:31:00"):
        take(store, time, holder="second")
    assert store.get(KEY) == before


def test_an_expired_lock_is_taken_over_with_the_next_sequence(store: ObjectStore, time: VirtualClock) -> None:
    """S22: acquire takes over an expired lock by compare-and-swap, sequence + 1; the first moment it is free counts."""
    first = take(store, time, holder="first", ttl_s=60)
    time.advance(59.999999)
    with pytest.raises(LockHeld):
        take(store, time, holder="second")
    time.advance(0.000001)
    second = take(store, time, holder="second")
    assert (first.token.sequence, second.token.sequence) == (1, 2)
    assert first.token < second.token


def test_of_two_that_take_over_at_once_one_gets_it(store: ObjectStore, time: VirtualClock) -> None:
    """S22: the take-over is a compare-and-swap: who read the expired record and was slower finds it held."""
    take(store, time, holder="gone")
    time.advance(61)
    winners: list[LockGuard] = []

    def plan(operation: object) -> Fault:
        if getattr(operation, "kind", "") == "swap" and not winners:
            winners.append(take(store, time, holder="faster"))
        return Fault.PASS

    with pytest.raises(LockHeld, match="faster"):
        take(FaultyStore(store, plan), time, holder="slower")
    record = read_lock(store, KEY)
    assert record is not None
    assert (record.holder, record.sequence) == ("faster", 2)


def test_release_writes_an_expired_record_and_deletes_nothing(store: ObjectStore, time: VirtualClock) -> None:
    """S22: after a release the file is there, expired, with its sequence; the next holder continues from it."""
    counted = CountingStore(store)
    with take(counted, time, holder="first"):
        pass
    record = read_lock(store, KEY)
    assert record is not None
    assert record.expires_at <= time.now()
    assert (record.holder, record.sequence) == ("first", 1)
    assert "delete" not in counted.counts
    assert counted.counts["swap"] == 1
    assert take(store, time, holder="second").token.sequence == 2


def test_a_released_lock_is_free_for_a_machine_whose_clock_is_behind(store: ObjectStore, time: VirtualClock) -> None:
    """S22: released is released by every clock."""
    take(store, time, holder="first").release()
    time.advance(-86400)
    assert take(store, time, holder="second").token.sequence == 2


def test_releasing_a_lock_that_was_taken_over_leaves_the_new_holder_alone(
    store: ObjectStore, time: VirtualClock
) -> None:
    """S22: release is a compare-and-swap too."""
    first = take(store, time, holder="first")
    time.advance(61)
    take(store, time, holder="second")
    before = store.get(KEY)
    first.release()
    assert store.get(KEY) == before
    with pytest.raises(LockLost):
        first.check()


def test_extend_pushes_the_expiry_out(store: ObjectStore, time: VirtualClock) -> None:
    """S22: the same holder with the same sequence keeps an unexpired lock."""
    guard = take(store, time, ttl_s=60)
    time.advance(50)
    guard.extend(60)
    time.advance(59)
    guard.check()
    with pytest.raises(LockHeld):
        take(store, time, holder="other")
    assert guard.token.sequence == 1


def test_extend_never_makes_a_lock_shorter(store: ObjectStore, time: VirtualClock) -> None:
    """S22: a clock that went back does not turn an extension into a release."""
    guard = take(store, time, ttl_s=600)
    time.advance(-3600)
    guard.extend(60)
    with pytest.raises(LockHeld):
        take(store, time, holder="other")


def test_an_expired_lock_cannot_be_extended(store: ObjectStore, time: VirtualClock) -> None:
    """S22: not even when nobody took it meanwhile."""
    guard = take(store, time, ttl_s=60)
    before = store.get(KEY)
    time.advance(60)
    with pytest.raises(LockLost, match="expired"):
        guard.extend(60)
    assert store.get(KEY) == before


@pytest.mark.parametrize("holder", ["same", "other"])
def test_a_lock_that_was_taken_over_cannot_be_extended(store: ObjectStore, time: VirtualClock, holder: str) -> None:
    """S22: extend needs the same sequence, so a namesake that took over is somebody else as well."""
    guard = take(store, time, holder="same")
    time.advance(61)
    take(store, time, holder=holder)
    time.advance(-61)  # by the first holder's clock its lock has not expired
    before = store.get(KEY)
    with pytest.raises(LockLost, match="taken over"):
        guard.extend(60)
    assert store.get(KEY) == before


def test_a_released_lock_cannot_be_extended(store: ObjectStore, time: VirtualClock) -> None:
    """S22: a release is final."""
    guard = take(store, time)
    guard.release()
    with pytest.raises(LockLost, match="released"):
        guard.extend(60)


@pytest.mark.parametrize("fault", [Fault.ERROR_BEFORE, Fault.ERROR_AFTER, Fault.ECHO], ids=lambda fault: fault.value)
@pytest.mark.parametrize("step", ["acquire", "take over", "extend", "release"])
def test_a_lost_answer_neither_loses_nor_doubles_a_lock(
    store: ObjectStore, time: VirtualClock, fault: Fault, step: str
) -> None:
    """S17, S22: a write of the lock that echoes is recognised as our own: sequence + 1 once, and still held."""
    if step == "take over":
        take(store, time, holder="gone").release()
    struck: list[object] = []

    def plan(operation: object) -> Fault:
        if struck_now and getattr(operation, "kind", "") in {"put_new", "swap"} and not struck:
            struck.append(operation)
            return fault
        return Fault.PASS

    struck_now = step in {"acquire", "take over"}
    guard = take(FaultyStore(store, plan), time, holder="me")
    struck_now = True
    expected = 2 if step == "take over" else 1
    if step == "extend":
        guard.extend(600)
        guard.check()
    if step == "release":
        guard.release()
    assert struck
    record = read_lock(store, KEY)
    assert record is not None
    assert (record.holder, record.sequence) == ("me", expected)
    assert guard.token.sequence == expected
    assert record.is_live(time.now()) == (step != "release")


def test_a_lost_lock_file_does_not_reset_the_sequence_below_the_epoch(chain_factory: ChainFactory) -> None:
    """S22: without its file the lock continues above the pointer's epoch, and those who held it before stay stale."""
    chain = chain_factory()
    for _ in range(3):
        publish_one(chain)
    stale = chain_factory(by="stale")
    held = stale.lock()
    chain_factory.store.delete([chain.layout.lock_key])
    fresh = chain_factory(by="fresh")
    with fresh.lock() as guard:
        assert guard.token.sequence >= 4
        done = publish_one(fresh, b"fresh", guard=guard)
    assert done.manifest.epoch > 3
    held.release()


# -- stale holders (S15) -----------------------------------------------------------------------------------------------


def _overtaken(chain_factory: ChainFactory) -> tuple[Chain, LockGuard]:
    """A writer that was paused past its lock while another locked and published."""
    publish_one(chain_factory(), b"one")
    stale = chain_factory(by="stale")
    guard = stale.lock(ttl_s=60)
    chain_factory.clock.advance(61)
    publish_one(chain_factory(by="newer"), b"two")
    return stale, guard


def test_a_stale_holder_with_a_fresh_pointer_version_still_loses(chain_factory: ChainFactory) -> None:
    """S15: it has just read the pointer, its version matches and its clock says the lock is live: still refused."""
    stale, guard = _overtaken(chain_factory)
    chain_factory.clock.advance(-61)  # by its own clock nothing has expired
    seen = stale.handle.read_pointer()
    assert seen is not None
    again = chain_factory(by="stale")  # the same writer, which reads the pointer anew
    run = again.begin_run()
    draft = draft_of(again, run, b"stale")
    permit = again.permit(guard)
    assert permit.expected_pointer_version == seen.version
    before = everything(chain_factory.store)
    with pytest.raises(StaleFencingToken) as refused:
        again.publish(draft, run=run, permit=permit)
    assert (refused.value.previous, refused.value.attempted) == (3, 2)
    assert everything(chain_factory.store) == before
    assert contents(chain_factory()) == {"part-0": b"two"}


def test_a_stale_holder_with_an_old_view_is_fenced_when_it_looks_again(chain_factory: ChainFactory) -> None:
    """S15: its swap conflicts, it reads the pointer back, and learns that it is stale rather than just beaten."""
    publish_one(chain_factory(), b"one")
    stale = chain_factory(by="stale")
    guard = stale.lock(ttl_s=60)
    run = stale.begin_run()
    draft = draft_of(stale, run, b"stale")
    permit = stale.permit(guard)
    chain_factory.clock.advance(61)
    publish_one(chain_factory(by="newer"), b"two")
    chain_factory.clock.advance(-61)
    with pytest.raises(StaleFencingToken):
        stale.publish(draft, run=run, permit=permit)
    assert contents(chain_factory()) == {"part-0": b"two"}


def test_a_holder_whose_lock_expired_gets_no_permit_and_cannot_use_an_old_one(chain_factory: ChainFactory) -> None:
    """S15, S25: by its own clock it knows before it sends anything."""
    publish_one(chain_factory(), b"one")
    late = chain_factory(by="late")
    guard = late.lock(ttl_s=60)
    run = late.begin_run()
    draft = draft_of(late, run, b"late")
    permit = late.permit(guard)
    chain_factory.clock.advance(61)
    with pytest.raises(LockLost):
        late.permit(guard)
    with pytest.raises(PermitRefused, match="expired"):
        late.publish(draft, run=run, permit=permit)
    assert contents(chain_factory()) == {"part-0": b"one"}


def test_epochs_never_fall_through_rollback_and_fence(chain_factory: ChainFactory) -> None:
    """S15: moves that need no lock keep the epoch, so a stale holder stays stale after them."""
    stale, guard = _overtaken(chain_factory)
    operator = chain_factory(by="operator")
    operator.rollback()
    touch(operator.handle, by="operator", why="fence")
    chain_factory.clock.advance(-61)
    again = chain_factory(by="stale")
    run = again.begin_run()
    draft = draft_of(again, run, b"stale")
    with pytest.raises(StaleFencingToken):
        again.publish(draft, run=run, permit=again.permit(guard))
    assert contents(chain_factory()) == {"part-0": b"one"}
    assert stale.by == "stale"


def test_the_same_holder_may_publish_many_times(chain_factory: ChainFactory) -> None:
    """S15: a token that is not behind is not stale."""
    chain = chain_factory()
    with chain.lock() as guard:
        for turn in range(3):
            done = publish_one(chain, b"%d" % turn, guard=guard)
            assert (done.manifest.epoch, done.manifest.fencing_token) == (1, 1)
    assert contents(chain_factory()) == {"part-0": b"2"}
