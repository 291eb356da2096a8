"""Graph data sets: nodes and edges in versions, in segments on any store, asked in memory or where they lie."""

from holdfast.graph.answers import Answer, Reached
from holdfast.graph.changes import Changes, Counts
from holdfast.graph.compaction import Compacted, compact
from holdfast.graph.direct import DirectGraph
from holdfast.graph.records import Edge, Node, node_id
from holdfast.graph.snapshot import GraphSnapshot
from holdfast.graph.store import CommitResult, GraphStore
from holdfast.graph.version_diff import GraphDiff, diff

__all__ = [
    "Answer",
    "Changes",
    "CommitResult",
    "Compacted",
    "Counts",
    "DirectGraph",
    "Edge",
    "GraphDiff",
    "GraphSnapshot",
    "GraphStore",
    "Node",
    "Reached",
    "compact",
    "diff",
    "node_id",
]
