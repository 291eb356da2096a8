"""From what a writer wants to what a commit stores: only what changes, with tombstones for what leaves (G15, G23).

1. Records that are there already, just so, are left alone; a commit without any change makes no version.
2. A record whose type or file changes leaves a tombstone of what it was: zone maps then open the new segment for every
   query that could have found the old record.
3. An edge whose end is not there is named and refused, unless dangling edges are asked for; also one that becomes so
   because its end leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.errors import BadInput, BadRows
from holdfast.graph.encoding import concat_edges, encode_edges, encoded_column, texts_of
from holdfast.graph.merge import edge_numbers
from holdfast.graph.records import SAMPLES_MAX, canonical_edges, canonical_nodes, edge_schema, node_schema
from holdfast.graph.segment import sorted_edges, sorted_nodes
from holdfast.graph.view import GraphView, edge_key, node_key, without

__all__ = ["Changes", "Counts", "plan_changes"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """How many records came, left, or became different."""

    added: int = 0
    removed: int = 0
    changed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """The rows of the next segments, tombstones included, and what they mean."""

    nodes: pa.Table
    edges: pa.Table
    hidden_nodes: int
    """Older records that these hide."""
    hidden_edges: int
    report: Mapping[tuple[str, str, str], Counts] = field(default_factory=dict)
    """By (`nodes` or `edges`, file, type)."""

    def __bool__(self) -> bool:
        return len(self.nodes) > 0 or len(self.edges) > 0


def plan_changes(
    view: GraphView,
    *,
    nodes: pa.Table | None = None,
    edges: pa.Table | None = None,
    files: pa.Array | None = None,
    remove_nodes: pa.Array | None = None,
    remove_edges: pa.Table | None = None,
    dangling: str = "refuse",
) -> Changes:
    """What it takes to bring the graph there.

    `nodes` and `edges` are put. All other contents of `files` leave. `remove_nodes` leave with the edges that start at
    them; `remove_edges` (source, target, type) leave.
    """
    if dangling not in {"refuse", "keep"}:
        raise BadInput(f"dangling={dangling!r}: use refuse or keep")
    put_nodes = _unique_nodes(canonical_nodes(node_schema().empty_table() if nodes is None else nodes))
    put_edges = encode_edges(canonical_edges(edge_schema().empty_table() if edges is None else edges))
    put_edges = _unique_edges(_with_files(put_edges, put_nodes, view))
    if files is not None:
        _check_files(put_nodes, put_edges, files)
    ids = node_key(put_nodes)
    leaving = _leaving_nodes(view, ids, files, remove_nodes)
    leaving_edges = _leaving_edges(view, put_edges, files, remove_nodes, remove_edges)
    if dangling == "refuse":
        _check_ends(view, put_nodes, put_edges, leaving, leaving_edges)
    old_nodes = pa.concat_tables([view.nodes_by_id(ids), leaving])
    old_edges = pa.concat_tables([view.edges_by_source(texts_of(put_edges, "source")), leaving_edges])
    node_rows, node_report = _differences("nodes", old_nodes, put_nodes, leaving, node_key)
    edge_rows, edge_report = _differences("edges", old_edges, put_edges, leaving_edges, edge_key)
    return Changes(
        nodes=sorted_nodes(node_rows),
        edges=sorted_edges(edge_rows),
        hidden_nodes=sum(counts.removed + counts.changed for counts in node_report.values()),
        hidden_edges=sum(counts.removed + counts.changed for counts in edge_report.values()),
        report=node_report | edge_report,
    )


# -- what leaves ------------------------------------------------------------------------------------------------------


def _leaving_nodes(view: GraphView, put_ids: pa.Array, files: pa.Array | None, remove: pa.Array | None) -> pa.Table:
    """Nodes that are there and will not be: of the files that are replaced, or named one by one."""
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
    leaving = _first_of_each(pa.concat_tables(parts), node_key)
    return without(leaving, node_key, put_ids)


def _leaving_edges(
    view: GraphView,
    put: pa.Table,
    files: pa.Array | None,
    remove_nodes: pa.Array | None,
    remove_edges: pa.Table | None,
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
        if len(found) < len(_first_of_each(wanted, edge_key)):
            gone = without(wanted, edge_key, found)
            raise BadInput(f"edges to remove that are not there: {_names(gone)}")
        parts.append(found)
    leaving = _first_of_each(pa.concat_tables(parts), edge_key)
    return without(leaving, edge_key, put)


# -- what is different ------------------------------------------------------------------------------------------------


def _differences(
    kind: str, old: pa.Table, put: pa.Table, leaving: pa.Table, key_of: Callable[[pa.Table], pa.Array]
) -> tuple[pa.Table, dict[tuple[str, str, str], Counts]]:
    """The rows of the next segment: records that are new or different, and tombstones."""
    places = (
        pc.index_in(key_of(put), value_set=key_of(old)) if len(put) and len(old) else pa.nulls(len(put), pa.int32())
    )
    known = places.is_valid().to_numpy(zero_copy_only=False)
    before = old.take(places.filter(pa.array(known)))
    after = _decoded(put.filter(pa.array(known)))
    differs = np.zeros(len(after), dtype=bool)
    for name in put.column_names:
        differs |= _differ(before.column(name), after.column(name))
    moved = _differ(before.column("type"), after.column("type")) | _differ(before.column("file"), after.column("file"))
    added, changed = put.filter(pa.array(~known)) if known.any() else put, after.filter(pa.array(differs))
    hidden = pa.concat_tables([leaving, before.filter(pa.array(moved))])
    parts = [_marked(added, False), _marked(changed, False), _marked(hidden, True)]
    rows = pa.concat_tables(parts) if kind == "nodes" else concat_edges(parts)
    report: dict[tuple[str, str, str], Counts] = {}
    for table, what in ((added, "added"), (leaving, "removed"), (changed, "changed")):
        for file, type_, count in _counted(table):
            found = report.get((kind, file, type_), Counts())
            report[kind, file, type_] = replace(found, **{what: getattr(found, what) + count})
    return rows, report


def _differ(one: pa.ChunkedArray, other: pa.ChunkedArray) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Whether values differ; two nulls are the same."""
    equal = pc.fill_null(pc.equal(one, other), False)
    both_null = pc.and_(pc.is_null(one), pc.is_null(other))
    same = pc.or_(equal, both_null)
    return ~same.combine_chunks().to_numpy(zero_copy_only=False) if len(one) else np.zeros(0, dtype=bool)


