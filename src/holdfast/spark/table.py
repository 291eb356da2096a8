"""Tables from DataFrames and back (C30), and the one import for them.

    published = publish_table(df, "s3://lake/orders")
    df = read_table(spark, "s3://lake/orders")

A build is one pass: each task writes its partition as one Parquet file, through the store, and returns a receipt; only
the driver publishes. The session is the one that the DataFrame belongs to, and it is left as it was.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from pyspark.sql import DataFrame

from holdfast.catalog.datasets import announcing
from holdfast.chain import Chain, InputPin, open_chain, table_layout
from holdfast.errors import BadInput
from holdfast.spark.failures import SPARK_ERRORS, Failure, failure_of_job
from holdfast.spark.progress import BuildProgress, ProgressTold, Watch, is_connect
from holdfast.spark.source import arrow_schema, check_frame
from holdfast.spark.table_read import read_table
from holdfast.spark.table_task import RECEIPT_SCHEMA, FileTask, tally_of
from holdfast.table.columns import table_schema
from holdfast.table.publish import FileReceipt, PublishedTable, building_table, check_table

__all__ = ["PublishedTable", "publish_table", "read_table"]


def publish_table(
    df: DataFrame,
    place: str | Chain,
    *,
    files: int | None = None,
    run_id: str | None = None,
    admit: Callable[[], None] | None = None,
    inputs: Sequence[InputPin] = (),
    tags: Mapping[str, str] | None = None,
    why: str = "",
    progress: ProgressTold | None = None,
    custom: Mapping[str, object] | None = None,
) -> PublishedTable:
    """Publish a DataFrame as the next snapshot of the table at `place`. Whatever fails, nothing half is visible.

    Without `files` each partition becomes one, as it comes; with it, rows are first dealt out evenly to so many.
    `admit` is asked once the lock is held; if it raises, nothing is registered or written, and that error goes up.
    """
    chain = announcing(open_chain(place, layout=table_layout().name)) if isinstance(place, str) else place
    if chain.store.url.startswith("memory:"):
        raise BadInput("executors are other processes and cannot write to memory://; use file:// or a bucket")
    if files is not None and files < 1:
        raise BadInput(f"files is {files}: at least 1")
    check_table(chain)
    check_frame(df)
    schema = table_schema(arrow_schema(df.schema))
    # Names of our own: Spark would hand over two that differ in case, or have a dot, in ways of its own.
    rows = df.toDF(*(f"c{index}" for index in range(len(schema))))
    with building_table(chain, run_id=run_id, operation="build a table on Spark", admit=admit) as build:
        plan = build.plan(schema)
        receipts, peak = _written(rows if files is None else rows.repartition(files), FileTask(plan), files, progress)
        build.check()
        return build.publish(
            plan,
            receipts,
            inputs=inputs,
            custom=custom,
            tags=tags,
            why=why,
            statistics={"engine": f"spark {df.sparkSession.version}"},
            peak_worker_bytes=peak,
        )


def _written(
    rows: DataFrame, task: FileTask, files: int | None, progress: ProgressTold | None
) -> tuple[list[FileReceipt], int]:
    """Write all files, as one Spark job; their receipts and the most memory, or the error that one line can tell."""
    receipts: list[FileReceipt] = []
    failures: list[Failure] = []
    peak = 0
    told = progress if files is not None or progress is None else _open_ended(progress)
    try:
        with Watch(rows.sparkSession, files or sys.maxsize, told) as watch:
            returned = rows.mapInArrow(replace(task, tally=watch.accumulator), RECEIPT_SCHEMA)
            for row in returned.toLocalIterator() if is_connect(rows.sparkSession) else returned.collect():
                if row.failure:
                    failures.append(Failure.decode(bytes(row.failure)))
                else:
                    receipts.append(FileReceipt.decode(bytes(row.receipt)))
                    watch.saw(tally_of(receipts[-1]))
                peak = max(peak, row.peak_memory_bytes)
    except SPARK_ERRORS as error:
        raise failure_of_job(error) from error
    if failures:
        raise min(failures, key=lambda one: one.shard).error()
    return receipts, peak


def _open_ended(progress: ProgressTold) -> ProgressTold:
    """Nobody knows how many partitions there will be: as many as are done, and no guess of the time."""

    def told(at: BuildProgress) -> None:
        progress(replace(at, shards=at.shards_done, seconds_left=None))

    return told
