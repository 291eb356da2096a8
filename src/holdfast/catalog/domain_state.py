"""A domain's state as files: for each table a base and small deltas on top of it, in Parquet (C1, C6, C21).

The base of a large table is several files, each with other keys. Every one says how many they are: were one of them
forgotten, the table would be smaller, and nobody would see it.

A change costs what it changes: it is one delta more. Reading folds the base and its deltas, which gives the same
whatever was merged when. State that is missing or damaged stops whoever needs it: a table is never taken for empty
because it could not be read (C22).
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import PurePosixPath

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from holdfast.catalog.fold import fold_onto, fold_table
from holdfast.catalog.tables import POSITION, STATE_TABLES, TableSpec, domain_tables, state_table
from holdfast.catalog.watermark import EVENT_WATERMARK, POSITION_WATERMARK, Watermark
from holdfast.chain import Artifact, Manifest
from holdfast.clock import format_time
from holdfast.codec import Fields, Json
from holdfast.errors import CorruptRecord, CorruptShard, ObjectNotFound
from holdfast.parquet_bytes import read_parquet
from holdfast.storage.capabilities import Reader

__all__ = ["BASE", "DELTA", "DomainState", "StateFile", "encode_table", "read_table", "state_file"]

BASE, DELTA = "base", "delta"
_VERSION = "snapshot_version"
_TOTALS = "totals"


@dataclass(frozen=True, slots=True, kw_only=True)
class StateFile:
    """One Parquet file of a table."""

    table: str
    level: str
    """`base`, or `delta`: newer than the base, though perhaps with older rows in it."""
    path: str
    byte_size: int
    row_count: int
    checksum: str
    first_position: int
    last_position: int
    part: int = 0
    parts: int = 1
    """Which of the files of a base it is, and of how many. A key is in one of them only."""
    written_at: datetime | None = None
    """Of a delta: how long it may wait to become part of a base goes by this. Older releases did not say."""

    def to_artifact(self) -> Artifact:
        return Artifact(
            path=self.path,
            byte_size=self.byte_size,
            row_count=self.row_count,
            checksum=self.checksum,
            detail={
                "table": self.table,
                "level": self.level,
                "first_position": self.first_position,
                "last_position": self.last_position,
                **({"part": self.part, "parts": self.parts} if self.parts > 1 else {}),
                **({"written_at": format_time(self.written_at)} if self.written_at is not None else {}),
            },
        )

    @classmethod
    def of_artifact(cls, artifact: Artifact) -> StateFile:
        fields = Fields(artifact.detail, key=artifact.path)
        table, level = fields.text("table"), fields.text("level")
        if table not in STATE_TABLES or level not in {BASE, DELTA}:
            raise CorruptRecord(
                artifact.path, f"it is a {level!r} of a table {table!r}, which this release does not know"
            )
        return cls(
            table=table,
            level=level,
            path=artifact.path,
            byte_size=artifact.byte_size,
            row_count=artifact.row_count,
            checksum=artifact.checksum,
            first_position=fields.number("first_position"),
            last_position=fields.number("last_position"),
            part=fields.optional_number("part") or 0,
            parts=fields.optional_number("parts") or 1,
            written_at=fields.optional_time("written_at"),
        )


def _former_files(payload: Mapping[str, object], where: str) -> tuple[StateFile, ...]:
    """The files that a manifest of an older release names (C4).

    It calls them `files`, gives a sha256 and a range of positions, and need not say what a file is of: then its name
    does. One that names none at all is read only where it also says that it is the beginning: a table is never taken
    for empty because nobody knows where it is (C22).
    """
    fields = Fields(payload, key=where, is_old=True)
    name = next((name for name in ("artifacts", "files") if name in payload), None)
    if name is None:
        if payload.get(_VERSION) == 0:
            return ()
        raise CorruptRecord(where, "it names no files, so what its tables hold cannot be known")
    return fields.records(name, _former_file)


def _former_file(fields: Fields) -> StateFile:
    path, hex_digits = fields.text("path"), fields.optional_text("sha256") or fields.optional_text("checksum_sha256")
    span = fields.numbers("position_range") or (0, 0)
    return StateFile.of_artifact(
        Artifact(
            path=path,
            byte_size=fields.number("byte_size"),
            row_count=fields.number("row_count"),
            checksum=f"sha256:{hex_digits}" if hex_digits else fields.text("checksum"),
            detail={
                "table": fields.optional_text("table") or PurePosixPath(path).stem,
                "level": fields.optional_text("level") or BASE,
                "first_position": fields.optional_number("first_position") or span[0],
                "last_position": fields.optional_number("last_position") or span[-1],
            },
        )
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainState:
    """The files of one snapshot of a domain, and how far its ledger is folded into them."""

    domain: str
    files: tuple[StateFile, ...] = ()
    watermark: Watermark = field(default_factory=Watermark)
    snapshot_version: int = 0
    """Which state this is; it never falls, not even when a rollback made an older one visible in between."""

    @classmethod
    def of_manifest(cls, domain: str, manifest: Manifest | None) -> DomainState:
        """What a manifest names; nothing at all before the first."""
        if manifest is None:
            return cls(domain=domain)
        where = f"manifest {manifest.manifest_id}"
        if manifest.legacy:
            files = _former_files(manifest.payload, where)
        else:
            files = tuple(StateFile.of_artifact(artifact) for artifact in manifest.artifacts)
        for file in files:
            if STATE_TABLES[file.table].domain != domain:
                raise CorruptRecord(where, f"it names a file of {file.table!r}, which is not of the {domain} domain")
        _check_bases(files, where)
        version = manifest.payload.get(_VERSION, 0)
        if type(version) is not int:
            raise CorruptRecord(where, f"field {_VERSION!r} should be a whole number")
        mark = Watermark.of(manifest.payload, key=where)
        return cls(domain=domain, files=files, watermark=mark, snapshot_version=version)

    def payload(self) -> Json:
        """What the manifest says besides its artifacts."""
        return {
            _VERSION: self.snapshot_version,
            POSITION_WATERMARK: self.watermark.position,
            EVENT_WATERMARK: self.watermark.event_id,
            _TOTALS: {
                "files": len(self.files),
                "rows": sum(file.row_count for file in self.files),
                "bytes": sum(file.byte_size for file in self.files),
            },
        }

    def files_of(self, table: str) -> list[StateFile]:
        return [file for file in self.files if file.table == table]

    def read(self, store: Reader, tables: Iterable[str] | None = None) -> dict[str, pa.Table]:
        """Tables, folded; all of the domain's if none are named."""
        names = [spec.name for spec in domain_tables(self.domain)] if tables is None else list(tables)
        return {name: self._folded(state_table(name), store) for name in names}

    def _folded(self, spec: TableSpec, store: Reader) -> pa.Table:
        bases = [read_table(store, file) for file in self.files_of(spec.name) if file.level == BASE]
        deltas = [read_table(store, file) for file in self.files_of(spec.name) if file.level == DELTA]
        if len(bases) != 1:  # none, or one of many parts, which are not in one order
            return fold_table(spec, [*bases, *deltas])
        return fold_onto(spec, bases[0], deltas)


