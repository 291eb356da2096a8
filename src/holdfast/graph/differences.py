"""What is different between what is there and what is wanted, decided on numbers: one number a key, one pass a column.

Records that are there already, just so, are left alone. A record whose type or file changes leaves a tombstone of what
it was: zone maps then open the new segment for every query that could have found the old record.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.errors import BadRows
from holdfast.graph.encoding import conformed, encoded_column
from holdfast.graph.merge import edge_numbers
from holdfast.graph.records import SAMPLES_MAX, edge_schema, node_schema
from holdfast.graph.segment import SegmentKind, segment_schema

__all__ = ["Counts", "Differences", "Report", "compare", "names_of_edges"]

Indices = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """How many records came, left, or became different."""

    added: int = 0
    removed: int = 0
    changed: int = 0


Report = Mapping[tuple[str, str, str], Counts]
"""By (`nodes` or `edges`, file, type)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Differences:
    """The rows of the next segment, not yet sorted, and what they mean."""

    rows: pa.Table
    leaving: pa.Table
    report: Report

    @property
    def hidden_count(self) -> int:
        """Older records that these hide."""
        return sum(counts.removed + counts.changed for counts in self.report.values())


def compare(kind: SegmentKind, put: pa.Table, known: pa.Table, candidates: pa.Table) -> Differences:
    """What it takes to put some records.

    `known` has all records that are there with a key of `put`, perhaps more. `candidates` are records that are there
    and leave unless they are put. The same record may come several times. BadRows if `put` contradicts itself.
    """
    schema = node_schema() if kind == "nodes" else edge_schema()
    old = (
        conformed(pa.concat_tables([known, candidates]), schema)
        if len(known) or len(candidates)
        else schema.empty_table()
    )
    put_keys, old_keys = _keys(kind, put, old)
    chosen = _one_of_each(kind, put, put_keys)
    if len(chosen) < len(put):
        put, put_keys = put.take(pa.array(chosen)), put_keys[chosen]
    place_of = np.full(_count(put_keys, old_keys), -1, np.int64)
    place_of[old_keys[::-1]] = np.arange(len(old) - 1, -1, -1)  # the first row of each key: the last assignment stays
    places = place_of[put_keys]
    there = places >= 0
    leaving = old.take(pa.array(_leaving(put_keys, old_keys, place_of, len(known))))
    before = old.take(pa.array(places[there]))
    after = conformed(put.filter(pa.array(there)) if there.any() else put.slice(0, 0), schema)
    differing = {name: _differ(before.column(name), after.column(name)) for name in schema.names}
    changed = after.filter(pa.array(np.logical_or.reduce(list(differing.values()))))
    moved = before.filter(pa.array(differing["type"] | differing["file"]))
    added = put.filter(pa.array(~there)) if there.any() else put
    marked = [
        _marked(table, tombstone)
        for table, tombstone in ((added, False), (changed, False), (leaving, True), (moved, True))
        if len(table)
    ]
    if not marked:
        rows = segment_schema(kind).empty_table()
    elif len(marked) == 1:
        rows = marked[0]
    else:
        rows = pa.concat_tables([conformed(table, segment_schema(kind)) for table in marked])
    return Differences(rows=rows, leaving=leaving, report=_report(kind, added, leaving, changed))


def names_of_edges(edges: pa.Table) -> str:
    """Some of them, for an error that names them."""
    rows = edges.slice(0, SAMPLES_MAX).to_pylist()
    return ", ".join(f"{row['source']!r} -{row['type']}-> {row['target']!r}" for row in rows)


