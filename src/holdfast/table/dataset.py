"""What a table's manifest says about its rows, and about each file: plain records, spelled and checked here."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from holdfast.chain import Artifact, Manifest
from holdfast.codec import Fields, Json
from holdfast.errors import CorruptRecord, UnsupportedFormat

__all__ = ["TableData", "TableFile"]

PAYLOAD_FIELD = "table"
FILE_FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFile:
    """One Parquet file of a snapshot."""

    path: str
    byte_size: int
    row_count: int
    checksum: str
    columns: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    """By name: `nulls`, and `min` and `max` as far as Parquet has them and JSON can say them."""
    writer: str = ""
    """Which attempt wrote it: a Spark task, or a process."""

    def to_artifact(self) -> Artifact:
        return Artifact(
            path=self.path,
            byte_size=self.byte_size,
            row_count=self.row_count,
            checksum=self.checksum,
            detail={"columns": {name: dict(found) for name, found in self.columns.items()}, "writer": self.writer},
        )

    @classmethod
    def of_artifact(cls, artifact: Artifact) -> TableFile:
        fields = Fields(artifact.detail, key=artifact.path)
        columns = {}
        for name, found in fields.mapping("columns").items():
            if not isinstance(found, dict):
                raise CorruptRecord(artifact.path, f"statistics of column {name!r} should be an object")
            columns[name] = found
        return cls(
            path=artifact.path,
            byte_size=artifact.byte_size,
            row_count=artifact.row_count,
            checksum=artifact.checksum,
            columns=columns,
            writer=fields.text("writer"),
        )

    def to_json(self) -> Json:
        """How it travels from an executor."""
        return {
            "path": self.path,
            "byte_size": self.byte_size,
            "row_count": self.row_count,
            "checksum": self.checksum,
            "columns": {name: dict(found) for name, found in self.columns.items()},
            "writer": self.writer,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class TableData:
    """One snapshot of a table, as its manifest tells it."""

    schema: pa.Schema
    files: tuple[TableFile, ...]
    """In the order of the rows. A table without rows has none."""
    statistics: Mapping[str, object] = field(default_factory=dict)
    custom: Mapping[str, object] = field(default_factory=dict)

    @property
    def row_count(self) -> int:
        return sum(file.row_count for file in self.files)

    @property
    def byte_size(self) -> int:
        return sum(file.byte_size for file in self.files)

    def artifacts(self) -> tuple[Artifact, ...]:
        return tuple(file.to_artifact() for file in self.files)

    def payload(self) -> Json:
        """The manifest's own field of this model."""
        return {
            PAYLOAD_FIELD: {
                "file_format": FILE_FORMAT,
                "file_count": len(self.files),
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
    def of_manifest(cls, manifest: Manifest) -> TableData:
        """Read and check a manifest's own field. A file that is named nowhere is damage, never an empty one."""
        where = f"manifest {manifest.manifest_id}"
        found = manifest.payload.get(PAYLOAD_FIELD)
        if not isinstance(found, Mapping):
            raise CorruptRecord(where, f"it has no field {PAYLOAD_FIELD!r}: not a table")
        fields = Fields(found, key=where)
        version = fields.number("file_format")
        if version > FILE_FORMAT:
            raise UnsupportedFormat(
                f"{where} has files of format {version}, newer than this release reads ({FILE_FORMAT}); "
                "upgrade Holdfast"
            )
        files = tuple(TableFile.of_artifact(artifact) for artifact in manifest.artifacts)
        count = fields.number("file_count")
        if count != len(files) or len({file.path for file in files}) != count:
            raise CorruptRecord(where, f"it should name {count} files, and names {len(files)}")
        return cls(
            schema=_decode_schema(fields.text("schema"), where),
            files=files,
            statistics=fields.mapping("statistics"),
            custom=fields.mapping("custom"),
        )


def _decode_schema(text: str, where: str) -> pa.Schema:
    try:
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text, validate=True)))
    except (binascii.Error, pa.ArrowException, OSError) as error:
        raise CorruptRecord(where, f"schema: {error}") from None
