"""What a KV manifest says about its data set, and about each shard (K8): plain records, spelled and checked here."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import pyarrow as pa

from holdfast.chain import Artifact, Manifest
from holdfast.codec import Fields, Json
from holdfast.errors import BadInput, CorruptRecord, UnsupportedFormat
from holdfast.kv.keys import Key, KeySchema
from holdfast.kv.routing import Routing, routing_from_fields
from holdfast.kv.shard_format import SHARD_FORMAT_MAJOR
from holdfast.kv.shard_writer import ShardSummary

__all__ = ["DataSet", "Shard", "ValueKind", "shard_schema"]

PAYLOAD_FIELD = "kv"


class ValueKind(StrEnum):
    """What a look-up answers with."""

    ROW = "row"
    """A dict of the columns that are not the key's."""
    BINARY = "binary"
    """The bytes of the one other column."""
    JSON = "json"
    """What the JSON text in the one other column says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """One shard of a snapshot. It has a file unless it is empty."""

    number: int
    path: str
    byte_size: int
    row_count: int
    checksum: str
    min_key: Key
    max_key: Key
    block_count: int
    directory_offset: int
    fingerprint: int
    """Of its directory: what its file must say to be this shard's."""
    writer: str
    """Which attempt wrote it: a Spark task, or a process."""

    @classmethod
    def of_summary(cls, number: int, path: str, summary: ShardSummary, *, writer: str) -> Shard:
        return cls(
            number=number,
            path=path,
            byte_size=summary.byte_size,
            row_count=summary.row_count,
            checksum=summary.checksum,
            min_key=summary.min_key,
            max_key=summary.max_key,
            block_count=summary.block_count,
            directory_offset=summary.directory_offset,
            fingerprint=summary.fingerprint,
            writer=writer,
        )

    def to_artifact(self, key: KeySchema) -> Artifact:
        return Artifact(
            path=self.path,
            byte_size=self.byte_size,
            row_count=self.row_count,
            checksum=self.checksum,
            detail={
                "shard": self.number,
                "min_key": key.to_json_key(self.min_key),
                "max_key": key.to_json_key(self.max_key),
                "block_count": self.block_count,
                "directory_offset": self.directory_offset,
                "fingerprint": f"{self.fingerprint:016x}",
                "writer": self.writer,
            },
        )

    @classmethod
    def of_artifact(cls, artifact: Artifact, key: KeySchema) -> Shard:
        fields = Fields(artifact.detail, key=artifact.path)
        try:
            return cls(
                number=fields.number("shard"),
                path=artifact.path,
                byte_size=artifact.byte_size,
                row_count=artifact.row_count,
                checksum=artifact.checksum,
                min_key=key.from_json_key(artifact.detail.get("min_key")),
                max_key=key.from_json_key(artifact.detail.get("max_key")),
                block_count=fields.number("block_count"),
                directory_offset=fields.number("directory_offset"),
                fingerprint=_fingerprint(fields.text("fingerprint")),
                writer=fields.text("writer"),
            )
        except ValueError as error:
            raise CorruptRecord(artifact.path, f"smallest or largest key, or fingerprint: {error}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSet:
    """One snapshot of a KV data set, as its manifest tells it."""

    key: KeySchema
    schema: pa.Schema
    """All columns as shards store them, the key's first."""
    value: ValueKind
    routing: Routing
    shards: tuple[Shard | None, ...]
    """By number; None for a shard without rows."""
    statistics: Mapping[str, object] = field(default_factory=dict)
    custom: Mapping[str, object] = field(default_factory=dict)

    @property
    def row_count(self) -> int:
        return sum(shard.row_count for shard in self.shards if shard is not None)

    @property
    def value_schema(self) -> pa.Schema:
        return pa.schema(list(self.schema)[len(self.key.columns) :])

    def artifacts(self) -> tuple[Artifact, ...]:
        return tuple(shard.to_artifact(self.key) for shard in self.shards if shard is not None)

    def payload(self) -> Json:
        """The manifest's own field of this model."""
        return {
            PAYLOAD_FIELD: {
                "shard_format": SHARD_FORMAT_MAJOR,
                "shard_count": len(self.shards),
                "empty_shards": [number for number, shard in enumerate(self.shards) if shard is None],
                "key": self.key.to_json(),
                "value": self.value.value,
                "routing": self.routing.to_json(),
                "columns": [
                    {"name": column.name, "type": str(column.type), "nullable": column.nullable}
                    for column in self.schema
                ],
                "schema": base64.b64encode(self.schema.serialize().to_pybytes()).decode(),
                "statistics": dict(self.statistics),
                "custom": dict(self.custom),
            }
        }

    @classmethod
    def of_manifest(cls, manifest: Manifest) -> DataSet:
        """Read and check a manifest's own field. A shard that is named nowhere is damage, never an empty one (K26)."""
        where = f"manifest {manifest.manifest_id}"
        found = manifest.payload.get(PAYLOAD_FIELD)
        if not isinstance(found, Mapping):
            raise CorruptRecord(where, f"it has no field {PAYLOAD_FIELD!r}: not a key-value data set")
        fields = Fields(found, key=where)
        if fields.number("shard_format") > SHARD_FORMAT_MAJOR:
            raise UnsupportedFormat(
                f"{where} has shards of format {found['shard_format']}, newer than this release reads "
                f"({SHARD_FORMAT_MAJOR}); upgrade Holdfast"
            )
        key = KeySchema.from_fields(fields, "key")
        count = fields.number("shard_count")
        value = fields.text("value")
        if value not in ValueKind.__members__.values():
            raise CorruptRecord(where, f"value {value!r} is unknown")
        return cls(
            key=key,
            schema=_decode_schema(fields.text("schema"), key, where),
            value=ValueKind(value),
            routing=routing_from_fields(Fields(fields.mapping("routing"), key=where), key=key, shard_count=count),
            shards=_by_number(manifest.artifacts, fields.numbers("empty_shards"), count, key, where),
            statistics=fields.mapping("statistics"),
            custom=fields.mapping("custom"),
        )


def _fingerprint(text: str) -> int:
    if len(bytes.fromhex(text)) != 8:
        raise ValueError(f"not 16 hexadecimal digits: {text!r}")
    return int(text, 16)


def _decode_schema(text: str, key: KeySchema, where: str) -> pa.Schema:
    try:
        schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text, validate=True)))
    except (binascii.Error, pa.ArrowException, OSError) as error:
        raise CorruptRecord(where, f"schema: {error}") from None
    expected = [(column.name, column.kind.arrow_type) for column in key.columns]
    if [(column.name, column.type) for column in schema][: len(expected)] != expected:
        raise CorruptRecord(where, "the schema does not begin with the key's columns")
    return schema


