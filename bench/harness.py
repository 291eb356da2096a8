"""Timing: compared things take turns, so that a busy machine slows them down alike and their ratio stays fair."""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Samples", "Settings", "cpu_time", "cpu_timed", "exponent", "interleave", "stopwatch", "timed"]

Action = Callable[[], Mapping[str, float]]
"""Does one round of work and says how many seconds each named part of it took."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How much to measure, and where."""

    quick: bool
    peers: bool
    disk: Path
    """A folder on a real disk, where a sync costs what it costs."""
    memory_disk: Path
    """A folder in memory, where only our own work costs anything."""

    def pick(self, full: int, quick: int) -> int:
        return quick if self.quick else full


@dataclass(frozen=True, slots=True)
class Samples:
    """Seconds, one per round."""

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def p99(self) -> float:
        return sorted(self.seconds)[min(len(self.seconds) - 1, math.ceil(len(self.seconds) * 0.99) - 1)]

    @property
    def best(self) -> float:
        return min(self.seconds)


class Stopwatch:
    """Holds the seconds of the last `with` block."""

    __slots__ = ("seconds",)

    def __init__(self) -> None:
        self.seconds = 0.0


@contextmanager
def stopwatch() -> Iterator[Stopwatch]:
    watch = Stopwatch()
    started = time.perf_counter()
    yield watch
    watch.seconds = time.perf_counter() - started


def timed(work: Callable[[], object]) -> float:
    """The seconds that one call took."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def cpu_timed(work: Callable[[], object]) -> float:
    """The processor seconds of one call, this process's threads together: for work that only computes, in turns."""
    started = time.process_time()
    work()
    return time.process_time() - started


def interleave(rounds: int, actions: Sequence[Action], *, warm_up: int = 1) -> dict[str, Samples]:
    """Let the actions take turns, each round beginning with another one; the first rounds are thrown away."""
    found: defaultdict[str, list[float]] = defaultdict(list)
    with _calm():
        for turn in range(warm_up + rounds):
            first = turn % len(actions)
            for action in (*actions[first:], *actions[:first]):
                for name, seconds in action().items():
                    if turn >= warm_up:
                        found[name].append(seconds)
    return {name: Samples(tuple(seconds)) for name, seconds in found.items()}


def cpu_time(work: Callable[[], object], *, repeats: int = 1) -> float:
    """The least processor time of several runs: what the work costs whoever else is at the machine. For work that never
    waits for a disk, such as the growth of something on a memory disk."""
    return min(_cpu_time(work) for _ in range(repeats))


def _cpu_time(work: Callable[[], object]) -> float:
    # The collector stays as users have it: frozen objects would make it run far too often on a growing heap.
    gc.collect()
    started = time.process_time()
    work()
    return time.process_time() - started


def exponent(points: Sequence[tuple[int, float]]) -> float:
    """The slope of cost over size, both as logarithms: 0 is flat, 1 linear, 2 quadratic. Taken between the two largest
    sizes, where fixed costs no longer hide the growth."""
    (small, before), (large, after) = sorted(points)[-2:]
    return math.log(after / before) / math.log(large / small)


@contextmanager
def _calm() -> Iterator[None]:
    """Collect garbage now rather than in the middle of somebody's turn; what exists already is not looked at again."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
