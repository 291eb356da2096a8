"""Tokens and permits come from held locks only, and long work keeps its lock in the background."""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from holdfast.chain import Committed
from holdfast.chain.fence import touch
from holdfast.errors import HoldfastError, LockHeld, LockLost, PermitRefused, StoreUnavailable
from holdfast.fencing import FencingToken, KeepAlive, LockGuard, PermitIssuer, PublishPermit, acquire_lock
from holdfast.fencing.keepalive import FAILURES_MAX
from holdfast.storage import MemoryStore, ObjectStore, Version
from holdfast.testing.clock import SeededRandomness, VirtualClock
from tests.chain.publishing import ChainFactory, contents, draft_of, publish_one
from tests.typecheck import assert_mypy_rejects

KEY = "locks/x.lock.json"
TYPES = Path(__file__).parent.parent / "types"
RANDOM = SeededRandomness()
WAIT_MAX_S = 60


@pytest.fixture
def time() -> VirtualClock:
    return VirtualClock()


def take(store: ObjectStore, time: VirtualClock, *, holder: str = "a", ttl_s: float = 60) -> LockGuard:
    return acquire_lock(store, KEY, holder=holder, operation="build", ttl_s=ttl_s, clock=time, randomness=RANDOM)


# -- tokens and permits ------------------------------------------------------------------------------------------------


def test_nobody_but_the_lock_makes_a_token(store: ObjectStore, time: VirtualClock) -> None:
    """S24: no call, no copy and no pickle makes a token or a permit where no lock is held."""
    guard = take(store, time)
    issuer = PermitIssuer.from_lock(guard)
    permit = issuer.issue(chain="x", expected=None)
    for seal in (None, object(), 1):
        with pytest.raises(TypeError):
            FencingToken(7, seal=seal)  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            PermitIssuer(guard, seal=seal)  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            PublishPermit(issuer=issuer, chain="x", expected=None, seal=seal)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        FencingToken(7)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        PermitIssuer.from_lock(guard.record)  # type: ignore[arg-type]
    for thing in (guard.token, permit, guard):
        with pytest.raises(TypeError):
            pickle.dumps(thing)
    with pytest.raises(TypeError):
        copy.copy(guard.token)


def test_the_type_checker_knows_it_too(tmp_path: Path) -> None:
    """S24: code that makes a token or a permit without a lock does not type-check, on the very lines that do."""
    assert_mypy_rejects(TYPES / "tokens_come_from_locks.py", tmp_path)


@pytest.mark.parametrize("how", ["expired", "released", "taken over"])
def test_a_lock_that_is_lost_issues_nothing(store: ObjectStore, time: VirtualClock, how: str) -> None:
    """S24: permits come from a held lock, and only for as long as it is held."""
    guard = take(store, time)
    issuer = PermitIssuer.from_lock(guard)
    if how == "released":
        guard.release()
    else:
        time.advance(61)
    if how == "taken over":
        take(store, time, holder="other")
        time.advance(-61)
        with pytest.raises(LockLost):
            guard.extend(60)
    with pytest.raises(LockLost):
        PermitIssuer.from_lock(guard)
    with pytest.raises(LockLost):
        issuer.issue(chain="x", expected=None)


def test_a_permit_carries_what_it_permits(store: ObjectStore, time: VirtualClock) -> None:
    """S25: fencing token, chain, expected pointer version, issue and expiry time, and the resource that issued it."""
    guard = take(store, time, ttl_s=60)
    permit = PermitIssuer.from_lock(guard).issue(chain="memory://x#kv", expected=Version("v7"))
    assert permit.fencing_token == guard.token
    assert permit.chain == "memory://x#kv"
    assert permit.expected_pointer_version == "v7"
    assert permit.issued_at == time.now()
    assert permit.expires_at == time.now() + timedelta(seconds=60)
    assert permit.issuer_resource == f"{store.url}#{KEY}"


def test_a_permit_works_once(chain_factory: ChainFactory) -> None:
    """S25: a used permit is refused, and what it was used for stays."""
    chain = chain_factory()
    with chain.lock() as guard:
        run = chain.begin_run()
        permit = chain.permit(guard)
        assert isinstance(chain.publish(draft_of(chain, run, b"one"), run=run, permit=permit), Committed)
        second = chain.begin_run()
        with pytest.raises(PermitRefused, match="used before"):
            chain.publish(draft_of(chain, second, b"two"), run=second, permit=permit)
    assert contents(chain_factory()) == {"part-0": b"one"}


def test_a_permit_of_another_chain_is_refused(chain_factory: ChainFactory) -> None:
    """S25: a foreign permit is refused before anything is sent; it stays good for its own chain."""
    other = ChainFactory(layout=chain_factory.layout)(by="other")
    chain = chain_factory()
    publish_one(chain, b"one")
    publish_one(other, b"one")
    with other.lock() as foreign:
        run = chain.begin_run()
        draft = draft_of(chain, run, b"two")
        permit = other.permit(foreign)
        with pytest.raises(PermitRefused, match="not for"):
            chain.publish(draft, run=run, permit=permit)
        own = other.begin_run()
        assert isinstance(other.publish(draft_of(other, own), run=own, permit=permit), Committed)
    assert contents(chain_factory()) == {"part-0": b"one"}


def test_a_permit_for_another_version_of_the_pointer_is_refused(chain_factory: ChainFactory) -> None:
    """S25: the permit names the version that was read; with another one in hand the writer must ask again."""
    chain = chain_factory()
    publish_one(chain, b"one")
    with chain.lock() as guard:
        run = chain.begin_run()
        draft = draft_of(chain, run, b"two")
        permit = chain.permit(guard)
        touch(chain.handle, by="x", why="fence")
        newer = chain_factory(by="newer view")
        newer.begin_run()
        with pytest.raises(PermitRefused, match="another version"):
            newer.publish(draft, run=run, permit=permit)
    assert contents(chain_factory()) == {"part-0": b"one"}


