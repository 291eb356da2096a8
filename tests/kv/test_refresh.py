"""Refresh while others read: no torn answer, nobody waits, and nothing of the old snapshot stays behind."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from holdfast.chain import Chain, Refreshed
from holdfast.errors import ReaderClosed
from holdfast.kv import AsyncShardedReader, ConcurrentShardedReader, ShardedReader
from holdfast.storage import LocalStore, ObjectStore
from holdfast.testing.faulty import CountingStore, InterceptedStore
from tests.chain.publishing import ChainFactory
from tests.kv.readers import KINDS, MODES, opened
from tests.kv.versions import KEYS, LAST, SHARDS, ask_everything, publish_version, version_in

THREADS = 4
STEPS = 12
PROCESSES = 2


class Gate(InterceptedStore):
    """Holds up requests for shards while it is shut."""

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store)
        self.open = threading.Event()
        self.open.set()
        self.reached = threading.Event()

    def get_range(self, key: str, start: int, length: int) -> bytes:
        self.reached.set()
        assert self.open.wait(60)
        return super().get_range(key, start, length)


@pytest.fixture
def no_collector() -> Iterator[None]:
    """What goes must go by itself: nothing may wait for the garbage collector."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def mappings() -> int:
    """How many mapped shards this process has."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return sum("/cache/" in line or ".arrow" in line for line in lines)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def step(chain: Chain, number: int) -> None:
    """What an operator's day looks like: publishes, and now and then a rollback."""
    if number % 4 == 3:
        chain.rollback(offset=1)
    else:
        publish_version(chain, number)


@pytest.mark.parametrize("mode", MODES)
def test_threads_read_whole_snapshots_while_another_publishes_and_rolls_back(
    chain: Chain, chain_factory: ChainFactory, tmp_path: Path, mode: str
) -> None:
    """K15: every look-up of many keys is answered from one snapshot, none fails, and nothing is left open."""
    publish_version(chain, 0)
    before = descriptors(), mappings()
    stop = threading.Event()
    seen: set[int] = set()

    def read(number: int) -> int:
        turn = number
        while not stop.is_set():
            seen.add(ask_everything(reader, turn))
            turn += 1
        return turn

    def refresh(_: int) -> int:
        swaps = 0
        while not stop.is_set():
            swaps += reader.refresh() is Refreshed.SWAPPED
        return swaps

    with (
        ConcurrentShardedReader.open(chain_factory(), mode=mode, cache=tmp_path / "cache") as reader,
        ThreadPoolExecutor(THREADS + 2) as pool,
    ):
        jobs = [pool.submit(read, number) for number in range(THREADS)]
        refreshes = [pool.submit(refresh, number) for number in range(2)]
        try:
            for number in range(1, STEPS):
                step(chain, number)
        finally:
            stop.set()
        assert all(job.result() for job in jobs)
        swaps = sum(job.result() for job in refreshes)
        reader.refresh()
        assert version_in(reader.multi_get(range(KEYS)), range(KEYS)) == STEPS - 3
    assert 1 <= swaps <= STEPS
    assert len(seen) >= 2
    assert (descriptors(), mappings()) == before


