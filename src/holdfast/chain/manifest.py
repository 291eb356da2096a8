"""A manifest: one immutable JSON object that describes one snapshot completely (S7).

The kernel is payload-blind: fields that are not its own are the payload of the model (KV, graph, catalog domain) that
owns the chain, and are kept as they are. Artifact lists may go by a model's own names (`node_segments`, `file_path`):
the layout says which, so that one protocol serves four spellings.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial

from holdfast.chain.ids import format_manifest_id, is_ulid, parse_manifest_id
from holdfast.clock import format_time
from holdfast.codec import Fields, Json, encode_record, format_stamp
from holdfast.errors import BadInput, CorruptRecord
from holdfast.storage.keys import check_key

__all__ = ["PARTS_KIND", "Artifact", "ArtifactNames", "InputPin", "Manifest", "ManifestDraft"]

PARTS_KIND = "parts"
"""The kind of an artifact that is itself a list of artifacts; see `parts.py`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactNames:
    """How a layout spells the artifact lists of its manifests."""

    lists: Mapping[str, str] = field(default_factory=lambda: {"artifact": "artifacts"})
    """Artifact kind → name of the manifest's list. The first kind is what a list without kinds holds."""
    path: str = "path"
    row_count: str = "row_count"
    parts_list: str | None = None
    """The list of the manifest's parts (G19). None in a layout whose manifests name every artifact themselves."""
    version_of: Callable[[str], int | None] | None = None
    """The version that a manifest's key names, in a layout whose manifests also say `version`, `created_at` and
    `parent_version` (G2). None where they do not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """One immutable file of a snapshot: where it is, how large, how many rows, and what its bytes hash to."""

    path: str
    byte_size: int
    row_count: int
    checksum: str
    kind: str = "artifact"
    detail: Mapping[str, object] = field(default_factory=dict)
    """The model's own fields (min/max key, zone map, writer attempt, …), kept as they are."""

    def __post_init__(self) -> None:
        check_key(self.path)
        if self.byte_size < 0 or self.row_count < 0:
            raise BadInput(f"artifact {self.path!r}: negative size or row count")
        if ":" not in self.checksum:
            raise BadInput(f"artifact {self.path!r}: checksum {self.checksum!r} should be ALGORITHM:HEX")

    def to_json(self, names: ArtifactNames) -> Json:
        return {
            names.path: self.path,
            "byte_size": self.byte_size,
            names.row_count: self.row_count,
            "checksum": self.checksum,
            **self.detail,
        }

    @classmethod
    def from_fields(cls, fields: Fields, *, names: ArtifactNames, kind: str) -> Artifact:
        path = fields.text(names.path)
        try:
            return cls(
                path=path,
                byte_size=fields.number("byte_size"),
                row_count=fields.number(names.row_count),
                checksum=fields.text("checksum"),
                kind=kind,
                detail=fields.rest(),
            )
        except BadInput as error:
            raise CorruptRecord(fields.key, str(error)) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class InputPin:
    """The exact snapshot of another chain that this one was built from: lineage inside the commit (C28)."""

    chain: str
    manifest_id: int
    manifest_hash: str
    ref: str

    def to_json(self) -> Json:
        return {
            "chain": self.chain,
            "manifest_id": format_manifest_id(self.manifest_id),
            "manifest_hash": self.manifest_hash,
            "ref": self.ref,
        }

    @classmethod
    def from_fields(cls, fields: Fields) -> InputPin:
        return cls(
            chain=fields.text("chain"),
            manifest_id=_manifest_id(fields),
            manifest_hash=fields.text("manifest_hash"),
            ref=fields.text("ref"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestDraft:
    """What a writer wants to publish; the kernel adds what makes it a manifest."""

    artifacts: tuple[Artifact, ...] = ()
    inputs: tuple[InputPin, ...] = ()
    counters: Mapping[str, int] = field(default_factory=dict)
    """Numbers that must not regress from one snapshot to the next (S14)."""
    tags: Mapping[str, str] = field(default_factory=dict)
    payload: Mapping[str, object] = field(default_factory=dict)
    """The model's own top-level fields."""

    def __post_init__(self) -> None:
        counts = Counter(artifact.path for artifact in self.artifacts)
        doubled = sorted(path for path, count in counts.items() if count > 1)
        if doubled:
            raise BadInput(f"artifact named twice in one manifest: {doubled[0]!r}")
        taken = sorted(_OWN_FIELDS & set(self.payload))
        if taken:
            raise BadInput(f"payload may not use the manifest's own field {taken[0]!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """One snapshot, completely. Made once by the commit, never changed."""

    manifest_id: int
    epoch: int
    fencing_token: int
    commit_ulid: str
    pointer_sequence: int
    """The pointer's sequence at which this manifest becomes visible, if it ever does: finds its move in the log."""
    parent_hash: str | None
    previous_manifest_path: str | None
    published_at: datetime
    run_id: str
    artifacts: tuple[Artifact, ...] = ()
    inputs: tuple[InputPin, ...] = ()
    counters: Mapping[str, int] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    """Tags given at birth. Later ones live beside the manifest (S36)."""
    payload: Mapping[str, object] = field(default_factory=dict)
    legacy: bool = False
    """Written by an older release without ids or fencing; read leniently."""

    def __post_init__(self) -> None:
        if not self.legacy and not is_ulid(self.commit_ulid):
            raise BadInput(f"commit_ulid {self.commit_ulid!r} is not a ULID")
        if (self.parent_hash is None) != (self.previous_manifest_path is None):
            raise BadInput("a manifest has both a parent hash and a previous path, or neither")

    @property
    def row_count(self) -> int:
        return sum(artifact.row_count for artifact in self.artifacts)

    @property
    def byte_size(self) -> int:
        return sum(artifact.byte_size for artifact in self.artifacts)

    def encode(self, names: ArtifactNames) -> bytes:
        record: Json = {
            "format": format_stamp("manifest"),
            "manifest_id": format_manifest_id(self.manifest_id),
            "epoch": self.epoch,
            "fencing_token": self.fencing_token,
            "commit_ulid": self.commit_ulid,
            "pointer_sequence": self.pointer_sequence,
        }
        if self.parent_hash is not None:
            record["parent_hash"] = self.parent_hash
            record["previous_manifest_path"] = self.previous_manifest_path
        record |= {
            "published_at": format_time(self.published_at),
            "run_id": self.run_id,
            "tags": dict(self.tags),
            "counters": dict(self.counters),
            "inputs": [pin.to_json() for pin in self.inputs],
        }
        stated = self._stated(names)
        lists = spell_artifacts(self.artifacts, names)
        taken = {*lists, names.parts_list, *(_STATED if stated else ())} & set(self.payload)
        if taken:
            raise BadInput(f"payload may not use the manifest's own field {min(taken)!r}")
        return encode_record(record | stated | lists | dict(self.payload))

    def _stated(self, names: ArtifactNames) -> Json:
        """What a graph manifest says a second time, in the words of its model (G2)."""
        if names.version_of is None:
            return {}
        stated: Json = {"version": self.manifest_id, "created_at": max(1, int(self.published_at.timestamp()))}
        parent = None if self.previous_manifest_path is None else names.version_of(self.previous_manifest_path)
        return stated if parent is None else {**stated, "parent_version": parent}

    @classmethod
    def decode(cls, data: bytes, *, key: str, names: ArtifactNames) -> Manifest:
        """Parse and check one manifest; `CorruptRecord` says what is wrong with it."""
        return cls.from_fields(Fields.decode(data, key=key, kind=None), names=names)

    @classmethod
    def from_fields(cls, fields: Fields, *, names: ArtifactNames) -> Manifest:
        """The same, of a record that was parsed already."""
        fields.check_format("manifest")
        found = {name: fields.optional_number(name) for name in (_STATED if names.version_of else ())}
        artifacts = take_artifacts(fields, names)
        try:
            manifest = cls(
                manifest_id=_manifest_id(fields),
                epoch=fields.number("epoch"),
                fencing_token=fields.number("fencing_token"),
                commit_ulid=fields.text("commit_ulid"),
                pointer_sequence=fields.number("pointer_sequence"),
                parent_hash=fields.optional_text("parent_hash"),
                previous_manifest_path=fields.optional_text("previous_manifest_path"),
                published_at=fields.time("published_at"),
                run_id=fields.text("run_id"),
                artifacts=artifacts,
                inputs=fields.records("inputs", InputPin.from_fields),
                counters=fields.number_mapping("counters"),
                tags=fields.text_mapping("tags"),
                payload=fields.rest(),
            )
        except BadInput as error:
            raise CorruptRecord(fields.key, str(error)) from None
        manifest._check_stated(found, key=fields.key, names=names)
        return manifest

    def _check_stated(self, found: Mapping[str, int | None], *, key: str, names: ArtifactNames) -> None:
        """What it says twice agrees, with each other and with the key it is at (G9). Older ones say it once."""
        if names.version_of is None:
            return
        at = names.version_of(key)
        if at is not None and at != self.manifest_id:
            raise CorruptRecord(key, f"it is the manifest of version {self.manifest_id}, not of version {at}")
        stated = self._stated(names)
        for name, value in found.items():
            if value is not None and (value != stated.get(name) or value < 1):
                raise CorruptRecord(key, f"field {name!r} is {value}, but its other fields say {stated.get(name)}")


def spell_artifacts(artifacts: Iterable[Artifact], names: ArtifactNames) -> Json:
    """The artifact lists, in one pass. Nothing may get lost on the way, nor take the place of a field."""
    lists: dict[str, list[Json]] = {list_name: [] for list_name in names.lists.values()}
    list_names = _list_names(names)
    own = {names.path, names.row_count, "byte_size", "checksum"}
    for artifact in artifacts:
        list_name = list_names.get(artifact.kind)
        if list_name is None:
            raise BadInput(f"artifact {artifact.path!r} is of kind {artifact.kind!r}; use {' or '.join(names.lists)}")
        if artifact.detail and (taken := own & set(artifact.detail)):
            raise BadInput(f"artifact {artifact.path!r}: detail may not use the artifact's own field {min(taken)!r}")
        lists.setdefault(list_name, []).append(artifact.to_json(names))
    return dict(lists)


def take_artifacts(fields: Fields, names: ArtifactNames) -> tuple[Artifact, ...]:
    """The inverse: list by list, each in its order."""
    return tuple(
        artifact
        for kind, list_name in _list_names(names).items()
        for artifact in fields.records(list_name, partial(Artifact.from_fields, names=names, kind=kind))
    )


def _list_names(names: ArtifactNames) -> dict[str, str]:
    """Kind → list, the list of parts included: it is left out of a manifest that has none."""
    return dict(names.lists) if names.parts_list is None else {**names.lists, PARTS_KIND: names.parts_list}


_STATED = ("version", "created_at", "parent_version")
_OWN_FIELDS = frozenset({"format", *Manifest.__dataclass_fields__} - {"artifacts", "payload", "legacy"})


def _manifest_id(fields: Fields) -> int:
    text = fields.text("manifest_id")
    try:
        return parse_manifest_id(text)
    except ValueError as error:
        raise CorruptRecord(fields.key, str(error)) from None
