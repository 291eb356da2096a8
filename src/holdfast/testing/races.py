"""Races between writers, in threads and in processes. Every round starts at a barrier, so that all of them meet."""

from __future__ import annotations

import contextlib
import multiprocessing
import threading
from collections.abc import Callable, Sequence
from multiprocessing.synchronize import Barrier as ProcessBarrier
from typing import Protocol, TypeAlias

from holdfast.errors import AlreadyExists, VersionConflict
from holdfast.storage.objects import ObjectStore

__all__ = ["Winners", "race_in_processes", "race_in_threads"]

Winners: TypeAlias = dict[tuple[str, int], list[str]]
"""For each race, `create` or `swap` and its number, the tokens of those who were told that they won."""

_WAIT_MAX_S = 60.0


class _Meeting(Protocol):
    def wait(self, timeout: float | None = None) -> int: ...


# Set once in each child by the pool: a barrier can be inherited but not sent.
_barrier_of_process: list[ProcessBarrier] = []


def race_in_threads(
    stores: Sequence[ObjectStore], *, racers: int, rounds: int, name: str = "t", meeting: _Meeting | None = None
) -> Winners:
    """Let `racers` threads create and then swap one key, `rounds` times. The stores are handles on the same objects."""
    winners: Winners = {(kind, number): [] for kind in ("create", "swap") for number in range(rounds)}
    lock = threading.Lock()
    inner = threading.Barrier(racers, action=_meet(meeting))
    failures: list[BaseException] = []

    def run(racer: int) -> None:
        store = stores[racer % len(stores)]
        token = f"{name}-{racer}"
        try:
            for number in range(rounds):
                for kind, won in (("create", _create), ("swap", _swap)):
                    if won(store, f"race/{kind}-{number}", token, inner):
                        with lock:
                            winners[kind, number].append(token)
        except BaseException as error:
            failures.append(error)
            inner.abort()
            raise

    threads = [threading.Thread(target=run, args=(racer,), daemon=True) for racer in range(racers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(_WAIT_MAX_S)
    real = [error for error in failures if not isinstance(error, threading.BrokenBarrierError)]
    if failures:
        raise (real or failures)[0]
    return winners


def race_in_processes(store: ObjectStore, *, processes: int, threads: int, rounds: int) -> Winners:
    """The same between processes, each with some threads and a handle that it was sent by pickle."""
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(processes)
    with context.Pool(processes, initializer=_enter, initargs=(barrier,)) as pool:
        # Every task waits for all the others, so each process takes exactly one.
        tasks = [(store, f"p{number}", threads, rounds) for number in range(processes)]
        results = pool.starmap_async(_run_process, tasks, chunksize=1).get(_WAIT_MAX_S * 2)
    return {race: [token for result in results for token in result[race]] for race in results[0]}


def _enter(barrier: ProcessBarrier) -> None:
    _barrier_of_process.append(barrier)


def _run_process(store: ObjectStore, name: str, threads: int, rounds: int) -> Winners:
    return race_in_threads([store], racers=threads, rounds=rounds, name=name, meeting=_barrier_of_process[0])


def _meet(meeting: _Meeting | None) -> Callable[[], None]:
    """What the last thread of a process does for all of them: wait for the other processes."""

    def meet() -> None:
        if meeting is not None:
            meeting.wait(_WAIT_MAX_S)

    return meet


def _create(store: ObjectStore, key: str, token: str, meeting: threading.Barrier) -> bool:
    meeting.wait(_WAIT_MAX_S)
    try:
        store.put_new(key, token.encode(), durable=False)
    except AlreadyExists:
        return False
    return True


def _swap(store: ObjectStore, key: str, token: str, meeting: threading.Barrier) -> bool:
    meeting.wait(_WAIT_MAX_S)
    with contextlib.suppress(AlreadyExists):
        store.put_new(key, b"to be swapped", durable=False)
    # Everybody reads before anybody swaps: one version, many writers.
    meeting.wait(_WAIT_MAX_S)
    version = store.get(key).version
    meeting.wait(_WAIT_MAX_S)
    try:
        store.swap(key, token.encode(), expected=version, durable=False)
    except VersionConflict:
        return False
    return True
