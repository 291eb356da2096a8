"""Two at work on one chain in a database: before each call of the first, the second does all of its work."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from holdfast.chain import Chain, Committed, ManifestDraft, Superseded, Unknown, VerdictKind, chain_on, graph_layout
from holdfast.chain.sql.records import SqlRecords
from holdfast.clock import SystemRandomness
from holdfast.errors import HoldfastError
from holdfast.storage import MemoryStore
from holdfast.testing.chain_contract import publish_one
from holdfast.testing.clock import VirtualClock
from holdfast.testing.faulty import Fault, FaultyStore, Operation
from holdfast.testing.records import RecordsAsStore

CALLS_MAX = 200
LEASE_S = 60.0


def publish(chain: Chain) -> list[tuple[str, bool]]:
    """Publish without asking for the lock: the commits, each with whether it was reported as done."""
    guard = chain.lock(ttl_s=1e6, operation="second") if chain.by == "second" else chain.lock(ttl_s=1.0)
    run = chain.begin_run(lease_s=LEASE_S)
    match chain.publish(ManifestDraft(payload={"by": chain.by}), run=run, permit=chain.permit(guard)):
        case Committed(commit_ulid=ulid):
            return [(ulid, True)]
        case Superseded(commit_ulid=ulid) | Unknown(commit_ulid=ulid):
            return [(ulid, False)]


def roll_back(chain: Chain) -> list[tuple[str, bool]]:
    chain.rollback(offset=2)
    return []


def collect(chain: Chain) -> list[tuple[str, bool]]:
    """Late enough for every lease and lock to be over, as the collector's clock sees it."""
    assert isinstance(chain.handle.clock, VirtualClock)
    chain.handle.clock.advance(2 * LEASE_S)
    chain.collect(retention=1)
    chain.purge(grace_s=0)
    return []


WORK: dict[str, Callable[[Chain], list[tuple[str, bool]]]] = {
    "publish": publish,
    "rollback": roll_back,
    "collect": collect,
}


@pytest.mark.parametrize("second", WORK)
@pytest.mark.parametrize("first", WORK)
def test_wherever_two_meet_the_chain_is_whole_and_what_they_say_is_true(
    database_url: str, first: str, second: str
) -> None:
    """S34, S42, S17: I1 to I8 hold at every meeting of a publisher, a rollback and a collector with one another."""
    for serial in range(1, CALLS_MAX):
        clock = VirtualClock()
        store = MemoryStore()
        name = f"c{SystemRandomness().bits(64):x}"

        def opened(by: str, plan: Callable[[Operation], Fault] | None = None) -> Chain:
            records = SqlRecords(f"{database_url}?chain={name}", graph_layout(), artifacts=store.url, clock=clock)  # noqa: B023
            faulty = FaultyStore(RecordsAsStore(records), plan or (lambda _operation: Fault.PASS))
            return chain_on(store, graph_layout(), records=faulty, by=by, clock=clock)  # noqa: B023

        founder = opened("founder")
        for number in range(4):
            assert isinstance(publish_one(founder, str(number)), Committed)
        told: list[tuple[str, bool]] = []
        met: list[int] = []

        def meet(operation: Operation) -> Fault:
            if operation.serial == serial and not met:  # noqa: B023
                met.append(serial)  # noqa: B023
                clock.advance(2.0)  # noqa: B023 - the first one's lock has run out
                told.extend(_try(second, opened("second")))  # noqa: B023
            return Fault.PASS

        told += _try(first, opened("first", meet))
        if not met:
            return
        observer = opened("observer")
        for ulid, committed in told:
            verdict = observer.status(ulid, settle=True)
            assert (verdict.kind is VerdictKind.COMMITTED) == committed, f"{first} met {second} at call {serial}"
        observer.reconcile(enforce=True)
        assert observer.verify() == [], f"{first} met {second} at call {serial}"
    raise AssertionError(f"more than {CALLS_MAX} calls")


def _try(work: str, chain: Chain) -> list[tuple[str, bool]]:
    """A refusal is an answer too."""
    try:
        return WORK[work](chain)
    except HoldfastError:
        return []
