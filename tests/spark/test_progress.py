"""Being told how a build is doing."""

from __future__ import annotations

import io

from pyspark.sql import SparkSession
from rich.console import Console

from holdfast.chain import Chain
from holdfast.kv import ShardReceipt
from holdfast.spark import BuildProgress, publish_kv, terminal_progress
from holdfast.spark.progress import Tally, Watch
from holdfast.testing.clock import VirtualClock


def test_a_build_tells_shards_rows_and_bytes(spark: SparkSession, chain: Chain) -> None:
    """K10: while Spark works, and once more when everything is written."""
    told: list[BuildProgress] = []

    published = publish_kv(spark.range(3_000), chain, key="id", shards=6, progress=told.append)

    assert told[0] == BuildProgress(shards_done=0, shards=6, rows=0, bytes=0, seconds_left=None)
    assert told[-1] == BuildProgress(
        shards_done=6, shards=6, rows=3_000, bytes=published.written_bytes, seconds_left=0.0
    )
    assert [one.shards_done for one in told] == sorted(one.shards_done for one in told)


def test_the_time_left_follows_from_how_fast_shards_come(spark: SparkSession, clock: VirtualClock) -> None:
    """K10: what came before the first shard says nothing about the rest."""
    told: list[BuildProgress] = []
    watch = Watch(spark, 10, told.append, clock=clock)
    watch.accumulator = None  # as over Spark Connect, where receipts are counted as they come
    with watch:
        clock.advance(600.0)
        for number in range(10):
            watch.saw(ShardReceipt(number=number))
            clock.advance(2.0)

    assert [one.seconds_left for one in told] == [None, None, 16.0, 14.0, 12.0, 10.0, 8.0, 6.0, 4.0, 2.0, 0.0]


def test_tallies_add_up() -> None:
    assert Tally(1, 10, 100) + Tally(1, 5, 50) == Tally(2, 15, 150)


def test_a_terminal_shows_a_line_and_anything_else_stays_quiet() -> None:
    """K10: quiet when not a terminal."""
    at = BuildProgress(shards_done=3, shards=8, rows=1_234_567, bytes=55_000_000, seconds_left=12.4)

    screen = io.StringIO()
    with terminal_progress(Console(file=screen, force_terminal=True, width=120)) as told:
        told(at)
    assert "shard 3 of 8" in screen.getvalue()
    assert "1,234,567 rows, 55.0 MB" in screen.getvalue()
    assert "about 12 s left" in screen.getvalue()

    quiet = io.StringIO()
    with terminal_progress(Console(file=quiet, force_terminal=False)) as told:
        told(at)
    assert quiet.getvalue() == ""