def _counted(table: pa.Table) -> list[tuple[str, str, int]]:
    """How many rows there are of each file and type."""
    if not len(table):
        return []
    (files, file_codes), (types, type_codes) = (encoded_column(table, name) for name in ("file", "type"))
    numbers, counts = np.unique(file_codes.astype(np.int64) * len(types) + type_codes, return_counts=True)
    file_texts, type_texts = files.to_pylist(), types.to_pylist()
    return [
        (file_texts[number // len(types)], type_texts[number % len(types)], count)
        for number, count in zip(numbers.tolist(), counts.tolist(), strict=True)
    ]


# -- checks -----------------------------------------------------------------------------------------------------------


def _check_ends(
    view: GraphView, put_nodes: pa.Table, put_edges: pa.Table, leaving: pa.Table, leaving_edges: pa.Table
) -> None:
    """BadRows for edges that would point to, or come from, nothing."""
    ends = pc.unique(pa.concat_arrays([texts_of(put_edges, name) for name in ("source", "target")]))
    asked = ends.filter(pc.invert(pc.is_in(ends, value_set=node_key(put_nodes))))
    gone = node_key(leaving)
    there = node_key(view.nodes_by_id(asked))
    there = there.filter(pc.invert(pc.is_in(there, value_set=gone)))
    nowhere = asked.filter(pc.invert(pc.is_in(asked, value_set=there)))
    bad = [edge_schema().empty_table()]
    if len(nowhere):
        bad.append(
            _decoded(
                put_edges.filter(
                    pa.array(_having(put_edges, "source", nowhere) | _having(put_edges, "target", nowhere))
                )
            )
        )
    if len(gone):
        touching = (view.edges_by_target(gone), view.edges_by_source(gone))
        bad.extend(without(without(edges, edge_key, leaving_edges), edge_key, put_edges) for edges in touching)
    found = _first_of_each(pa.concat_tables(bad), edge_key)
    if len(found):
        raise BadRows(
            f"nothing was committed: {len(found):,} edges have an end that is not there: {_names(found)}; "
            "add the nodes, remove the edges, or keep them with dangling='keep'"
        )


def _check_files(nodes: pa.Table, edges: pa.Table, files: pa.Array) -> None:
    for what, table in (("node", nodes), ("edge", edges)):
        outside = table.filter(pa.array(~_having(table, "file", files)))
        if len(outside):
            raise BadInput(
                f"{len(outside)} {what}s belong to other files than those replaced, such as "
                f"{outside.column('file')[0].as_py()!r}; name that file too, or commit them on their own"
            )


def _unique_nodes(nodes: pa.Table) -> pa.Table:
    """One row per id; the same id with different contents is refused."""
    if len(nodes) < 2:
        return nodes
    codes = node_key(nodes).dictionary_encode().indices.to_numpy(zero_copy_only=False)
    _, first, group = np.unique(codes, return_index=True, return_inverse=True)
    if len(first) == len(nodes):
        return nodes
    again = np.flatnonzero(first[group] != np.arange(len(nodes)))
    these, those = nodes.take(pa.array(again)), nodes.take(pa.array(first[group[again]]))
    clash = np.zeros(len(again), dtype=bool)
    for name in nodes.column_names[1:]:
        clash |= _differ(these.column(name), those.column(name))
    if clash.any():
        samples = these.column("semantic_id").filter(pa.array(clash))[:SAMPLES_MAX].to_pylist()
        raise BadRows(
            f"nothing was committed: {int(clash.sum()):,} nodes have the id of another with different contents, "
            f"such as {', '.join(map(repr, samples))}"
        )
    return nodes.take(pa.array(np.sort(first)))


def _unique_edges(edges: pa.Table) -> pa.Table:
    """One row per (source, target, type); different contents for the same edge are refused."""
    if len(edges) < 2:
        return edges
    _, first, group = np.unique(edge_numbers(edges), return_index=True, return_inverse=True)
    if len(first) == len(edges):
        return edges
    again = np.flatnonzero(first[group] != np.arange(len(edges)))
    these, those = edges.take(pa.array(again)), edges.take(pa.array(first[group[again]]))
    clash = np.zeros(len(again), dtype=bool)
    for name in ("file", "metadata"):
        clash |= _differ(these.column(name), those.column(name))
    if clash.any():
        raise BadRows(
            f"nothing was committed: {int(clash.sum()):,} edges are there twice with different contents, such as "
            f"{_names(these.filter(pa.array(clash)))}"
        )
    return edges.take(pa.array(np.sort(first)))


def _with_files(edges: pa.Table, nodes: pa.Table, view: GraphView) -> pa.Table:
    """An edge without a file belongs to its source's."""
    files, file_codes = encoded_column(edges, "file")
    missing = np.array([text == "" for text in files.to_pylist()], dtype=bool)[file_codes]
    if not missing.any():
        return edges
    sources, source_codes = encoded_column(edges, "source")
    known = pa.concat_tables([nodes, view.nodes_by_id(sources)])
    places = pc.index_in(sources, value_set=node_key(known))
    found, found_codes = encoded_column(known, "file")
    names = pa.concat_arrays([files, found.cast(files.type), pa.array([""], files.type)])
    of_source = np.full(len(sources), len(names) - 1, np.int64)
    valid = places.is_valid().to_numpy(zero_copy_only=False)
    of_source[valid] = len(files) + found_codes[places.drop_null().to_numpy()]
    chosen = np.where(missing, of_source[source_codes], file_codes).astype(np.int32)
    column = pa.DictionaryArray.from_arrays(pa.array(chosen), names).dictionary_decode().dictionary_encode()
    return edges.set_column(edges.schema.get_field_index("file"), pa.field("file", column.type, nullable=False), column)


# -- tables -----------------------------------------------------------------------------------------------------------


def _having(table: pa.Table, name: str, values: pa.Array) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which rows have one of some values; asked once per different text."""
    texts, codes = encoded_column(table, name)
    flags = pc.is_in(texts, value_set=values.cast(texts.type)).to_numpy(zero_copy_only=False)
    found: np.ndarray[tuple[int], np.dtype[np.bool_]] = flags[codes] if len(flags) else np.zeros(len(table), dtype=bool)
    return found


def _decoded(table: pa.Table) -> pa.Table:
    """Texts instead of numbers into a dictionary: for the few rows that are compared one with another."""
    return table.cast(node_schema() if "semantic_id" in table.column_names else edge_schema())


def _first_of_each(table: pa.Table, key_of: Callable[[pa.Table], pa.Array]) -> pa.Table:
    """One row of each key, in order."""
    if len(table) < 2:
        return table
    codes = key_of(table).dictionary_encode().indices.to_numpy(zero_copy_only=False)
    _, first = np.unique(codes, return_index=True)
    return table if len(first) == len(table) else table.take(pa.array(np.sort(first)))


def _marked(table: pa.Table, tombstone: bool) -> pa.Table:
    return table.append_column(
        pa.field("tombstone", pa.bool_(), nullable=False), pa.repeat(pa.scalar(tombstone), len(table))
    )


def _names(edges: pa.Table) -> str:
    rows = edges.slice(0, SAMPLES_MAX).to_pylist()
    return ", ".join(f"{row['source']!r} -{row['type']}-> {row['target']!r}" for row in rows)
