"""Writers that really run at once, in threads and in processes, on one chain."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.chain import Chain, Committed, Layout, Superseded, Unknown, chain_on
from holdfast.clock import SystemClock
from holdfast.errors import Conflict, Fenced
from holdfast.storage import LocalStore, ObjectStore
from holdfast.testing.faulty import Fault, FaultyStore, Operation
from tests.chain.publishing import LAYOUTS, try_publish

WRITERS = 8
ROUNDS = 3
ATTEMPTS_MAX = 3000
WAIT_MAX_S = 120

some_layouts = pytest.mark.parametrize("layout_name", ["domain", "kv"])


def write_rounds(chain: Chain, name: str, *, rounds: int) -> list[tuple[str, str]]:
    """Publish until `rounds` commits are made, taking the lock whenever it is free; what was reported, in order."""
    reported: list[tuple[str, str]] = []
    committed = 0
    for attempt in range(ATTEMPTS_MAX):
        try:
            outcome = try_publish(chain, f"{name}/{attempt}".encode(), run_id=f"{name}-{attempt}")
        except (Conflict, Fenced):
            chain.handle.clock.sleep(0.001)
            continue
        match outcome:
            case Committed():
                reported.append(("committed", outcome.commit_ulid))
                committed += 1
            case Superseded():
                reported.append(("superseded", outcome.commit_ulid))
            case Unknown():
                reported.append(("unknown", outcome.commit_ulid))
        if committed == rounds:
            return reported
    raise AssertionError(f"{name} was starved: {reported}")


def judge(chain: Chain, reported: list[tuple[str, str]]) -> None:
    """Every commit that was reported is in the history exactly once, nothing else is, and the chain is whole."""
    history = [each.commit_ulid for each in chain.list_manifests(10**6)]
    committed = [ulid for kind, ulid in reported if kind == "committed"]
    assert sorted(history) == sorted(committed)
    assert history == sorted(set(history), reverse=True)
    assert not {ulid for kind, ulid in reported if kind == "superseded"} & set(history)
    chain.reconcile(enforce=True)
    assert chain.verify() == []


def in_threads(open_one: Callable[[int], Chain], *, rounds: int) -> list[tuple[str, str]]:
    """All writers at once, each with a handle of its own."""
    barrier = threading.Barrier(WRITERS)
    reported: dict[int, list[tuple[str, str]]] = {}

    def work(number: int) -> None:
        chain = open_one(number)
        barrier.wait(WAIT_MAX_S)
        reported[number] = write_rounds(chain, f"w{number}", rounds=rounds)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(WRITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_MAX_S)
    assert sorted(reported) == list(range(WRITERS))
    return [each for many in reported.values() for each in many]


@some_layouts
@pytest.mark.parametrize("store_kind", ["memory", "file"])
def test_of_eight_racing_threads_every_reported_commit_is_history_once(store: ObjectStore, layout: Layout) -> None:
    """S10, S17: no commit is lost, none is doubled, and nobody is told what is not so."""
    reported = in_threads(lambda number: chain_on(store, layout, by=f"w{number}"), rounds=ROUNDS)
    judge(chain_on(store, layout), reported)
    assert [kind for kind, _ in reported].count("committed") == WRITERS * ROUNDS


@some_layouts
@pytest.mark.parametrize("store_kind", ["memory"])
def test_racing_threads_that_lose_answers_still_report_the_truth(store: ObjectStore, layout: Layout) -> None:
    """S10, S17: with every fifth write of a pointer or manifest losing its answer, the log still agrees."""

    def flaky(number: int) -> Chain:
        faults = [Fault.ERROR_AFTER, Fault.ECHO, Fault.ERROR_BEFORE]

        def plan(operation: Operation) -> Fault:
            is_commit = operation.key == layout.pointer_key or layout.parse_manifest_key(operation.key) is not None
            if is_commit and operation.kind in {"put_new", "swap"} and (operation.number + number) % 5 == 0:
                return faults[operation.number % 3]
            return Fault.PASS

        return chain_on(FaultyStore(store, plan), layout, by=f"w{number}")

    judge(chain_on(store, layout), in_threads(flaky, rounds=ROUNDS))


@some_layouts
@pytest.mark.parametrize("store_kind", ["memory", "file"])
def test_writers_that_share_one_lock_race_for_the_pointer_alone(store: ObjectStore, layout: Layout) -> None:
    """S10, S19: under one token only compare-and-swap decides; of those that read the same pointer one commits."""
    first = chain_on(store, layout, by="first")
    assert isinstance(try_publish(first, b"start"), Committed)
    with first.lock(ttl_s=600) as guard:
        barrier = threading.Barrier(WRITERS)
        reported: list[tuple[str, str]] = []

        def work(number: int) -> None:
            chain = chain_on(store, layout, by=f"w{number}")
            chain.begin_run(f"look-{number}").fail("only to look")
            barrier.wait(WAIT_MAX_S)
            outcome = try_publish(chain, b"%d" % number, guard=guard, run_id=f"w{number}")
            reported.append((type(outcome).__name__.lower(), outcome.commit_ulid))

        threads = [threading.Thread(target=work, args=(number,)) for number in range(WRITERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT_MAX_S)
    kinds = sorted(kind for kind, _ in reported)
    assert kinds == ["committed"] + ["superseded"] * (WRITERS - 1)
    history = [each.commit_ulid for each in chain_on(store, layout).list_manifests(100)]
    assert history[0] == next(ulid for kind, ulid in reported if kind == "committed")
    assert len(history) == 2


def _process(folder: str, layout_name: str, number: int) -> list[tuple[str, str]]:
    store = LocalStore(Path(folder), durable=False)
    chain = chain_on(store, LAYOUTS[layout_name], by=f"p{number}", clock=SystemClock())
    return write_rounds(chain, f"p{number}", rounds=2)


@pytest.mark.parametrize("layout_name", ["domain"])
def test_of_eight_racing_processes_every_reported_commit_is_history_once(layout_name: str, tmp_path: Path) -> None:
    """S10, S17: the same between processes, which share nothing but the files."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(WRITERS) as pool:
        tasks = [(str(tmp_path / "store"), layout_name, number) for number in range(WRITERS)]
        results = pool.starmap_async(_process, tasks, chunksize=1).get(WAIT_MAX_S)
    chain = chain_on(LocalStore(tmp_path / "store", durable=False), LAYOUTS[layout_name])
    judge(chain, [each for many in results for each in many])