def encode_table(table: pa.Table) -> bytes:
    """A table as a file."""
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd", write_page_checksum=True)
    return sink.getvalue()


def _check_bases(files: Iterable[StateFile], where: str) -> None:
    """CorruptRecord unless the bases of each table are all the parts of one."""
    bases: dict[str, list[StateFile]] = {}
    for file in files:
        if file.level == BASE:
            bases.setdefault(file.table, []).append(file)
    for table, parts in bases.items():
        if sorted(file.part for file in parts) != list(range(len(parts))):
            raise CorruptRecord(where, f"table {table!r} has two bases, or a part of one is missing")
        if {file.parts for file in parts} != {len(parts)}:
            raise CorruptRecord(where, f"the base of table {table!r} has {len(parts)} parts, and they say otherwise")


def state_file(
    spec: TableSpec,
    level: str,
    path: str,
    table: pa.Table,
    data: bytes,
    *,
    part: int = 0,
    parts: int = 1,
    written_at: datetime | None = None,
) -> StateFile:
    """What a manifest will say about a file of rows."""
    span = pc.min_max(table.column(POSITION)).as_py()
    return StateFile(
        table=spec.name,
        level=level,
        path=path,
        byte_size=len(data),
        row_count=len(table),
        checksum=f"sha256:{hashlib.sha256(data).hexdigest()}",
        first_position=span["min"],
        last_position=span["max"],
        part=part,
        parts=parts,
        written_at=written_at if level == DELTA else None,
    )


def read_table(store: Reader, file: StateFile) -> pa.Table:
    """The rows of a file, once its bytes are what was written; CorruptShard otherwise."""
    try:
        data = store.get(file.path).data
    except ObjectNotFound:
        raise CorruptShard(file.path, "it is missing") from None
    found = f"sha256:{hashlib.sha256(data).hexdigest()}"
    if found != file.checksum:
        raise CorruptShard(file.path, f"its checksum is {found}, not {file.checksum}")
    try:
        table = read_parquet(data)
    except (pa.ArrowException, OSError) as error:
        raise CorruptShard(file.path, f"it is no table: {error}") from None
    schema = state_table(file.table).schema
    try:
        return table.select(schema.names).cast(schema)
    except (pa.ArrowException, KeyError) as error:
        raise CorruptShard(file.path, f"it has not the columns of {file.table!r}: {error}") from None
