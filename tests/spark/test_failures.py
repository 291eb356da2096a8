"""Builds that fail: nothing is published, what is left can be collected, one line says what failed in which shard."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from holdfast.chain import Chain, chain_on, kv_layout
from holdfast.errors import BuildFailed, HoldfastError, LockHeld, StoreFull, StoreUnavailable
from holdfast.spark import publish_kv
from holdfast.spark.failures import Failure, ShardFailed, failure_of_job
from holdfast.storage import LocalStore
from holdfast.testing.clock import VirtualClock
from tests.spark import faults
from tests.spark.reading import table_of


def shard_files(root: Path) -> list[str]:
    return sorted(path.name for path in root.rglob("*") if path.is_file() and path.name.startswith("shard-"))


@pytest.mark.parametrize(
    "fault, error, message",
    [
        pytest.param(faults.full_at_shard_2, StoreFull, r"shard 2: no space is left", id="full"),
        pytest.param(faults.unavailable_at_shard_1, StoreUnavailable, r"shard 1: the store did not answer", id="away"),
        pytest.param(faults.broken_at_shard_3, BuildFailed, r"shard 3: OSError: .*Input/output error", id="broken"),
    ],
)
def test_a_failed_build_names_the_shard_and_leaves_only_what_can_be_collected(
    spark: SparkSession,
    tmp_path: Path,
    clock: VirtualClock,
    fault: faults.Fault,
    error: type[HoldfastError],
    message: str,
) -> None:
    """K7: nothing is published, one line says what failed in which shard, and the collector can take every file."""
    root = tmp_path / "store"
    good = chain_on(LocalStore(root, durable=False), kv_layout(), clock=clock)
    publish_kv(spark.range(100), good, key="id", shards=4)
    kept = shard_files(root)

    failing = chain_on(faults.FailingStore(root, fault), kv_layout(), clock=clock)
    with pytest.raises(error, match=f"^nothing was published: {message}") as caught:
        publish_kv(spark.range(500), failing, key="id", shards=4)

    assert "\n" not in str(caught.value)
    assert good.verify() == []
    assert table_of(good).num_rows == 100
    assert len(shard_files(root)) > len(kept)
    clock.advance(400 * 86_400.0)  # ahead of the files' own times
    good.collect(retention=1)
    clock.advance(60 * 86_400.0)
    good.purge()
    assert shard_files(root) == kept


def test_a_task_that_fails_is_tried_again_under_another_key(spark: SparkSession, tmp_path: Path) -> None:
    """K6: attempts never share a path; the driver takes one receipt a shard, and the losers' files stay unnamed."""
    root = tmp_path / "store"
    chain = chain_on(faults.FailingStore(root, faults.unavailable_at_first), kv_layout())

    published = publish_kv(spark.range(1_000), chain, key="id", shards=3)

    files = shard_files(root)
    named = {shard.path.rpartition("/")[2] for shard in published.dataset.shards if shard}
    assert len(files) == 6
    assert named < set(files)
    assert all(shard and "attempt 1" in shard.writer for shard in published.dataset.shards)
    assert sorted(table_of(chain)["id"].to_pylist()) == list(range(1_000))
    assert chain.verify() == []


def test_a_source_that_fails_is_told_in_one_line(spark: SparkSession, chain: Chain) -> None:
    """K7: what is wrong with the DataFrame itself is said as Spark's Python or SQL said it."""

    def explode(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        raise RuntimeError("the upstream table is gone")

    with pytest.raises(BuildFailed, match=r"RuntimeError: the upstream table is gone$") as caught:
        publish_kv(spark.range(10).mapInArrow(explode, "id bigint"), chain, key="id", shards=2)
    assert "\n" not in str(caught.value)

    for options in ({"shards": 2}, {"rows_per_shard": 2}):
        with pytest.raises(BuildFailed, match="DIVIDE_BY_ZERO"):
            publish_kv(spark.range(10).selectExpr("1L div (id - 5) AS id"), chain, key="id", **options)  # type: ignore[arg-type]
    assert chain.load_current() is None


def test_two_builds_at_once_do_not_meet(spark: SparkSession, chain: Chain) -> None:
    """K6: the second is told that the lock is held, before Spark does anything."""
    with chain.lock(operation="another build"), pytest.raises(LockHeld):
        publish_kv(spark.range(10), chain, key="id", shards=2)


def test_a_failure_survives_whatever_spark_wraps_it_in() -> None:
    failure = Failure(shard=7, kind="StoreUnavailable", message='a "quoted" {brace} and more')
    wrapped = RuntimeError(
        f"Job aborted due to stage failure: Task 7\n  File x\nX: {ShardFailed(failure)}\n\tat java\n"
    )

    error = failure_of_job(wrapped)

    assert isinstance(error, StoreUnavailable)
    assert str(error) == 'nothing was published: shard 7: a "quoted" {brace} and more'


LOST = "Job aborted due to stage failure: Task 3 in stage 1.0 failed 4 times, most recent failure: ExecutorLostFailure"


@pytest.mark.parametrize(
    "text, line",
    [
        (
            f"{LOST} (executor 1 exited) Reason: Worker lost\nDriver stacktrace:\n at x",
            "Task 3 .*ExecutorLost.*Worker lost",
        ),
        ("Traceback (most recent call last):\n  File a\nValueError: bad\nwhole thing\n", "ValueError: bad"),
        ("", "nothing was published"),
        (
            "An error occurred while calling o2.collect.\n: org.apache.spark.SparkException: Job aborted: why\n at x",
            "Spark says: Job aborted: why$",
        ),
    ],
)
def test_other_failures_end_in_their_most_telling_line(text: str, line: str) -> None:
    error = failure_of_job(RuntimeError(text))
    assert isinstance(error, BuildFailed)
    assert re.search(line, str(error))
    assert "\n" not in str(error)