def test_a_permit_whose_lock_was_released_is_refused(chain_factory: ChainFactory) -> None:
    """S25: giving the lock back gives back what it permitted, although the permit's own time has not run out."""
    chain = chain_factory()
    publish_one(chain, b"one")
    guard = chain.lock()
    run = chain.begin_run()
    draft = draft_of(chain, run, b"two")
    permit = chain.permit(guard)
    guard.release()
    with pytest.raises(PermitRefused, match="released"):
        chain.publish(draft, run=run, permit=permit)
    assert contents(chain_factory()) == {"part-0": b"one"}


def test_a_permit_runs_out_although_its_lock_was_extended(store: ObjectStore, time: VirtualClock) -> None:
    """S25: an expired permit is refused even while the lock is held: it stands for what was seen when it was issued."""
    guard = take(store, time, ttl_s=60)
    permit = PermitIssuer.from_lock(guard).issue(chain="x", expected=None)
    guard.extend(600)
    time.advance(60)
    guard.check()
    with pytest.raises(PermitRefused, match="expired"):
        permit.use(chain="x")


# -- keep-alive --------------------------------------------------------------------------------------------------------


class Ticks:
    """A wait function that lets `count` periods pass at once and then waits for the end of the block."""

    def __init__(self, count: int, *, clock: VirtualClock | None = None) -> None:
        self._left: Iterator[int] = iter(range(count))
        self._clock = clock
        self.spent = threading.Event()

    def __call__(self, done: threading.Event, seconds: float) -> bool:
        if next(self._left, None) is None:
            self.spent.set()
            return done.wait(WAIT_MAX_S)
        if self._clock is not None:
            self._clock.advance(seconds)
        return False


def script(*answers: HoldfastError | None) -> tuple[Callable[[], None], list[HoldfastError | None]]:
    """A renewal that succeeds or fails as told, and what of that was asked for."""
    asked: list[HoldfastError | None] = []

    def renew() -> None:
        answer = answers[len(asked)]
        asked.append(answer)
        if answer is not None:
            raise answer

    return renew, asked


def test_long_work_keeps_its_lock(time: VirtualClock) -> None:
    """S23: renewed in the background, a 60 s lock is still held after 200 s of work, and nobody else gets it."""
    store = MemoryStore()
    guard = take(store, time, ttl_s=60)
    ticks = Ticks(10, clock=time)
    with KeepAlive(lambda: guard.extend(60), every_s=20, wait=ticks) as alive:
        assert ticks.spent.wait(WAIT_MAX_S)
        alive.check()
        guard.check()
        with pytest.raises(LockHeld):
            take(store, time, holder="other")
    assert time.now() - guard.record.acquired_at == timedelta(seconds=200)


def test_long_work_stops_when_its_lock_was_taken_over(time: VirtualClock) -> None:
    """S23: the first renewal that finds another holder ends it: work is told at its next check, nothing is renewed."""
    store = MemoryStore()
    guard = take(store, time, ttl_s=60)
    time.advance(61)
    take(store, time, holder="other")
    time.advance(-61)
    before = store.get(KEY)
    with KeepAlive(lambda: guard.extend(60), every_s=20, wait=Ticks(5)) as alive:
        assert alive.failed.wait(WAIT_MAX_S)
        with pytest.raises(LockLost, match="renewal failed"):
            alive.check()
    assert isinstance(alive.failure, LockLost)
    assert store.get(KEY) == before


def test_a_renewal_that_fails_for_good_is_not_tried_again() -> None:
    """S23: it stops, rather than to go on renewing what it has lost."""
    renew, asked = script(None, LockLost("gone"), None, None)
    with KeepAlive(renew, every_s=1, wait=Ticks(4)) as alive:
        assert alive.failed.wait(WAIT_MAX_S)
    assert [type(each) for each in asked] == [type(None), LockLost]


def test_a_store_that_answers_again_in_time_costs_nothing() -> None:
    """S23: fewer failures in a row than allowed are forgotten by the next success."""
    silent = StoreUnavailable("no answer")
    answers = ([silent] * (FAILURES_MAX - 1) + [None]) * 3
    renew, asked = script(*answers)
    ticks = Ticks(len(answers))
    with KeepAlive(renew, every_s=1, wait=ticks) as alive:
        assert ticks.spent.wait(WAIT_MAX_S)
        alive.check()
    assert asked == answers
    assert alive.failure is None


def test_a_store_that_stays_silent_ends_the_work() -> None:
    """S23: after so many failures in a row the lock may be gone, so the work stops, and says why."""
    silent = StoreUnavailable("no answer")
    renew, asked = script(*[silent] * (FAILURES_MAX + 3))
    with KeepAlive(renew, every_s=1, wait=Ticks(FAILURES_MAX + 3)) as alive:
        assert alive.failed.wait(WAIT_MAX_S)
        with pytest.raises(LockLost, match="no answer"):
            alive.check()
    assert asked == [silent] * FAILURES_MAX


def test_renewal_ends_with_the_block() -> None:
    """S23: nothing renews after the work is done."""
    renew, asked = script(None, None)
    ticks = Ticks(2)
    with KeepAlive(renew, every_s=1, wait=ticks):
        assert ticks.spent.wait(WAIT_MAX_S)
    assert asked == [None, None]
    assert not any(thread.name == "holdfast-keepalive" for thread in threading.enumerate())
