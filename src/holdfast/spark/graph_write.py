"""From a DataFrame of canonical rows to the segments of one kind (G25). One pass:

    repartitionByRange (key) → sortWithinPartitions (key) → mapInArrow (check, write, receipt)

Equal keys are in one partition and next to each other, so segments share no key and each is found by its range.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from pyspark.sql import DataFrame

from holdfast.catalog.datasets import announcing
from holdfast.chain import Chain, graph_layout, open_chain
from holdfast.errors import BadInput, BadRows, BuildFailed, NotAChain
from holdfast.graph.publishing import GraphBuild
from holdfast.graph.segment import SegmentDescriptor, SegmentKind
from holdfast.graph.store import GraphStore
from holdfast.spark.failures import Failure
from holdfast.spark.graph_source import KEY_COLUMNS, spark_failures
from holdfast.spark.graph_task import SEGMENT_RECEIPT_SCHEMA, SegmentReceipt, SegmentTask
from holdfast.spark.progress import Tally, Watch, is_connect

__all__ = [
    "ROWS_PER_SEGMENT",
    "PublishedGraph",
    "SegmentSizes",
    "WrittenSegments",
    "check_receipts",
    "store_at",
    "write_segments",
]

ROWS_PER_SEGMENT = 1 << 20
"""A segment that is read whole then takes some hundred megabytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedGraph:
    """What a job on Spark did to a graph."""

    version: int
    """The visible version; a new one if `committed`."""
    committed: bool
    nodes: int
    edges: int
    node_segments: int
    edge_segments: int
    written_bytes: int
    dropped_rows: int = 0
    """Rows that were there already, just so."""
    peak_worker_bytes: int = 0
    """The most memory that a Python worker ever had."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentSizes:
    """How many segments: said by the caller for each kind, or derived from how many rows one should have."""

    rows: int
    count: int | None

    @classmethod
    def of(cls, rows_per_segment: int | None, segments: int | None) -> SegmentSizes:
        if rows_per_segment is not None and segments is not None:
            raise BadInput("give one of rows_per_segment and segments")
        for name, given in (("rows_per_segment", rows_per_segment), ("segments", segments)):
            if given is not None and given < 1:
                raise BadInput(f"{name} is {given}: at least 1")
        return cls(rows=rows_per_segment or ROWS_PER_SEGMENT, count=segments)

    def tasks(self, rows: int) -> int:
        return min(rows, self.count or -(-rows // self.rows))


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenSegments:
    """What came back from the executors."""

    segments: Sequence[SegmentDescriptor] = ()
    """In the order of their keys."""
    rows: int = 0
    """As tasks were given them."""
    dropped: int = 0
    peak_memory_bytes: int = 0

    @property
    def records(self) -> int:
        return sum(segment.record_count for segment in self.segments)

    @property
    def bytes(self) -> int:
        return sum(segment.byte_size for segment in self.segments)


def store_at(place: str | Chain | GraphStore, *, to_build: bool = False) -> GraphStore:
    """The graph at `place`; BadInput if executors cannot reach it. One `to_build` may have no version yet."""
    if isinstance(place, GraphStore):
        chain = place.chain
    else:
        chain = announcing(open_chain(place, layout="graph")) if isinstance(place, str) else place
    if chain.store.url.startswith("memory:"):
        raise BadInput("executors are other processes and cannot reach memory://; use file:// or a bucket")
    if chain.layout.name != graph_layout().name:
        raise NotAChain(f"{chain.store.url!r} is opened as a {chain.layout.name} chain: a graph is a graph one")
    if isinstance(place, GraphStore):
        return place
    return GraphStore(chain) if to_build else GraphStore.open(chain)


def write_segments(frame: DataFrame, kind: SegmentKind, tasks: int, build: GraphBuild, watch: Watch) -> WrittenSegments:
    """Route, sort and write, as one Spark job; the segments of all ranges, or the error that one line can tell."""
    if not tasks:
        return WrittenSegments()
    keys = KEY_COLUMNS[kind]
    task = SegmentTask(build.slots(kind, tasks), watch.accumulator)
    receipts: list[SegmentReceipt] = []
    failures: list[Failure] = []
    peak = 0
    with spark_failures():
        routed = frame.repartitionByRange(tasks, *keys).sortWithinPartitions(*keys)
        returned = routed.mapInArrow(task, SEGMENT_RECEIPT_SCHEMA)
        for row in returned.toLocalIterator() if is_connect(frame.sparkSession) else returned.collect():
            if row.failure:
                failures.append(Failure.decode(bytes(row.failure)))
            else:
                receipts.append(SegmentReceipt.decode(bytes(row.receipt)))
                watch.saw(receipts[-1].tally)
            peak = max(peak, row.peak_memory_bytes)
    build.check()
    if failures:
        raise min(failures, key=lambda one: one.shard).error()
    _settle(watch, tasks - len(receipts))
    receipts.sort(key=lambda one: one.number)
    check_receipts(receipts, kind)
    return WrittenSegments(
        segments=[receipt.segment for receipt in receipts if receipt.segment is not None],
        rows=sum(receipt.rows for receipt in receipts),
        dropped=sum(receipt.dropped for receipt in receipts),
        peak_memory_bytes=peak,
    )


def _settle(watch: Watch, missing: int) -> None:
    """Where few keys are different, Spark finds fewer ranges than it was asked for: these are done, too."""
    if missing <= 0:
        return
    if watch.accumulator is None:
        watch.saw(Tally(missing, 0, 0))
    else:
        watch.accumulator.add(Tally(missing, 0, 0))


def check_receipts(receipts: Sequence[SegmentReceipt], kind: SegmentKind) -> None:
    """BadRows for keys with two meanings; BuildFailed if a key could be in two segments."""
    clashes = sum(receipt.clashes for receipt in receipts)
    if clashes:
        samples = [sample for receipt in receipts for sample in receipt.samples][:5]
        what = "nodes have the id of another" if kind == "nodes" else "edges are there twice"
        raise BadRows(
            f"nothing was published: {clashes:,} {what} with different contents, such as {', '.join(samples)}"
        )
    filled = [receipt for receipt in receipts if receipt.rows]
    if any(before.last >= after.first for before, after in pairwise(filled)):
        raise BuildFailed(f"nothing was published: Spark gave ranges of {kind} that overlap; run it again")
