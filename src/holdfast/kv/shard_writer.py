"""Writing a shard: sorted rows in, the bytes of a file out, in memory that does not grow with the shard (K4, K25).

    stream = ShardStream(rows, schema=…, key=…)
    info = store.upload(path, stream)
    summary = stream.summary

Work per row is done by Arrow and numpy. Python's share is a few microseconds for each block of 128 rows.
"""

from __future__ import annotations

import hashlib
import io
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import IO, NamedTuple, Self

import numpy as np
import pyarrow as pa
from xxhash import xxh3_64, xxh3_64_intdigest

from holdfast.errors import BadRows, BuildFailed
from holdfast.kv.keys import Key, KeySchema
from holdfast.kv.rows import OnDuplicate, RowCheck, smallest_and_largest
from holdfast.kv.shard_format import (
    BLOCK_ROWS,
    DIRECTORY_HEAD_BYTES,
    END_OF_STREAM,
    DirectoryEntry,
    Trailer,
    block_target_bytes,
    buffer_count,
    buffer_spans,
    places,
    sealed_entries,
)
from holdfast.xxh64 import Hashes

__all__ = ["ShardStream", "ShardSummary", "SortedRows"]

_SAMPLE_ROWS = 16_384
"""How many rows are looked at before the number of blocks is decided."""
_SAMPLE_BYTES = 32 << 20
_ROWS_MAX = 1 << 31
"""Of a shard. More are estimated only for a data set with too few shards, or for keys made to have such hashes."""
_BLOCK_BYTES_MAX = (1 << 32) - 1
_PENDING_BYTES_MAX = 1 << 30
_SECTION_MEMORY_BYTES = 4 << 20
"""How much of each section of the index is kept in memory; what is more waits in a temporary file."""
_COPY_BYTES = 24 << 15
"""Of each section at a time: a whole number of directory entries."""
_EMPTY_HEAD = DirectoryEntry(offset=0, length=0, rows=0, checksum=0).head()
_SIGN = np.uint64(1 << 63)
_IPC_OPTIONS = pa.ipc.IpcWriteOptions(metadata_version=pa.ipc.MetadataVersion.V5, use_legacy_format=False)
"""Said explicitly: the environment may ask pyarrow for older formats, which have no room for what is needed here."""

Numbers = np.ndarray[tuple[int], np.dtype[np.int64]]


class SortedRows(NamedTuple):
    """Some rows of one shard, in the order of their hashes taken as signed numbers."""

    batch: pa.RecordBatch
    hashes: Hashes


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardSummary:
    """What is to be known of a shard that was written."""

    row_count: int
    byte_size: int
    checksum: str
    min_key: Key
    max_key: Key
    block_count: int
    directory_offset: int
    fingerprint: int
    dropped_rows: int
    """Rows that gave way to another with the same key."""


