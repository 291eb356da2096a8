"""What is different between what is there and what is wanted, decided on numbers: one number a key, one pass a column.

Records that are there already, just so, are left alone. A record whose type or file changes leaves a tombstone of what
it was: zone maps then open the new segment for every query that could have found the old record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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

__all__ = ["Counts", "Differences", "Report", "compare", "key_numbers", "names_of_edges"]

_KEYS: Mapping[SegmentKind, Sequence[str]] = {"nodes": ["semantic_id"], "edges": ["source", "target", "type"]}

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


def compare(kind: SegmentKind, put: pa.Table, candidates: pa.Table, ask: Callable[[pa.Table], pa.Table]) -> Differences:
    """What it takes to put some records.

    `candidates` are records that are there and leave unless they are put; the same record may come several times.
    `ask` tells all records that are there with a key of some others, perhaps more: it is asked about what is put and
    not among the candidates. When a file is replaced, that is mostly nothing. BadRows if `put` contradicts itself.
    """
    schema = node_schema() if kind == "nodes" else edge_schema()
    old = conformed(candidates, schema)
    put_keys, old_keys = key_numbers(kind, put, old)
    strange = _places(put_keys, old_keys) < 0
    known = ask(_chosen(put, strange)) if strange.any() else schema.empty_table()
    if len(known):
        old = pa.concat_tables([conformed(known, schema), old]).combine_chunks()
        put_keys, old_keys = key_numbers(kind, put, old)
    chosen = _one_of_each(kind, put, put_keys)
    if len(chosen) < len(put):
        put, put_keys = put.take(pa.array(chosen)), put_keys[chosen]
    places = _places(put_keys, old_keys)
    there = places >= 0
    leaving = _taken(old, _leaving(put_keys, old_keys, len(known)))
    differing = _differing(kind, old, places[there], _chosen(put, there))
    changed = conformed(_taken(put, np.flatnonzero(there)[differing.at_all]), schema)
    moved = _taken(old, places[there][differing.for_zone_maps])
    added = _chosen(put, ~there)
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


@dataclass(frozen=True, slots=True)
class _Differing:
    """Which records differ: in anything, or in what a query by type or file goes by."""

    at_all: Flags
    for_zone_maps: Flags


def _differing(kind: SegmentKind, old: pa.Table, places: Indices, after: pa.Table) -> _Differing:
    """How the old records at some places differ from those that take their place; their keys are the same."""
    flags = {
        name: _differ(old.column(name).take(pa.array(places)), after.column(name).cast(pa.string()))
        for name in old.column_names
        if name not in _KEYS[kind]
    }
    none = np.zeros(len(places), np.bool_)
    return _Differing(np.logical_or.reduce([none, *flags.values()]), flags["file"] | flags.get("type", none))


def key_numbers(kind: SegmentKind, put: pa.Table, old: pa.Table) -> tuple[Indices, Indices]:
    """A number for each record: the same for the same key, and for no others; from 0, without large gaps."""
    both = put.select(_KEYS[kind])
    if len(old):
        others = old.select(_KEYS[kind])
        both = pa.concat_tables([conformed(both, others.schema), others]).combine_chunks()
    if kind == "nodes":
        numbers = encoded_column(both, "semantic_id")[1].astype(np.int64)
    else:
        numbers = np.unique(edge_numbers(both), return_inverse=True)[1].astype(np.int64)
    return numbers[: len(put)], numbers[len(put) :]


def _one_of_each(kind: SegmentKind, put: pa.Table, keys: Indices) -> Indices:
    """The first row of each key; the same key with different contents is refused."""
    first, rows = _places(keys, keys), np.arange(len(keys))
    again = np.flatnonzero(first != rows)
    if not len(again):
        return rows
    schema = node_schema() if kind == "nodes" else edge_schema()
    these, those = (conformed(put.take(pa.array(some)), schema) for some in (again, first[again]))
    clash = np.logical_or.reduce([_differ(these.column(name), those.column(name)) for name in schema.names])
    if clash.any():
        found = these.filter(pa.array(clash))
        if kind == "nodes":
            samples = ", ".join(map(repr, found.column("semantic_id")[:SAMPLES_MAX].to_pylist()))
            what = f"nodes have the id of another with different contents, such as {samples}"
        else:
            what = f"edges are there twice with different contents, such as {names_of_edges(found)}"
        raise BadRows(f"nothing was committed: {len(found):,} {what}")
    return np.flatnonzero(first == rows)


def _places(put_keys: Indices, old_keys: Indices) -> Indices:
    """For each record that is put, the first old row of its key; -1 if there is none."""
    place_of = np.full(_count(put_keys, old_keys), -1, np.int64)
    place_of[old_keys[::-1]] = np.arange(len(old_keys) - 1, -1, -1)  # the last assignment stays
    places: Indices = place_of[put_keys]
    return places


def _leaving(put_keys: Indices, old_keys: Indices, known: int) -> Indices:
    """The rows behind the first `known` that leave: the first of each key that is not put."""
    count = _count(put_keys, old_keys)
    stays = np.zeros(count, np.bool_)
    stays[put_keys] = True
    first = np.full(count, -1, np.int64)
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


def _chosen(table: pa.Table, flags: Flags) -> pa.Table:
    """The rows that have a flag; mostly that is all of them, or none."""
    return table if flags.all() else _taken(table, np.flatnonzero(flags))


def _taken(table: pa.Table, rows: Indices) -> pa.Table:
    return table.take(pa.array(rows)) if len(rows) else table.slice(0, 0)


def _marked(table: pa.Table, tombstone: bool) -> pa.Table:
    flags = pa.array(np.full(len(table), tombstone))
    return table.append_column(pa.field("tombstone", pa.bool_(), nullable=False), flags)
