"""Where things are: the only module that spells or parses a key (S6).

One protocol, five layouts: catalog domains, orchestration, key-value, graph and table data sets. A layout is relative
to the root of the chain's store; `holdfast.storage.scope` gives a chain a root below a larger store.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from holdfast.chain.ids import format_manifest_id, is_ulid, parse_manifest_id
from holdfast.chain.manifest import ArtifactNames
from holdfast.chain.pointer import PointerIdField
from holdfast.clock import format_time, parse_time
from holdfast.errors import BadInput

__all__ = [
    "DOMAINS",
    "FORMER_NAMES",
    "Layout",
    "ManifestKey",
    "SegmentKey",
    "domain_layout",
    "former_field",
    "graph_layout",
    "is_root_field",
    "kv_layout",
    "layout_named",
    "orchestration_layout",
    "table_layout",
]

DOMAINS = ("catalog", "lineage", "executions", "search")
FORMER_NAMES = {"core": "catalog", "catalog_core": "catalog", "execution": "executions", "governance": "search"}
"""What older releases called domains, and what they are called now (C4). `governance` held tags and owners, which are
found by searching: it became `search`, the fourth domain then as now, and is built again from what the catalog says."""
ROOT_MANIFEST_KEY = "manifests/root.manifest.json"
_ROOT_FIELD = "_manifest_path"

_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,127}")
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,63}")
_NO_TIME = datetime(1970, 1, 1, tzinfo=UTC)
_NUMBER = re.compile(r"[0-9]+")
_SEGMENT_DIGITS = 6
_GRAPH_MANIFESTS, _GRAPH_DIGITS = "manifests", 6


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestKey:
    """What a manifest's key tells without reading it."""

    manifest_id: int | None
    published_at: datetime | None
    run_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentKey:
    """What a segment's key tells without reading it."""

    segment_id: int
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The keys of one chain."""

    name: str
    """`kv`, `graph`, `table`, `orchestration`, or `domain:<name>`: what a chain URL's fragment says."""
    pointer_key: str
    manifest_prefix: str
    mirror_key: str | None = None
    """The legacy path that old readers read and old writers wrote (S2, S3)."""
    root_key: str | None = None
    """The workspace's root manifest, where this chain is one of its domains (C3)."""
    root_field: str | None = None
    record_prefix: str = ""
    """What the chain's own bookkeeping (`runs/`, `moves/`, `tags`, `gc/`) is put behind."""
    artifact_prefixes: tuple[str, ...] = ()
    lock_name: str = "writer"
    first_id: int = 0
    id_field: PointerIdField = field(default_factory=PointerIdField)
    names: ArtifactNames = field(default_factory=ArtifactNames)
    id_digits: int = 20
    timed_manifests: bool = False
    """Manifest keys are time and run id (S4) instead of the id."""

    # -- manifests ---------------------------------------------------------------------------------------------------

    def manifest_key(self, manifest_id: int, *, published_at: datetime, run_id: str) -> str:
        if self.timed_manifests:
            return f"{self.manifest_prefix}/{format_time(published_at)}_run_id={check_run_id(run_id)}/manifest"
        return f"{self.manifest_prefix}/{manifest_id:0{self.id_digits}d}.json"

    def manifest_id_key(self, manifest_id: int) -> str | None:
        """The key of an id, where ids decide keys."""
        return None if self.timed_manifests else f"{self.manifest_prefix}/{manifest_id:0{self.id_digits}d}.json"

    def parse_manifest_key(self, key: str) -> ManifestKey | None:
        """None for a key that is no manifest of this chain: another spelling of one is none either."""
        parsed = self._parse_manifest_key(key)
        if parsed is None:
            return None
        moment, run_id = parsed.published_at or _NO_TIME, parsed.run_id or "none"
        spelled = self.manifest_key(parsed.manifest_id or 0, published_at=moment, run_id=run_id)
        return parsed if spelled == key else None

    def _parse_manifest_key(self, key: str) -> ManifestKey | None:
        head, _, tail = key.partition(f"{self.manifest_prefix}/")
        if head or not tail:
            return None
        if self.timed_manifests:
            folder, _, leaf = tail.partition("/")
            moment, mark, run_id = folder.partition("_run_id=")
            if leaf != "manifest" or not mark or not _RUN_ID.fullmatch(run_id):
                return None
            try:
                return ManifestKey(manifest_id=None, published_at=parse_time(moment), run_id=run_id)
            except ValueError:
                return None
        number = _parse_number(tail, head="", tail=".json")
        return None if number is None else ManifestKey(manifest_id=number, published_at=None, run_id=None)

    def ref_of(self, manifest_path: str) -> str:
        """The short name people use for a snapshot: `00000000000000000007`, `000007`, `2026-…Z_run_id=…`."""
        inner = manifest_path.removeprefix(f"{self.manifest_prefix}/")
        return inner.removesuffix("/manifest") if self.timed_manifests else inner.removesuffix(".json")

    def path_of(self, ref: str) -> str:
        """The inverse of `ref_of`; also takes a full path, and a plain number where ids decide keys."""
        if self.parse_manifest_key(ref) is not None:
            return ref
        if not self.timed_manifests and ref.isascii() and ref.isdigit():
            ref = f"{int(ref):0{self.id_digits}d}"
        path = f"{self.manifest_prefix}/{ref}" + ("/manifest" if self.timed_manifests else ".json")
        if self.parse_manifest_key(path) is None:
            raise BadInput(f"{ref!r} is not a snapshot ref of a {self.name} chain; `holdfast history` lists them")
        return path

    # -- bookkeeping -------------------------------------------------------------------------------------------------

    @property
    def run_prefix(self) -> str:
        return f"{self.record_prefix}runs"

    def run_key(self, run_id: str) -> str:
        return f"{self.run_prefix}/{check_run_id(run_id)}.json"

    @property
    def moves_prefix(self) -> str:
        return f"{self.record_prefix}moves"

    def moves_key(self, segment: int) -> str:
        return f"{self.moves_prefix}/{format_manifest_id(segment)}.json"

    def parse_moves_key(self, key: str) -> int | None:
        try:
            return parse_manifest_id(key.removeprefix(f"{self.moves_prefix}/").removesuffix(".json"))
        except ValueError:
            return None

    @property
    def tags_key(self) -> str:
        return f"{self.record_prefix}tags.json"

    @property
    def collection_prefix(self) -> str:
        return f"{self.record_prefix}gc"

    def collection_key(self, collection: str) -> str:
        if not is_ulid(collection):
            raise BadInput(f"{collection!r} is not a collection id; `holdfast gc list` shows them")
        return f"{self.collection_prefix}/{collection}.json"

    @property
    def lock_key(self) -> str:
        return f"locks/{self.lock_name}.lock.json"

    @property
    def probe_key(self) -> str:
        return f"{self.record_prefix}conditional-writes-probe.json"

    @property
    def record_keys(self) -> tuple[str, ...]:
        """Single records that live where artifacts or manifests are listed and are never garbage."""
        singles = (self.pointer_key, self.mirror_key, self.root_key, self.tags_key, self.probe_key, self.lock_key)
        return tuple(key for key in singles if key is not None)

    # -- artifacts ---------------------------------------------------------------------------------------------------

    def run_artifact_prefix(self, run_id: str, attempt: str) -> str:
        """Where a run puts its files unless its model says otherwise. No key is ever used twice, not even by a later
        run with the same id, so a purge that was paused for days can only delete what it meant to."""
        return f"{self.artifact_prefixes[0]}/run_id={check_run_id(run_id)}/attempt={attempt}"

    def run_delta_prefix(self, run_id: str, attempt: str) -> str:
        """The same for the small recent files of a domain (C21)."""
        if len(self.artifact_prefixes) < 2:
            raise BadInput(f"the layout {self.name!r} has no place for deltas; use one of a domain")
        return f"{self.artifact_prefixes[1]}/run_id={check_run_id(run_id)}/attempt={attempt}"

    def artifact_key(self, run_id: str, attempt: str, name: str) -> str:
        return f"{self.run_artifact_prefix(run_id, attempt)}/{name}"

    # -- segments of a graph: their keys are made from numbers that are never used twice (`numbering.py`) --------------

    @property
    def segment_ids_key(self) -> str:
        """The record of the numbers that were given to segments and parts (G10)."""
        return f"{self.record_prefix}segment_ids.json"

    def segment_key(self, segment_id: int, kind: str) -> str:
        """Where segment `segment_id` of this kind (`nodes`, `edges`) is (G1)."""
        if kind not in self.names.lists:
            raise BadInput(f"{kind!r} is no kind of segment; use {' or '.join(self.names.lists)}")
        return f"{self.artifact_prefixes[0]}/seg_{_spell_number(segment_id)}_{kind}.seg"

    def parse_segment_key(self, key: str) -> SegmentKey | None:
        """None for a key that is no segment of this chain: another spelling of one is none either."""
        stem, _, kind = key.removesuffix(".seg").rpartition("_")
        number = _parse_number(stem, head=f"{self.artifact_prefixes[0]}/seg_", tail="")
        if number is None or kind not in self.names.lists or key != self.segment_key(number, kind):
            return None
        return SegmentKey(segment_id=number, kind=kind)

    def segment_part_key(self, part_id: int) -> str:
        """Where part `part_id` of a large manifest is (G19): a list of segments, beside them."""
        return f"{self.artifact_prefixes[0]}/parts/part_{_spell_number(part_id)}.json"

    def parse_segment_part_key(self, key: str) -> int | None:
        number = _parse_number(key, head=f"{self.artifact_prefixes[0]}/parts/part_", tail=".json")
        return number if number is not None and key == self.segment_part_key(number) else None


