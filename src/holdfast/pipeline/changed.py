"""What a publish changed: the size of a snapshot, and how much of it is new against the one before."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.catalog.announce import row_count_of
from holdfast.chain import Manifest

__all__ = ["Changed", "Size", "changed_between"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    rows: int
    pieces: int
    """Shards, segments or files."""
    bytes: int

    @classmethod
    def of(cls, manifest: Manifest) -> Size:
        return cls(
            rows=row_count_of(manifest),
            pieces=len(manifest.artifacts),
            bytes=sum(artifact.byte_size for artifact in manifest.artifacts),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """A snapshot beside the one that was visible before it."""

    before: Size | None
    """None for the first snapshot."""
    after: Size
    new_pieces: int
    new_bytes: int
    """Of those, what this snapshot does not share with the one before: by content, wherever it lies."""


def changed_between(before: Manifest | None, after: Manifest) -> Changed:
    known = set() if before is None else {artifact.checksum for artifact in before.artifacts}
    new = [artifact for artifact in after.artifacts if artifact.checksum not in known]
    return Changed(
        before=None if before is None else Size.of(before),
        after=Size.of(after),
        new_pieces=len(new),
        new_bytes=sum(artifact.byte_size for artifact in new),
    )
