"""Lineage: what a thing was made from, and what was made from it, to any depth, at any snapshot (C28).

    upstream(workspace, "orders", depth=3).to_pylist()

Two sources say the same kind of thing and are asked together: edges that somebody reported, and the input snapshots
that every published data set pins in its own manifest. Whole frontiers are followed at once over Arrow columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.catalog.reading import read_tables
from holdfast.catalog.system_tables import SYSTEM_TABLES
from holdfast.catalog.workspace import Workspace
from holdfast.errors import BadInput

__all__ = ["LineageGraph", "downstream", "load_lineage", "upstream"]

DEPTH_DEFAULT = 1
_ENDS = ("source", "target")
_EDGE = pa.schema(
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
_FOUND = pa.schema([("depth", pa.int32()), *_EDGE])
PINNED = "pinned"
"""The kind of an edge that a manifest says."""


def upstream(
    workspace: Workspace,
    name: str,
    *,
    column: str | None = None,
    columns: bool = False,
    indirect: bool = False,
    snapshot: str | None = None,
    depth: int | None = DEPTH_DEFAULT,
    at: datetime | None = None,
) -> pa.Table:
    """The edges by which a thing, or one column of it, or one snapshot of it, was made; nearest first."""
    graph = load_lineage(workspace, at=at)
    return graph.walk(name, "target", column=column, columns=columns, indirect=indirect, snapshot=snapshot, depth=depth)


def downstream(
    workspace: Workspace,
    name: str,
    *,
    column: str | None = None,
    columns: bool = False,
    indirect: bool = False,
    snapshot: str | None = None,
    depth: int | None = DEPTH_DEFAULT,
    at: datetime | None = None,
) -> pa.Table:
    """The edges by which other things were made from it; nearest first."""
    graph = load_lineage(workspace, at=at)
    return graph.walk(name, "source", column=column, columns=columns, indirect=indirect, snapshot=snapshot, depth=depth)


def load_lineage(workspace: Workspace, *, at: datetime | None = None) -> LineageGraph:
    """All edges that are there, now or at a time."""
    reported = read_tables(workspace, "lineage", ["edges"], at=at)["edges"].select(_EDGE.names).cast(_EDGE)
    snapshots = read_tables(workspace, "catalog", ["snapshots"], at=at)
    return LineageGraph(edges=pa.concat_tables([reported, _pinned(snapshots)]))


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageGraph:
    """Edges, asked many times."""

    edges: pa.Table

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
        left = self._between_columns(indirect) if by_column else self._between_tables()
        keys = [end, f"{end}_column"] if by_column else [end]
        first = pc.equal(left[end], name)
        if column is not None:
            here = pc.equal(left[f"{end}_column"], column)
            first = pc.and_(first, pc.or_(here, _about_rows(left)) if end == "target" else here)
        if snapshot is not None:
            first = pc.and_(first, pc.equal(left[f"{end}_snapshot"], snapshot))
        found: list[pa.Table] = [_FOUND.empty_table()]
        level = 1
        while depth is None or level <= depth:
            met = left.filter(first)
            if not len(met):
                break
            found.append(met.add_column(0, _FOUND.field("depth"), pa.array([level] * len(met), pa.int32())))
            left = left.filter(pc.invert(first))
            first = _starts_at(left, keys, met, other)
            if by_column and end == "target":
                reached = pc.is_in(left["target"], value_set=met["source"].combine_chunks())
                first = pc.or_(first, pc.and_(_about_rows(left), reached))
            level += 1
        return pa.concat_tables(found).sort_by([("depth", "ascending"), *((key, "ascending") for key in _EDGE.names)])

    def split(self, name: str) -> tuple[str, str | None]:
        """`sales.orders.id` as thing and column, where only `sales.orders` is the end of an edge; else the name."""
        thing, dot, column = name.rpartition(".")
        if not dot or not column or self._knows(name) or not self._knows(thing):
            return name, None
        return thing, column

    def _knows(self, name: str) -> bool:
        return any(pc.any(pc.equal(self.edges[end], name)).as_py() for end in _ENDS)

    def _between_tables(self) -> pa.Table:
        ends = ["source", "target", "source_snapshot", "target_snapshot"]
        whole = pc.and_(*(pc.equal(self.edges[f"{end}_column"], "") for end in _ENDS))
        told = pc.is_in(_joined(self.edges, ends), value_set=_joined(self.edges.filter(whole), ends))
        return self.edges.filter(pc.or_(whole, pc.invert(told)))

    def _between_columns(self, indirect: bool) -> pa.Table:
        edges = self.edges.filter(pc.not_equal(self.edges["source_column"], ""))
        return edges if indirect else edges.filter(pc.invert(_about_rows(edges)))


def _about_rows(edges: pa.Table) -> pa.ChunkedArray:
    """Which edges lead from a column to a whole table."""
    return pc.equal(edges["target_column"], "")


def _starts_at(left: pa.Table, keys: list[str], met: pa.Table, other: str) -> pa.ChunkedArray:
    """Which edges go on from where some have led, at the same snapshot where both say one."""
    names = [other, *(f"{other}_column" for _ in keys[1:])]
    wanted = _joined(met, [*names, f"{other}_snapshot"])
    exact = pc.is_in(_joined(left, [*keys, f"{keys[0]}_snapshot"]), value_set=wanted)
    any_snapshot = met.filter(pc.equal(met[f"{other}_snapshot"], ""))
    loose = pc.is_in(_joined(left, keys), value_set=_joined(any_snapshot, names))
    at_any = pc.is_in(_joined(left, keys), value_set=_joined(met, names))
    unsaid = pc.and_(pc.equal(left[f"{keys[0]}_snapshot"], ""), at_any)
    return pc.or_(pc.or_(exact, loose), unsaid)


def _joined(table: pa.Table, names: list[str]) -> pa.Array:
    """Several texts as one. Names have no control characters, so what separates them cannot be in them."""
    columns = [table[name].combine_chunks() for name in names]
    parts = [column if isinstance(column, pa.Array) else pa.concat_arrays(column.chunks) for column in columns]
    return pc.binary_join_element_wise(*parts, "\x00")


def _pinned(tables: Mapping[str, pa.Table]) -> pa.Table:
    """The inputs of every published snapshot, as edges between data sets."""
    inputs = SYSTEM_TABLES["inputs"].make(tables)
    if not len(inputs):
        return _EDGE.empty_table()
    chains = tables["snapshots"].select(["chain", "dataset"])
    known = chains.group_by(["chain"], use_threads=False).aggregate([("dataset", "max")])
    place = pc.index_in(inputs["chain"], value_set=known["chain"].combine_chunks())
    names = known["dataset_max"].combine_chunks().take(place.combine_chunks())
    source = pc.coalesce(names, inputs["chain"].combine_chunks())  # a chain outside of the workspace is its own name
    empty = pa.array([""] * len(inputs))
    return pa.table(
        [
            source,
            inputs["dataset"],
            empty,
            empty,
            inputs["manifest_id"].cast(pa.string()),
            inputs["built_manifest_id"].cast(pa.string()),
            pa.array([PINNED] * len(inputs)),
            empty,
        ],
        schema=_EDGE,
    )