class ShardStream:
    """The bytes of a shard file, made while they are taken; `summary` is there afterwards, None without any rows."""

    def __init__(
        self,
        rows: Iterable[SortedRows],
        *,
        schema: pa.Schema,
        key: KeySchema,
        on_duplicate: OnDuplicate | None = None,
    ) -> None:
        self._rows = rows
        self._schema = schema
        self.check = RowCheck(key, on_duplicate or OnDuplicate())
        self._key = key
        self._buffers = sum(buffer_count(field.type) for field in schema)
        self._sink = _Sink()
        self._position = 0
        self._sha256 = hashlib.sha256()
        self._row_count = 0
        self._last_hash = -(1 << 63)
        self._range: tuple[Key, Key] | None = None
        self.summary: ShardSummary | None = None

    def __iter__(self) -> Iterator[bytes]:
        """The file in chunks. BadRows at the end if there was anything wrong with the rows; then it is no file."""
        sections = _Sections(self._buffers)
        with sections:
            stream = pa.BufferedOutputStream(pa.PythonFile(self._sink, mode="w"), _COPY_BYTES)
            writer = pa.ipc.new_file(stream, self._schema, options=_IPC_OPTIONS)
            block_count = 0
            for pending in self._in_sorted_batches():
                block_count = block_count or self._block_count(pending)
                yield from self._blocks(pending, block_count, writer, stream, sections)
            if self.check.report:
                raise self.check.report.error()
            if self._row_count == 0:
                return
            sections.close_table(block_count, self._row_count)
            yield from self._index(block_count, stream, sections)
            writer.close()
            stream.flush()
            yield self._taken()
        assert self._range is not None
        self.summary = ShardSummary(
            row_count=self._row_count,
            byte_size=self._position,
            checksum=f"sha256:{self._sha256.hexdigest()}",
            min_key=self._range[0],
            max_key=self._range[1],
            block_count=block_count,
            directory_offset=self._trailer.directory_offset,
            fingerprint=self._trailer.fingerprint,
            dropped_rows=self.check.dropped,
        )

    # -- rows ---------------------------------------------------------------------------------------------------------

    def _in_sorted_batches(self) -> Iterator[_Pending]:
        """Checked rows: first enough to judge the whole by, then as they come, each with the rest of those before."""
        pending = _Pending(None, np.empty(0, np.uint64), complete=False)
        begun = False
        for batch, hashes in self._rows:
            if batch.num_rows == 0:
                continue
            self.check.oversized_keys(batch)
            self._check_order(hashes)
            joined = pending.joined(batch, hashes)
            assert joined.batch is not None
            clean, clean_hashes = self.check.duplicates(joined.batch, joined.hashes, len(pending.hashes))
            low, high = smallest_and_largest(self._key, batch)
            self._range = (low, high) if self._range is None else (min(self._range[0], low), max(self._range[1], high))
            pending = _Pending(clean, clean_hashes, complete=False)
            if not begun and clean.num_rows < _SAMPLE_ROWS and clean.nbytes < _SAMPLE_BYTES:
                continue
            begun = True
            yield pending
            pending = pending.rest()
        yield _Pending(pending.batch, pending.hashes, complete=True)

    def _check_order(self, hashes: Hashes) -> None:
        """A row in the wrong place would never be found again."""
        signed = hashes.view(np.int64)
        if signed[0] < self._last_hash or (signed[1:] < signed[:-1]).any():
            raise BuildFailed("nothing was published: rows do not come in the order of their hashes; sort them first")
        self._last_hash = int(signed[-1])

    def _block_count(self, pending: _Pending) -> int:
        """Hashes are uniform: how far the first rows have come among all hashes tells how many rows there will be.

        Which rows are looked at depends on the rows only, not on the batches they come in: so do the file's bytes.
        """
        if pending.batch is None:
            return 1
        total = seen = len(pending.hashes)
        if not pending.complete:
            while seen > _SAMPLE_ROWS or pending.batch.slice(0, seen).nbytes > _SAMPLE_BYTES:
                if seen == 1:
                    break
                seen = 1 << ((seen - 1).bit_length() - 1)
            reached = int(pending.hashes[seen - 1] ^ _SIGN) + 1
            total = (seen << 64) // reached
        if total > _ROWS_MAX:
            raise BadRows(
                f"nothing was published: a shard seems to have {total:,} rows; use more shards, so that none has more "
                f"than {_ROWS_MAX:,}"
            )
        row_bytes: int = max(1, pending.batch.slice(0, seen).nbytes // seen)
        rows_per_block = max(1, min(BLOCK_ROWS, block_target_bytes(self._buffers) // row_bytes))
        return max(1, -(-total // rows_per_block))

    def _blocks(
        self,
        pending: _Pending,
        block_count: int,
        writer: pa.RecordBatchFileWriter,
        stream: pa.NativeFile,
        sections: _Sections,
    ) -> Iterator[bytes]:
        """Write the whole blocks among the pending rows; the rows of the last block stay, as more may come."""
        if pending.batch is None:
            return
        blocks, tags = places(pending.hashes, block_count)
        edges = (np.flatnonzero(blocks[1:] != blocks[:-1]) + 1).tolist()
        if pending.complete:
            edges.append(len(blocks))
        elif pending.batch.slice(edges[-1] if edges else 0).nbytes > _PENDING_BYTES_MAX:
            raise BadRows("nothing was published: more than a gigabyte of rows have hashes that are almost equal")
        pending.taken = edges[-1] if edges else 0
        if self.check.report or not edges:
            return  # it will be no file, but what else is wrong is counted to the end
        spans = list(pairwise([0, *edges]))
        ends = []
        for start, end in spans:
            writer.write_batch(pending.batch.slice(start, end - start))
            ends.append(stream.tell())
        stream.flush()
        chunk_start, chunk = self._position, self._taken()
        # A file begins with its magic and schema: the first block starts where those end.
        head = 0 if chunk_start else self._schema_bytes(memoryview(chunk))
        begins = [chunk_start + head, *ends[:-1]]
        if max(end - begin for begin, end in zip(begins, ends, strict=True)) > _BLOCK_BYTES_MAX:
            raise BadRows("nothing was published: a block of rows is larger than four gigabytes; store smaller values")
        rows = np.diff([0, *edges])
        sections.add(
            blocks[[start for start, _ in spans]], begins, ends, chunk_start, chunk, rows, tags[: pending.taken]
        )
        self._row_count += pending.taken
        yield chunk

    def _schema_bytes(self, chunk: memoryview) -> int:
        """How long the head of the file is: magic, padding, and the schema message."""
        head = 8
        return head + 8 + int.from_bytes(chunk[head + 4 : head + 8], "little")

    # -- index --------------------------------------------------------------------------------------------------------

    def _index(self, block_count: int, stream: pa.NativeFile, sections: _Sections) -> Iterator[bytes]:
        stream.write(END_OF_STREAM)
        fingerprint = sections.fingerprint()
        offsets, checksums = [], []
        for section in (sections.directory(fingerprint), _pieces(sections.table), _pieces(sections.tags)):
            stream.write(bytes(-stream.tell() % 64))
            offsets.append(stream.tell())
            checksum = xxh3_64()
            for piece in section:
                checksum.update(piece)
                stream.write(piece)
                stream.flush()
                yield self._taken()
            checksums.append(checksum.intdigest())
        stream.write(bytes(-stream.tell() % 8))
        trailer = Trailer(
            block_count=block_count,
            row_count=self._row_count,
            buffer_count=self._buffers,
            directory_offset=offsets[0],
            table_offset=offsets[1],
            tags_offset=offsets[2],
            directory_checksum=checksums[0],
            table_checksum=checksums[1],
            tags_checksum=checksums[2],
            fingerprint=fingerprint,
        )
        self._trailer = trailer
        stream.write(trailer.pack())

    def _taken(self) -> bytes:
        chunk = self._sink.take()
        self._sha256.update(chunk)
        self._position += len(chunk)
        return chunk


@dataclass(slots=True)
class _Pending:
    """Rows that are not written yet."""

    batch: pa.RecordBatch | None
    hashes: Hashes
    complete: bool
    """No more will come."""
    taken: int = 0

    def joined(self, batch: pa.RecordBatch, hashes: Hashes) -> _Pending:
        if self.batch is None or self.batch.num_rows == 0:
            return _Pending(batch, hashes, complete=False)
        return _Pending(pa.concat_batches([self.batch, batch]), np.concatenate((self.hashes, hashes)), complete=False)

    def rest(self) -> _Pending:
        assert self.batch is not None
        return _Pending(self.batch.slice(self.taken), self.hashes[self.taken :], complete=False)


class _Sections:
    """The three sections of the index while they grow. What is more than a little waits on disk, not in memory."""

    def __init__(self, buffers: int) -> None:
        self._buffers = buffers
        self._next_block = 0
        self._rows = 0
        self.heads = _spool()
        self.table = _spool()
        self.tags = _spool()

    def add(
        self,
        blocks: Numbers,
        begins: Sequence[int],
        ends: Sequence[int],
        chunk_start: int,
        chunk: bytes,
        rows: Numbers,
        tags: np.ndarray[tuple[int], np.dtype[np.uint16]],
    ) -> None:
        """Some blocks that were written: their numbers, where in the file each lies, how many rows each has."""
        self._skip_to(int(blocks[0]))
        first, count = self._next_block, int(blocks[-1]) + 1 - self._next_block
        view = memoryview(chunk)
        heads = [_EMPTY_HEAD] * count
        bodies, spans = [], []
        for block, begin, end, row_count in zip(blocks.tolist(), begins, ends, rows.tolist(), strict=True):
            data = view[begin - chunk_start : end - chunk_start]
            checksum = xxh3_64_intdigest(data)
            entry = DirectoryEntry(offset=begin, length=end - begin, rows=row_count, checksum=checksum)
            heads[block - first] = entry.head()
            body, stored = buffer_spans(data)
            bodies.append(begin + body)
            spans.append(stored)
        buffers = np.frombuffer(b"".join(spans), "<i8").reshape(len(blocks), -1, 2)
        assert buffers.shape[1] == self._buffers, f"{buffers.shape[1]} buffers where the schema has {self._buffers}"
        table = np.zeros((count, 1 + self._buffers), "<u8")
        row_counts = np.zeros(count, np.int64)
        row_counts[blocks - first] = rows
        table[:, 0] = self._rows + np.cumsum(row_counts) - row_counts
        table[blocks - first, 1:] = np.where(buffers[:, :, 1] > 0, buffers[:, :, 0] + np.array(bodies)[:, None], 0)
        self.heads.write(b"".join(heads))
        self.table.write(table.tobytes())
        self.tags.write(tags.astype("<u2").tobytes())
        self._rows += len(tags)
        self._next_block = first + count

    def close_table(self, block_count: int, row_count: int) -> None:
        assert self._rows == row_count
        self._skip_to(block_count)
        self._write_bare_row()

    def _skip_to(self, block: int) -> None:
        """Blocks without rows have an entry like all others, so that a block's entry is where its number says."""
        for _ in range(self._next_block, block):
            self.heads.write(_EMPTY_HEAD)
            self._write_bare_row()
        self._next_block = max(self._next_block, block)

    def _write_bare_row(self) -> None:
        self.table.write(self._rows.to_bytes(8, "little") + bytes(8 * self._buffers))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for section in (self.heads, self.table, self.tags):
            section.close()

    def fingerprint(self) -> int:
        """Of the directory, which is complete."""
        checksum = xxh3_64()
        for piece in _pieces(self.heads):
            checksum.update(piece)
        return checksum.intdigest()

    def directory(self, fingerprint: int) -> Iterator[bytes]:
        """The directory as it is stored."""
        block = 0
        for heads in _pieces(self.heads):
            yield sealed_entries(heads, block, fingerprint)
            block += len(heads) // DIRECTORY_HEAD_BYTES


def _spool() -> IO[bytes]:
    return tempfile.SpooledTemporaryFile(max_size=_SECTION_MEMORY_BYTES)


def _pieces(section: IO[bytes]) -> Iterator[bytes]:
    section.seek(0)
    while piece := section.read(_COPY_BYTES):
        yield piece


class _Sink(io.RawIOBase):
    """Where Arrow writes to: keeps what it is given until somebody takes it."""

    def __init__(self) -> None:
        super().__init__()
        self._parts: list[bytes] = []
        self._position = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def write(self, data: object) -> int:
        part = bytes(data)  # type: ignore[call-overload]
        self._parts.append(part)
        self._position += len(part)
        return len(part)

    def take(self) -> bytes:
        taken = b"".join(self._parts)
        self._parts.clear()
        return taken
