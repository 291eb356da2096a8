"""Compaction on Spark (G17): the segments of the visible version become few large ones; no answer changes.

The lock is held meanwhile. Whoever takes it over wins: then the compaction is refused, and nothing of it is visible.
"""

from __future__ import annotations

from pyspark.sql import SparkSession

from holdfast.errors import Conflict, InvariantViolation
from holdfast.graph.publishing import Note
from holdfast.graph.segment import SegmentDescriptor, SegmentKind
from holdfast.graph.state import GraphState
from holdfast.graph.store import GraphStore
from holdfast.spark.graph_read import frame_of
from holdfast.spark.graph_write import PublishedGraph, SegmentSizes, WrittenSegments, store_at, write_segments
from holdfast.spark.progress import ProgressTold, Watch

__all__ = ["compact_graph"]


def compact_graph(
    spark: SparkSession,
    place: str | GraphStore,
    *,
    rows_per_segment: int | None = None,
    segments: int | None = None,
    why: str = "",
    progress: ProgressTold | None = None,
) -> PublishedGraph:
    """Merge the segments of the visible version. Kinds that are compact already stay; if both are, nothing happens."""
    sizes = SegmentSizes.of(rows_per_segment, segments)
    store = store_at(place)
    seen = store.state()
    if not _scattered(seen, sizes):
        return _result(seen, committed=False)
    with store.building("compact a graph on Spark") as build:
        state = store.state(build.base.manifest_id)
        tasks = {kind: sizes.tasks(_live(state, kind)) for kind in _scattered(state, sizes)}
        if not tasks:
            raise Conflict(f"version {state.version} is compact: somebody else was first, there is nothing to do")
        written: list[WrittenSegments] = []
        with Watch(spark, sum(tasks.values()), progress) as watch:
            for kind, count in tasks.items():
                # Not cached: files do not change, and a plan that is cached no longer adapts to how little there is.
                frame = frame_of(spark, store, state, kind)
                written.append(write_segments(frame, kind, count, build, watch))
                _check(written[-1], state, kind)
        committed = build.publish(
            [segment for made in written for segment in made.segments],
            replacing={segment.segment_id for kind in tasks for segment in _segments(state, kind)},
            in_place=True,
            note=Note(why=why or "compacted on Spark"),
        )
    return _result(store.state(committed.manifest.manifest_id), committed=True, written=written)


def _scattered(state: GraphState, sizes: SegmentSizes) -> list[SegmentKind]:
    """The kinds that a compaction would make smaller: with more segments than needed, or with something hidden."""
    kinds: tuple[SegmentKind, SegmentKind] = ("nodes", "edges")
    return [
        kind
        for kind in kinds
        if len(_segments(state, kind)) > sizes.tasks(_live(state, kind))
        or any(segment.hidden_count or segment.tombstone_count for segment in _segments(state, kind))
    ]


def _segments(state: GraphState, kind: SegmentKind) -> tuple[SegmentDescriptor, ...]:
    return state.nodes if kind == "nodes" else state.edges


def _live(state: GraphState, kind: SegmentKind) -> int:
    return state.stats.total_nodes if kind == "nodes" else state.stats.total_edges


def _check(written: WrittenSegments, state: GraphState, kind: SegmentKind) -> None:
    if (written.records, written.dropped) != (_live(state, kind), 0):
        raise InvariantViolation(
            f"nothing was published: version {state.version} should have {_live(state, kind):,} {kind}, and "
            f"{written.records:,} were found in its segments; run `holdfast verify`"
        )


def _result(state: GraphState, *, committed: bool, written: list[WrittenSegments] | None = None) -> PublishedGraph:
    return PublishedGraph(
        version=state.version,
        committed=committed,
        nodes=state.stats.total_nodes,
        edges=state.stats.total_edges,
        node_segments=state.stats.node_segment_count,
        edge_segments=state.stats.edge_segment_count,
        written_bytes=sum(made.bytes for made in written or ()),
        peak_worker_bytes=max((made.peak_memory_bytes for made in written or ()), default=0),
    )
