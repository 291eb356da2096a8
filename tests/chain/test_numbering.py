"""Numbers that are never given twice: to threads, to processes, through lost answers and after crashes."""

from __future__ import annotations

import multiprocessing
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.chain import ChainHandle, chain_on, graph_layout
from holdfast.chain.numbering import CONFLICTS_MAX, Numbering, reserve
from holdfast.errors import BadInput, Conflict, CorruptRecord, StoreUnavailable, UnsupportedFormat
from holdfast.storage import LocalStore, MemoryStore, ObjectStore
from holdfast.testing.clock import VirtualClock
from holdfast.testing.faulty import CountingStore, Crashed, Fault, FaultyStore, Operation
from tests.chain.publishing import ChainFactory, overwrite, publish_one

LAYOUT = graph_layout()
KEY = LAYOUT.segment_ids_key
THREADS, PROCESSES, ROUNDS = 8, 4, 12
WAIT_MAX_S = 120

on_graphs = pytest.mark.parametrize("layout_name", ["graph"])
FAULTS = [Fault.PASS, Fault.ERROR_BEFORE, Fault.ERROR_AFTER, Fault.ECHO, Fault.CRASH_BEFORE, Fault.CRASH_AFTER]


def handle_on(store: ObjectStore) -> ChainHandle:
    """With a clock that does not make anybody wait."""
    return chain_on(store, LAYOUT, by="writer", clock=VirtualClock()).handle


def handed_out(handle: ChainHandle) -> set[int]:
    """Several reservations of different lengths, which must be apart from one another already."""
    given_out: list[int] = []
    for turn in range(ROUNDS):
        given_out += reserve(handle, KEY, 1 + turn % 3)
    assert len(given_out) == len(set(given_out))
    return set(given_out)


def in_threads(open_one: Callable[[int], ChainHandle]) -> list[set[int]]:
    """All at once, each with a handle of its own."""
    barrier = threading.Barrier(THREADS)
    found: dict[int, set[int]] = {}

    def work(number: int) -> None:
        handle = open_one(number)
        barrier.wait(WAIT_MAX_S)
        found[number] = handed_out(handle)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_MAX_S)
    assert sorted(found) == list(range(THREADS))
    return list(found.values())


def require_disjoint(found: list[set[int]]) -> None:
    counts = Counter(number for numbers in found for number in numbers)
    assert {number for number, count in counts.items() if count > 1} == set()


def test_numbers_begin_at_one_and_go_on_where_the_last_ended() -> None:
    """G10: each call gets the next ones, in a range of its own."""
    handle = handle_on(MemoryStore())
    assert [reserve(handle, KEY, count) for count in (1, 3, 1)] == [range(1, 2), range(2, 5), range(5, 6)]
    assert reserve(handle, "other.json") == range(1, 2)


@pytest.mark.parametrize("store_kind", ["memory", "file"])
def test_threads_never_get_the_same_number(store: ObjectStore) -> None:
    """G10: eight threads at once; nothing is given twice, and nothing is wasted while every answer arrives."""
    found = in_threads(lambda _: handle_on(store))
    require_disjoint(found)
    assert set().union(*found) == set(range(1, 1 + THREADS * ROUNDS * 2))


def _in_a_process(root: Path) -> set[int]:
    return handed_out(replace(chain_on(LocalStore(root), LAYOUT).handle, backoff_s=0.001))


def test_processes_never_get_the_same_number(tmp_path: Path) -> None:
    """G10: four processes and eight threads on one file system."""
    root = tmp_path / "store"
    with multiprocessing.get_context("spawn").Pool(PROCESSES) as pool:
        others = pool.map_async(_in_a_process, [root] * PROCESSES)
        found = in_threads(lambda _: replace(chain_on(LocalStore(root), LAYOUT).handle, backoff_s=0.001))
        found += others.get(WAIT_MAX_S)
    assert len(found) == PROCESSES + THREADS
    require_disjoint(found)


def test_lost_answers_never_give_a_number_twice() -> None:
    """G10: every third write lands and is reported as an error or as a conflict with itself, for everybody at once."""
    store = MemoryStore()

    def plan(operation: Operation) -> Fault:
        if operation.kind not in {"swap", "put_new"} or operation.number % 3:
            return Fault.PASS
        return Fault.ECHO if operation.number % 2 else Fault.ERROR_AFTER

    require_disjoint(in_threads(lambda _: handle_on(FaultyStore(store, plan))))


@given(st.lists(st.sampled_from(FAULTS), max_size=30), st.integers(1, 5))
def test_no_fault_gives_a_number_twice(faults: list[Fault], count: int) -> None:
    """G10: whatever becomes of each request, what was returned is new, and crashed callers got nothing."""
    waiting = list(faults)
    store = MemoryStore()
    faulty = handle_on(FaultyStore(store, lambda _: waiting.pop(0) if waiting else Fault.PASS))
    sound = handle_on(store)
    found: list[set[int]] = []
    for turn in range(12):
        try:
            found.append(set(reserve(faulty if turn % 3 else sound, KEY, count)))
        except (Crashed, StoreUnavailable):
            continue
    require_disjoint(found)


