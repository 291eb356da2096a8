"""The cursor of anti-entropy: it only goes up, whoever moves it and whatever answer is lost."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.catalog.cursor import Cursor, CursorKeeper, read_cursor
from holdfast.catalog.layout import cursor_key
from holdfast.catalog.workspace import Workspace
from holdfast.errors import BadInput, Conflict, CorruptRecord
from holdfast.storage.capabilities import ManifestSwap, Reader
from holdfast.storage.memory import MemoryStore
from holdfast.storage.objects import ObjectStore
from holdfast.storage.principals import grant
from holdfast.testing.clock import SeededRandomness, VirtualClock
from holdfast.testing.faulty import Crashed, Fault, FaultyStore, Operation

IDS = [f"01M7H8H6Z2G4GEWKD5CBMBR2J{last}" for last in "0123456789"]


def keeper_on(store: ObjectStore) -> CursorKeeper:
    return CursorKeeper(
        ManifestSwap(store), Reader(store), clock=VirtualClock(), randomness=SeededRandomness(3)
    )  # fmt: skip


def test_a_cursor_is_kept_by_who_publishes_and_read_by_who_looks(workspace: Workspace) -> None:
    """C18: durable, each domain its own, with no more rights than the two compactors have."""
    fast = grant(workspace.store, "compactor-fastpath")
    watch = grant(workspace.store, "compactor-antientropy")
    assert read_cursor(watch.read, "lineage") is None
    keeper = CursorKeeper(fast.manifest, fast.read, clock=workspace.clock)
    assert keeper.advance("lineage", IDS[3]).revision == 1
    assert keeper.advance("lineage", IDS[5]).revision == 2
    found = read_cursor(watch.read, "lineage")
    assert found is not None
    assert (found.domain, found.event_id, found.revision) == ("lineage", IDS[5], 2)
    assert read_cursor(watch.read, "executions") is None


@given(st.lists(st.sampled_from(IDS), min_size=1, max_size=20))
def test_a_cursor_never_goes_back(ids: list[str]) -> None:
    """C18: in whatever order it is told, it is at the highest."""
    store = MemoryStore()
    seen = [keeper_on(store).advance("catalog", event_id).event_id for event_id in ids]
    assert seen == [max(ids[: place + 1]) for place in range(len(ids))]
    found = read_cursor(Reader(store), "catalog")
    assert found is not None
    assert (found.event_id, found.revision) == (max(ids), len(set(seen)))


@pytest.mark.parametrize("kind", list(Fault))
@pytest.mark.parametrize("serial", range(1, 5))
def test_a_lost_answer_or_a_crash_leaves_a_cursor_that_is_right(kind: Fault, serial: int) -> None:
    """C18: it is where it was or where it should be, and moving it again ends there."""
    inner = MemoryStore()
    keeper_on(inner).advance("catalog", IDS[0])

    def plan(operation: Operation) -> Fault:
        return kind if operation.serial == serial and operation.kind != "get" else Fault.PASS

    with contextlib.suppress(Crashed):
        keeper_on(FaultyStore(inner, plan)).advance("catalog", IDS[4])
    found = read_cursor(Reader(inner), "catalog")
    assert found is not None
    assert found.event_id in {IDS[0], IDS[4]}
    assert keeper_on(inner).advance("catalog", IDS[4]).event_id == IDS[4]


def test_one_who_was_further_wins_the_race() -> None:
    """C18: a swap that comes too late is decided again on what is there."""
    inner = MemoryStore()
    keeper_on(inner).advance("catalog", IDS[0])

    overtaken = {"done": False}

    def plan(operation: Operation) -> Fault:
        if operation.kind == "swap" and not overtaken["done"]:
            overtaken["done"] = True
            keeper_on(inner).advance("catalog", IDS[9])
        return Fault.PASS

    assert keeper_on(FaultyStore(inner, plan)).advance("catalog", IDS[4]).event_id == IDS[9]
    assert overtaken["done"]


def test_what_is_no_cursor_is_refused() -> None:
    """C18: an id that is none, a domain without a ledger, and a record that is damaged or another domain's."""
    store = MemoryStore()
    with pytest.raises(BadInput, match="ULID"):
        keeper_on(store).advance("catalog", "../x")
    with pytest.raises(BadInput, match="no ledger"):
        keeper_on(store).advance("search", IDS[0])
    moved = keeper_on(store).advance("catalog", IDS[0])
    store.put_new(cursor_key("lineage"), moved.encode())
    with pytest.raises(CorruptRecord, match="cursor of 'catalog'"):
        read_cursor(Reader(store), "lineage")
    store.put_new(cursor_key("executions"), moved.encode().replace(IDS[0].encode(), b"nonsense"))
    with pytest.raises(CorruptRecord, match="ULID"):
        read_cursor(Reader(store), "executions")
    kept = Cursor.decode(moved.encode().replace(b'"revision"', b'"later": 1,\n  "revision"'), key="k")
    assert kept.unknown == {"later": 1}
    assert b'"later"' in kept.encode()


def test_a_store_that_never_lets_it_move_is_reported() -> None:
    """C18: after some attempts, with what to do."""
    inner = MemoryStore()

    def plan(operation: Operation) -> Fault:
        return Fault.ERROR_BEFORE if operation.kind == "put_new" else Fault.PASS

    with pytest.raises(Conflict, match="advance it again later"):
        keeper_on(FaultyStore(inner, plan)).advance("catalog", IDS[0])
