"""Shards for tests: written from tables by the real writer, published by the real build, opened from their files."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.chain import chain_on, kv_layout
from holdfast.kv import DataSet, KeySchema, Missing, OnDuplicate, ShardStream, ShardSummary, SortedRows, ValueKind
from holdfast.kv.build import publish_arrow
from holdfast.kv.dataset import shard_schema
from holdfast.kv.keys import Key
from holdfast.kv.mapped import MappedShard
from holdfast.kv.mapped_snapshot import MappedSnapshot
from holdfast.kv.request import KeyColumns
from holdfast.storage import LocalStore


def sorted_rows(table: pa.Table, key: KeySchema, *, batch_rows: int = 1000) -> Iterator[SortedRows]:
    """A table in the order of its hashes, in batches of so many rows."""
    batch = table.combine_chunks().to_batches()[0] if table.num_rows else table.schema.empty_table().to_batches()[0]
    hashes = key.hash_arrays([column.canonical(batch.column(column.name)) for column in key.columns])
    order = np.argsort(hashes.view(np.int64), kind="stable")
    batch, hashes = batch.take(pa.array(order)), hashes[order]
    for start in range(0, len(hashes), batch_rows):
        yield SortedRows(batch.slice(start, batch_rows), hashes[start : start + batch_rows])


@dataclass(frozen=True)
class WrittenShard:
    """A shard file of its own."""

    path: Path
    key: KeySchema
    schema: pa.Schema
    summary: ShardSummary

    def open(self, *, fingerprint: int | None = None, row_count: int | None = None) -> MappedShard:
        return MappedShard(
            self.path,
            name=self.path.name,
            schema=self.schema,
            key=self.key,
            row_count=self.summary.row_count if row_count is None else row_count,
            fingerprint=self.summary.fingerprint if fingerprint is None else fingerprint,
        )


def write_shard(
    path: Path, table: pa.Table, key: str | Sequence[str], *, batch_rows: int = 1000, on_duplicate: str = "error"
) -> WrittenShard:
    """One shard file of a table's rows, by the writer alone."""
    schema = KeySchema.from_arrow(table.schema, [key] if isinstance(key, str) else list(key))
    stored = shard_schema(table.schema, schema, ValueKind.ROW)
    rows = sorted_rows(table.select(stored.names).cast(stored), schema, batch_rows=batch_rows)
    stream = ShardStream(rows, schema=stored, key=schema, on_duplicate=OnDuplicate.parse(on_duplicate))
    path.write_bytes(b"".join(stream))
    assert stream.summary is not None
    return WrittenShard(path, schema, stored, stream.summary)


def publish_to(directory: Path, data: object, *, key: str | Sequence[str], **options: Any) -> DataSet:
    """Publish a table as the next snapshot of the data set in a folder."""
    chain = chain_on(LocalStore(directory, durable=False), kv_layout(), by="test")
    publish_arrow(chain, data, key=key, **options)
    assert chain.verify() == []
    manifest = chain.load_current()
    assert manifest is not None
    return DataSet.of_manifest(manifest)


def open_mapped(directory: Path, dataset: DataSet) -> MappedSnapshot:
    return MappedSnapshot(dataset, [None if shard is None else directory / shard.path for shard in dataset.shards])


def built(directory: Path, data: object, *, key: str | Sequence[str] = "key", **options: Any) -> MappedSnapshot:
    """A data set of its own, published and opened."""
    return open_mapped(directory, publish_to(directory, data, key=key, **{"shards": 1, **options}))


def assert_serves(snapshot: MappedSnapshot, expected: Mapping[Key, object], absent: Sequence[Key] = ()) -> None:
    """Every way to ask says what a dict says."""
    nothing = object()
    for key, value in expected.items():
        assert same(snapshot.get(key, nothing), value), key
    keys = [*expected, *absent]
    for key in absent:
        assert snapshot.get(key, nothing) is nothing
        assert not snapshot.contains(key)
    found = snapshot.multi_get(keys)
    assert list(found) == list(expected)
    assert all(same(found[key], value) for key, value in expected.items())
    twice = keys + keys[::-1]
    columns = KeyColumns.of_keys(snapshot.dataset.key, twice)
    nulls = snapshot.get_arrow(columns, Missing.NULL)
    dropped = snapshot.get_arrow(columns, Missing.DROP)
    assert nulls.num_rows == len(twice)
    assert dropped.num_rows == 2 * len(expected)
    for answer in (nulls, dropped):
        answer.validate(full=True)
    if snapshot.dataset.value is ValueKind.ROW:
        names = snapshot.dataset.value_schema.names
        missing = dict.fromkeys(names)
        rows = nulls.select(names).to_pylist() if names else [{}] * nulls.num_rows
        assert all(same(row, expected.get(key, missing)) for key, row in zip(twice, rows, strict=True))


def same(left: object, right: object) -> bool:
    """Equal, and of one type; a number that is none equals itself."""
    if isinstance(left, float) and isinstance(right, float):
        return left == right or (math.isnan(left) and math.isnan(right))
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return list(left) == list(right) and all(same(left[name], right[name]) for name in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    return type(left) is type(right) and left == right