def test_an_answer_that_was_lost_is_recognised() -> None:
    """G10: our own token is read back, so not even a lost answer wastes a number while nobody else writes."""
    faults = {("put_new", 1): Fault.ERROR_AFTER, ("swap", 1): Fault.ECHO, ("swap", 2): Fault.ERROR_AFTER}
    handle = handle_on(FaultyStore(MemoryStore(), lambda one: faults.get((one.kind, one.number), Fault.PASS)))
    assert [reserve(handle, KEY) for _ in range(4)] == [range(number, number + 1) for number in (1, 2, 3, 4)]


def test_a_write_that_somebody_followed_up_wastes_its_numbers() -> None:
    """G10: our write landed, its answer was lost, and another wrote after it: we cannot tell, so we take new ones."""
    store = MemoryStore()
    others: list[range] = []

    def plan(operation: Operation) -> Fault:
        if (operation.kind, operation.number) == ("get", 2):
            others.append(reserve(handle_on(store), KEY))
        return Fault.ERROR_AFTER if operation.kind == "put_new" else Fault.PASS

    mine = reserve(handle_on(FaultyStore(store, plan)), KEY, 5)
    assert (others, mine) == ([range(6, 7)], range(7, 12))


def test_a_reservation_is_two_requests() -> None:
    """G10: a read and a swap; a hundred numbers cost no more than one."""
    counting = CountingStore(MemoryStore())
    handle = handle_on(counting)
    reserve(handle, KEY)
    assert counting.counts == {"get": 1, "put_new": 1}
    counting.reset()
    reserve(handle, KEY, 100)
    assert counting.counts == {"get": 1, "swap": 1}


def test_a_store_that_does_not_answer_is_given_up() -> None:
    """G10: bounded attempts, then the store's own error; a record that never stands still is a conflict."""
    store = MemoryStore()
    silent = replace(handle_on(FaultyStore(store, lambda _: Fault.ERROR_BEFORE)), attempts_max=5)
    with pytest.raises(StoreUnavailable):
        reserve(silent, KEY)

    def busy(operation: Operation) -> Fault:
        if operation.kind == "swap":
            reserve(handle_on(store), KEY)
        return Fault.PASS

    reserve(handle_on(store), KEY)
    faulty = FaultyStore(store, busy)
    with pytest.raises(Conflict, match="kept changing"):
        reserve(handle_on(faulty), KEY)
    assert sum(one.kind == "swap" for one in faulty.log) == CONFLICTS_MAX


def test_a_lost_record_begins_above_everything_that_is_named() -> None:
    """G10: the floor is asked for only where the record is missing, and kept from then on."""
    handle = handle_on(MemoryStore())
    asked: list[int] = []

    def highest() -> int:
        asked.append(1)
        return 41

    assert reserve(handle, KEY, 2, floor=highest) == range(42, 44)
    assert reserve(handle, KEY, floor=highest) == range(44, 45)
    assert asked == [1]
    assert reserve(handle, KEY, floor=100) == range(101, 102)
    assert reserve(handle, KEY, floor=7) == range(102, 103)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"{}", b'{"format": "holdfast.numbering/1.0", "next": -1}'])
def test_a_damaged_record_is_never_a_new_beginning(data: bytes) -> None:
    """G10: nothing is given out, and nothing is written over the evidence."""
    store = MemoryStore()
    reserve(handle_on(store), KEY)
    overwrite(store, KEY, data)
    with pytest.raises(CorruptRecord, match=KEY):
        reserve(handle_on(store), KEY, floor=10)
    assert store.get(KEY).data == data


def test_a_newer_record_is_refused_and_unknown_fields_are_kept() -> None:
    """S9: as for every record."""
    store = MemoryStore()
    store.put_new(KEY, b'{"format": "holdfast.numbering/1.7", "next": 5, "revision": 1, "token": "t", "later": [1]}')
    assert reserve(handle_on(store), KEY) == range(5, 6)
    stored = orjson.loads(store.get(KEY).data)
    assert (stored["next"], stored["revision"], stored["later"]) == (6, 2, [1])
    assert Numbering.decode(store.get(KEY).data, key=KEY).encode() == store.get(KEY).data
    overwrite(store, KEY, b'{"format": "holdfast.numbering/2.0", "next": 5, "revision": 1, "token": "t"}')
    with pytest.raises(UnsupportedFormat):
        reserve(handle_on(store), KEY)


@pytest.mark.parametrize("count", [0, -1])
def test_no_numbers_cannot_be_reserved(count: int) -> None:
    """G10: a call that cannot be right is refused."""
    with pytest.raises(BadInput, match="at least 1"):
        reserve(handle_on(MemoryStore()), KEY, count)


@on_graphs
def test_rollback_collection_and_purge_leave_the_numbers_alone(chain_factory: ChainFactory) -> None:
    """G10: whatever is taken back or deleted, the next number is above all that were given out."""
    chain = chain_factory()
    publish_one(chain, b"one")
    assert reserve(chain.handle, KEY, 7) == range(1, 8)
    publish_one(chain, b"two")
    chain.rollback()
    chain.forward()
    chain_factory.clock.advance(1e6)
    chain.collect(retention=1)
    chain.purge(grace_s=0)
    assert reserve(chain.handle, KEY) == range(8, 9)