def _by_number(
    artifacts: Sequence[Artifact], empty: Sequence[int], count: int, key: KeySchema, where: str
) -> tuple[Shard | None, ...]:
    found: dict[int, Shard | None] = dict.fromkeys(empty)
    if len(found) != len(empty):
        raise CorruptRecord(where, "an empty shard is named twice")
    for artifact in artifacts:
        shard = Shard.of_artifact(artifact, key)
        if shard.number in found:
            raise CorruptRecord(where, f"shard {shard.number} is named twice")
        found[shard.number] = shard
    if sorted(found) != list(range(count)):
        missing = sorted(set(range(count)) - set(found))
        raise CorruptRecord(where, f"of {count} shards, {missing[:5] or sorted(found)[-1:]} are missing or too many")
    return tuple(found[number] for number in range(count))


def shard_schema(schema: pa.Schema, key: KeySchema, value: ValueKind) -> pa.Schema:
    """The columns as shards store them: the key's first and never null, then the others, in types that map plainly."""
    others = [column for column in schema if column.name not in key.names]
    names = [column.name for column in schema]
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        raise BadInput(f"column {doubled[0]!r} is there twice; rename one")
    values = [pa.field(column.name, _stored(column.name, column.type), column.nullable) for column in others]
    if value is not ValueKind.ROW:
        _check_single(values, value)
    return pa.schema([pa.field(c.name, c.kind.arrow_type, nullable=False) for c in key.columns] + values)


def _check_single(values: list[pa.Field], value: ValueKind) -> None:
    wanted = "one column of bytes" if value is ValueKind.BINARY else "one column of JSON text"
    fits = pa.types.is_binary if value is ValueKind.BINARY else pa.types.is_string
    fits_wide = pa.types.is_large_binary if value is ValueKind.BINARY else pa.types.is_large_string
    if len(values) != 1 or not (fits(values[0].type) or fits_wide(values[0].type)):
        found = ", ".join(f"{column.name}: {column.type}" for column in values) or "none"
        raise BadInput(f"value {value.value!r} needs {wanted} beside the key, found {found}; use value='row'")


def _stored(name: str, kind: pa.DataType) -> pa.DataType:
    """Encodings that Arrow keeps outside a record batch, or that have no fixed place in it, are stored plainly."""
    if pa.types.is_dictionary(kind):
        return _stored(name, kind.value_type)
    if pa.types.is_run_end_encoded(kind):
        return _stored(name, kind.value_type)
    if pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_union(kind) or pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind):
        raise BadInput(
            f"column {name!r} is {kind}, which shards do not store; use a struct with nullable fields, or a list"
        )
    if pa.types.is_nested(kind):
        _check_nested(name, kind)
    return kind


def _check_nested(name: str, kind: pa.DataType) -> None:
    children = [kind.field(index).type for index in range(kind.num_fields)]
    for child in children:
        if _stored(name, child) != child:
            raise BadInput(
                f"column {name!r} has {child} inside, which shards do not store there; cast it to a plain type"
            )
