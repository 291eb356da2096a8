"""What a graph manifest says about its segments, and that it adds up (G2, G5)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from holdfast.chain import Artifact, Manifest
from holdfast.codec import Fields, Json
from holdfast.errors import CorruptRecord
from holdfast.graph.parts import KindTotals
from holdfast.graph.segment import SegmentDescriptor

__all__ = ["GraphState", "GraphStats", "stats_of", "stats_of_totals"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphStats:
    """How much there is. The counts are of what queries see, not of rows in files."""

    total_nodes: int
    total_edges: int
    node_segment_count: int
    edge_segment_count: int

    def to_json(self) -> Json:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    @classmethod
    def from_fields(cls, fields: Fields) -> GraphStats:
        return cls(**{name: fields.number(name) for name in cls.__dataclass_fields__})


def stats_of_totals(sums: Mapping[str, KindTotals]) -> GraphStats:
    """The same from sums that were made without looking at every segment."""
    nodes, edges = sums.get("nodes", KindTotals()), sums.get("edges", KindTotals())
    return GraphStats(
        total_nodes=nodes.records - nodes.hidden,
        total_edges=edges.records - edges.hidden,
        node_segment_count=nodes.segments,
        edge_segment_count=edges.segments,
    )


def stats_of(segments: Iterable[SegmentDescriptor]) -> GraphStats:
    """The sum of the descriptors: each adds its records and takes away those that it hides."""
    counts = {"nodes": 0, "edges": 0}
    files = {"nodes": 0, "edges": 0}
    for segment in segments:
        counts[segment.kind] += segment.record_count - segment.hidden_count
        files[segment.kind] += 1
    return GraphStats(
        total_nodes=counts["nodes"],
        total_edges=counts["edges"],
        node_segment_count=files["nodes"],
        edge_segment_count=files["edges"],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphState:
    """The segments of one version, the oldest first."""

    version: int
    nodes: tuple[SegmentDescriptor, ...]
    edges: tuple[SegmentDescriptor, ...]
    stats: GraphStats

    @property
    def segments(self) -> tuple[SegmentDescriptor, ...]:
        return self.nodes + self.edges

    @classmethod
    def of_manifest(cls, manifest: Manifest, artifacts: Sequence[Artifact]) -> GraphState:
        """Read and check: `artifacts` are all that the manifest names, those in its parts included."""
        segments = [SegmentDescriptor.of_artifact(artifact) for artifact in artifacts]
        where = f"manifest {manifest.manifest_id}"
        _check_unique(segments, where)
        found = manifest.payload.get("stats")
        if not isinstance(found, dict):
            raise CorruptRecord(where, "it has no stats: not a graph")
        stats = GraphStats.from_fields(Fields(found, key=where))
        if stats != stats_of(segments):
            raise CorruptRecord(where, f"its stats {stats.to_json()} are not the sum of its segments")
        return cls(
            version=manifest.manifest_id,
            nodes=tuple(segment for segment in segments if segment.kind == "nodes"),
            edges=tuple(segment for segment in segments if segment.kind == "edges"),
            stats=stats,
        )


def _check_unique(segments: Sequence[SegmentDescriptor], where: str) -> None:
    """A segment id is used once, across both kinds (G9)."""
    seen: set[int] = set()
    for segment in segments:
        if segment.segment_id in seen:
            raise CorruptRecord(where, f"segment id {segment.segment_id} is there twice")
        seen.add(segment.segment_id)
