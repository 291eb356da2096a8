"""A build, as whoever writes shards is given it: what the rows are, where they go, and what is sent back (K6, K7).

A plan pickles, so that Spark's executors can have it. It can write files and cannot publish: that takes a permit, which
stays with the driver. What comes back from each shard is a receipt, which has no means to publish either.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.chain import Layout
from holdfast.clock import SystemRandomness
from holdfast.codec import Fields, Json
from holdfast.errors import AlreadyExists, BadRows
from holdfast.kv.dataset import Shard, ValueKind
from holdfast.kv.keys import KeySchema
from holdfast.kv.routing import Routing
from holdfast.kv.rows import BadRowReport, OnDuplicate
from holdfast.kv.shard_writer import ShardStream, SortedRows
from holdfast.storage.objects import ObjectStore

__all__ = ["BuildPlan", "ShardReceipt"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardReceipt:
    """What became of one shard: written, empty, unchanged, or refused because of its rows."""

    number: int
    shard: Shard | None = None
    """None for a shard without rows, and for one whose rows are bad."""
    report: BadRowReport = field(default_factory=BadRowReport)
    dropped_rows: int = 0
    unchanged: bool = False
    """An incremental build did not touch it: the base's file stays."""
    upserted_rows: int = 0
    deleted_rows: int = 0
    absent_rows: int = 0
    """Deletes of keys that were not there."""

    def encode(self, key: KeySchema) -> bytes:
        """How a receipt travels from an executor."""
        record: Json = {
            "number": self.number,
            "report": self.report.to_json(),
            "dropped_rows": self.dropped_rows,
            "unchanged": self.unchanged,
            "upserted_rows": self.upserted_rows,
            "deleted_rows": self.deleted_rows,
            "absent_rows": self.absent_rows,
        }
        if self.shard is not None:
            artifact = self.shard.to_artifact(key)
            record["shard"] = {
                "path": artifact.path,
                "byte_size": artifact.byte_size,
                "row_count": artifact.row_count,
                "checksum": artifact.checksum,
                **artifact.detail,
            }
        return orjson.dumps(record)

    @classmethod
    def decode(cls, data: bytes, key: KeySchema) -> ShardReceipt:
        from holdfast.chain.manifest import Artifact, ArtifactNames

        fields = Fields(orjson.loads(data), key="receipt")
        found = fields.mapping("shard")
        shard = None
        if found:
            artifact = Artifact.from_fields(Fields(found, key="receipt"), names=ArtifactNames(), kind="artifact")
            shard = Shard.of_artifact(artifact, key)
        rest = fields.rest()
        return cls(
            number=fields.number("number"),
            shard=shard,
            report=BadRowReport.from_json(fields.mapping("report")),
            dropped_rows=fields.number("dropped_rows"),
            unchanged=bool(rest.get("unchanged")),
            upserted_rows=fields.number("upserted_rows"),
            deleted_rows=fields.number("deleted_rows"),
            absent_rows=fields.number("absent_rows"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildPlan:
    """Everything that it takes to write a shard, and nothing that it takes to publish one."""

    store: ObjectStore
    layout: Layout
    run_id: str
    attempt: str
    """Of the run: see `holdfast.chain.runs`."""
    key: KeySchema
    schema: pa.Schema
    """As shards store it: `holdfast.kv.dataset.shard_schema`."""
    value: ValueKind
    routing: Routing
    on_duplicate: OnDuplicate = field(default_factory=OnDuplicate)

    @property
    def shard_count(self) -> int:
        return self.routing.shard_count

    def write_shard(self, number: int, rows: Iterable[SortedRows], *, writer: str) -> ShardReceipt:
        """Write one shard under a key that no other attempt uses, and say what became of it.

        `rows` are in the order of their hashes as signed numbers; equal keys are neighbours, the one to keep last.
        Bad rows are no error here: the driver adds up what all shards found.
        """
        token = f"{SystemRandomness().bits(64):016x}"
        path = self.layout.artifact_key(self.run_id, self.attempt, f"shard-{number:05d}-{token}.arrow")
        stream = ShardStream(rows, schema=self.schema, key=self.key, on_duplicate=self.on_duplicate)
        chunks = iter(stream)
        try:
            first = next(chunks, None)  # nothing is uploaded for a shard without rows
            if first is not None:
                self._upload(path, _chained(first, chunks))
        except BadRows:
            if not stream.check.report:
                raise
            return ShardReceipt(number=number, report=stream.check.report)
        if stream.summary is None:
            return ShardReceipt(number=number)
        shard = Shard.of_summary(number, path, stream.summary, writer=writer)
        return ShardReceipt(number=number, shard=shard, dropped_rows=stream.check.dropped)

    def _upload(self, path: str, chunks: Iterable[bytes]) -> None:
        try:
            self.store.upload(path, chunks)
        except AlreadyExists:
            # Nobody else knows this path: the store did what it was asked, lost its answer, and was asked again. The
            # commit looks at every file before anything becomes visible.
            return

    def rows(
        self, batch: pa.RecordBatch, hashes: np.ndarray[tuple[int], np.dtype[np.uint64]] | None = None
    ) -> SortedRows:
        """A batch of rows, brought to the columns and types that shards store. Nulls in keys must be gone."""
        arrays = [column.canonical(batch.column(column.name)) for column in self.key.columns]
        values = [_as_stored(batch.column(column.name), column) for column in list(self.schema)[len(arrays) :]]
        if self.value is ValueKind.JSON:
            _check_json(values[0])
        stored = pa.RecordBatch.from_arrays(arrays + values, schema=self.schema)
        return SortedRows(stored, self.key.hash_arrays(arrays) if hashes is None else hashes)


def _chained(first: bytes, rest: Iterable[bytes]) -> Iterable[bytes]:
    yield first
    yield from rest


def _as_stored(array: pa.Array, column: pa.Field) -> pa.Array:
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_run_end_encoded(array.type):
        array = pc.run_end_decode(array)
    if array.null_count and not column.nullable:
        raise BadRows(
            f"nothing was published: column {column.name!r} is declared to have no nulls, and has {array.null_count:,}"
        )
    return array if array.type == column.type else array.cast(column.type)


def _check_json(texts: pa.Array) -> None:
    """BadRows unless each is a JSON text. All are read as one list; only if that fails, one by one."""
    found = texts.drop_null()
    joined = ",\n".join(found.to_pylist())  # a line end is allowed in no JSON string, so no text can run into the next
    try:
        if len(orjson.loads(f"[{joined}]")) == len(found):
            return
    except orjson.JSONDecodeError:
        pass
    for text in found.to_pylist():
        try:
            orjson.loads(text)
        except orjson.JSONDecodeError as error:
            raise BadRows(f"nothing was published: {text!r:.80} is not JSON ({error})") from None
