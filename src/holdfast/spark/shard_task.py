"""What runs in an executor: sorted Arrow batches in, one file written, one receipt out (K4, K6, K7).

A task may run twice, at the same time or after a failure. Each writes under a key of its own and says so in its
receipt; the driver takes the receipt of the one that Spark calls the winner, the collector the files of the others.
"""

from __future__ import annotations

import resource
import socket
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark import Accumulator, TaskContext

from holdfast.errors import BadInput, BadRows, HoldfastError, StoreUnavailable, WrongKeyType
from holdfast.kv.keys import KeyKind
from holdfast.kv.plan import BuildPlan, ShardReceipt
from holdfast.kv.rows import BadRowReport, RowCheck
from holdfast.kv.shard_writer import SortedRows
from holdfast.spark.failures import Failure, ShardFailed
from holdfast.spark.progress import Tally

__all__ = ["RECEIPT_SCHEMA", "CheckedRows", "ShardTask", "peak_memory_bytes"]

RECEIPT_SCHEMA = "receipt binary, failure binary, peak_memory_bytes bigint"
_RECEIPT_ARROW = pa.schema([("receipt", pa.binary()), ("failure", pa.binary()), ("peak_memory_bytes", pa.int64())])
_PROBES = 8


@dataclass(frozen=True)
class ShardTask:
    """Writes the shard of one partition. Pickles, with its plan; what is pickled can write files and cannot publish."""

    plan: BuildPlan
    tally: Accumulator[Tally] | None = None
    """What the driver's progress is counted with."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None, "a task runs inside Spark"
        number = context.partitionId()
        writer = f"spark task {context.taskAttemptId()} attempt {context.attemptNumber()} on {socket.gethostname()}"
        receipt, failure = b"", b""
        try:
            written = self.write(number, batches, writer)
            receipt = written.encode(self.plan.key)
            if self.tally is not None:
                self.tally.add(Tally.of(written))
        except StoreUnavailable as error:
            raise ShardFailed(Failure.of(number, error)) from error  # Spark tries again: it may pass
        except HoldfastError as error:
            failure = Failure.of(number, error).encode()  # trying again would not help
        except Exception as error:
            raise ShardFailed(Failure.of(number, error)) from error
        yield pa.record_batch(
            [pa.array([receipt], pa.binary()), pa.array([failure], pa.binary()), pa.array([peak_memory_bytes()])],
            schema=_RECEIPT_ARROW,
        )

    def write(self, number: int, batches: Iterator[pa.RecordBatch], writer: str) -> ShardReceipt:
        """Write the shard; bad rows end up in the receipt, so that the driver can add them up."""
        if number >= self.plan.shard_count:
            raise BadInput(f"Spark made a partition {number} for {self.plan.shard_count} shards")
        rows = CheckedRows(self.plan, number)
        try:
            receipt = self.plan.write_shard(number, rows.of(batches), writer=writer)
        except BadRows:
            if not rows.report:
                raise
            receipt = ShardReceipt(number=number)
        if not rows.report:
            return receipt
        return ShardReceipt(number=number, report=rows.report + receipt.report)

    def without_rows(self, number: int) -> ShardReceipt:
        """What becomes of a shard for which Spark has no rows, and so no task."""
        return ShardReceipt(number=number)


class CheckedRows:
    """The rows of one shard as they come from the JVM, made sure to be what the JVM was asked for."""

    def __init__(self, plan: BuildPlan, number: int) -> None:
        self._plan = plan
        self._number = number
        self._check = RowCheck(plan.key, plan.on_duplicate)

    @property
    def report(self) -> BadRowReport:
        return self._check.report

    def of(self, batches: Iterator[pa.RecordBatch]) -> Iterator[SortedRows]:
        """Rows without null keys. BadRows in the end if there were any: then nothing of the shard is kept."""
        for batch in batches:
            rows = self._rows(batch)
            if rows is not None:
                yield rows
        if self.report:
            raise self.report.error()

    def _rows(self, batch: pa.RecordBatch) -> SortedRows | None:
        plan = self._plan
        named = pa.RecordBatch.from_arrays(batch.columns[1:], names=plan.schema.names)
        hashes = batch.column(0)
        if any(named.column(name).null_count for name in plan.key.names):
            filtered = self._check.null_keys(named.append_column("", hashes))
            named, hashes = filtered.select(range(filtered.num_columns - 1)), filtered.columns[-1]
        if named.num_rows == 0:
            return None
        self._check_text(named)
        stored = plan.rows(named, hashes.to_numpy().view(np.uint64))
        self._check_routing(stored)
        return stored

    def _check_text(self, batch: pa.RecordBatch) -> None:
        """Spark lets any bytes be text; Arrow and readers do not."""
        for index, column in enumerate(self._plan.key.columns):
            if column.kind is not KeyKind.TEXT:
                continue
            try:
                batch.column(index).validate(full=True)
            except pa.ArrowInvalid as error:
                raise WrongKeyType(
                    f"key column {column.name!r} has text that is no UTF-8 ({error}); cast the column to binary"
                ) from None

    def _check_routing(self, rows: SortedRows) -> None:
        """A row in another shard than readers look for it would be lost, so each is checked; hashes by a few."""
        plan = self._plan
        arrays = [rows.batch.column(index) for index in range(len(plan.key.columns))]
        few = [array.slice(0, _PROBES) for array in arrays]
        if not np.array_equal(plan.key.hash_arrays(few), rows.hashes[:_PROBES]):
            raise BadInput("Spark computes another hash of these keys than readers do; please report this")
        shards = plan.routing.shards_of(arrays, rows.hashes)
        astray = np.flatnonzero(shards != self._number)
        if not len(astray):
            return
        row = int(astray[0])
        sample = f"row {rows.batch.slice(row, 1).to_pylist()[0]!r:.120}"
        if not 0 <= shards[row] < plan.shard_count:
            raise BadRows(
                f"nothing was published: the routing gives shard {shards[row]} of {plan.shard_count} for {sample}; "
                "change the expression or the number of shards"
            )
        raise BadInput(f"Spark sent {sample} to shard {self._number}, readers look in {shards[row]}: report this")


def peak_memory_bytes() -> int:
    """The most memory that this process ever had."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
