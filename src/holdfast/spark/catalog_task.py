"""What runs in executors when a domain is folded on Spark: reading, and folding what belongs together (C19, C22, C23).

    gather:  paths of events, or a file of the state  →  (slot, rows as Arrow)
    fold:    all rows of one slot                     →  one file written, one receipt

A slot is a table, or a part of one by the hash of the key. The fold is `fold_table`, the same function as everywhere.
A task may run twice; each attempt writes under a key of its own, and the driver takes one receipt a slot.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
from pyspark import TaskContext

import holdfast.errors
from holdfast.arrow_memory import fixed_values, variable_parts
from holdfast.catalog.bulk import Folding
from holdfast.catalog.domain_state import BASE, StateFile, encode_table, read_table, state_file
from holdfast.catalog.event_batch import EventBatch, batch_of
from holdfast.catalog.fold import fold_table
from holdfast.catalog.ledger_read import LedgerReader
from holdfast.catalog.tables import TableSpec, domain_tables, state_table
from holdfast.chain import Artifact, Layout
from holdfast.errors import BuildFailed, CorruptShard, HoldfastError, ObjectNotFound, StoreUnavailable
from holdfast.spark.failures import Failure, ShardFailed
from holdfast.spark.shard_task import peak_memory_bytes
from holdfast.storage.capabilities import Reader, StatePut
from holdfast.xxh64 import hash_fixed_width, hash_variable_width

__all__ = [
    "GATHERED_SCHEMA",
    "RECEIPT_SCHEMA",
    "ROWS_TOGETHER",
    "FoldTask",
    "GatherTask",
    "Receipt",
    "Slots",
    "Work",
    "decode_file",
    "encode_file",
    "error_of",
    "of_ipc",
    "parts_of",
    "to_ipc",
]

GATHERED_SCHEMA = "slot int, is_state boolean, rows binary"
RECEIPT_SCHEMA = "receipt binary, peak_memory_bytes bigint"
_GATHERED = pa.schema([("slot", pa.int32()), ("is_state", pa.bool_()), ("rows", pa.binary())])
_RECEIPT = pa.schema([("receipt", pa.binary()), ("peak_memory_bytes", pa.int64())])
ROWS_TOGETHER = 50_000
"""So many rows travel as one value: the JVM holds each in one piece."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What one task reads: some events, or one file of the state."""

    paths: tuple[str, ...] = ()
    file: StateFile | None = None

    def encode(self) -> bytes:
        return orjson.dumps({"paths": self.paths, "file": None if self.file is None else encode_file(self.file)})

    @classmethod
    def decode(cls, data: bytes) -> Work:
        found = orjson.loads(data)
        file = None if found["file"] is None else decode_file(found["file"])
        return cls(paths=tuple(found["paths"]), file=file)


def encode_file(file: StateFile) -> dict[str, Any]:
    """How a file's description travels between driver and executors."""
    one = file.to_artifact()
    names = ("path", "byte_size", "row_count", "checksum", "kind", "detail")
    return {name: getattr(one, name) for name in names}


def decode_file(found: dict[str, Any]) -> StateFile:
    return StateFile.of_artifact(Artifact(**found))


