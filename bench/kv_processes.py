"""What a tree of processes used: this one, the JVM below it, the Python workers below that, and those that ended."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import psutil

from bench.harness import stopwatch

__all__ = ["Usage", "measured"]

_T = TypeVar("_T")

_LOOK_EVERY_S = 0.2
_WORKER_MARK = "pyspark"


@dataclass(slots=True)
class Usage:
    """Filled in when the measured work is done."""

    wall_s: float = 0.0
    cpu_s: float = 0.0
    worker_bytes: int = 0
    """The most memory that one Python worker had; without Spark, this process."""


@contextmanager
def measured() -> Iterator[Usage]:
    """Processor time of the tree, and the largest worker, while the block runs."""
    usage = Usage()
    watch = _Watch()
    watch.start()
    try:
        with stopwatch() as wall:
            yield usage
    finally:
        watch.stop()
    usage.wall_s = wall.seconds
    usage.cpu_s = watch.cpu_s
    usage.worker_bytes = watch.worker_bytes


class _Watch:
    """Looks at every process of the tree several times a second.

    A parent's own count of its ended children cannot be used: Spark's daemon ignores the end of its workers, and so
    they are counted nowhere. What a process used between the last look and its end is lost. That is little: a worker
    ends when it has long been idle.
    """

    def __init__(self) -> None:
        self._root = psutil.Process()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._before: dict[tuple[int, float], float] = {}
        self._after: dict[tuple[int, float], float] = {}
        self._own_s = 0.0
        self.worker_bytes = 0

    @property
    def cpu_s(self) -> float:
        """Without what the looking itself took."""
        return sum(used - self._before.get(one, 0.0) for one, used in self._after.items()) - self._own_s

    def start(self) -> None:
        self._look()
        self._before = dict(self._after)
        self._thread.start()

    def stop(self) -> None:
        self._done.set()
        self._thread.join()
        self._look()

    def _run(self) -> None:
        while not self._done.wait(_LOOK_EVERY_S):
            self._look()
        self._own_s = time.thread_time()

    def _look(self) -> None:
        workers = 0
        for process in self._root.children(recursive=True):
            with process.oneshot():
                self._note(process)
                memory = _ask(process.memory_info) if _is_worker(process) else None
                workers = max(workers, 0 if memory is None else memory.rss)
        self._note(self._root)
        self.worker_bytes = max(self.worker_bytes, workers or self._root.memory_info().rss)

    def _note(self, process: psutil.Process) -> None:
        times = _ask(process.cpu_times)
        if times is not None:
            self._after[process.pid, process.create_time()] = times.user + times.system


def _is_worker(process: psutil.Process) -> bool:
    name = _ask(process.name)
    return name is not None and name.startswith("python") and _WORKER_MARK in " ".join(_ask(process.cmdline) or [])


def _ask(question: Callable[[], _T]) -> _T | None:
    """None from a process that has just ended."""
    try:
        return question()
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return None
