"""Stores that fail inside executors, in the ways that stores do. The root of the repository is on executors' path."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Self

from pyspark import TaskContext

from holdfast.errors import StoreFull, StoreUnavailable
from holdfast.storage import LocalStore
from holdfast.storage.objects import ObjectInfo

_POLLS_MAX = 1_200

Fault = Callable[[int, int, Path], Exception | None]
"""From a shard's number, the number of the attempt and the store's folder to what goes wrong."""


class FailingStore(LocalStore):
    """A store on the file system whose uploads fail as the fault says, after the bytes were sent."""

    __slots__ = ("_fault", "_place")

    def __init__(self, path: Path, fault: Fault) -> None:
        super().__init__(path, durable=False)
        self._place = path
        self._fault = fault

    def __reduce__(self) -> tuple[type[Self], tuple[Path, Fault]]:  # type: ignore[override]
        return type(self), (self._place, self._fault)

    def upload(self, key: str, chunks: Iterable[bytes]) -> ObjectInfo:
        context = TaskContext.get()
        if context is None:
            return super().upload(key, chunks)
        error = self._fault(context.partitionId(), context.attemptNumber(), self._place)
        info = super().upload(key, chunks)
        if error is not None:
            raise error
        return info


def full_at_shard_2(shard: int, attempt: int, place: Path) -> Exception | None:
    return StoreFull("no space is left on the device") if shard == 2 else None


def unavailable_at_shard_1(shard: int, attempt: int, place: Path) -> Exception | None:
    return StoreUnavailable("the store did not answer within 60 s") if shard == 1 else None


def unavailable_at_first(shard: int, attempt: int, place: Path) -> Exception | None:
    return StoreUnavailable("the store did not answer within 60 s") if attempt == 0 else None


def broken_at_shard_3(shard: int, attempt: int, place: Path) -> Exception | None:
    return OSError(5, "Input/output error") if shard == 3 else None


def kill_executor_once(shard: int, attempt: int, place: Path) -> Exception | None:
    """`kill -9` of the executor in the middle of its first attempt at shard 1.

    Its shuffle files are gone too, so Spark runs the stage again and counts attempts from 0 again: a file remembers.
    """
    if shard == 1:
        with contextlib.suppress(FileExistsError):
            place.with_suffix(".was-killed").touch(exist_ok=False)
            kill_executor()
    return None


def kill_executor_always(shard: int, attempt: int, place: Path) -> Exception | None:
    if shard == 1:
        kill_executor()
    return None


def kill_executor() -> None:
    """The JVM above this Python worker, and above the process that workers are forked from."""
    import psutil

    ancestors = psutil.Process().parents()
    os.kill(next(one.pid for one in ancestors if "java" in one.name()), signal.SIGKILL)


class MeetingStore(LocalStore):
    """A store that answers uploads of shard 0 only when two attempts have uploaded it: then they race to return."""

    def upload(self, key: str, chunks: Iterable[bytes]) -> ObjectInfo:
        info = super().upload(key, chunks)
        context = TaskContext.get()
        if context is not None and context.partitionId() == 0:
            folder = key.rpartition("/")[0]
            for _ in range(_POLLS_MAX):
                names = [one.key for page in self.list(folder) for one in page]
                if sum("shard-00000-" in name for name in names) > 1:
                    break
                threading.Event().wait(0.1)
        return info
