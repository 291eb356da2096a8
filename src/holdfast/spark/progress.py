"""Being told how a build on Spark is doing: shards, rows, bytes, and how long it may still take (K10).

    with terminal_progress() as progress:
        publish_kv(df, place, key="id", shards=64, progress=progress)

With a JVM in this process, tasks report through an accumulator, and a thread looks at it now and then. Over Spark
Connect there are none: receipts stream in while later shards are still being written, and are counted as they come.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Self

from pyspark import Accumulator, AccumulatorParam
from pyspark.sql import SparkSession

from holdfast.clock import Clock, SystemClock
from holdfast.kv.plan import ShardReceipt

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["BuildProgress", "ProgressTold", "Tally", "Watch", "is_connect", "terminal_progress"]

_POLL_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildProgress:
    """How far a build is. Rows and bytes are those of the shards that are done."""

    shards_done: int
    shards: int
    rows: int
    bytes: int
    seconds_left: float | None
    """None until there is something to judge by."""


ProgressTold = Callable[[BuildProgress], None]
"""Told from time to time, from another thread or from the caller's."""


@dataclass(frozen=True, slots=True)
class Tally:
    """What was written, as tasks add it up."""

    shards: int = 0
    rows: int = 0
    bytes: int = 0

    @classmethod
    def of(cls, receipt: ShardReceipt) -> Tally:
        shard = receipt.shard
        return cls(1, 0, 0) if shard is None else cls(1, shard.row_count, shard.byte_size)

    def __add__(self, other: Tally) -> Tally:
        return Tally(self.shards + other.shards, self.rows + other.rows, self.bytes + other.bytes)


class _TallyParam(AccumulatorParam[Tally]):
    def zero(self, value: Tally) -> Tally:
        return Tally()

    def addInPlace(self, value1: Tally, value2: Tally) -> Tally:  # noqa: N802 - Spark's name
        return value1 + value2


def is_connect(spark: SparkSession) -> bool:
    """Whether the session talks to a server instead of a JVM in this process."""
    return type(spark).__module__.startswith("pyspark.sql.connect.")


class Watch:
    """Turns what tasks report into calls of `told`. It looks while the block runs, and once after."""

    def __init__(
        self,
        spark: SparkSession,
        shards: int,
        told: ProgressTold | None,
        *,
        clock: Clock | None = None,
        poll_s: float = _POLL_S,
    ) -> None:
        self._told = told
        self._shards = shards
        self._clock = clock or SystemClock()
        self._poll_s = poll_s
        self._tally = Tally()
        self._first: tuple[int, datetime] | None = None
        self._last_told: BuildProgress | None = None
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._look, name="holdfast-progress", daemon=True)
        self.accumulator: Accumulator[Tally] | None = None
        """For tasks to add to; None where nobody asked, or where there are no accumulators."""
        if told is not None and not is_connect(spark):
            self.accumulator = spark.sparkContext.accumulator(Tally(), _TallyParam())

    def saw(self, receipt: ShardReceipt | Tally) -> None:
        """A receipt that has come in, or what one adds up to."""
        if self.accumulator is None:
            self._tally += receipt if isinstance(receipt, Tally) else Tally.of(receipt)
            self._tell()

    def _look(self) -> None:
        while not self._done.wait(self._poll_s):  # bounded by the block: __exit__ sets the event
            self._tell()

    def _tell(self) -> None:
        if self._told is None:
            return
        tally = self._tally if self.accumulator is None else self.accumulator.value
        done = min(tally.shards, self._shards)  # a task that ran twice was counted twice
        now = self._clock.now()
        if done and self._first is None:
            self._first = (done, now)
        told = BuildProgress(
            shards_done=done,
            shards=self._shards,
            rows=tally.rows,
            bytes=tally.bytes,
            seconds_left=self._left(done, now),
        )
        if self._last_told is None or replace(told, seconds_left=None) != replace(self._last_told, seconds_left=None):
            self._last_told = told
            self._told(told)

    def _left(self, done: int, now: datetime) -> float | None:
        """By how fast shards followed the first ones. The shuffle before those says nothing about the rest."""
        if done == self._shards:
            return 0.0
        if self._first is None or done == self._first[0]:
            return None
        began, since = self._first
        return (self._shards - done) * (now - since).total_seconds() / (done - began)

    def __enter__(self) -> Self:
        self._tell()
        if self.accumulator is not None:
            self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self.accumulator is not None:
            self._done.set()
            self._thread.join()
            self._tell()


@contextmanager
def terminal_progress(console: Console | None = None) -> Iterator[ProgressTold]:
    """A line on the terminal that grows with the build; nothing where standard error is no terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    screen = console or Console(stderr=True)
    bar = Progress(
        TextColumn("{task.fields[shards]}"),
        BarColumn(),
        TextColumn("{task.fields[volume]}"),
        TextColumn("{task.fields[left]}"),
        console=screen,
        transient=True,
        disable=not screen.is_terminal,
    )
    with bar:
        task = bar.add_task("build", total=None, shards="sorting", volume="", left="")

        def told(at: BuildProgress) -> None:
            left = "" if at.seconds_left is None or not at.shards_done else f"about {at.seconds_left:,.0f} s left"
            bar.update(
                task,
                total=at.shards,
                completed=at.shards_done,
                shards=f"shard {at.shards_done:,} of {at.shards:,}",
                volume=f"{at.rows:,} rows, {at.bytes / 1e6:,.1f} MB",
                left=left,
            )

        yield told