@pytest.mark.parametrize("store_kind", ["file"])
def test_processes_read_whole_snapshots_while_another_publishes_and_rolls_back(chain: Chain, tmp_path: Path) -> None:
    """K15: the same between processes: each refreshes when it likes, and no answer is torn."""
    publish_version(chain, 0)
    assert isinstance(chain.store, LocalStore)
    command = [sys.executable, "-m", "tests.kv.versions", chain.store.url]
    root = Path(__file__).parents[2]
    processes = [
        subprocess.Popen(
            [*command, MODES[number % 2], str(tmp_path / "cache")],
            cwd=root,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(PROCESSES)
    ]
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for number in range(1, STEPS):
            step(chain, number)
        publish_version(chain, LAST)
        for process in processes:
            out, _ = process.communicate(timeout=120)
            assert process.returncode == 0
            versions, swaps = map(int, out.split())
            assert versions >= 2
            assert swaps >= 1
    finally:
        for process in processes:
            process.kill()
            process.communicate()


@pytest.mark.parametrize("mode", MODES)
def test_tasks_read_whole_snapshots_while_one_refreshes(chain: Chain, tmp_path: Path, mode: str) -> None:
    """K15: the async reader: look-ups go on while a refresh waits for the store."""
    publish_version(chain, 0)
    before = descriptors(), mappings()

    async def scenario() -> set[int]:
        seen: set[int] = set()
        done = asyncio.Event()
        async with await AsyncShardedReader.open(chain, mode=mode, cache=tmp_path / "cache") as reader:

            async def read(start: int) -> None:
                turn = start
                while not done.is_set():
                    some = [(turn + step) % KEYS for step in range(40)]
                    seen.add(version_in(await reader.multi_get(some), some))
                    row = await reader.get(some[0])
                    version_in({some[0]: row}, some[:1])
                    table = await reader.get_arrow(some)
                    assert len(set(table.column("version").to_pylist())) == 1
                    turn += 1
                    await asyncio.sleep(0)

            async with asyncio.TaskGroup() as group:
                for start in range(4):
                    group.create_task(read(start))
                for number in range(1, STEPS):
                    await asyncio.to_thread(step, chain, number)
                    assert await reader.refresh() is Refreshed.SWAPPED
                done.set()
            assert version_in(await reader.multi_get(range(KEYS)), range(KEYS)) == STEPS - 3
        return seen

    assert len(asyncio.run(scenario())) >= 3
    assert (descriptors(), mappings()) == before


@pytest.mark.parametrize("store_kind", ["memory"])
def test_a_refresh_that_waits_for_the_store_holds_nobody_up(
    chain: Chain, chain_factory: ChainFactory, tmp_path: Path
) -> None:
    """K15: while shards are being downloaded the old snapshot answers, in threads and in tasks."""
    publish_version(chain, 0)
    gate = Gate(chain_factory.store)
    there = chain_factory(store=gate)
    with (
        ConcurrentShardedReader.open(there, cache=tmp_path / "cache") as reader,
        ThreadPoolExecutor(2) as pool,
    ):
        publish_version(chain, 1)
        gate.open.clear()
        gate.reached.clear()
        refreshing = [pool.submit(reader.refresh) for _ in range(2)]
        assert gate.reached.wait(60)
        assert ask_everything(reader, 3) == 0
        assert not any(job.done() for job in refreshing)
        gate.open.set()
        assert sorted(job.result() for job in refreshing) == [Refreshed.SWAPPED, Refreshed.UNCHANGED]
        assert ask_everything(reader, 3) == 1

    async def scenario() -> None:
        async with await AsyncShardedReader.open(there, cache=tmp_path / "cache") as tasks:
            publish_version(chain, 2)
            gate.open.clear()
            refreshing = asyncio.create_task(tasks.refresh())
            await asyncio.sleep(0)
            row = await tasks.get(7)
            assert row == {"version": 1, "text": "1:7"}
            gate.open.set()
            assert await refreshing is Refreshed.SWAPPED

    asyncio.run(scenario())


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("kind", [ShardedReader, ConcurrentShardedReader])
def test_an_old_snapshot_goes_when_its_last_borrower_is_done(
    chain: Chain, tmp_path: Path, kind: type[ShardedReader]
) -> None:
    """K15: a look-up that has begun keeps its snapshot; then its mappings go at once, without a garbage collector."""
    publish_version(chain, 0)
    start = mappings()
    with kind.open(chain, cache=tmp_path / "cache") as reader:
        assert mappings() == start + SHARDS
        borrowed: Callable[..., object] | None = reader.get
        publish_version(chain, 1)
        assert reader.refresh() is Refreshed.SWAPPED
        assert mappings() == start + 2 * SHARDS, "the old one is still borrowed"
        assert borrowed is not None
        assert borrowed(7) == {"version": 0, "text": "0:7"}
        assert reader.get(7) == {"version": 1, "text": "1:7"}
        borrowed = None
        assert mappings() == start + SHARDS
    assert mappings() == start


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", KINDS)
def test_many_refreshes_leave_nothing_behind(chain: Chain, tmp_path: Path, mode: str, kind: str) -> None:
    """K15: descriptors, mappings and memory are the same after a hundred refreshes as after ten."""
    publish_version(chain, 0)
    publish_version(chain, 1)
    with opened(kind, chain, mode=mode, cache=tmp_path / "cache") as reader:

        def go(rounds: int) -> tuple[int, int]:
            for number in range(rounds):
                chain.rollback(offset=(number + 1) % 2)
                assert reader.refresh() is Refreshed.SWAPPED
                found = reader.multi_get(range(KEYS))
                assert version_in(found, range(KEYS)) == number % 2
            return descriptors(), mappings()

        settled = go(10)
        resident = resident_bytes()
        assert go(100) == settled
        assert resident_bytes() - resident < 24 << 20


def test_a_reader_that_is_closed_during_a_refresh_stays_closed(
    chain: Chain, chain_factory: ChainFactory, tmp_path: Path
) -> None:
    """K15, K18: what the refresh fetched is let go, and nothing is served any more."""
    publish_version(chain, 0)
    before = mappings()
    gate = Gate(chain_factory.store)
    reader = ConcurrentShardedReader.open(chain_factory(store=gate), cache=tmp_path / "cache")
    publish_version(chain, 1)
    with ThreadPoolExecutor(1) as pool:
        gate.open.clear()
        gate.reached.clear()
        refreshing = pool.submit(reader.refresh)
        assert gate.reached.wait(60)
        reader.close()
        gate.open.set()
        assert isinstance(refreshing.exception(60), ReaderClosed)
    del refreshing
    with pytest.raises(ReaderClosed):
        reader.get(7)
    gc.collect()  # the error's traceback held the refresh's last steps
    assert mappings() == before


@pytest.mark.parametrize("store_kind", ["memory"])
def test_an_async_reader_that_is_closed_during_a_refresh_stays_closed(
    chain: Chain, chain_factory: ChainFactory, tmp_path: Path
) -> None:
    """K15, K18: the same for tasks."""
    publish_version(chain, 0)
    before = mappings()
    gate = Gate(chain_factory.store)

    async def scenario() -> None:
        reader = await AsyncShardedReader.open(chain_factory(store=gate), cache=tmp_path / "cache")
        publish_version(chain, 1)
        gate.open.clear()
        gate.reached.clear()
        refreshing = asyncio.create_task(reader.refresh())
        assert await asyncio.to_thread(gate.reached.wait, 60)
        reader.close()
        gate.open.set()
        with pytest.raises(ReaderClosed):
            await refreshing
        with pytest.raises(ReaderClosed):
            await reader.get(7)

    asyncio.run(scenario())
    gc.collect()
    assert mappings() == before


@pytest.mark.parametrize("kind", KINDS)
def test_a_refresh_without_news_is_one_conditional_request(
    chain: Chain, chain_factory: ChainFactory, tmp_path: Path, kind: str
) -> None:
    """K16, S29: nothing is loaded again."""
    publish_version(chain, 0)
    counting = CountingStore(chain_factory.store)
    with opened(kind, chain_factory(store=counting), mode="cache", cache=tmp_path / "cache") as reader:
        counting.reset()
        assert reader.refresh() is Refreshed.UNCHANGED
        assert counting.counts == {"get_if_changed": 1}
