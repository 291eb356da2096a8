"""A version of a graph as two DataFrames (G24): Spark's own reader of Parquet on the segments, in the JVM.

1. A segment that shares no key with another is read as it is. Where nothing of a kind was ever hidden, that is all.
2. Of segments that may share keys, the newest row of each key counts; if that is a tombstone, the record is gone.
3. Where Spark cannot open the files, because it has no file system of that scheme or no way to it, tasks fetch them by
   the store's own means, compare them with their checksums, and hand them over as Arrow.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import BinaryIO, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from holdfast.errors import CorruptShard, ObjectNotFound
from holdfast.graph.records import EDGE_COLUMNS, NODE_COLUMNS
from holdfast.graph.segment import SegmentDescriptor, SegmentKind, segment_schema
from holdfast.graph.state import GraphState
from holdfast.graph.store import GraphStore
from holdfast.spark.failures import SPARK_ERRORS
from holdfast.spark.graph_source import KEY_COLUMNS
from holdfast.spark.graph_task import decode_descriptor, encode_descriptor
from holdfast.spark.graph_write import store_at
from holdfast.spark.hadoop import hadoop_paths
from holdfast.storage.objects import ObjectStore

__all__ = ["GraphFrames", "frame_of", "may_share_keys", "read_graph"]

_COLUMNS: dict[SegmentKind, tuple[str, ...]] = {"nodes": NODE_COLUMNS, "edges": EDGE_COLUMNS}
_CHUNK_BYTES = 8 << 20
_BATCH_ROWS = 16_384


class GraphFrames(NamedTuple):
    """One version."""

    nodes: DataFrame
    edges: DataFrame


def read_graph(
    spark: SparkSession,
    place: str | GraphStore,
    *,
    version: int | None = None,
    tag: tuple[str, str] | None = None,
    at: datetime | None = None,
) -> GraphFrames:
    """The nodes and the edges of a version: by number, tag or time, or the visible one. It stays that version."""
    store = store_at(place)
    state = store.state(version, tag=tag, at=at)
    return GraphFrames(frame_of(spark, store, state, "nodes"), frame_of(spark, store, state, "edges"))


def frame_of(spark: SparkSession, store: GraphStore, state: GraphState, kind: SegmentKind) -> DataFrame:
    """What is there of one kind, in the columns of its records."""
    segments = state.nodes if kind == "nodes" else state.edges
    columns = _COLUMNS[kind]
    shared = may_share_keys(segments)
    frames = []
    alone = [segment for segment in segments if segment.segment_id not in shared]
    if alone:
        frames.append(_rows(spark, store.chain.store, kind, alone).where("NOT tombstone").select(*columns))
    together = [segment for segment in segments if segment.segment_id in shared]
    if together:
        keys = ", ".join(KEY_COLUMNS[kind])
        newest = f"row_number() OVER (PARTITION BY {keys} ORDER BY age DESC, tombstone ASC) AS place"
        rows = _rows(spark, store.chain.store, kind, together).selectExpr("*", newest)
        frames.append(rows.where("place = 1 AND NOT tombstone").select(*columns))
    if not frames:
        return spark.createDataFrame([], ", ".join(f"{name} string" for name in columns))
    return frames[0] if len(frames) == 1 else frames[0].union(frames[1])


def may_share_keys(segments: Sequence[SegmentDescriptor]) -> set[int]:
    """The ids of segments in which there may be a key of another. What never hid anything has no key twice."""
    if not any(segment.hidden_count or segment.tombstone_count for segment in segments):
        return set()
    shared: set[int] = set()
    group: list[int] = []
    end = ""
    for segment in sorted(segments, key=lambda one: one.zone_map.min_id):
        if group and segment.zone_map.min_id > end:
            group = []
        group.append(segment.segment_id)
        end = segment.zone_map.max_id if len(group) == 1 else max(end, segment.zone_map.max_id)
        if len(group) > 1:
            shared.update(group)
    return shared


def _rows(
    spark: SparkSession, store: ObjectStore, kind: SegmentKind, segments: Sequence[SegmentDescriptor]
) -> DataFrame:
    """All rows of some segments, tombstones included, with the `age` of each: larger is newer."""
    paths = hadoop_paths(store, [segment.path for segment in segments])
    if paths is not None:
        reader = spark.read.schema(_schema_sql(kind)).option("parquet.page.verify-checksum.enabled", "true")
        try:
            read = reader.parquet(*paths)
            read.schema  # noqa: B018 - over Spark Connect, only now are the files looked for
        except SPARK_ERRORS:
            pass  # no such file system here, or no way to it: tasks will say what is wrong, if it is more than that
        else:
            return _aged(spark, read, segments)
    listed = spark.createDataFrame(
        [(place, encode_descriptor(segment)) for place, segment in enumerate(segments)], "age int, segment binary"
    )
    one_each = listed.repartitionById(len(segments), listed.age)
    return one_each.mapInArrow(SegmentFetch(store, kind), f"{_schema_sql(kind)}, age int")


def _aged(spark: SparkSession, read: DataFrame, segments: Sequence[SegmentDescriptor]) -> DataFrame:
    if len(segments) == 1:
        return read.selectExpr("*", "0 AS age")
    names = [(segment.path.rpartition("/")[2], place) for place, segment in enumerate(segments)]
    ages = spark.createDataFrame(names, "segment string, age int").hint("broadcast")
    return read.selectExpr("*", "_metadata.file_name AS segment").join(ages, "segment").drop("segment")


def _schema_sql(kind: SegmentKind) -> str:
    return ", ".join([*(f"{name} string" for name in _COLUMNS[kind]), "tombstone boolean"])


# -- in an executor ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SegmentFetch:
    """Reads whole segments by the store's own means, in bounded memory. Pickles."""

    store: ObjectStore
    kind: SegmentKind

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for age, encoded in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True):
                yield from self._read(decode_descriptor(encoded), age)

    def _read(self, segment: SegmentDescriptor, age: int) -> Iterator[pa.RecordBatch]:
        with tempfile.TemporaryFile(prefix="holdfast-segment-") as spool:
            self._fetch(segment, spool)
            schema = segment_schema(self.kind)
            for batch in pq.ParquetFile(spool).iter_batches(_BATCH_ROWS, columns=schema.names, use_threads=False):
                ages = pa.repeat(pa.scalar(age, pa.int32()), batch.num_rows)
                yield pa.RecordBatch.from_arrays([*batch.columns, ages], names=[*schema.names, "age"])

    def _fetch(self, segment: SegmentDescriptor, spool: BinaryIO) -> None:
        """The file's bytes, none of which is looked at before all are known to be those that were written."""
        digest = hashlib.sha256()
        for start in range(0, segment.byte_size, _CHUNK_BYTES):
            try:
                data = self.store.get_range(segment.path, start, min(_CHUNK_BYTES, segment.byte_size - start))
            except ObjectNotFound:
                raise CorruptShard(segment.path, "it is missing") from None
            digest.update(data)
            spool.write(data)
        found = f"sha256:{digest.hexdigest()}"
        if found != segment.checksum:
            raise CorruptShard(segment.path, f"its checksum is {found}, not {segment.checksum}")
        spool.seek(0)
