"""Telling a workspace what SQL says about a table's lineage (C28).

What a statement says replaces what one said before: edges of SQL that no longer hold are taken out by an event of their
own, and edges that somebody reported otherwise, or that manifests pin, stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

import pyarrow.compute as pc

from holdfast.catalog.column_lineage import DIALECT, SqlLineage, column_lineage, is_sql_kind, table_inputs
from holdfast.catalog.compactor import Compaction, Compactor
from holdfast.catalog.events import EventDraft
from holdfast.catalog.payloads import Edge, LineageEdgesAdded, LineageEdgesRemoved
from holdfast.catalog.reading import read_tables
from holdfast.catalog.workspace import Workspace

__all__ = ["EDGES_A_EVENT", "known_schemas", "lineage_drafts", "sql_lineage", "tell_lineage"]

EDGES_A_EVENT = 500
"""How many edges one event holds: it has a largest size, and names may be long."""


def sql_lineage(workspace: Workspace, sql: str, output: str, *, dialect: str = DIALECT) -> SqlLineage:
    """What a statement says, with the columns that the catalog knows of the tables in it."""
    names = [*table_inputs(sql, dialect=dialect), output]
    return column_lineage(sql, known_schemas(workspace, names), output, dialect=dialect)


def known_schemas(workspace: Workspace, names: Iterable[str]) -> dict[str, list[str]]:
    """The columns of tables (`namespace.table`) and data sets, as far as the catalog knows them; names in any case."""
    wanted = {name.lower() for name in names}
    there = read_tables(workspace, "catalog", ["tables", "datasets", "snapshots"])
    found: dict[str, list[str]] = {}
    for row in there["tables"].select(["namespace", "table", "columns"]).to_pylist():
        name = f"{row['namespace']}.{row['table']}"
        if name.lower() in wanted:
            found[name] = [column["name"] for column in row["columns"] or []]
    visible = dict(zip(*(there["datasets"][name].to_pylist() for name in ("dataset", "manifest_id")), strict=True))
    ids = there["snapshots"].select(["dataset", "manifest_id"]).to_pylist()
    for place, row in enumerate(ids):
        name = row["dataset"]
        if name.lower() in wanted and visible.get(name) == row["manifest_id"]:
            columns = there["snapshots"]["columns"][place].as_py() or []
            found[name] = [column["name"] for column in columns]
    return {name: names for name, names in found.items() if names}


def tell_lineage(
    workspace: Workspace, found: SqlLineage, *, run_id: str = "", key: str | None = None
) -> Compaction | None:
    """Append what a statement says, and fold it; None if all of it was known already."""
    drafts = lineage_drafts(workspace, found, run_id=run_id, key=key)
    if not drafts:
        return None
    receipts = workspace.ledger("lineage").append_many(drafts)
    return Compactor(workspace, "lineage").compact([receipt.path for receipt in receipts])


def lineage_drafts(
    workspace: Workspace, found: SqlLineage, *, run_id: str = "", key: str | None = None
) -> list[EventDraft]:
    """The events that make the workspace know what a statement says, and no more than that, of its output.

    `key` names them: the same call with the same key is told once, whoever repeats it.
    """
    edges = read_tables(workspace, "lineage", ["edges"])["edges"]
    rows = edges.filter(pc.equal(edges["target"], found.output)).to_pylist()
    there = {_ends(row): row for row in rows if is_sql_kind(row["kind"]) and not row["target_snapshot"]}
    said = {_ends(edge.to_json()): edge for edge in found.edges}
    gone = [
        Edge(source=row["source"], target=row["target"], source_column=row["source_column"] or None,
             target_column=row["target_column"] or None, kind=row["kind"])
        for ends, row in there.items() if ends not in said
    ]  # fmt: skip
    new = [
        edge
        for ends, edge in said.items()
        if ends not in there or (there[ends]["kind"], there[ends]["run_id"]) != (edge.kind, run_id)
    ]
    # Without a key of its own, edges that are told, taken out and told again would be the first event once more.
    own = key or f"lineage/{workspace.randomness.bits(96):024x}"
    payloads = [
        *(LineageEdgesRemoved(edges=part, run_id=run_id) for part in _parts(gone)),
        *(LineageEdgesAdded(edges=part, run_id=run_id) for part in _parts(new)),
    ]
    return [EventDraft(payload=one, idempotency_key=f"{own}/{EventDraft(payload=one).key}") for one in payloads]


def _ends(edge: object) -> tuple[str, str, str]:
    assert isinstance(edge, dict)
    return edge["source"], edge.get("source_column") or "", edge.get("target_column") or ""


def _parts(edges: Sequence[Edge]) -> list[tuple[Edge, ...]]:
    rest = iter(edges)
    return list(iter(lambda: tuple(islice(rest, EDGES_A_EVENT)), ()))
