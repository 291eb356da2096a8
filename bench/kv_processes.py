"""What a tree of processes used: this one, the JVM below it, the Python workers below that, and those that ended."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import psutil

from bench.harness import stopwatch

__all__ = ["Usage", "measured"]

_T = TypeVar("_T")

_LOOK_EVERY_S = 0.1
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
    root = psutil.Process()
    done = threading.Event()
    watcher = threading.Thread(target=_watch, args=(root, usage, done), daemon=True)
    before = _cpu_of_tree(root)
    watcher.start()
    try:
        with stopwatch() as watch:
            yield usage
    finally:
        done.set()
        watcher.join()
    usage.wall_s = watch.seconds
    usage.cpu_s = _cpu_of_tree(root) - before


def _cpu_of_tree(root: psutil.Process) -> float:
    """A process counts with its children that ended and were waited for, so nobody is lost and nobody counts twice."""
    total = 0.0
    for process in [root, *root.children(recursive=True)]:
        times = _ask(process.cpu_times)
        if times is not None:
            total += times.user + times.system + times.children_user + times.children_system
    return total


def _watch(root: psutil.Process, usage: Usage, done: threading.Event) -> None:
    while not done.wait(_LOOK_EVERY_S):
        found = [process for process in root.children(recursive=True) if _is_worker(process)] or [root]
        for process in found:
            memory = _ask(process.memory_info)
            usage.worker_bytes = max(usage.worker_bytes, 0 if memory is None else memory.rss)


def _is_worker(process: psutil.Process) -> bool:
    name = _ask(process.name)
    return name is not None and name.startswith("python") and _WORKER_MARK in " ".join(_ask(process.cmdline) or [])


def _ask(question: Callable[[], _T]) -> _T | None:
    """None from a process that has just ended."""
    try:
        return question()
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return None