def _keys(kind: SegmentKind, put: pa.Table, old: pa.Table) -> tuple[Indices, Indices]:
    """A number for each record: the same for the same key, and for no others; from 0, without large gaps."""
    names = ["semantic_id"] if kind == "nodes" else ["source", "target", "type"]
    both = put.select(names)
    if len(old):
        others = old.select(names)
        both = pa.concat_tables([conformed(both, others.schema), others]).combine_chunks()
    if kind == "nodes":
        numbers = encoded_column(both, "semantic_id")[1].astype(np.int64)
    else:
        numbers = np.unique(edge_numbers(both), return_inverse=True)[1].astype(np.int64)
    return numbers[: len(put)], numbers[len(put) :]


def _one_of_each(kind: SegmentKind, put: pa.Table, keys: Indices) -> Indices:
    """The first row of each key; the same key with different contents is refused."""
    _, first, group = np.unique(keys, return_index=True, return_inverse=True)
    if len(first) == len(keys):
        return np.arange(len(keys))
    again = np.flatnonzero(first[group] != np.arange(len(keys)))
    schema = node_schema() if kind == "nodes" else edge_schema()
    these, those = (put.take(pa.array(rows)).cast(schema) for rows in (again, first[group[again]]))
    clash = np.logical_or.reduce([_differ(these.column(name), those.column(name)) for name in schema.names])
    if clash.any():
        found = these.filter(pa.array(clash))
        if kind == "nodes":
            samples = ", ".join(map(repr, found.column("semantic_id")[:SAMPLES_MAX].to_pylist()))
            what = f"nodes have the id of another with different contents, such as {samples}"
        else:
            what = f"edges are there twice with different contents, such as {names_of_edges(found)}"
        raise BadRows(f"nothing was committed: {len(found):,} {what}")
    chosen: Indices = np.sort(first)
    return chosen


def _leaving(put_keys: Indices, old_keys: Indices, place_of: Indices, known: int) -> Indices:
    """The rows behind the first `known` that leave: the first of each key that is not put."""
    stays = np.zeros(len(place_of), np.bool_)
    stays[put_keys] = True
    first = np.full(len(place_of), -1, np.int64)
    candidates = old_keys[known:]
    first[candidates[::-1]] = np.arange(len(old_keys) - 1, known - 1, -1)
    rows: Indices = np.sort(first[(first >= 0) & ~stays])
    return rows


def _count(*keys: Indices) -> int:
    return 1 + max((int(numbers.max()) for numbers in keys if len(numbers)), default=-1)


def _differ(one: pa.ChunkedArray, other: pa.ChunkedArray) -> Flags:
    """Whether values differ; two nulls are the same."""
    if not len(one):
        return np.zeros(0, np.bool_)
    if one.null_count == other.null_count == len(one):
        return np.zeros(len(one), np.bool_)
    unequal = pc.not_equal(one, other)
    if unequal.null_count:
        unequal = pc.fill_null(unequal, pc.not_equal(pc.is_null(one), pc.is_null(other)))
    found: Flags = unequal.to_numpy()
    return found


def _report(kind: SegmentKind, added: pa.Table, removed: pa.Table, changed: pa.Table) -> Report:
    """How many records there are of each file and type, of each sort."""
    found: dict[tuple[str, str, str], list[int]] = {}
    for place, table in enumerate((added, removed, changed)):
        if not len(table):
            continue
        (files, file_codes), (types, type_codes) = (encoded_column(table, name) for name in ("file", "type"))
        numbers, counts = np.unique(file_codes.astype(np.int64) * len(types) + type_codes, return_counts=True)
        file_texts, type_texts = files.to_pylist(), types.to_pylist()
        for number, count in zip(numbers.tolist(), counts.tolist(), strict=True):
            key = (kind, file_texts[number // len(types)], type_texts[number % len(types)])
            found.setdefault(key, [0, 0, 0])[place] += count
    return {key: Counts(added=a, removed=r, changed=c) for key, (a, r, c) in found.items()}


def _marked(table: pa.Table, tombstone: bool) -> pa.Table:
    flags = pa.array(np.full(len(table), tombstone))
    return table.append_column(pa.field("tombstone", pa.bool_(), nullable=False), flags)
