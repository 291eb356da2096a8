"""Building graphs from two DataFrames (G25), and the one import for graphs on Spark.

    published = publish_graph(nodes, edges, "s3://lake/code")
    nodes, edges = read_graph(spark, "s3://lake/code")
    compact_graph(spark, "s3://lake/code")

Everything about rows happens in the JVM and in Arrow. Executors write segments, with their zone maps and their index,
and return receipts; only the driver publishes. The session is the caller's, and it is left as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pyspark.sql import DataFrame

from holdfast.chain import Chain, InputPin
from holdfast.errors import BadInput, BuildFailed
from holdfast.graph.publishing import Note
from holdfast.graph.store import GraphStore
from holdfast.spark.graph_compact import compact_graph
from holdfast.spark.graph_read import GraphFrames, read_graph
from holdfast.spark.graph_source import GraphSource
from holdfast.spark.graph_write import PublishedGraph, SegmentSizes, WrittenSegments, store_at, write_segments
from holdfast.spark.progress import ProgressTold, Watch

__all__ = ["GraphFrames", "PublishedGraph", "compact_graph", "publish_graph", "read_graph"]


def publish_graph(
    nodes: DataFrame,
    edges: DataFrame,
    place: str | Chain | GraphStore,
    *,
    rows_per_segment: int | None = None,
    segments: int | None = None,
    dangling: str = "refuse",
    run_id: str | None = None,
    tags: Mapping[str, str] | None = None,
    inputs: Sequence[InputPin] = (),
    why: str = "",
    progress: ProgressTold | None = None,
    admit: Callable[[], None] | None = None,
) -> PublishedGraph:
    """Make two DataFrames the whole contents of the next version. Whatever fails, nothing half is visible.

    Columns are those of `holdfast.graph`, as text; only ids and types are needed. A place without a graph gets an empty
    one first. `segments` is their number for nodes and for edges each; or say how many rows one should have. `admit` is
    asked once the lock is held; if it raises, nothing is registered or written, and that error is the answer.
    """
    if dangling not in {"refuse", "keep"}:
        raise BadInput(f"dangling={dangling!r}: use refuse or keep")
    sizes = SegmentSizes.of(rows_per_segment, segments)
    source = GraphSource.of(nodes, edges)
    store = store_at(place, to_build=True)
    with (
        store.building("build a graph on Spark", run_id=run_id, admit=admit) as build,
        source.counted() as rows,
    ):
        if dangling == "refuse":
            rows.check_ends()
        node_tasks, edge_tasks = sizes.tasks(rows.node_count), sizes.tasks(rows.edge_count)
        with Watch(nodes.sparkSession, node_tasks + edge_tasks, progress) as watch:
            made_nodes = write_segments(rows.nodes, "nodes", node_tasks, build, watch)
            made_edges = write_segments(rows.filed_edges(), "edges", edge_tasks, build, watch)
        _check_count(made_nodes, rows.node_count, "nodes")
        _check_count(made_edges, rows.edge_count, "edges")
        base = store.state(build.base.manifest_id)
        committed = build.publish(
            [*made_nodes.segments, *made_edges.segments],
            replacing={segment.segment_id for segment in base.segments},
            in_place=False,
            note=Note(why=why or "built on Spark", tags=tags or {}, inputs=inputs),
        )
    return PublishedGraph(
        version=committed.manifest.manifest_id,
        committed=True,
        nodes=made_nodes.records,
        edges=made_edges.records,
        node_segments=len(made_nodes.segments),
        edge_segments=len(made_edges.segments),
        written_bytes=made_nodes.bytes + made_edges.bytes,
        dropped_rows=made_nodes.dropped + made_edges.dropped,
        peak_worker_bytes=max(made_nodes.peak_memory_bytes, made_edges.peak_memory_bytes),
    )


def _check_count(written: WrittenSegments, counted: int, kind: str) -> None:
    """What was written must be what was checked. A cache may be lost, and a source may say something else then."""
    if written.rows != counted:
        raise BuildFailed(
            f"nothing was published: there were {counted:,} rows of {kind} when they were checked and {written.rows:,} "
            "when they were written; write the DataFrame to a table first, so that it stays the same"
        )
