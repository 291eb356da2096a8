"""What runs in an executor when a table is written or read: Arrow batches in or out, one file a task."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import dataclass

import orjson
import pyarrow as pa
from pyspark import Accumulator, TaskContext

from holdfast.errors import HoldfastError, StoreUnavailable
from holdfast.spark.failures import Failure, ShardFailed
from holdfast.spark.progress import Tally
from holdfast.spark.shard_task import RECEIPT_SCHEMA, peak_memory_bytes
from holdfast.storage.objects import ObjectStore
from holdfast.table.dataset import TableFile
from holdfast.table.publish import FileReceipt, TablePlan
from holdfast.table.reading import batches_of_file

__all__ = ["RECEIPT_SCHEMA", "FileFetch", "FileTask", "tally_of"]

_RECEIPT_ARROW = pa.schema([("receipt", pa.binary()), ("failure", pa.binary()), ("peak_memory_bytes", pa.int64())])


@dataclass(frozen=True)
class FileTask:
    """Writes the rows of one partition. Pickles; what is pickled can write files and cannot publish."""

    plan: TablePlan
    tally: Accumulator[Tally] | None = None
    """What the driver's progress is counted with."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None, "a task runs inside Spark"
        number = context.partitionId()
        writer = f"spark task {context.taskAttemptId()} attempt {context.attemptNumber()} on {socket.gethostname()}"
        receipt, failure = b"", b""
        try:
            written = self.plan.write_file(number, batches, writer=writer)
            receipt = written.encode()
            if self.tally is not None:
                self.tally.add(tally_of(written))
        except StoreUnavailable as error:
            raise ShardFailed(Failure.of(number, error, what="file")) from error  # Spark tries again: it may pass
        except HoldfastError as error:
            failure = Failure.of(number, error, what="file").encode()  # trying again would not help
        except Exception as error:
            raise ShardFailed(Failure.of(number, error, what="file")) from error
        yield pa.record_batch(
            [pa.array([receipt], pa.binary()), pa.array([failure], pa.binary()), pa.array([peak_memory_bytes()])],
            schema=_RECEIPT_ARROW,
        )


def tally_of(receipt: FileReceipt) -> Tally:
    file = receipt.file
    return Tally(1, 0, 0) if file is None else Tally(1, file.row_count, file.byte_size)


@dataclass(frozen=True)
class FileFetch:
    """Reads whole files by the store's own means, in bounded memory. Pickles."""

    store: ObjectStore
    schema: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for encoded in batch.column("file").to_pylist():
                yield from batches_of_file(self.store, TableFile(**orjson.loads(encoded)), self.schema)