def check_run_id(run_id: str) -> str:
    """A run id becomes part of keys, so it is plain text without separators."""
    if not _RUN_ID.fullmatch(run_id):
        raise BadInput(
            f"run id {run_id!r}: use 1 to 128 letters, digits, or . _ @ + -, starting with a letter or digit"
        )
    return run_id


def _spell_number(number: int) -> str:
    if number < 0:
        raise BadInput(f"{number} is no number of a segment; they are whole and not negative")
    return f"{number:0{_SEGMENT_DIGITS}d}"


def _parse_number(key: str, *, head: str, tail: str) -> int | None:
    """The number between what a key begins and ends with. Whether it is spelled as it should be is not asked here."""
    digits = key.removeprefix(head).removesuffix(tail)
    return int(digits) if key == f"{head}{digits}{tail}" and _NUMBER.fullmatch(digits) else None


def _graph_version(key: str) -> int | None:
    """The version that a graph manifest's key names; None if it is no such key. Named in `ArtifactNames`."""
    number = _parse_number(key, head=f"{_GRAPH_MANIFESTS}/", tail=".json")
    return number if number is not None and key == f"{_GRAPH_MANIFESTS}/{number:0{_GRAPH_DIGITS}d}.json" else None


def is_below(key: str, claim: str) -> bool:
    """Whether a claim (a key, or a folder) covers a key."""
    return key == claim or key.startswith(f"{claim}/")


