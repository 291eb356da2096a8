"""Arrow data in whatever form it is given, as a stream of batches of bounded size (K1, K5)."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from itertools import chain as chained
from typing import IO, Self, TypeAlias

import pyarrow as pa

from holdfast.errors import BadInput, BadRows

__all__ = ["MEMORY_BYTES_DEFAULT", "ArrowRows", "Source"]

MEMORY_BYTES_DEFAULT = 512 << 20
_BATCH_ROWS = 65_536
_BATCH_BYTES = 32 << 20

ArrowRows: TypeAlias = pa.Table | pa.RecordBatch | pa.RecordBatchReader | Iterable[pa.RecordBatch]


class Source:
    """Batches, whatever they were given as."""

    def __init__(self, data: ArrowRows, stack: ExitStack, memory_bytes: int) -> None:
        self._stack = stack
        self._memory_bytes = memory_bytes
        self._totals: tuple[int, int] | None = None
        if isinstance(data, pa.Table):
            self.schema: pa.Schema = data.schema
            self._batches: Iterable[pa.RecordBatch] = data.to_batches()
            self._totals = data.num_rows, data.nbytes
        elif isinstance(data, pa.RecordBatch):
            self.schema, self._batches, self._totals = data.schema, [data], (data.num_rows, data.nbytes)
        elif isinstance(data, pa.RecordBatchReader):
            self.schema, self._batches = data.schema, data
        else:
            iterator: Iterator[object] = iter(data) if isinstance(data, Iterable) else iter(())
            first = next(iterator, None)
            if not isinstance(first, pa.RecordBatch):
                raise BadInput("give an Arrow table, a record batch reader, or record batches; rows go to publish_rows")
            self.schema, self._batches = first.schema, chained([first], iterator)

    def shard_count(self, *, rows: int | None, size: int | None) -> int:
        """How many shards of so many rows or bytes there would be; a stream is first read into memory or a file."""
        target = rows if rows is not None else size
        if isinstance(target, bool) or not isinstance(target, int) or target < 1:
            raise BadInput(f"{'rows' if rows is not None else 'bytes'}_per_shard is {target!r}: a number from 1 on")
        if self._totals is None:
            spool = self._stack.enter_context(_Spool(self.schema, self._memory_bytes))
            for batch in self._checked():
                spool.add(batch)
            self._batches, self._totals = spool.batches(), (spool.rows, spool.bytes)
        return max(1, -(-self._totals[0 if rows is not None else 1] // target))

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._checked():
            step = max(1, min(_BATCH_ROWS, batch.num_rows * _BATCH_BYTES // max(1, batch.nbytes)))
            for start in range(0, batch.num_rows, step):
                yield batch.slice(start, step)

    def _checked(self) -> Iterator[pa.RecordBatch]:
        for batch in self._batches:
            if not isinstance(batch, pa.RecordBatch) or not batch.schema.equals(self.schema):
                raise BadRows("nothing was published: a later batch has other columns than the first")
            yield batch


class _Spool:
    """A stream of batches, kept to be read once more: in memory, or in a temporary file once they are too many."""

    def __init__(self, schema: pa.Schema, memory_bytes: int) -> None:
        self._schema = schema
        self._memory_bytes = memory_bytes
        self._held: list[pa.RecordBatch] = []
        self._file: IO[bytes] | None = None
        self._writer: pa.RecordBatchStreamWriter | None = None
        self.rows = 0
        self.bytes = 0

    def add(self, batch: pa.RecordBatch) -> None:
        self.rows += batch.num_rows
        self.bytes += batch.nbytes
        if self._writer is None and self.bytes > self._memory_bytes:
            self._file = tempfile.TemporaryFile(prefix="holdfast-build-")  # noqa: SIM115  closed with the spool
            # A stream, not a file: batches of one stream may have different dictionaries.
            self._writer = pa.ipc.new_stream(self._file, self._schema)
            for held in self._held:
                self._writer.write_batch(held)
            self._held.clear()
        if self._writer is None:
            self._held.append(batch)
        else:
            self._writer.write_batch(batch)

    def batches(self) -> Iterator[pa.RecordBatch]:
        if self._writer is None or self._file is None:
            yield from self._held
            return
        self._writer.close()
        self._file.seek(0)
        yield from pa.ipc.open_stream(self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._held.clear()
        if self._file is not None:
            self._file.close()
