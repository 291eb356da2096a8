"""Edges of a lineage as numbers: which lead on from which, to any depth, without looking at all of them at each step.

Texts become numbers once. From then on a step is: the edges at the names that were reached, by an index, and of those
the ones that fit in column and snapshot. What a question costs grows with its answer, not with the lineage.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.errors import BadInput

__all__ = ["DEPTH_DEFAULT", "EDGE_SCHEMA", "LineageGraph"]

DEPTH_DEFAULT = 1
_ENDS = ("source", "target")
EDGE_SCHEMA = pa.schema(
    [
        ("source", pa.string()),
        ("target", pa.string()),
        ("source_column", pa.string()),
        ("target_column", pa.string()),
        ("source_snapshot", pa.string()),
        ("target_snapshot", pa.string()),
        ("kind", pa.string()),
        ("run_id", pa.string()),
    ]
)
_FOUND = pa.schema([("depth", pa.int32()), *EDGE_SCHEMA])

Numbers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


class LineageGraph:
    """Edges, asked many times."""

    def __init__(self, edges: pa.Table) -> None:
        self.edges = edges.combine_chunks()

    def walk(
        self,
        name: str,
        end: str,
        *,
        column: str | None = None,
        columns: bool = False,
        indirect: bool = False,
        snapshot: str | None = None,
        depth: int | None = DEPTH_DEFAULT,
    ) -> pa.Table:
        """Follow edges from `name`, which is their `end`: `target` goes upstream, `source` downstream.

        Each edge is listed once, at the depth at which it is first met. Edges between columns are left out where the
        same tables have an edge of their own: SQL says many for one. With a column, or with all `columns` of a
        thing, only edges between columns are followed; `indirect` adds those from a column that decides about the rows
        of a whole table. A snapshot chooses the first edges; from there on each says which snapshot it came from.
        """
        if end not in _ENDS:
            raise BadInput(f"lineage goes from a source or a target, not {end!r}")
        if depth is not None and depth < 1:
            raise BadInput(f"a depth of {depth} leads nowhere; give 1 or more, or none for all")
        other = _ENDS[1 - _ENDS.index(end)]
        by_column = columns or column is not None
        left = (self._between_columns(indirect) if by_column else self._between_tables).copy()
        met = self._first(left, name, end, column, snapshot)
        found: list[tuple[int, Numbers]] = []
        while len(met) and (depth is None or len(found) < depth):
            found.append((len(found) + 1, met))
            left[met] = False
            met = self._next(left, met, end, other, by_column=by_column)
        return self._listed(found)

    def _first(self, left: Flags, name: str, end: str, column: str | None, snapshot: str | None) -> Numbers:
        place = self._names.place(name)
        if place is None:
            return np.empty(0, np.int64)
        near = self._at(end, np.array([place]))
        near = near[left[near]]
        if column is not None:
            here = self._columns.numbers(end)[near] == self._columns.place_or_none(column)
            near = near[here | self._about_rows[near]] if end == "target" else near[here]
        if snapshot is not None:
            near = near[self._snapshots.numbers(end)[near] == self._snapshots.place_or_none(snapshot)]
        return near

    def _next(self, left: Flags, met: Numbers, end: str, other: str, *, by_column: bool) -> Numbers:
        """Edges that go on from where some have led, at the same snapshot where both say one."""
        names, columns, snapshots = self._names, self._columns, self._snapshots
        near = self._at(end, np.unique(names.numbers(other)[met]))
        near = near[left[near]]
        here, there = names.numbers(end)[near], names.numbers(other)[met]
        if by_column:
            here = here * columns.count + columns.numbers(end)[near]
            there = there * columns.count + columns.numbers(other)[met]
        said, led = snapshots.numbers(end)[near], snapshots.numbers(other)[met]
        unsaid = snapshots.place_or_none("")
        exact = np.isin(_pairs(here, said, snapshots.count), _pairs(there, led, snapshots.count))
        loose = np.isin(here, there[led == unsaid])
        at_any = (said == unsaid) & np.isin(here, there)
        fits = exact | loose | at_any
        if by_column and end == "target":
            fits |= self._about_rows[near]
        return np.asarray(near[fits])

    def _listed(self, found: list[tuple[int, Numbers]]) -> pa.Table:
        if not found:
            return _FOUND.empty_table()
        order = np.concatenate([edges for _, edges in found])
        depths = np.concatenate([np.full(len(edges), level, np.int32) for level, edges in found])
        table = self.edges.take(pa.array(order)).add_column(0, _FOUND.field("depth"), pa.array(depths))
        return table.sort_by([("depth", "ascending"), *((key, "ascending") for key in EDGE_SCHEMA.names)])

    def split(self, name: str) -> tuple[str, str | None]:
        """`sales.orders.id` as thing and column, where only `sales.orders` is the end of an edge; else the name."""
        thing, dot, column = name.rpartition(".")
        if not dot or not column or self._knows(name) or not self._knows(thing):
            return name, None
        return thing, column

    def _knows(self, name: str) -> bool:
        return self._names.place(name) is not None

    # -- numbers -----------------------------------------------------------------------------------------------------

    @cached_property
    def _names(self) -> _Texts:
        return _Texts(self.edges, "")

    @cached_property
    def _columns(self) -> _Texts:
        return _Texts(self.edges, "_column")

    @cached_property
    def _snapshots(self) -> _Texts:
        return _Texts(self.edges, "_snapshot")

    def _at(self, end: str, places: Numbers) -> Numbers:
        """The edges whose end has one of these names."""
        order, starts = self._by_source if end == "source" else self._by_target
        first, past = starts[places], starts[places + 1]
        lengths = past - first
        offsets = np.repeat(first - (np.cumsum(lengths) - lengths), lengths)
        return order[offsets + np.arange(int(lengths.sum()))]

    @cached_property
    def _by_source(self) -> tuple[Numbers, Numbers]:
        return self._index("source")

    @cached_property
    def _by_target(self) -> tuple[Numbers, Numbers]:
        return self._index("target")

    def _index(self, end: str) -> tuple[Numbers, Numbers]:
        numbers = self._names.numbers(end)
        order = np.argsort(numbers, kind="stable")
        counts = np.bincount(numbers, minlength=self._names.count)
        return order, np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])

    @cached_property
    def _about_rows(self) -> Flags:
        """Which edges lead from a column to a whole table."""
        return np.asarray(self._columns.numbers("target") == self._columns.place_or_none(""))

    @cached_property
    def _between_tables(self) -> Flags:
        empty = self._columns.place_or_none("")
        whole = (self._columns.numbers("source") == empty) & (self._columns.numbers("target") == empty)
        if whole.all():
            return np.asarray(whole)
        ends = _pairs(self._names.numbers("source"), self._names.numbers("target"), self._names.count)
        ends = _pairs(_dense(ends), self._snapshots.numbers("source"), self._snapshots.count)
        ends = _pairs(_dense(ends), self._snapshots.numbers("target"), self._snapshots.count)
        return np.asarray(whole | ~np.isin(ends, ends[whole]))

    def _between_columns(self, indirect: bool) -> Flags:
        fine = self._columns.numbers("source") != self._columns.place_or_none("")
        return np.asarray(fine if indirect else fine & ~self._about_rows)


class _Texts:
    """The texts of both ends of edges, as numbers of one dictionary."""

    def __init__(self, edges: pa.Table, suffix: str) -> None:
        columns = [pa.chunked_array(edges.column(f"{end}{suffix}")).combine_chunks() for end in _ENDS]
        encoded = pa.concat_arrays(columns).dictionary_encode()
        numbers = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        self._texts: pa.Array = encoded.dictionary
        self._of_end: dict[str, Numbers] = {"source": numbers[: len(edges)], "target": numbers[len(edges) :]}

    @property
    def count(self) -> int:
        return max(1, len(self._texts))

    def numbers(self, end: str) -> Numbers:
        return self._of_end[end]

    def place(self, text: str) -> int | None:
        found: int = pc.index(self._texts, text).as_py()
        return None if found < 0 else found

    def place_or_none(self, text: str) -> int:
        """A number that no edge has, where no edge has the text."""
        found = self.place(text)
        return -1 if found is None else found


def _pairs(first: Numbers, second: Numbers, count: int) -> Numbers:
    """One number for two."""
    return np.asarray(first * count + second)


def _dense(numbers: Numbers) -> Numbers:
    """Small numbers, as many as there are different ones: so that another can be put behind them."""
    return np.asarray(np.unique(numbers, return_inverse=True)[1], np.int64)
