"""Lineage: what a thing was made from, and what was made from it, to any depth, at any snapshot (C28).

    upstream(workspace, "orders", depth=3).to_pylist()

Two sources say the same kind of thing and are asked together: edges that somebody reported, and the input snapshots
that every published data set pins in its own manifest.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.catalog.lineage_graph import DEPTH_DEFAULT, EDGE_SCHEMA, LineageGraph
from holdfast.catalog.reading import read_tables
from holdfast.catalog.system_tables import SYSTEM_TABLES
from holdfast.catalog.workspace import Workspace

__all__ = ["downstream", "load_lineage", "upstream"]

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
    reported = read_tables(workspace, "lineage", ["edges"], at=at)["edges"].select(EDGE_SCHEMA.names).cast(EDGE_SCHEMA)
    snapshots = read_tables(workspace, "catalog", ["snapshots"], at=at)
    return LineageGraph(pa.concat_tables([reported, _pinned(snapshots)]))


def _pinned(tables: Mapping[str, pa.Table]) -> pa.Table:
    """The inputs of every published snapshot, as edges between data sets."""
    inputs = SYSTEM_TABLES["inputs"].make(tables)
    if not len(inputs):
        return EDGE_SCHEMA.empty_table()
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
        schema=EDGE_SCHEMA,
    )
