"""Which nodes and edges two versions do not have in common, record by record (G20).

    found = diff(store, 4, 7)
    found.report[("nodes", "src/app.py", "FUNCTION")].added
    [node.name for node in found.added_nodes]
    [(change.before.name, change.after.name) for change in found.changed_nodes]

Segments that both versions have say the same in both, so only ids that are in the others can differ. The nodes that
have these, and the edges that start there, are looked up in both versions. So it costs in proportion to what was
committed in between, not to the graph; a compaction in between counts as much as it rewrote, and does not show. Any two
versions can be compared, also across rollbacks, either way.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.graph.answers import Answer, edge_answer, node_answer
from holdfast.graph.arrays import one_piece
from holdfast.graph.changes import Counts
from holdfast.graph.differences import key_numbers
from holdfast.graph.encoding import conformed
from holdfast.graph.merge import live_edges, live_nodes
from holdfast.graph.records import Edge, Node, edge_schema, node_schema
from holdfast.graph.segment import SegmentKind, sorted_edges
from holdfast.graph.segment_reader import RowGroupCache, SegmentReader
from holdfast.graph.segments_view import SegmentsView
from holdfast.graph.state import GraphState
from holdfast.graph.store import GraphStore
from holdfast.graph.view import GraphView

__all__ = ["Change", "ChangeAnswer", "GraphDiff", "diff"]

T = TypeVar("T", Node, Edge)
READERS = 4
WHOLE_SHARE = 8
"""If more than an eighth of all nodes is asked for, a version is read as a whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change(Generic[T]):
    """One record in two versions."""

    before: T
    after: T


class ChangeAnswer(Answer[Change[T]]):
    """Records that differ. The table has two columns, `before` and `after`, each with all the fields of a record."""

    def to_dicts(self) -> list[dict[str, Any]]:
        """As plain data for JSON; metadata is parsed."""
        rows: list[dict[str, Any]] = self.table.to_pylist()
        for record in (row[side] for row in rows for side in ("before", "after")):
            record["metadata"] = orjson.loads(record["metadata"]) if record["metadata"] else None
        return rows


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphDiff:
    """What it takes to come from one version to another. Nodes in the order of their ids; edges in that of source,
    type and target."""

    source: int
    target: int
    report: Mapping[tuple[str, str, str], Counts]
    """By (`nodes` or `edges`, file, type). A record that moved is counted as changed, where it is now."""
    added_nodes: Answer[Node]
    removed_nodes: Answer[Node]
    changed_nodes: ChangeAnswer[Node]
    added_edges: Answer[Edge]
    removed_edges: Answer[Edge]
    changed_edges: ChangeAnswer[Edge]

    def __bool__(self) -> bool:
        return bool(self.report)

    def totals(self) -> dict[str, Counts]:
        """The counts of `nodes` and of `edges`."""
        return {
            "nodes": Counts(
                added=len(self.added_nodes), removed=len(self.removed_nodes), changed=len(self.changed_nodes)
            ),
            "edges": Counts(
                added=len(self.added_edges), removed=len(self.removed_edges), changed=len(self.changed_edges)
            ),
        }


def diff(store: GraphStore, source: int | None, target: int | None = None) -> GraphDiff:
    """From `source` to `target`; None is the visible version."""
    before, after = store.state(source), store.state(target)
    nodes = _changes_of(store, before, after, "nodes")
    edges = _changes_of(store, before, after, "edges")
    return GraphDiff(
        source=before.version,
        target=after.version,
        report={**nodes.report("nodes"), **edges.report("edges")},
        added_nodes=node_answer(lambda: nodes.added),
        removed_nodes=node_answer(lambda: nodes.removed),
        changed_nodes=ChangeAnswer(nodes.pairs, _node_change),
        added_edges=edge_answer(lambda: edges.added),
        removed_edges=edge_answer(lambda: edges.removed),
        changed_edges=ChangeAnswer(edges.pairs, _edge_change),
    )


# -- which ids -------------------------------------------------------------------------------------------------------


def _ids_not_shared(store: GraphStore, before: GraphState, after: GraphState, kind: SegmentKind) -> pa.Array:
    """The ids of nodes, or of the sources of edges, that are in a segment that only one of the versions has."""
    column = "semantic_id" if kind == "nodes" else "source"
    old, new = ({one.segment_id: one for one in state.segments if one.kind == kind} for state in (before, after))
    different = [segment for number, segment in (old | new).items() if not (number in old and number in new)]
    cache = RowGroupCache(0)
    found = [pa.array([], pa.string())]
    with ThreadPoolExecutor(READERS) as pool:
        for rows in pool.map(lambda one: SegmentReader(store.chain.store, one, cache).scan([column]), different):
            found += [pc.unique(one_piece(table.column(column)).cast(pa.string())) for table in rows]
    return pc.unique(pa.concat_arrays(found))


