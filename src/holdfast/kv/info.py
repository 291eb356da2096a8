"""What a snapshot is, and how a reader is doing: told from the manifest, without touching any data (K14, K26)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from holdfast.chain import Chain, InputPin, Layout, Manifest
from holdfast.errors import SnapshotNotFound
from holdfast.kv.dataset import DataSet, ValueKind
from holdfast.kv.keys import KeyColumn
from holdfast.kv.pinning import Which
from holdfast.kv.shard_format import SHARD_FORMAT_MAJOR

__all__ = ["ColumnInfo", "Health", "SnapshotInfo", "describe_snapshot", "ref_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnInfo:
    """One column, as shards store it."""

    name: str
    type: str
    nullable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotInfo:
    """One snapshot of a KV data set."""

    ref: str
    manifest_id: int
    run_id: str
    published_at: datetime
    row_count: int
    byte_size: int
    shard_count: int
    empty_shards: int
    key: tuple[KeyColumn, ...]
    value: ValueKind
    columns: tuple[ColumnInfo, ...]
    routing: str
    shard_format: int
    tags: Mapping[str, str]
    """Given at birth; `holdfast tags` also knows later ones."""
    inputs: tuple[InputPin, ...]
    statistics: Mapping[str, object]
    custom: Mapping[str, object]

    @classmethod
    def of(cls, layout: Layout, manifest: Manifest, dataset: DataSet) -> SnapshotInfo:
        return cls(
            ref=ref_of(layout, manifest),
            manifest_id=manifest.manifest_id,
            run_id=manifest.run_id,
            published_at=manifest.published_at,
            row_count=dataset.row_count,
            byte_size=manifest.byte_size,
            shard_count=len(dataset.shards),
            empty_shards=sum(shard is None for shard in dataset.shards),
            key=dataset.key.columns,
            value=dataset.value,
            columns=tuple(
                ColumnInfo(name=column.name, type=str(column.type), nullable=column.nullable)
                for column in dataset.schema
            ),
            routing=dataset.routing.describe(),
            shard_format=SHARD_FORMAT_MAJOR,
            tags=manifest.tags,
            inputs=manifest.inputs,
            statistics=dataset.statistics,
            custom=dataset.custom,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """What a reader serves, how old that is, and how far from the head (K26)."""

    mode: str
    ref: str
    manifest_id: int
    run_id: str
    published_at: datetime
    age_s: float
    """Since the served snapshot was published, however long this reader has been running."""
    head_id: int | None
    """What the pointer named when it was last read; None where it could not be read."""
    pinned: bool
    """Opened at one snapshot on purpose: a refresh changes nothing."""
    fell_back: bool
    skipped: tuple[str, ...]
    """Why newer snapshots are not served."""
    staleness_s: float
    """0 while the head is served; else the seconds since the head became visible."""
    checked_at: datetime

    @property
    def serves_head(self) -> bool:
        return self.manifest_id == self.head_id


def ref_of(layout: Layout, manifest: Manifest) -> str:
    """The name that `holdfast history` has for a snapshot."""
    path = layout.manifest_key(manifest.manifest_id, published_at=manifest.published_at, run_id=manifest.run_id)
    return layout.ref_of(path)


def describe_snapshot(
    chain: Chain,
    *,
    ref: str | None = None,
    run_id: str | None = None,
    offset: int | None = None,
    tag: tuple[str, str] | None = None,
    at: datetime | None = None,
) -> SnapshotInfo:
    """What a snapshot is, the visible one unless another is named. Reads records only: no byte of data."""
    which = Which(ref=ref, run_id=run_id, offset=offset, tag=tag, at=at)
    manifest = which.find(chain).manifest if which else chain.load_current()
    if manifest is None:
        raise SnapshotNotFound(f"nothing was published to {chain.store.url!r} yet")
    return SnapshotInfo.of(chain.layout, manifest, DataSet.of_manifest(manifest))
