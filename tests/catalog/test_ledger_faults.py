"""Appends that die or lose answers at any step leave nothing wrong: the next one with the same key finishes them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pytest

from holdfast.catalog import Receipt, Workspace
from holdfast.catalog.positions import PositionRecord
from holdfast.errors import IdempotencyConflict, StoreUnavailable
from holdfast.storage import MemoryStore
from holdfast.testing.clock import SeededRandomness, VirtualClock
from holdfast.testing.faulty import Crashed, Fault, FaultyStore, Operation, Plan, pass_all
from tests.catalog.auditing import audit, keys_below, said, told

STEPS = 6
"""Counter, pointer, mirror, swap, claim, event: the requests of a first append."""
ANSWERS_LOST = [Fault.ERROR_BEFORE, Fault.ERROR_AFTER, Fault.ECHO]
DEATHS = [Fault.CRASH_BEFORE, Fault.CRASH_AFTER]


@pytest.fixture
def root() -> MemoryStore:
    return MemoryStore()


def opened(root: MemoryStore, plan: Plan = pass_all, *, by: str = "first", seed: int = 1) -> Workspace:
    """A process of its own on the workspace, whose requests go as the plan says."""
    return Workspace(
        root=FaultyStore(root, plan),
        tenant="acme",
        name="prod",
        by=by,
        clock=VirtualClock(),
        randomness=SeededRandomness(seed),
    )


def at(step: int, fault: Fault) -> Plan:
    return lambda operation: fault if operation.serial == step else Fault.PASS


def always(kind: str, fault: Fault) -> Plan:
    return lambda operation: fault if operation.kind == kind else Fault.PASS


@pytest.fixture
def clean(root: MemoryStore) -> Iterator[Workspace]:
    """A process without faults. In the end every rule holds on the stored bytes."""
    workspace = opened(root, by="clean", seed=99)
    workspace.initialize()
    yield workspace
    assert audit(workspace.store) == []


@pytest.mark.parametrize("fault", ANSWERS_LOST)
@pytest.mark.parametrize("step", range(1, STEPS + 1))
def test_a_lost_answer_changes_nothing(root: MemoryStore, clean: Workspace, step: int, fault: Fault) -> None:
    """C13, C14: refused, lost or echoed, at each request: the append succeeds, is new, and is there once."""
    receipt = opened(root, at(step, fault)).ledger("catalog").append(said("sales"))
    assert not receipt.duplicate
    assert [event["event_id"] for event in told(clean.store)] == [receipt.event_id]
    again = clean.ledger("catalog").append(said("sales"))
    assert (again.duplicate, again.event_id, again.position) == (True, receipt.event_id, receipt.position)


@pytest.mark.parametrize("death", DEATHS)
@pytest.mark.parametrize("step", range(1, STEPS + 1))
def test_whoever_dies_is_finished_by_the_next_with_the_same_key(
    root: MemoryStore, clean: Workspace, step: int, death: Fault
) -> None:
    """C13: dead before or after each request: there is one event, and the next append says where."""
    with pytest.raises(Crashed):
        opened(root, at(step, death)).ledger("catalog").append(said("sales"))
    claimed = len(keys_below(clean.store, "ledger/claims/catalog"))
    assert len(told(clean.store)) <= claimed  # no event without its claim
    ledger = clean.ledger("catalog")
    receipt = ledger.append(said("sales"))
    assert receipt.duplicate == bool(claimed)
    assert [event["event_id"] for event in told(clean.store)] == [receipt.event_id]
    assert ledger.append(said("sales")).event_id == receipt.event_id


@pytest.mark.parametrize("death", DEATHS)
def test_other_content_under_a_dead_writers_key_is_refused_even_before_its_event_is_there(
    root: MemoryStore, clean: Workspace, death: Fault
) -> None:
    """C13: the claim decides, not the event."""
    with pytest.raises(Crashed):
        opened(root, at(STEPS, death)).ledger("catalog").append(said("sales"), idempotency_key="k")
    with pytest.raises(IdempotencyConflict):
        clean.ledger("catalog").append(said("other"), idempotency_key="k")
    ledger = clean.ledger("catalog")
    assert ledger.append(said("sales"), idempotency_key="k").duplicate
    assert ledger.metrics.snapshot()["finished"] == (death is Fault.CRASH_BEFORE)


@pytest.mark.parametrize("fault", [Fault.ERROR_BEFORE, Fault.ERROR_AFTER])
@pytest.mark.parametrize("kind", ["get", "put_new", "swap"])
def test_a_store_that_never_answers_is_an_error_after_bounded_attempts(
    root: MemoryStore, clean: Workspace, kind: str, fault: Fault
) -> None:
    """C13: the append may be repeated with the same key when the store is back, and is there once."""
    workspace = opened(root, always(kind, fault))
    if kind == "swap" and fault is Fault.ERROR_AFTER:
        assert not workspace.ledger("catalog").append(said("sales")).duplicate  # reading back tells what became of it
    elif kind == "put_new" and fault is Fault.ERROR_AFTER:
        # The claim landed, and reading it back is what tells; the event landed too, though nobody said so.
        with suppress(StoreUnavailable):
            workspace.ledger("catalog").append(said("sales"))
    else:
        with pytest.raises(StoreUnavailable):
            workspace.ledger("catalog").append(said("sales"))
        assert told(clean.store) == []
    assert isinstance(workspace.root, FaultyStore)
    assert len(workspace.root.log) < 100
    receipts = [clean.ledger("catalog").append(said("sales")) for _ in range(2)]
    assert len({receipt.event_id for receipt in receipts}) == 1
    assert len(told(clean.store)) == 1


def test_positions_that_a_dead_writer_took_are_never_given_again(root: MemoryStore, clean: Workspace) -> None:
    """C14, C15: they stay unused; the next ones, and their ids, are above."""
    key = "locks/catalog.positions.json"
    given = []
    for seed in range(3):
        with pytest.raises(Crashed):
            opened(root, at(4, Fault.CRASH_AFTER), seed=seed).ledger("catalog").append(said("sales"))
        record = PositionRecord.decode(clean.store.get(key).data, key=key)
        given.append((record.next - 1, record.last_id or ""))
    receipt = clean.ledger("catalog").append(said("sales"))
    assert [position for position, _ in given] == [1, 2, 3]
    assert receipt.position == 4
    assert receipt.event_id > given[-1][1] > given[0][1]


def test_two_with_one_key_meet_at_every_request_of_the_first(root: MemoryStore, clean: Workspace) -> None:
    """C13, C14: the second does all of its work before each request of the first, and after; both get one answer."""
    for number, step in enumerate(range(1, STEPS + 2)):
        second: list[Receipt] = []

        def intrude(operation: Operation, step: int = step, name: str = f"n{number}") -> Fault:
            if operation.serial == step:
                second.append(clean.ledger("catalog").append(said(name)))  # noqa: B023 - used within its turn
            return Fault.PASS

        first = opened(root, intrude, seed=number).ledger("catalog").append(said(f"n{number}"))
        if not second:
            second.append(clean.ledger("catalog").append(said(f"n{number}")))
        assert first.event_id == second[0].event_id
        assert {first.duplicate, second[0].duplicate} == {True, False}
    assert len(told(clean.store)) == STEPS + 1