def folders_of(claims: Iterable[str]) -> tuple[str, ...]:
    """What a key below one of these claims starts with: `is_below` for many keys, by one `startswith`."""
    return tuple(f"{claim}/" for claim in claims)


def domain_layout(domain: str) -> Layout:
    """A catalog domain (S2)."""
    if not _NAME.fullmatch(domain) or domain in {"root", "orchestration"}:
        raise BadInput(f"{domain!r} is not a domain name; the catalog's are {', '.join(DOMAINS)}")
    return Layout(
        name=f"domain:{domain}",
        pointer_key=f"manifests/{domain}.pointer.json",
        manifest_prefix=f"manifests/{domain}",
        mirror_key=f"manifests/{domain}.manifest.json",
        root_key=ROOT_MANIFEST_KEY,
        root_field=f"{domain}{_ROOT_FIELD}",
        record_prefix=f"manifests/{domain}.",
        artifact_prefixes=(f"state/{domain}", f"l0/{domain}"),
        lock_name=domain,
    )


def is_root_field(name: str) -> bool:
    """Whether a field of the root says where a domain is."""
    return name.endswith(_ROOT_FIELD)


def former_field(root_field: str) -> str:
    """The root's field of today for one of an older release: `catalog_manifest_path` for `core_manifest_path`."""
    name, mark, rest = root_field.partition(_ROOT_FIELD)
    return f"{FORMER_NAMES.get(name, name)}{mark}{rest}"


def orchestration_layout() -> Layout:
    """Pipeline and run state (S3)."""
    return Layout(
        name="orchestration",
        pointer_key="state/orchestration/manifest.pointer.json",
        manifest_prefix="state/orchestration/manifests",
        mirror_key="state/orchestration/manifest.json",
        record_prefix="state/orchestration/",
        artifact_prefixes=("state/orchestration/files", "l0/orchestration"),
        lock_name="orchestration",
    )


def kv_layout() -> Layout:
    """A key-value data set (S4)."""
    return Layout(
        name="kv",
        pointer_key="_CURRENT",
        manifest_prefix="manifests",
        artifact_prefixes=("shards",),
        timed_manifests=True,
    )


def graph_layout() -> Layout:
    """A graph data set (S5)."""
    lists: Mapping[str, str] = {"nodes": "node_segments", "edges": "edge_segments"}
    return Layout(
        name="graph",
        pointer_key="current.json",
        manifest_prefix=_GRAPH_MANIFESTS,
        artifact_prefixes=("segments",),
        first_id=1,
        id_field=PointerIdField(name="version", as_number=True),
        names=ArtifactNames(
            lists=lists,
            path="file_path",
            row_count="record_count",
            parts_list="segment_parts",
            version_of=_graph_version,
        ),
        id_digits=_GRAPH_DIGITS,
    )


def table_layout() -> Layout:
    """A data set of plain rows in Parquet files (C30)."""
    return Layout(
        name="table",
        pointer_key="table.pointer.json",
        manifest_prefix="manifests",
        artifact_prefixes=("data",),
        timed_manifests=True,
    )


def layout_named(name: str) -> Layout:
    """The layout that `Layout.name` names."""
    kind, _, domain = name.partition(":")
    match kind, domain:
        case "kv", "":
            return kv_layout()
        case "graph", "":
            return graph_layout()
        case "table", "":
            return table_layout()
        case "orchestration", "":
            return orchestration_layout()
        case "domain", domain if domain:
            return domain_layout(domain)
    raise BadInput(f"unknown layout {name!r}: use kv, graph, table, orchestration or domain:NAME")
