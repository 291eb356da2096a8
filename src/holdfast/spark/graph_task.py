"""What runs in an executor: the sorted rows of one range in, one segment written, one receipt out (G25).

A task may run twice, at the same time or after a failure. Each attempt writes under a key of its own and says so in its
receipt; the driver takes the receipt of the one that Spark calls the winner, the collector the files of the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import Accumulator, TaskContext

from holdfast.chain import Artifact
from holdfast.errors import BadInput, BadRows, HoldfastError, StoreUnavailable
from holdfast.graph.metadata import check_metadata
from holdfast.graph.publishing import SegmentSlots
from holdfast.graph.segment import SegmentDescriptor, SegmentKind, segment_schema
from holdfast.spark.failures import Failure, ShardFailed
from holdfast.spark.graph_source import KEY_COLUMNS
from holdfast.spark.progress import Tally
from holdfast.spark.shard_task import peak_memory_bytes

__all__ = [
    "SEGMENT_RECEIPT_SCHEMA",
    "OrderedRows",
    "SegmentReceipt",
    "SegmentTask",
    "decode_descriptor",
    "encode_descriptor",
]

SEGMENT_RECEIPT_SCHEMA = "receipt binary, failure binary, peak_memory_bytes bigint"
_RECEIPT_ARROW = pa.schema([("receipt", pa.binary()), ("failure", pa.binary()), ("peak_memory_bytes", pa.int64())])
_SAMPLES_MAX = 5

Flags = npt.NDArray[np.bool_]
Key = tuple[str, ...]


def encode_descriptor(descriptor: SegmentDescriptor) -> bytes:
    """How a descriptor travels between driver and executors."""
    one = descriptor.to_artifact()
    return orjson.dumps(
        {
            "path": one.path,
            "byte_size": one.byte_size,
            "row_count": one.row_count,
            "checksum": one.checksum,
            "kind": one.kind,
            "detail": one.detail,
        }
    )


def decode_descriptor(data: bytes | str) -> SegmentDescriptor:
    return SegmentDescriptor.of_artifact(Artifact(**orjson.loads(data)))


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentReceipt:
    """What became of the rows of one partition."""

    number: int
    rows: int
    """As they came from the JVM."""
    dropped: int = 0
    """Rows that were there already, just so."""
    clashes: int = 0
    """Rows with the key of another and different contents. Where there are any, nothing was written."""
    samples: tuple[str, ...] = ()
    first: Key = ()
    last: Key = ()
    segment: SegmentDescriptor | None = None

    @property
    def tally(self) -> Tally:
        if self.segment is None:
            return Tally(1, 0, 0)
        return Tally(1, self.segment.record_count, self.segment.byte_size)

    def encode(self) -> bytes:
        return orjson.dumps(
            {
                "number": self.number,
                "rows": self.rows,
                "dropped": self.dropped,
                "clashes": self.clashes,
                "samples": self.samples,
                "first": self.first,
                "last": self.last,
                "segment": None if self.segment is None else encode_descriptor(self.segment).decode(),
            }
        )

    @classmethod
    def decode(cls, data: bytes) -> SegmentReceipt:
        found: dict[str, Any] = orjson.loads(data)
        return cls(
            number=found["number"],
            rows=found["rows"],
            dropped=found["dropped"],
            clashes=found["clashes"],
            samples=tuple(found["samples"]),
            first=tuple(found["first"]),
            last=tuple(found["last"]),
            segment=None if found["segment"] is None else decode_descriptor(found["segment"]),
        )


@dataclass(frozen=True)
class SegmentTask:
    """Writes the segment of one partition. Pickles; what is pickled can write files and cannot publish."""

    slots: SegmentSlots
    tally: Accumulator[Tally] | None = None
    """What the driver's progress is counted with."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None, "a task runs inside Spark"
        number = context.partitionId()
        what = f"{self.slots.kind} segment"
        receipt, failure = b"", b""
        try:
            written = self.write(number, batches, context.attemptNumber())
            receipt = written.encode()
            if self.tally is not None:
                self.tally.add(written.tally)
        except StoreUnavailable as error:
            raise ShardFailed(Failure.of(number, error, what=what)) from error  # Spark tries again: it may pass
        except HoldfastError as error:
            failure = Failure.of(number, error, what=what).encode()  # trying again would not help
        except Exception as error:
            raise ShardFailed(Failure.of(number, error, what=what)) from error
        yield pa.record_batch(
            [pa.array([receipt], pa.binary()), pa.array([failure], pa.binary()), pa.array([peak_memory_bytes()])],
            schema=_RECEIPT_ARROW,
        )

    def write(self, number: int, batches: Iterator[pa.RecordBatch], attempt: int) -> SegmentReceipt:
        """Write the segment; keys with two meanings end up in the receipt, so that the driver can add them up."""
        rows = OrderedRows(self.slots.kind)
        segment: SegmentDescriptor | None = None
        try:
            segment = self.slots.write(number, rows.of(batches), attempt=attempt)
        except BadRows:
            if not rows.clashes:
                raise
        return SegmentReceipt(
            number=number,
            rows=rows.rows,
            dropped=rows.dropped,
            clashes=rows.clashes,
            samples=tuple(rows.samples),
            first=rows.first,
            last=rows.last,
            segment=segment,
        )


