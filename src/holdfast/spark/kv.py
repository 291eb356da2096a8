"""Building key-value data sets from DataFrames (K1, K4, K5, K6, K7). One pass:

    select (hash, key, rest) → repartitionById (shard) → sortWithinPartitions (hash) → mapInArrow (write, receipt)

Everything about rows happens in the JVM and in Arrow. Executors write files and return receipts; only the driver
publishes. The session is the one that the DataFrame belongs to, and it is left as it was.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from pyspark import StorageLevel
from pyspark.sql import DataFrame

from holdfast.catalog.datasets import announcing
from holdfast.chain import Chain, InputPin, kv_layout, open_chain
from holdfast.errors import BadInput, BuildFailed, NotAChain
from holdfast.kv.build import routing_for
from holdfast.kv.dataset import ValueKind
from holdfast.kv.keys import Key
from holdfast.kv.plan import ShardReceipt
from holdfast.kv.publish import Build, Published, building
from holdfast.kv.routing import Routing
from holdfast.kv.rows import OnDuplicate
from holdfast.spark.failures import SPARK_ERRORS, Failure, failure_of_job
from holdfast.spark.progress import ProgressTold, Watch, is_connect
from holdfast.spark.shard_task import RECEIPT_SCHEMA, ShardTask
from holdfast.spark.source import Source, row_bytes_sql

__all__ = ["Written", "chain_at", "publish_kv", "run_tasks"]

_log = logging.getLogger("holdfast.spark")
_SKEW_WARN = 2.0


def publish_kv(
    df: DataFrame,
    place: str | Chain,
    *,
    key: str | Sequence[str],
    shards: int | None = None,
    rows_per_shard: int | None = None,
    bytes_per_shard: int | None = None,
    value: str = "row",
    key_types: Mapping[str, str] | None = None,
    bounds: Sequence[Key] | None = None,
    route: str | None = None,
    on_duplicate: str = "error",
    run_id: str | None = None,
    inputs: Sequence[InputPin] = (),
    custom: Mapping[str, object] | None = None,
    tags: Mapping[str, str] | None = None,
    why: str = "",
    progress: ProgressTold | None = None,
    admit: Callable[[], None] | None = None,
) -> Published:
    """Publish a DataFrame as the next snapshot of the data set at `place`. Whatever fails, nothing half is visible.

    Give the number of `shards`, or how many rows or bytes one should have: then the DataFrame is cached while it is
    counted, so that its source is read once. Route by `bounds` or by the expression `route` instead of the hash.
    `admit` is asked once the lock is held; if it raises, nothing is registered or written, and that error goes up.
    """
    chain = chain_at(place)
    rule = OnDuplicate.parse(on_duplicate)
    if value not in ValueKind.__members__.values():
        raise BadInput(f"value {value!r}: use {', '.join(ValueKind)}")
    source = Source.of(
        df,
        key=[key] if isinstance(key, str) else list(key),
        key_types=key_types,
        value=ValueKind(value),
        on_duplicate=rule,
    )
    sized = _Sizes.of(shards, rows_per_shard, bytes_per_shard, given=bounds is not None)
    if not sized.derived:
        routing_for(source.key, shards=shards, bounds=bounds, route=route)  # a wrong call fails before any work
    with (
        building(chain, run_id=run_id, operation="build on Spark", admit=admit) as build,
        sized.counted(source) as (rows, count),
    ):
        routing = routing_for(source.key, shards=count, bounds=bounds, route=route)
        plan = build.plan(schema=source.stored, key=source.key, value=source.value, routing=routing, on_duplicate=rule)
        written = run_tasks(rows, routing, ShardTask(plan), build, progress)
        published = build.publish(
            plan,
            written.receipts,
            inputs=inputs,
            custom=custom,
            tags=tags,
            why=why,
            statistics={"engine": f"spark {df.sparkSession.version}", "peak_worker_bytes": written.peak_memory_bytes},
        )
    _warn_about_skew(published)
    return published


def chain_at(place: str | Chain) -> Chain:
    """The data set to build; BadInput if executors cannot reach it. In a workspace it announces itself."""
    chain = announcing(open_chain(place, layout="kv")) if isinstance(place, str) else place
    if chain.store.url.startswith("memory:"):
        raise BadInput("executors are other processes and cannot write to memory://; use file:// or a bucket")
    if chain.layout.name != kv_layout().name:
        raise NotAChain(f"{chain.store.url!r} is opened as a {chain.layout.name} chain: this needs a kv one")
    return chain


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What came back from the executors."""

    receipts: list[ShardReceipt]
    peak_memory_bytes: int
    """The most memory that a Python worker ever had."""


