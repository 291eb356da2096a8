"""Places in a ledger only grow: for threads, for processes, whatever the clock says and whatever was lost."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import orjson
import pytest

from holdfast.catalog import Ledger, Receipt, Workspace
from holdfast.catalog.positions import RECOVERY_GAP, PositionRecord
from holdfast.chain.ids import ULID_LAST
from holdfast.errors import BadInput, Conflict, CorruptRecord, LedgerFull, NotFound, UnsupportedFormat
from holdfast.storage import LocalStore, MemoryStore, ObjectStore
from holdfast.testing.clock import SeededRandomness, VirtualClock
from holdfast.testing.faulty import Crashed, Fault, FaultyStore, Operation
from tests.catalog.auditing import audit, publish_watermark, said, told
from tests.chain.publishing import edit, overwrite

in_memory = pytest.mark.parametrize("store_kind", ["memory"])
COUNTER = "locks/catalog.positions.json"
THREADS, PROCESSES, EVENTS = 8, 3, 12
WAIT_MAX_S = 60


def in_threads(work: Callable[[int], None], threads: int = THREADS) -> None:
    started = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(threads)]
    for thread in started:
        thread.start()
    join(started)


def join(threads: list[threading.Thread]) -> None:
    """All of them end, and nobody waits for one that never does."""
    for thread in threads:
        thread.join(WAIT_MAX_S)
        assert not thread.is_alive()


def wait_for(ledger: Ledger, count: int, leader: threading.Thread) -> None:
    """Until so many callers wait for a swap that the leader makes."""
    for _ in range(WAIT_MAX_S * 1_000):
        if len(ledger._counter._waiting) == count:
            return
        leader.join(0.001)
    raise AssertionError(f"not {count} callers wait")


def require_rising(receipts: list[Receipt]) -> None:
    """Each place is above the one before, by position and by id."""
    for first, second in pairwise(receipts):
        assert second.position > first.position
        assert second.event_id > first.event_id


def test_threads_get_places_of_their_own_that_rise_for_each_and_share_swaps(workspace: Workspace) -> None:
    """C14: no position twice, none lost; while one thread swaps, the others wait, and share the next swap."""
    ledger = workspace.ledger("catalog")
    barrier = threading.Barrier(THREADS)
    found: dict[int, list[Receipt]] = {}

    def work(number: int) -> None:
        barrier.wait(WAIT_MAX_S)
        found[number] = [ledger.append(said(f"n{number}-{turn}")) for turn in range(EVENTS)]

    in_threads(work)
    for mine in found.values():
        require_rising(mine)
    positions = sorted(receipt.position for mine in found.values() for receipt in mine)
    assert positions == list(range(1, THREADS * EVENTS + 1))
    assert ledger.metrics.snapshot()["reservations"] <= THREADS * EVENTS


@in_memory
def test_callers_that_wait_together_get_one_block(root: MemoryStore, clock: VirtualClock) -> None:
    """C14: seven appends that arrive during a swap cost one more swap between them."""
    together = threading.Semaphore(0)
    seen: list[Operation] = []

    def plan(operation: Operation) -> Fault:
        if operation.kind == "swap":
            seen.append(operation)
            if len(seen) == 1:
                together.acquire(timeout=WAIT_MAX_S)  # until the others are known to wait
        return Fault.PASS

    Workspace(root=root, tenant="acme", name="prod", clock=clock).initialize()
    workspace = Workspace(root=FaultyStore(root, plan), tenant="acme", name="prod", clock=clock)
    ledger = workspace.ledger("catalog")
    receipts: list[Receipt] = []

    def work(number: int) -> None:
        receipts.append(ledger.append(said(f"n{number}")))

    threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    wait_for(ledger, THREADS - 1, threads[0])
    together.release()
    join(threads)
    assert len(seen) == 2
    assert ledger.metrics.snapshot()["reservations"] == 2
    assert sorted(receipt.position for receipt in receipts) == list(range(1, THREADS + 1))


@in_memory
def test_a_thread_that_is_ended_while_it_swaps_for_others_does_not_take_them_along(
    root: MemoryStore, clock: VirtualClock
) -> None:
    """C14: the others of its block are led by one of them; the places it had taken stay unused."""
    ends = threading.Semaphore(0)
    swaps: list[Operation] = []

    def plan(operation: Operation) -> Fault:
        if operation.kind == "swap":
            swaps.append(operation)
            if len(swaps) == 1:
                ends.acquire(timeout=WAIT_MAX_S)
            if len(swaps) == 2:
                return Fault.CRASH_AFTER
        return Fault.PASS

    Workspace(root=root, tenant="acme", name="prod", clock=clock).initialize()
    ledger = Workspace(root=FaultyStore(root, plan), tenant="acme", name="prod", clock=clock).ledger("catalog")
    receipts: list[Receipt] = []
    ended: list[Crashed] = []

    def work(number: int) -> None:
        try:
            receipts.append(ledger.append(said(f"n{number}")))
        except Crashed as crash:
            ended.append(crash)

    threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(4)]
    for thread in threads:
        thread.start()
    wait_for(ledger, 3, threads[0])
    ends.release()
    join(threads)
    assert (len(ended), sorted(receipt.position for receipt in receipts)) == (1, [1, 5, 6])


def _append_in_a_process(root: Path, number: int) -> list[tuple[int, str, bool]]:
    workspace = Workspace(root=LocalStore(root, durable=False), tenant="acme", name="prod", by=f"process-{number}")
    ledger = workspace.ledger("catalog")
    own = [ledger.append(said(f"p{number}-{turn}")) for turn in range(EVENTS)]
    shared = [ledger.append(said(f"shared-{turn}")) for turn in range(EVENTS)]
    require_rising(own)
    return [(receipt.position, receipt.event_id, receipt.duplicate) for receipt in own + shared]


def test_processes_that_append_at_once_share_one_order_and_say_the_same_once(tmp_path: Path) -> None:
    """C13, C14, C15: three processes, started anew, on one file system."""
    workspace = Workspace(root=LocalStore(tmp_path / "root", durable=False), tenant="acme", name="prod")
    workspace.initialize()
    with multiprocessing.get_context("spawn").Pool(PROCESSES) as pool:
        tasks = [(tmp_path / "root", number) for number in range(PROCESSES)]
        found = pool.starmap_async(_append_in_a_process, tasks, chunksize=1).get(WAIT_MAX_S)
    everything = [one for mine in found for one in mine]
    fresh = [(position, event_id) for position, event_id, duplicate in everything if not duplicate]
    assert len(fresh) == len(set(fresh)) == (PROCESSES + 1) * EVENTS
    assert [event_id for _, event_id in sorted(fresh)] == sorted(event_id for _, event_id in fresh)
    assert len({place[:2] for mine in found for place in mine[EVENTS:]}) == EVENTS
    assert len(told(workspace.store)) == (PROCESSES + 1) * EVENTS
    assert audit(workspace.store) == []


def test_what_has_returned_is_below_what_is_called_after_in_any_process(workspace: Workspace) -> None:
    """C14: two processes take turns; nobody keeps places for a rainy day."""
    ledgers = [workspace.ledger("catalog", source=f"w{number}") for number in range(3)]
    receipts = [ledgers[turn * 7 % 3].append(said(f"n{turn}")) for turn in range(12)]
    require_rising(receipts)
    assert [receipt.position for receipt in receipts] == list(range(1, 13))


@in_memory
def test_ids_rise_while_the_clock_jumps(workspace: Workspace, clock: VirtualClock) -> None:
    """C15: back by a second, by a year, before 1970, and far forward: the order of ids is that of positions."""
    receipts = []
    for turn, jump_s in enumerate((0.0, -1.0, -86_400.0 * 365, 86_400.0, 1e9, -1e9, 0.0, -1e9, -1e9)):
        clock.advance(jump_s)
        ledger = workspace.ledger("catalog", source=f"w{turn % 3}")
        receipts.append(ledger.append(said(f"n{turn}")))
    require_rising(receipts)


@in_memory
def test_two_writers_with_different_clocks_share_one_order(root: ObjectStore, workspace: Workspace) -> None:
    """C15: one that is a day behind appends above one that is a day ahead."""
    moments = [datetime(2026, 3, day, tzinfo=UTC) for day in (20, 1, 10)]
    ledgers = [
        Workspace(
            root=root, tenant="acme", name="prod", clock=VirtualClock(moment), randomness=SeededRandomness(number)
        ).ledger("catalog")
        for number, moment in enumerate(moments)
    ]
    require_rising([ledgers[turn % 3].append(said(f"n{turn}")) for turn in range(9)])


@in_memory
@pytest.mark.parametrize("jump_s", [2.0, -3600.0])
def test_ids_and_positions_are_above_a_watermark_from_the_future(
    workspace: Workspace, clock: VirtualClock, jump_s: float
) -> None:
    """C15: a manifest that says it has folded more than the counter knows of is believed."""
    ledger = workspace.ledger("catalog")
    first = ledger.append(said("before"))
    future = "7AAAAAAAAAAAAAAAAAAAAAAAAA"
    publish_watermark(workspace, 5_000, future)
    clock.advance(jump_s)  # what was seen a moment ago is believed for a second, by a clock that may have gone back
    second = ledger.append(said("after"))
    assert second.event_id > future > first.event_id
    assert second.position == 5_001
    require_rising([first, second, workspace.ledger("catalog").append(said("later"))])


@in_memory
def test_the_last_id_of_all_is_an_error_and_not_a_wrong_id(workspace: Workspace) -> None:
    """C15: nothing is above it; the message says where that comes from."""
    publish_watermark(workspace, 1, ULID_LAST)
    with pytest.raises(CorruptRecord, match=f"no event id is above {ULID_LAST}"):
        workspace.ledger("catalog").append(said("sales"))
    assert told(workspace.store) == []


@in_memory
@pytest.mark.parametrize(
    "damage, error",
    [
        (b"", CorruptRecord),
        (b"[]", CorruptRecord),
        (b'{"format": "holdfast.positions/2.0"}', UnsupportedFormat),
        (b'{"format": "holdfast.numbering/1.0"}', CorruptRecord),
    ],
)
def test_a_counter_that_cannot_be_read_is_an_error_and_not_a_new_beginning(
    workspace: Workspace, damage: bytes, error: type[Exception]
) -> None:
    """C14: nothing is appended until somebody has looked at it."""
    good = workspace.store.get(COUNTER).data
    overwrite(workspace.store, COUNTER, damage)
    with pytest.raises(error):
        workspace.ledger("catalog").append(said("sales"))
    assert told(workspace.store) == []
    overwrite(workspace.store, COUNTER, good)


@in_memory
@pytest.mark.parametrize("change", [{"next": 0}, {"next": -1}, {"last_id": "x"}, {"recent": [{}]}, {"written": "1"}])
def test_a_counter_that_makes_no_sense_is_damaged(workspace: Workspace, change: dict[str, object]) -> None:
    """C14: a record is checked when it is read."""
    good = workspace.store.get(COUNTER).data
    edit(workspace.store, COUNTER, **change)
    with pytest.raises(CorruptRecord):
        workspace.ledger("catalog").append(said("sales"))
    overwrite(workspace.store, COUNTER, good)


@in_memory
def test_a_counter_keeps_what_a_newer_release_has_added(workspace: Workspace) -> None:
    """C14, C16: a field that is not known is written back."""
    edit(workspace.store, COUNTER, shard=7)
    workspace.ledger("catalog").append(said("sales"))
    assert orjson.loads(workspace.store.get(COUNTER).data)["shard"] == 7


def test_a_ledger_that_was_never_initialized_takes_nothing(root: ObjectStore) -> None:
    """C14: a mistyped workspace does not become a new one."""
    mistyped = Workspace(root=root, tenant="acme", name="prood")
    with pytest.raises(NotFound, match=r"holdfast init"):
        mistyped.ledger("catalog").append(said("sales"))
    assert [page for page in mistyped.store.list("") if page] == []


def test_a_lost_counter_is_made_again_above_everything_that_was_told(workspace: Workspace) -> None:
    """C14, C15: by `initialize`, which then looks at the ledger and at the manifest; appends wait for that."""
    ledger = workspace.ledger("catalog")
    before = [ledger.append(said(f"n{number}")) for number in range(3)]
    workspace.store.delete([COUNTER])
    for other in (ledger, workspace.ledger("catalog")):
        with pytest.raises(NotFound):
            other.append(said("sales"))
    assert workspace.initialize() == (COUNTER,)
    after = workspace.ledger("catalog").append(said("sales"))
    require_rising([*before, after])
    assert after.position == 3 + RECOVERY_GAP + 1
    with pytest.raises(LedgerFull):  # the gap looks like a lag, until the first event behind it is folded
        ledger.append(said("n1"))
    publish_watermark(workspace, after.position, after.event_id)
    assert ledger.append(said("n1")).event_id == before[1].event_id
    assert ledger.append(said("users")).warning is None


@in_memory
def test_a_lost_counter_is_above_what_is_folded_and_above_what_cannot_be_read(workspace: Workspace) -> None:
    """C14: the manifest may know more than the ledger; where no event tells its position, nothing is made."""
    ledger = workspace.ledger("catalog")
    receipts = [ledger.append(said(f"n{number}")) for number in range(3)]
    workspace.store.delete([COUNTER])
    publish_watermark(workspace, 70, receipts[2].event_id)
    good = {receipt.path: workspace.store.get(receipt.path).data for receipt in receipts}
    for path in good:
        overwrite(workspace.store, path, b"?")
    with pytest.raises(CorruptRecord, match="no position is safe"):
        workspace.initialize()
    for receipt in receipts[:2]:
        overwrite(workspace.store, receipt.path, good[receipt.path])
    assert workspace.initialize() == (COUNTER,)
    after = workspace.ledger("catalog").append(said("sales"))
    assert after.position == 70 + RECOVERY_GAP + 1
    assert after.event_id > receipts[2].event_id
    overwrite(workspace.store, receipts[2].path, good[receipts[2].path])


@in_memory
def test_somebody_who_is_always_first_is_an_error_in_the_end(root: MemoryStore, clock: VirtualClock) -> None:
    """C14: attempts are bounded, and the message names the record."""
    plain = Workspace(root=root, tenant="acme", name="prod", clock=clock)
    plain.initialize()

    def plan(operation: Operation) -> Fault:
        if operation.kind == "swap":
            record = PositionRecord.decode(plain.store.get(COUNTER).data, key=COUNTER)
            edit(plain.store, COUNTER, revision=record.revision + 1)
        return Fault.PASS

    faulty = Workspace(root=FaultyStore(root, plan), tenant="acme", name="prod", clock=clock)
    with pytest.raises(Conflict, match="kept changing for 64 attempts"):
        faulty.ledger("catalog").append(said("sales"))


@in_memory
@pytest.mark.parametrize("count", [0, -1, 1_001])
def test_no_places_and_too_many_places_are_refused(workspace: Workspace, count: int) -> None:
    """C14: a block has a limit."""
    with pytest.raises(BadInput, match="take 1 to 1000"):
        workspace.ledger("catalog")._counter.take(count)