@dataclass(slots=True)
class OrderedRows:
    """The rows of one partition as they come from the JVM: made sure to be in a segment's order, each key once."""

    kind: SegmentKind
    rows: int = 0
    dropped: int = 0
    clashes: int = 0
    samples: list[str] = field(default_factory=list)
    first: Key = ()
    last: Key = ()
    _before: pa.Table | None = None
    """The last row of the batch before."""

    def of(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
        """What to write. BadRows in the end if a key had two meanings: then nothing of the segment is kept."""
        for batch in batches:
            if batch.num_rows:
                yield self._checked(batch)
        if self.clashes:
            raise BadRows(f"{self.clashes} {self.kind} have the key of another with different contents")

    def _checked(self, batch: pa.RecordBatch) -> pa.Table:
        schema = segment_schema(self.kind)
        came = pa.Table.from_batches([batch]).rename_columns(schema.names[:-1])
        for column in schema:
            if not column.nullable and column.name in came.column_names and came.column(column.name).null_count:
                raise BadInput(
                    f"Spark gave a null for {column.name!r}, which it had said not to be there: run it again"
                )
        for texts in came.column("metadata").chunks:
            check_metadata(texts, self.kind.removesuffix("s"))
        tombstones = pa.repeat(pa.scalar(False), len(came))
        came = came.append_column(schema.field("tombstone"), tombstones).cast(schema)
        joined = came if self._before is None else pa.concat_tables([self._before, came])
        again = self._again(joined.combine_chunks())
        fresh = came.filter(pa.array(~again[-len(came) :])) if again.any() else came
        self.rows += len(came)
        self.dropped += int(again.sum())
        self.first = self.first or self._key(came, 0)
        self.last = self._key(came, len(came) - 1)
        self._before = came.slice(len(came) - 1)
        return fresh

    def _again(self, rows: pa.Table) -> Flags:
        """Which rows have the key of the row before. Counts those that say something else under it."""
        keys = KEY_COLUMNS[self.kind]
        same: Flags = np.ones(len(rows) - 1, dtype=bool)
        behind: Flags = np.zeros(len(rows) - 1, dtype=bool)
        for name in keys:
            one, other = _neighbours(rows, name)
            behind |= same & _flags(pc.greater(one, other))
            same &= _flags(pc.equal(one, other))
        if behind.any():
            raise BadInput("Spark orders these rows in another way than segments are sorted; please report this")
        again = np.concatenate([np.zeros(1, dtype=bool), same])
        if same.any():
            clash = np.zeros(len(same), dtype=bool)
            for name in rows.column_names:
                if name not in keys:
                    clash |= _differ(*_neighbours(rows, name))
            clash &= same
            self.clashes += int(clash.sum())
            wanted = _SAMPLES_MAX - len(self.samples)
            self.samples += [_spelled(self._key(rows, row + 1)) for row in np.flatnonzero(clash)[:wanted].tolist()]
        return again

    def _key(self, rows: pa.Table, row: int) -> Key:
        return tuple(rows.column(name)[row].as_py() for name in KEY_COLUMNS[self.kind])


def _spelled(key: Key) -> str:
    return f"{key[0]!r} -{key[1]}-> {key[2]!r}" if len(key) == 3 else repr(key[0])


def _neighbours(rows: pa.Table, name: str) -> tuple[pa.Array, pa.Array]:
    """A column without its last value, and without its first."""
    column = rows.column(name)
    return column.slice(0, len(rows) - 1), column.slice(1)


def _differ(one: pa.ChunkedArray, other: pa.ChunkedArray) -> Flags:
    """Whether values differ; two nulls are the same."""
    nulls_differ = _flags(pc.not_equal(pc.is_null(one), pc.is_null(other)))
    return nulls_differ | _flags(pc.fill_null(pc.not_equal(one, other), False))


def _flags(values: pa.ChunkedArray) -> Flags:
    return np.asarray(values.to_numpy(), np.bool_) if len(values) else np.zeros(0, dtype=bool)
