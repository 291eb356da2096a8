"""What changed between two snapshots: artifacts by path, stats before and after (S37)."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.chain.manifest import Artifact, Manifest

__all__ = ["Diff", "Stats", "diff_manifests"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """The sums over a manifest's artifacts."""

    artifacts: int
    rows: int
    bytes: int

    @classmethod
    def of(cls, manifest: Manifest) -> Stats:
        return cls(artifacts=len(manifest.artifacts), rows=manifest.row_count, bytes=manifest.byte_size)


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


def diff_manifests(source: Manifest, target: Manifest) -> Diff:
    """In one pass over each list, by path."""
    old = {artifact.path for artifact in source.artifacts}
    new = {artifact.path for artifact in target.artifacts}
    return Diff(
        source_id=source.manifest_id,
        target_id=target.manifest_id,
        added=tuple(artifact for artifact in target.artifacts if artifact.path not in old),
        removed=tuple(artifact for artifact in source.artifacts if artifact.path not in new),
        kept=len(old & new),
        before=Stats.of(source),
        after=Stats.of(target),
    )
