"""Writing one Parquet file: batches in, chunks of bytes out as they come, and what the file is in the end.

Memory is bounded by a row group, whatever the number of rows. What is written is hashed on its way.
"""

from __future__ import annotations

import hashlib
import io
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["FileSummary", "TableStream"]

ROW_GROUP_ROWS = 1 << 17
ROW_GROUP_BYTES = 64 << 20
CHUNK_BYTES = 8 << 20
STATISTICS_COLUMNS_MAX = 32
"""Of so many columns the manifest knows the range. It is read whole; the files know the others."""
_TEXT_MAX = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSummary:
    """What was written."""

    row_count: int
    byte_size: int
    checksum: str
    columns: Mapping[str, Mapping[str, object]]


class TableStream:
    """The bytes of a file of these rows, to be iterated once. Nothing comes where there are no rows."""

    def __init__(self, rows: Iterable[pa.RecordBatch], *, schema: pa.Schema) -> None:
        self._rows = rows
        self._schema = schema
        self.summary: FileSummary | None = None
        """After the last chunk; None where there were no rows."""

    def __iter__(self) -> Iterator[bytes]:
        out = _Outbox()
        about: list[pq.FileMetaData] = []
        rows = 0
        parquet: pq.ParquetWriter | None = None
        try:
            for group in _groups(self._rows):
                if parquet is None:
                    parquet = self._writer(out, about)
                parquet.write_table(group, row_group_size=len(group))
                rows += len(group)
                if out.waiting >= CHUNK_BYTES:
                    yield out.take()
            if parquet is None:
                return
            closing, parquet = parquet, None
            closing.close()
        finally:
            if parquet is not None:
                parquet.close()
        yield out.take()
        self.summary = FileSummary(
            row_count=rows,
            byte_size=out.size,
            checksum=f"sha256:{out.sha256.hexdigest()}",
            columns=_statistics(self._schema, about[0]),
        )

    def _writer(self, out: _Outbox, about: list[pq.FileMetaData]) -> pq.ParquetWriter:
        return pq.ParquetWriter(
            pa.PythonFile(out, mode="w"),
            self._schema,
            compression="zstd",
            write_page_checksum=True,
            metadata_collector=about,
        )


class _Outbox(io.RawIOBase):
    """A file whose bytes are taken out while it grows."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self.waiting = 0
        self.size = 0
        self.sha256 = hashlib.sha256()

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.size

    def write(self, data: object) -> int:
        part = bytes(memoryview(data))  # type: ignore[arg-type]
        self._parts.append(part)
        self.sha256.update(part)
        self.waiting += len(part)
        self.size += len(part)
        return len(part)

    def take(self) -> bytes:
        data, self._parts, self.waiting = b"".join(self._parts), [], 0
        return data


def _groups(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Batches in tables of a row group each."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        for start in range(0, batch.num_rows, ROW_GROUP_ROWS):
            part = batch.slice(start, ROW_GROUP_ROWS)
            if waiting and (rows + part.num_rows > ROW_GROUP_ROWS or size >= ROW_GROUP_BYTES):
                yield pa.Table.from_batches(waiting)
                waiting, rows, size = [], 0, 0
            waiting.append(part)
            rows += part.num_rows
            size += part.nbytes
    if waiting:
        yield pa.Table.from_batches(waiting)


def _statistics(schema: pa.Schema, about: pq.FileMetaData) -> dict[str, dict[str, object]]:
    """Nulls and range of each plain column, over all row groups. Nothing is said that Parquet does not know."""
    found: dict[str, dict[str, object]] = {}
    leaf = 0
    for column in schema:
        first, leaf = leaf, leaf + _leaves(column.type)
        if pa.types.is_nested(column.type) or len(found) == STATISTICS_COLUMNS_MAX:
            continue
        groups = [about.row_group(index).column(first).statistics for index in range(about.num_row_groups)]
        if any(one is None or not one.has_null_count for one in groups):
            continue
        said: dict[str, object] = {"nulls": sum(one.null_count for one in groups)}
        known = [one for one in groups if one.has_min_max]
        if known and all(one.has_min_max or one.num_values == 0 for one in groups):
            low, high = _plain(min(one.min for one in known)), _plain(max(one.max for one in known))
            if low is not None and high is not None:
                said |= {"min": low, "max": high}
        found[column.name] = said
    return found


def _leaves(kind: pa.DataType) -> int:
    """How many columns a type takes in Parquet."""
    if pa.types.is_map(kind):
        return _leaves(kind.key_type) + _leaves(kind.item_type)
    if pa.types.is_list(kind):
        return _leaves(kind.value_type)
    if pa.types.is_struct(kind):
        return sum(_leaves(kind.field(index).type) for index in range(kind.num_fields))
    return 1


def _plain(value: object) -> object | None:
    """A value as a manifest says it; None for what it does not say."""
    match value:
        case bool() | int():
            return value
        case float():
            return value if math.isfinite(value) else None
        case str():
            return value if len(value) <= _TEXT_MAX else None
        case datetime() | date():
            return value.isoformat()
        case Decimal():
            return str(value)
        case _:
            return None