# -- what became of them ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Changes:
    """Tables of records; the two of what changed have the same keys in the same order."""

    added: pa.Table
    removed: pa.Table
    before: pa.Table
    after: pa.Table

    def pairs(self) -> pa.Table:
        sides = {"before": self.before, "after": self.after}
        return pa.table({name: table.to_struct_array() for name, table in sides.items()})

    def report(self, kind: str) -> dict[tuple[str, str, str], Counts]:
        counts: dict[tuple[str, str, str], Counts] = {}
        for what, table in (("added", self.added), ("removed", self.removed), ("changed", self.after)):
            grouped = table.group_by(["file", "type"], use_threads=False).aggregate([([], "count_all")])
            for row in grouped.to_pylist():
                place = (kind, row["file"], row["type"])
                counts[place] = replace(counts.get(place, Counts()), **{what: row["count_all"]})
        return {place: counts[place] for place in sorted(counts)}


def _changes_of(store: GraphStore, before: GraphState, after: GraphState, kind: SegmentKind) -> _Changes:
    ids = _ids_not_shared(store, before, after, kind)
    nothing = (node_schema() if kind == "nodes" else edge_schema()).empty_table()
    if not len(ids):
        return _Changes(nothing, nothing, nothing, nothing)
    if len(ids) > max(before.stats.total_nodes, after.stats.total_nodes) // WHOLE_SHARE:
        old, new = (_all_of(store, state, kind) for state in (before, after))
    else:
        old, new = (_some_of(SegmentsView(store.chain.store, state), ids, kind) for state in (before, after))
    return _compared(kind, old, new)


def _all_of(store: GraphStore, state: GraphState, kind: SegmentKind) -> pa.Table:
    """All records of a version: those that no commit has touched are the same in both, and drop out."""
    if kind == "nodes":
        return _records(live_nodes(store.read_segments(state.nodes)), node_schema())
    return _records(sorted_edges(live_edges(store.read_segments(state.edges))), edge_schema())


def _some_of(view: GraphView, ids: pa.Array, kind: SegmentKind) -> pa.Table:
    """The nodes that have some ids, or all edges that start at these."""
    if kind == "nodes":
        return view.nodes_by_id(ids).sort_by("semantic_id")
    edges = view.edges_by_source(ids)
    marks = pa.array(np.zeros(len(edges), np.bool_))
    return _records(sorted_edges(edges.append_column("tombstone", marks)), edge_schema())


def _records(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Without tombstones' column, each column in one piece of plain texts."""
    return conformed(rows.select(schema.names), schema).combine_chunks()


def _compared(kind: SegmentKind, before: pa.Table, after: pa.Table) -> _Changes:
    """Both have each key once, in the same order."""
    old, new = key_numbers(kind, before, after)
    stays, was_there = pa.array(np.isin(old, new)), pa.array(np.isin(new, old))
    added, removed = after.filter(pc.invert(was_there)), before.filter(pc.invert(stays))
    # In the same order, without what only one of them has: row by row the same keys.
    before, after = before.filter(stays), after.filter(was_there)
    differs = np.zeros(len(before), np.bool_)
    for name in before.column_names:
        differs |= _differ(before.column(name), after.column(name))
    return _Changes(added, removed, before.filter(pa.array(differs)), after.filter(pa.array(differs)))


def _differ(one: pa.ChunkedArray, other: pa.ChunkedArray) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Whether values differ; two nulls are the same."""
    same = pc.or_(pc.fill_null(pc.equal(one, other), False), pc.and_(pc.is_null(one), pc.is_null(other)))
    return ~one_piece(same).to_numpy(zero_copy_only=False) if len(one) else np.zeros(0, np.bool_)


# -- Python objects ---------------------------------------------------------------------------------------------------


def _node_change(row: Mapping[str, Any]) -> Change[Node]:
    return Change(before=Node(**_parsed(row["before"])), after=Node(**_parsed(row["after"])))


def _edge_change(row: Mapping[str, Any]) -> Change[Edge]:
    return Change(before=Edge(**_parsed(row["before"])), after=Edge(**_parsed(row["after"])))


def _parsed(record: Mapping[str, Any]) -> dict[str, Any]:
    return {**record, "metadata": orjson.loads(record["metadata"]) if record["metadata"] else {}}
