"""Every call on the records fails in every way, one at a time: what the writer says is true, and the chain is whole."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from holdfast.chain import (
    Chain,
    Committed,
    ManifestDraft,
    Superseded,
    Unknown,
    VerdictKind,
    chain_on,
    domain_layout,
)
from holdfast.chain.sql.records import SqlRecords
from holdfast.clock import SystemRandomness
from holdfast.errors import HoldfastError
from holdfast.storage import MemoryStore
from holdfast.testing.clock import SeededRandomness, VirtualClock
from holdfast.testing.faulty import Crashed, Fault, FaultyStore, Operation
from holdfast.testing.records import RecordsAsStore

FAULTS = [fault for fault in Fault if fault is not Fault.PASS]


def publish(chain: Chain) -> str | None:
    """Publish once; the run's id if the writer was told that it committed."""
    with chain.lock() as guard:
        run = chain.begin_run()
        outcome = chain.publish(ManifestDraft(payload={"n": 1}), run=run, permit=chain.permit(guard))
    match outcome:
        case Committed():
            return run.run_id
        case Superseded(commit_ulid=ulid) | Unknown(commit_ulid=ulid):
            raise AssertionError(f"without rivals a fault of one call must not stop a publish: {outcome} {ulid}")


def roll_back(chain: Chain) -> None:
    chain.rollback()


def collect(chain: Chain) -> None:
    chain.collect(retention=1)
    chain.purge(grace_s=0)


def world(url: str, plan: Callable[[Operation], Fault]) -> tuple[Chain, Chain]:
    """A writer whose records misbehave, and an observer who sees what is really there."""
    layout = domain_layout("catalog")
    clock = VirtualClock()
    name = f"c{SystemRandomness().bits(64):x}"
    store = MemoryStore()

    def opened(by: str) -> SqlRecords:
        return SqlRecords(f"{url}?chain={name}", layout, artifacts=store.url, clock=clock)

    faulty = FaultyStore(RecordsAsStore(opened("writer")), plan)
    writer = chain_on(store, layout, records=faulty, by="writer", clock=clock, randomness=SeededRandomness(1))
    observer = chain_on(store, layout, records=opened("observer"), by="observer", clock=clock)
    return writer, observer


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.value)
@pytest.mark.parametrize("work", [publish, roll_back, collect], ids=lambda work: work.__name__)
def test_whatever_call_fails_the_verdict_is_true(
    database_url: str, work: Callable[[Chain], object], fault: Fault
) -> None:
    """S34, S17, S20: a refused call, a lost answer, an echo or a crash, at each call of each kind of work."""
    calls = _count_calls(database_url, work)
    assert calls >= 5
    for victim in range(1, calls + 1):
        armed: list[int] = []

        def plan(operation: Operation, armed: list[int] = armed, victim: int = victim) -> Fault:
            return fault if armed and operation.serial == armed[0] + victim else Fault.PASS

        writer, observer = world(database_url, plan)
        for _ in range(3):
            publish(writer)
        assert isinstance(writer.handle.records, FaultyStore)
        armed.append(len(writer.handle.records.log))
        told = _attempt(writer, work)
        history = [found.run_id for found in observer.list_manifests(100)]
        assert len(history) == len(set(history))
        if isinstance(told, str):
            assert told in history
            assert observer.status(observer.list_manifests(1)[0].commit_ulid).kind is VerdictKind.COMMITTED
        observer.handle.clock.advance(7200)  # type: ignore[attr-defined]
        observer.reconcile(enforce=True)
        assert observer.verify() == [], f"{work.__name__}: {fault.value} at call {victim} of {calls}"


def _attempt(writer: Chain, work: Callable[[Chain], object]) -> object:
    """Do it; an error or a crash is an answer too, and what it left is looked at by the caller."""
    try:
        return work(writer)
    except (HoldfastError, Crashed):
        return None


def _count_calls(url: str, work: Callable[[Chain], object]) -> int:
    writer, _ = world(url, lambda _operation: Fault.PASS)
    for _ in range(3):
        publish(writer)
    assert isinstance(writer.handle.records, FaultyStore)
    before = len(writer.handle.records.log)
    work(writer)
    return len(writer.handle.records.log) - before