@dataclass(frozen=True, slots=True, kw_only=True)
class Slots:
    """Which rows are folded together: those of a table, or of one part of it. The last slot is for what is counted."""

    domain: str
    parts: int

    @property
    def tables(self) -> tuple[TableSpec, ...]:
        return domain_tables(self.domain)

    @property
    def counts(self) -> int:
        return len(self.tables) * self.parts

    def split(self, name: str, rows: pa.Table) -> Iterator[tuple[int, pa.Table]]:
        """The rows of a table by their slots."""
        spec = state_table(name)
        first = self.tables.index(spec) * self.parts
        if self.parts == 1:
            yield first, rows
            return
        parts = parts_of(rows, spec.key, self.parts)
        for part in range(self.parts):
            mine = rows.filter(pa.array(parts == part))
            if len(mine):
                yield first + part, mine

    def spec(self, slot: int) -> TableSpec:
        return self.tables[slot // self.parts]


def parts_of(rows: pa.Table, key: Sequence[str], parts: int) -> npt.NDArray[np.int64]:
    """The part that each row belongs to, by the hash of some of its columns."""
    hashes: npt.NDArray[np.uint64] | None = None
    for name in key:
        column = rows.column(name).combine_chunks()
        array = (
            column if isinstance(column, pa.Array) else pa.concat_arrays([*column.chunks, pa.array([], column.type)])
        )
        if pa.types.is_integer(array.type):
            hashes = hash_fixed_width(fixed_values(array, "<i8"), hashes)
        else:
            hashes = hash_variable_width(*variable_parts(array), hashes)
    assert hashes is not None, "every table has a key"
    return (hashes % np.uint64(parts)).astype(np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What became of a slot, or of the events that one task has read."""

    slot: int
    file: StateFile | None = None
    changed: bool = False
    state_rows: int = 0
    """Rows of files of the state that it was given."""
    events: int = 0
    quarantined: int = 0
    position: int = 0
    event_id: str | None = None
    failure: dict[str, Any] = field(default_factory=dict)

    def encode(self) -> bytes:
        record = {name: getattr(self, name) for name in self.__slots__ if name != "file"}
        return orjson.dumps({**record, "file": None if self.file is None else encode_file(self.file)})

    @classmethod
    def decode(cls, data: bytes) -> Receipt:
        found = orjson.loads(data)
        file = found.pop("file")
        return cls(**found, file=None if file is None else decode_file(file))


def _failure_of(error: HoldfastError) -> dict[str, Any]:
    return {
        "kind": type(error).__name__,
        "message": str(error),
        "key": getattr(error, "key", None),
        "reason": getattr(error, "reason", None),
    }


def error_of(failure: dict[str, Any]) -> HoldfastError:
    """The same error on the driver."""
    if failure["kind"] == "CorruptShard":
        return CorruptShard(failure["key"], failure["reason"])
    if failure["kind"] == "ObjectNotFound":
        return ObjectNotFound(failure["key"])
    found = getattr(holdfast.errors, failure["kind"], None)
    if isinstance(found, type) and issubclass(found, HoldfastError) and "__init__" not in vars(found):
        return found(failure["message"])
    return BuildFailed(f"nothing was published: {failure['kind']}: {failure['message']}")


@dataclass(frozen=True, kw_only=True)
class GatherTask:
    """Reads what it is told to, and says for each row where it is folded. Pickles; it cannot write."""

    slots: Slots
    read: Reader

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for work in batch.column("work").to_pylist():
                try:
                    yield from self._gather(Work.decode(work))
                except StoreUnavailable as error:
                    raise ShardFailed(Failure.of(_number(), error, what="task")) from error  # Spark tries again
                except HoldfastError as error:
                    yield self._counted(Receipt(slot=self.slots.counts, failure=_failure_of(error)))

    def _gather(self, work: Work) -> Iterator[pa.RecordBatch]:
        if work.file is not None:
            yield from self._rows(work.file.table, read_table(self.read, work.file), is_state=True)
            return
        found = LedgerReader(self.slots.domain, self.read).read_bytes(work.paths)
        batch: EventBatch = batch_of(zip(work.paths, found, strict=True), domain=self.slots.domain)
        for name, rows in batch.rows.items():
            yield from self._rows(name, rows, is_state=False)
        counted = Receipt(
            slot=self.slots.counts,
            events=batch.events,
            quarantined=batch.quarantined,
            position=batch.watermark.position,
            event_id=batch.watermark.event_id,
        )
        yield self._counted(counted)

    def _rows(self, name: str, rows: pa.Table, *, is_state: bool) -> Iterator[pa.RecordBatch]:
        for start in range(0, len(rows), ROWS_TOGETHER):
            for slot, mine in self.slots.split(name, rows.slice(start, ROWS_TOGETHER)):
                yield _gathered(slot, is_state, to_ipc(mine))

    def _counted(self, receipt: Receipt) -> pa.RecordBatch:
        return _gathered(self.slots.counts, False, receipt.encode())


@dataclass(frozen=True, kw_only=True)
class FoldTask:
    """Folds the rows of one slot and writes them. Pickles; what is pickled can write files and cannot publish."""

    slots: Slots
    write: StatePut
    layout: Layout
    run_id: str
    attempt: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        number = _number()
        try:
            receipts = list(self._fold(number, batches))
        except StoreUnavailable as error:
            raise ShardFailed(Failure.of(number, error, what="task")) from error  # Spark tries again: it may pass
        except HoldfastError as error:
            receipts = [Receipt(slot=number, failure=_failure_of(error)).encode()]
        if receipts:
            memory = pa.repeat(pa.scalar(peak_memory_bytes(), pa.int64()), len(receipts))
            yield pa.record_batch([pa.array(receipts, pa.binary()), memory], schema=_RECEIPT)

    def _fold(self, slot: int, batches: Iterator[pa.RecordBatch]) -> Iterator[bytes]:
        if slot == self.slots.counts:
            for batch in batches:
                yield from batch.column("rows").to_pylist()
            return
        spec = self.slots.spec(slot)
        known, said = Folding(spec), Folding(spec)
        state_rows, came = 0, 0
        for batch in batches:
            for is_state, rows in zip(batch.column("is_state").to_pylist(), batch.column("rows"), strict=True):
                table = of_ipc(rows.as_buffer())
                came += len(table)
                state_rows += len(table) if is_state else 0
                (known if is_state else said).add(table)
        if came:
            yield self._written(slot, spec, known.result(), said.result(), state_rows).encode()

    def _written(self, slot: int, spec: TableSpec, known: pa.Table, said: pa.Table, state_rows: int) -> Receipt:
        after = fold_table(spec, [known, said])
        changed = not after.equals(known)
        if not changed and self.slots.parts == 1:
            return Receipt(slot=slot, state_rows=state_rows)
        # Of a table with several parts all are written: this task cannot know whether another part has changed.
        context = TaskContext.get()
        assert context is not None, "a task runs inside Spark"
        name = f"{spec.name}-{slot % self.slots.parts:05d}-{context.taskAttemptId()}.parquet"
        path, data = self.layout.artifact_key(self.run_id, self.attempt, name), encode_table(after)
        self.write.upload_state(path, [data])
        return Receipt(
            slot=slot, file=state_file(spec, BASE, path, after, data), changed=changed, state_rows=state_rows
        )


def _number() -> int:
    context = TaskContext.get()
    assert context is not None, "a task runs inside Spark"
    return context.partitionId()


def _gathered(slot: int, is_state: bool, rows: bytes) -> pa.RecordBatch:
    return pa.record_batch(
        [pa.array([slot], pa.int32()), pa.array([is_state]), pa.array([rows], pa.binary())], schema=_GATHERED
    )


def to_ipc(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows.combine_chunks())
    return bytes(sink.getvalue())


def of_ipc(data: pa.Buffer) -> pa.Table:
    with pa.ipc.open_stream(data) as reader:
        return reader.read_all()
