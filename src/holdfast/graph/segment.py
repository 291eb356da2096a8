"""Segments: the immutable files of a graph, in Parquet: Spark, DuckDB and pyarrow read them as they are (G3, G7).

    nodes   semantic_id, type, name, file, content_hash, metadata, tombstone      in the order of semantic_id
    edges   source, target, type, file, metadata, tombstone                       in the order of source, type, target

A tombstone is the record that is gone, as it was; its key is hidden in all older segments. Where a segment has a
tombstone and a record of the same key, the record stays: the tombstone only hides what was there before, under another
type or file.

The manifest has a checksum of the whole file: a file that is read whole is compared with it. How a part of one is read
and checked is in `segment_file.py`. Every page has a checksum too, for other readers of Parquet.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.chain import Artifact
from holdfast.codec import Fields
from holdfast.errors import CorruptRecord, CorruptShard, ObjectNotFound, UnsupportedFormat
from holdfast.graph.encoding import encoded_column
from holdfast.graph.records import edge_schema, node_schema
from holdfast.graph.zone_map import ZoneMap
from holdfast.parquet_bytes import read_parquet
from holdfast.storage.objects import ObjectStore

__all__ = [
    "SEGMENT_FORMAT",
    "SegmentDescriptor",
    "SegmentKind",
    "check_columns",
    "dictionary_columns",
    "read_segment",
    "segment_schema",
    "sorted_edges",
    "sorted_nodes",
]

SegmentKind = Literal["nodes", "edges"]

SEGMENT_FORMAT = 1
_TOMBSTONE = pa.field("tombstone", pa.bool_(), nullable=False)


@cache
def segment_schema(kind: SegmentKind) -> pa.Schema:
    """The columns of a segment file."""
    return (node_schema() if kind == "nodes" else edge_schema()).append(_TOMBSTONE)


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentDescriptor:
    """What a manifest says about one segment."""

    segment_id: int
    kind: SegmentKind
    path: str
    byte_size: int
    tail_size: int
    """The bytes at its end that tell where everything is (`segment_file`)."""
    record_count: int
    """Rows that are no tombstones."""
    tombstone_count: int
    hidden_count: int
    """Records of older segments that this one hides: by a tombstone, or by a newer record of the same key."""
    checksum: str
    zone_map: ZoneMap

    def to_artifact(self) -> Artifact:
        return Artifact(
            path=self.path,
            byte_size=self.byte_size,
            row_count=self.record_count,
            checksum=self.checksum,
            kind=self.kind,
            detail={
                "segment_id": self.segment_id,
                "kind": self.kind,
                "segment_format": SEGMENT_FORMAT,
                "tail_size": self.tail_size,
                "tombstone_count": self.tombstone_count,
                "hidden_count": self.hidden_count,
                "zone_map": self.zone_map.to_json(),
            },
        )

    @classmethod
    def of_artifact(cls, artifact: Artifact) -> SegmentDescriptor:
        fields = Fields(artifact.detail, key=artifact.path)
        kind = fields.text("kind")
        if kind not in {"nodes", "edges"} or kind != artifact.kind:
            raise CorruptRecord(artifact.path, f"it is among the {artifact.kind} and says that it holds {kind}")
        if fields.number("segment_format") > SEGMENT_FORMAT:
            raise UnsupportedFormat(f"segment {artifact.path!r} was written by a newer release; upgrade Holdfast")
        return cls(
            segment_id=fields.number("segment_id"),
            kind="nodes" if kind == "nodes" else "edges",
            path=artifact.path,
            byte_size=artifact.byte_size,
            tail_size=fields.number("tail_size"),
            record_count=artifact.row_count,
            tombstone_count=fields.number("tombstone_count"),
            hidden_count=fields.number("hidden_count"),
            checksum=artifact.checksum,
            zone_map=ZoneMap.from_fields(Fields(fields.mapping("zone_map"), key=artifact.path)),
        )


def read_segment(store: ObjectStore, descriptor: SegmentDescriptor) -> pa.Table:
    """The rows of a segment, once its bytes are what was written. Types, files and targets come as dictionaries."""
    try:
        data = store.get(descriptor.path).data
    except ObjectNotFound:
        raise CorruptShard(descriptor.path, "it is missing") from None
    found = f"sha256:{hashlib.sha256(data).hexdigest()}"
    if found != descriptor.checksum:
        raise CorruptShard(descriptor.path, f"its checksum is {found}, not {descriptor.checksum}")
    try:
        table = read_parquet(data, read_dictionary=dictionary_columns(descriptor.kind))
    except (pa.ArrowException, OSError) as error:
        raise CorruptShard(descriptor.path, f"it is no segment: {error}") from None
    check_columns(table, descriptor)
    return table


def dictionary_columns(kind: SegmentKind) -> list[str]:
    """What is read as numbers into dictionaries, one for each row group."""
    return ["type", "file"] if kind == "nodes" else ["target", "type", "file"]


def check_columns(table: pa.Table, descriptor: SegmentDescriptor) -> None:
    if table.column_names != segment_schema(descriptor.kind).names:
        raise CorruptShard(descriptor.path, f"its columns are {', '.join(table.column_names)}")


def sorted_nodes(table: pa.Table) -> pa.Table:
    """Rows in a segment's order: by semantic id, a tombstone before the record that follows it."""
    return table.sort_by([("semantic_id", "ascending"), ("tombstone", "descending")])


def sorted_edges(table: pa.Table) -> pa.Table:
    """By source, type and target, a tombstone before the record of the same key.

    Texts are ranked once and numbers are sorted: Arrow's own sort of three columns of text takes ten times as long.
    """
    if len(table) < 2:
        return table
    ranks = _ranks(table, ("source", "type", "target"))
    order = table.column("tombstone").combine_chunks().to_numpy(zero_copy_only=False) ^ True
    spread = [int(rank.max()) + 1 for rank in ranks]
    if math.prod(spread) * 2 < 1 << 63:  # one number a row sorts faster than four columns
        packed = ((ranks[0] * spread[1] + ranks[1]) * spread[2] + ranks[2]) * 2 + order
        return table.take(pa.array(np.argsort(packed)))
    return table.take(pa.array(np.lexsort((order, ranks[2], ranks[1], ranks[0]))))


def _ranks(table: pa.Table, names: Sequence[str]) -> list[npt.NDArray[np.int64]]:
    """For each row of some columns, the place of its text among all of that column. A dictionary is sorted once."""
    ranked: list[tuple[pa.Array, npt.NDArray[np.int64]]] = []
    ranks = []
    for name in names:
        texts, codes = encoded_column(table, name)
        rank = next((rank for known, rank in ranked if known.equals(texts)), None)
        if rank is None:
            order = pc.sort_indices(texts).to_numpy()
            rank = np.empty(len(order), np.int64)
            rank[order] = np.arange(len(order))
            ranked.append((texts, rank))
        ranks.append(rank[codes])
    return ranks
