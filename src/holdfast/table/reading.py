"""A table without Spark: one snapshot as Arrow, a batch at a time, of bytes that are known to be those published.

table = open_table("s3://lake/orders")
table.to_arrow(columns=["id", "total"])
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime
from typing import BinaryIO, cast

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.chain import Chain, Manifest, open_chain, table_layout
from holdfast.errors import BadInput, CorruptShard, ObjectNotFound
from holdfast.storage.objects import ObjectStore
from holdfast.table.dataset import TableData, TableFile
from holdfast.table.publish import check_table

__all__ = ["TableSnapshot", "batches_of_file", "open_table"]

BATCH_ROWS = 16_384
_CHUNK_BYTES = 8 << 20


@dataclass(frozen=True, kw_only=True)
class TableSnapshot:
    """One snapshot of a table. It stays that one while others are published."""

    ref: str
    manifest: Manifest = field(repr=False)
    data: TableData = field(repr=False)
    store: ObjectStore = field(repr=False)

    @property
    def schema(self) -> pa.Schema:
        return self.data.schema

    @property
    def row_count(self) -> int:
        return self.data.row_count

    def batches(
        self, columns: Sequence[str] | None = None, *, batch_rows: int = BATCH_ROWS
    ) -> Iterator[pa.RecordBatch]:
        """The rows, file by file, in memory that does not grow with them. CorruptShard before any row of a bad file."""
        schema = self._selected(columns)
        for file in self.data.files:
            yield from batches_of_file(self.store, file, schema, batch_rows=batch_rows)

    def to_arrow(self, columns: Sequence[str] | None = None) -> pa.Table:
        """All rows at once."""
        return pa.Table.from_batches(self.batches(columns), schema=self._selected(columns))

    def _selected(self, columns: Sequence[str] | None) -> pa.Schema:
        if columns is None:
            return self.schema
        unknown = [name for name in columns if name not in self.schema.names]
        if unknown:
            raise BadInput(f"the table has no column {unknown[0]!r}; there are {', '.join(self.schema.names)}")
        return pa.schema([self.schema.field(name) for name in columns])


def open_table(
    place: str | Chain,
    *,
    ref: str | None = None,
    tag: tuple[str, str] | None = None,
    at: datetime | None = None,
) -> TableSnapshot:
    """A snapshot of the table at `place`: by ref, tag or time, or the visible one."""
    chain = open_chain(place, layout=table_layout().name) if isinstance(place, str) else place
    check_table(chain)
    found = chain.layout.ref_of(chain.find(ref=ref, tag=tag, at=at).manifest_path)
    manifest = chain.load_manifest(found)
    return TableSnapshot(ref=found, manifest=manifest, data=TableData.of_manifest(manifest), store=chain.store)


def batches_of_file(
    store: ObjectStore, file: TableFile, schema: pa.Schema, *, batch_rows: int = BATCH_ROWS
) -> Iterator[pa.RecordBatch]:
    """Some columns of one file. None of its bytes is decoded before all are known to be those that were written."""
    with tempfile.TemporaryFile(prefix="holdfast-table-") as spool:
        _fetch(store, file, cast(BinaryIO, spool))
        names = schema.names
        try:
            with closing(pq.ParquetFile(spool, page_checksum_verification=False)) as parquet:
                # A name with a dot also means a field inside another column: what comes is sorted out by its name.
                for batch in parquet.iter_batches(batch_rows, columns=names, use_threads=False):
                    yield pa.RecordBatch.from_arrays(
                        [batch.column(name).cast(schema.field(name).type) for name in names], schema=schema
                    )
        except (pa.ArrowInvalid, KeyError) as error:
            raise CorruptShard(file.path, f"it does not have the table's columns: {error}") from None


def _fetch(store: ObjectStore, file: TableFile, spool: BinaryIO) -> None:
    digest = hashlib.sha256()
    for start in range(0, file.byte_size, _CHUNK_BYTES):
        try:
            data = store.get_range(file.path, start, min(_CHUNK_BYTES, file.byte_size - start))
        except ObjectNotFound:
            raise CorruptShard(file.path, "it is missing") from None
        digest.update(data)
        spool.write(data)
    found = f"sha256:{digest.hexdigest()}"
    if found != file.checksum:
        raise CorruptShard(file.path, f"its checksum is {found}, not {file.checksum}")
    spool.seek(0)
