"""What changed between two snapshots: artifacts by path, stats before and after (S37)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.chain.handle import ChainHandle
from holdfast.chain.manifest import Artifact, Manifest
from holdfast.chain.parts import PartReader

__all__ = ["Diff", "Stats", "diff_manifests"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """The sums over a snapshot's artifacts."""

    artifacts: int
    rows: int
    bytes: int

    @classmethod
    def of(cls, artifacts: Sequence[Artifact]) -> Stats:
        return cls(
            artifacts=len(artifacts),
            rows=sum(artifact.row_count for artifact in artifacts),
            bytes=sum(artifact.byte_size for artifact in artifacts),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Diff:
    """Artifacts are immutable, so one that is in both snapshots is the same in both."""

    source_id: int
    target_id: int
    added: tuple[Artifact, ...]
    removed: tuple[Artifact, ...]
    kept: int
    before: Stats
    after: Stats

    @property
    def change_count(self) -> int:
        return len(self.added) + len(self.removed)


def diff_manifests(handle: ChainHandle, source: Manifest, target: Manifest) -> Diff:
    """In one pass over each list, by path; what is in parts counts as if the manifest listed it."""
    reader = PartReader(handle)
    before, after = reader.expand(source), reader.expand(target)
    old = {artifact.path for artifact in before}
    new = {artifact.path for artifact in after}
    return Diff(
        source_id=source.manifest_id,
        target_id=target.manifest_id,
        added=tuple(artifact for artifact in after if artifact.path not in old),
        removed=tuple(artifact for artifact in before if artifact.path not in new),
        kept=len(old & new),
        before=Stats.of(before),
        after=Stats.of(after),
    )
