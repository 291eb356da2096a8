"""The rows of a key-value snapshot as a DataFrame: one task a shard, through the store, a few megabytes at a time.

Shards are Arrow files that Spark has no reader for, so tasks fetch their blocks, compare each with its checksum before
any of its rows is used, and hand them over as Arrow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from holdfast.chain import Chain, Manifest, kv_layout, open_chain
from holdfast.errors import BadInput, CorruptShard, NotAChain
from holdfast.kv.dataset import DataSet, Shard
from holdfast.kv.keys import KeySchema
from holdfast.kv.stored_rows import StoredRows
from holdfast.storage.objects import ObjectStore

__all__ = ["frame_of_kv", "read_kv"]

_UNSIGNED = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
}
"""Spark has no unsigned numbers: each becomes the next larger type, as such keys are published from Spark."""


def read_kv(
    spark: SparkSession,
    place: str | Chain,
    *,
    ref: str | None = None,
    tag: tuple[str, str] | None = None,
    at: datetime | None = None,
) -> DataFrame:
    """The rows of a snapshot: by ref, tag or time, or the visible one. It stays that snapshot.

    The key's columns come first. A UUID is text, an unsigned number is of the next larger type that Spark has.
    """
    chain = open_chain(place, layout=kv_layout().name) if isinstance(place, str) else place
    if chain.layout.name != kv_layout().name:
        raise NotAChain(f"{chain.store.url!r} is opened as a {chain.layout.name} chain: this needs a kv one")
    found = chain.layout.ref_of(chain.find(ref=ref, tag=tag, at=at).manifest_path)
    return frame_of_kv(spark, chain.store, chain.load_manifest(found))


def frame_of_kv(spark: SparkSession, store: ObjectStore, manifest: Manifest) -> DataFrame:
    """What the snapshot of a manifest holds."""
    if store.url.startswith("memory:"):
        raise BadInput("executors are other processes and cannot reach memory://; use file:// or a bucket")
    dataset = DataSet.of_manifest(manifest)
    shown = pa.schema([pa.field(one.name, _shown(one.name, one.type), one.nullable) for one in dataset.schema])
    schema = _spark_schema(shown)
    shards = {shard.number: shard for shard in dataset.shards if shard is not None}
    if not shards:
        return spark.createDataFrame([], schema)
    task = ShardFetch(store, shards, dataset.schema, shown, dataset.key)
    listed = spark.createDataFrame([(place, number) for place, number in enumerate(shards)], "place int, number int")
    return listed.repartitionById(len(shards), listed.place).mapInArrow(task, schema)


def _shown(name: str, kind: pa.DataType) -> pa.DataType:
    """The type that a column has in Spark; BadInput if it has none there."""
    if kind in _UNSIGNED:
        return _UNSIGNED[kind]
    if kind == pa.uuid():
        return pa.string()
    if pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", None if kind.tz is None else "UTC")
    if pa.types.is_duration(kind):
        return pa.duration("us")
    if pa.types.is_struct(kind):
        members = [kind.field(index) for index in range(kind.num_fields)]
        return pa.struct([_member(name, member) for member in members])
    if pa.types.is_map(kind):
        return pa.map_(_inside(name, kind.key_type), _member(name, kind.item_field))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return pa.list_(_member(name, kind.value_field))
    if pa.types.is_date64(kind):
        return pa.date32()
    if pa.types.is_float16(kind):
        return pa.float32()
    try:
        _spark_schema(pa.schema([pa.field(name, kind)]))
    except PySparkException:
        raise BadInput(f"column {name!r} is {kind}, which Spark does not have; read it with holdfast.kv") from None
    return kind


def _member(name: str, member: pa.Field) -> pa.Field:
    return pa.field(member.name, _inside(name, member.type), member.nullable)


def _inside(name: str, kind: pa.DataType) -> pa.DataType:
    if kind == pa.uuid():
        raise BadInput(f"column {name!r} has UUIDs inside, which Spark does not have; read it with holdfast.kv")
    return _shown(name, kind)


def _spark_schema(schema: pa.Schema) -> StructType:
    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


# -- in an executor ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ShardFetch:
    """Reads whole shards by the store's own means, in bounded memory. Pickles."""

    store: ObjectStore
    shards: Mapping[int, Shard]
    stored: pa.Schema
    shown: pa.Schema
    key: KeySchema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column("number").to_pylist():
                yield from self._read(self.shards[number])

    def _read(self, shard: Shard) -> Iterator[pa.RecordBatch]:
        rows = 0
        for some in StoredRows(self.store, shard, schema=self.stored, key=self.key).rows():
            rows += some.batch.num_rows
            arrays = [_cast(array, one.type) for array, one in zip(some.batch.columns, self.shown, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=self.shown)
        if rows != shard.row_count:
            raise CorruptShard(shard.path, f"it has {rows:,} rows, not {shard.row_count:,}")


def _cast(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if array.type == kind:
        return array
    return _uuid_texts(array) if array.type == pa.uuid() else array.cast(kind)


def _uuid_texts(array: pa.Array) -> pa.Array:
    """UUIDs as people write them."""
    storage = array.storage
    count = len(storage)
    raw = np.frombuffer(storage.buffers()[1], np.uint8, count * 16, storage.offset * 16).reshape(count, 16)
    text = np.full((count, 36), ord("-"), np.uint8)
    text[:, _DIGIT_PLACES] = _DIGITS[np.stack([raw >> 4, raw & 15], axis=2)].reshape(count, 32)
    offsets = np.arange(0, 36 * count + 1, 36, dtype=np.int32)
    texts = pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(text))
    return pc.if_else(storage.is_valid(), texts, pa.scalar(None, pa.string()))


_DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8)
_DIGIT_PLACES = [place for place in range(36) if place not in {8, 13, 18, 23}]
