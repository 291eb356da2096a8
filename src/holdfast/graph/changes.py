"""From what a writer wants to what a commit stores: only what changes, with tombstones for what leaves (G15, G23).

1. Whatever is put is compared with what is there (`differences.py`); a commit without any change makes no version.
2. All other contents of files that are replaced leave, and so do records that are named one by one.
3. An edge whose end is not there is named and refused, unless dangling edges are asked for; also one that becomes so
   because its end leaves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.errors import BadInput, BadRows
from holdfast.graph.differences import Counts, Report, compare, names_of_edges
from holdfast.graph.encoding import encode_edges, encoded_column, texts_of
from holdfast.graph.records import SAMPLES_MAX, Edge, Node, canonical_edges, canonical_nodes, edge_schema, node_schema
from holdfast.graph.segment import sorted_edges, sorted_nodes
from holdfast.graph.view import GraphView, edge_key, node_key, without

__all__ = ["Changes", "Counts", "plan_changes"]

Flags = npt.NDArray[np.bool_]
Indices = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """The rows of the next segments, tombstones included, and what they mean."""

    nodes: pa.Table
    edges: pa.Table
    hidden_nodes: int
    """Older records that these hide."""
    hidden_edges: int
    report: Report = field(default_factory=dict)

    def __bool__(self) -> bool:
        return len(self.nodes) > 0 or len(self.edges) > 0


def plan_changes(
    view: GraphView,
    *,
    nodes: pa.Table | Sequence[Node] | None = None,
    edges: pa.Table | Sequence[Edge] | None = None,
    files: pa.Array | None = None,
    remove_nodes: pa.Array | None = None,
    remove_edges: pa.Table | Sequence[Edge] | None = None,
    dangling: str = "refuse",
) -> Changes:
    """What it takes to bring the graph there.

    `nodes` and `edges` are put. All other contents of `files` leave. `remove_nodes` leave with the edges that start at
    them; `remove_edges` (source, target, type) leave.
    """
    if dangling not in {"refuse", "keep"}:
        raise BadInput(f"dangling={dangling!r}: use refuse or keep")
    put_nodes = node_schema().empty_table() if nodes is None else canonical_nodes(nodes)
    put_edges = encode_edges(edge_schema().empty_table() if edges is None else canonical_edges(edges))
    put_ids = node_key(put_nodes)
    put_edges = _with_files(put_edges, put_nodes, put_ids, view)
    if files is not None:
        _check_files(put_nodes, put_edges, files)
    nodes_to_go = _nodes_to_go(view, files, remove_nodes)
    edges_to_go = _edges_to_go(view, files, remove_nodes, remove_edges)
    node_changes = compare("nodes", put_nodes, nodes_to_go, lambda some: view.nodes_by_id(node_key(some)))
    edge_changes = compare("edges", put_edges, edges_to_go, lambda some: view.edges_by_source(_sources(some)[0]))
    if dangling == "refuse":
        _check_ends(view, put_ids, put_edges, node_changes.leaving, edge_changes.leaving)
    return Changes(
        nodes=sorted_nodes(node_changes.rows),
        edges=sorted_edges(edge_changes.rows),
        hidden_nodes=node_changes.hidden_count,
        hidden_edges=edge_changes.hidden_count,
        report={**node_changes.report, **edge_changes.report},
    )


# -- what is to leave -------------------------------------------------------------------------------------------------


def _nodes_to_go(view: GraphView, files: pa.Array | None, remove: pa.Array | None) -> pa.Table:
    """Nodes that are there and will not be, unless they are put: of replaced files, or named one by one."""
    parts = [node_schema().empty_table()]
    if files is not None and len(files):
        parts.append(view.nodes_by_file(files))
    if remove is not None and len(remove):
        found = view.nodes_by_id(remove)
        absent = pc.invert(pc.is_in(remove, value_set=node_key(found)))
        if pc.any(absent).as_py():
            samples = remove.filter(absent)[:SAMPLES_MAX].to_pylist()
            raise BadInput(f"nodes to remove that are not there: {', '.join(map(repr, samples))}")
        parts.append(found)
    return parts[-1] if len(parts) < 3 else pa.concat_tables(parts)


def _edges_to_go(
    view: GraphView,
    files: pa.Array | None,
    remove_nodes: pa.Array | None,
    remove_edges: pa.Table | Sequence[Edge] | None,
) -> pa.Table:
    parts = [edge_schema().empty_table()]
    if files is not None and len(files):
        parts.append(view.edges_by_file(files))
    if remove_nodes is not None and len(remove_nodes):
        parts.append(view.edges_by_source(remove_nodes))
    if remove_edges is not None and len(remove_edges):
        wanted = canonical_edges(remove_edges)
        known = view.edges_by_source(texts_of(wanted, "source"))
        found = known.filter(pc.is_in(edge_key(known), value_set=edge_key(wanted)))
        missing = without(wanted, edge_key, found)
        if len(missing):
            raise BadInput(f"edges to remove that are not there: {names_of_edges(missing)}")
        parts.append(found)
    return parts[-1] if len(parts) < 3 else pa.concat_tables(parts)


def _sources(edges: pa.Table) -> tuple[pa.Array, Indices]:
    """The different sources that some rows have, and for each row which: their dictionary has other texts too."""
    texts, codes = encoded_column(edges, "source")
    used = np.zeros(len(texts), np.bool_)
    used[codes] = True
    if used.all():
        return texts, codes.astype(np.int64)
    return texts.filter(pa.array(used)), (np.cumsum(used) - 1)[codes]


# -- checks -----------------------------------------------------------------------------------------------------------


def _check_ends(
    view: GraphView, put_ids: pa.Array, put_edges: pa.Table, leaving: pa.Table, leaving_edges: pa.Table
) -> None:
    """BadRows for edges that would point to, or come from, nothing."""
    bad = []
    gone = node_key(leaving)
    nowhere = _nowhere(view, put_ids, put_edges, gone)
    if len(nowhere):
        touching = _having(put_edges, "source", nowhere) | _having(put_edges, "target", nowhere)
        bad.append(put_edges.filter(pa.array(touching)).cast(edge_schema()))
    if len(gone):
        touching_gone = (view.edges_by_target(gone), view.edges_by_source(gone))
        bad += [without(without(edges, edge_key, leaving_edges), edge_key, put_edges) for edges in touching_gone]
    found = pa.concat_tables(bad) if bad else edge_schema().empty_table()
    if len(found):
        found = found.take(pa.array(np.unique(_first_places(edge_key(found)))))
        raise BadRows(
            f"nothing was committed: {len(found):,} edges have an end that is not there: {names_of_edges(found)}; "
            "add the nodes, remove the edges, or keep them with dangling='keep'"
        )


def _nowhere(view: GraphView, put_ids: pa.Array, put_edges: pa.Table, gone: pa.Array) -> pa.Array:
    """The ends of edges that are put which no node has, now or then."""
    ends = texts_of(put_edges, "source")  # and the targets: both ends have the same dictionary
    asked = ends.filter(pc.invert(pc.is_in(ends, value_set=put_ids)))
    if not len(asked):
        return asked
    absent = view.missing(asked)
    return pc.unique(pa.concat_arrays([absent, asked.filter(pc.is_in(asked, value_set=gone))])) if len(gone) else absent


def _first_places(keys: pa.Array) -> npt.NDArray[np.int64]:
    codes = keys.dictionary_encode().indices.to_numpy(zero_copy_only=False)
    return np.unique(codes, return_index=True)[1].astype(np.int64)


def _check_files(nodes: pa.Table, edges: pa.Table, files: pa.Array) -> None:
    for what, table in (("node", nodes), ("edge", edges)):
        outside = ~_having(table, "file", files)
        if outside.any():
            sample = table.column("file")[int(np.flatnonzero(outside)[0])].as_py()
            raise BadInput(
                f"{int(outside.sum())} {what}s belong to other files than those replaced, such as "
                f"{sample!r}; name that file too, or commit them on their own"
            )


def _with_files(edges: pa.Table, nodes: pa.Table, ids: pa.Array, view: GraphView) -> pa.Table:
    """An edge without a file belongs to its source's."""
    files, file_codes = encoded_column(edges, "file")
    empty = pc.index(files, "").as_py() if len(files) else -1
    if empty < 0:
        return edges
    missing = file_codes == empty
    sources, source_codes = _sources(edges)
    places = pc.index_in(sources, value_set=ids)
    known, known_ids = nodes.select(["file"]), places
    if places.null_count:  # some start at nodes that are there already
        more = view.nodes_by_id(sources.filter(places.is_null()))
        known = pa.concat_tables([known, more.select(["file"])])
        known_ids = pc.index_in(sources, value_set=pa.concat_arrays([ids, node_key(more)]))
    found, found_codes = encoded_column(known, "file")
    names = pa.concat_arrays([files, found.cast(files.type), pa.array([""], files.type)])
    of_source = np.full(len(sources), len(names) - 1, np.int64)
    valid = known_ids.is_valid().to_numpy(zero_copy_only=False)
    of_source[valid] = len(files) + found_codes[known_ids.drop_null().to_numpy()]
    chosen = np.where(missing, of_source[source_codes], file_codes).astype(np.int32)
    column = pa.DictionaryArray.from_arrays(pa.array(chosen), names).dictionary_decode().dictionary_encode()
    return edges.set_column(edges.schema.get_field_index("file"), pa.field("file", column.type, nullable=False), column)


def _having(table: pa.Table, name: str, values: pa.Array) -> Flags:
    """Which rows have one of some values; asked once per different text."""
    texts, codes = encoded_column(table, name)
    flags = pc.is_in(texts, value_set=values.cast(texts.type)).to_numpy(zero_copy_only=False)
    found: Flags = flags[codes] if len(flags) else np.zeros(len(table), dtype=bool)
    return found