def run_tasks(
    source: Source, routing: Routing, task: ShardTask, build: Build, progress: ProgressTold | None = None
) -> Written:
    """Route, sort and write, as one Spark job; the receipts of all shards, or the error that one line can tell."""
    routed = source.routed(routing)
    receipts: list[ShardReceipt] = []
    failures: list[Failure] = []
    peak = 0
    try:
        with Watch(routed.sparkSession, routing.shard_count, progress) as watch:
            returned = routed.mapInArrow(replace(task, tally=watch.accumulator), RECEIPT_SCHEMA)
            answers = returned.toLocalIterator() if is_connect(routed.sparkSession) else returned.collect()
            for row in answers:
                if row.failure:
                    failures.append(Failure.decode(bytes(row.failure)))
                else:
                    receipts.append(ShardReceipt.decode(bytes(row.receipt), source.key))
                    watch.saw(receipts[-1])
                peak = max(peak, row.peak_memory_bytes)
    except SPARK_ERRORS as error:
        raise failure_of_job(error) from error
    build.check()
    if failures:
        raise min(failures, key=lambda one: one.shard).error()
    if len(receipts) < routing.shard_count:
        receipts = _without_rows(source, receipts, task, routing.shard_count)
    return Written(receipts=receipts, peak_memory_bytes=peak)


def _without_rows(source: Source, receipts: list[ShardReceipt], task: ShardTask, count: int) -> list[ShardReceipt]:
    """Spark leaves out partitions, and so receipts, where it knows that there are no rows at all. Make sure of it."""
    if any(receipt.shard is not None or receipt.report for receipt in receipts) or not source.frame.isEmpty():
        raise BuildFailed(f"nothing was published: Spark ran {len(receipts)} tasks for {count} shards; run it again")
    return [task.without_rows(number) for number in range(count)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sizes:
    """How many shards: said by the caller, or derived from how large one should be (K5)."""

    shards: int | None
    rows: int | None
    bytes: int | None

    @classmethod
    def of(cls, shards: int | None, rows: int | None, size: int | None, *, given: bool) -> _Sizes:
        if sum(option is not None for option in (shards, rows, size)) + (given and shards is None) > 1:
            raise BadInput("give one of shards, rows_per_shard, bytes_per_shard and bounds")
        for name, target in (("rows_per_shard", rows), ("bytes_per_shard", size)):
            if target is not None and target < 1:
                raise BadInput(f"{name} is {target}: at least 1")
        return cls(shards=shards, rows=rows, bytes=size)

    @property
    def derived(self) -> bool:
        return self.rows is not None or self.bytes is not None

    @contextmanager
    def counted(self, source: Source) -> Iterator[tuple[Source, int | None]]:
        """The rows to build from, and the number of shards. They are cached where they must be counted first."""
        if not self.derived:
            yield source, self.shards
            return
        cached = source.frame.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            held = source.on(cached)
            unit = "1" if self.rows is not None else row_bytes_sql(held)
            try:
                found = cached.selectExpr(f"coalesce(sum(CAST({unit} AS BIGINT)), 0) AS total").collect()
            except SPARK_ERRORS as error:
                raise failure_of_job(error) from error
            yield held, max(1, -(-int(found[0].total) // (self.rows or self.bytes or 1)))
        finally:
            cached.unpersist()


def _warn_about_skew(published: Published) -> None:
    statistics = published.dataset.statistics
    skew = statistics.get("skew")
    if isinstance(skew, float) and skew > _SKEW_WARN and len(published.dataset.shards) > 1:
        _log.warning(
            "shard %s has %s rows, %.1f times the mean: another key or routing would spread them better",
            statistics.get("largest_shard"),
            statistics.get("rows_max"),
            skew,
        )
