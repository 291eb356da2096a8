"""`holdfast catalog ls`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.catalog_call import CatalogCall, at_option, moment_or_none, workspace_and_rest
from holdfast.cli.catalog_find import rows_where
from holdfast.cli.graph_call import limit_option, shown_count
from holdfast.cli.graph_shapes import text
from holdfast.cli.output import Column, Command, Line, Part, Table, View
from holdfast.cli.values import json_value
from holdfast.cli.words import count, time_text
from holdfast.errors import NotFound

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["command"]

_DESCRIPTION = Column(title="description", least=12)
_NAMESPACES = (Column(title="namespace", keep="middle", least=12), Column(title="tables", right=True), _DESCRIPTION)
_TABLES = (
    Column(title="table", keep="middle", least=12),
    Column(title="kind", least=5),
    Column(title="columns", right=True),
    _DESCRIPTION,
)
_DATASETS = (
    Column(title="data set", keep="middle", least=12),
    Column(title="kind", least=5),
    Column(title="rows", right=True),
    Column(title="snapshots", right=True),
    Column(title="moved_at (UTC)"),
    _DESCRIPTION,
)
_NEEDS = ("namespaces", "tables", "datasets", "snapshots")


@click.command(name="ls")
@click.argument("words", nargs=-1, metavar="[WORKSPACE] [NAMESPACE]")
@limit_option
@at_option
def command(words: tuple[str, ...], limit: int | None, at: str | None, as_json: bool) -> None:
    """List namespaces and data sets, or the tables of a namespace.

    Where a workspace is configured, the first word is a URL only if it has a scheme, such as s3://, or begins with /,
    ./, ../ or ~.

    JSON: totals (namespaces, tables, datasets), namespaces (namespace, tables, description, owner) and datasets
    (dataset, kind, rows, bytes, snapshots, manifest_id, moved_at, move, description); or namespace, total and tables
    (table, kind, columns, description, owner, location).

    \b
    Examples:
      holdfast catalog ls ./lake/acme/prod
      holdfast catalog ls ./lake/acme/prod sales
      holdfast catalog ls s3://bucket/lake/acme/prod --at 2026-11-15 --json
    """
    from holdfast.catalog.reading import read_tables

    url, rest = workspace_and_rest(words, most=1)
    moment = moment_or_none(at)
    call = CatalogCall(url, as_json=as_json)
    there = read_tables(call.workspace, "catalog", _NEEDS, at=moment)
    view = _namespace(call, there, rest[0], limit) if rest else _everything(call, there, limit)
    call.output.show(view)


def _everything(call: CatalogCall, there: Mapping[str, pa.Table], limit: int | None) -> View:
    namespaces, datasets = _namespaces_of(there), _datasets_of(there)
    totals = {"namespaces": len(namespaces), "tables": len(there["tables"]), "datasets": len(datasets)}
    shown = [
        table.slice(0, shown_count(limit, as_json=call.as_json, total=len(table))).to_pylist()
        for table in (namespaces, datasets)
    ]
    data = call.document("catalog ls", totals=totals, namespaces=json_value(shown[0]), datasets=json_value(shown[1]))
    parts: list[Part] = []
    if shown[0]:
        rows = [(text(row["namespace"]), f"{row['tables']:,}", text(row["description"])) for row in shown[0]]
        parts += [Table(_NAMESPACES, rows, more=len(namespaces) - len(rows), how="--limit N shows more"), Line("")]
    if shown[1]:
        cells = [_dataset_cells(row) for row in shown[1]]
        parts += [Table(_DATASETS, cells, more=len(datasets) - len(cells), how="--limit N shows more"), Line("")]
    if not any(totals.values()):
        parts = [Line("Nothing is here yet."), Command("begin", call.again("catalog register", "NAMESPACE"))]
    else:
        words = [count(totals[name], noun) for name, noun in _NOUNS.items()]
        parts.append(Line(", ".join(words), style="dim"))
    return View(data=data, parts=parts)


_NOUNS = {"namespaces": "namespace", "tables": "table", "datasets": "data set"}


def _namespaces_of(there: Mapping[str, pa.Table]) -> pa.Table:
    """Also those that only tables speak of: whoever told of the tables may not have told of their namespace yet."""
    import pyarrow.compute as pc

    counts = there["tables"].group_by(["namespace"], use_threads=False).aggregate([("table", "count")])
    said = there["namespaces"].select(["namespace", "description", "owner"])
    joined = said.join(counts, ["namespace"], join_type="full outer", use_threads=False).sort_by("namespace")
    numbers = pc.fill_null(joined["table_count"], 0)
    return joined.drop_columns(["table_count"]).add_column(1, "tables", numbers)


def _datasets_of(there: Mapping[str, pa.Table]) -> pa.Table:
    import pyarrow.compute as pc

    from holdfast.catalog.system_tables import SYSTEM_TABLES

    visible = SYSTEM_TABLES["datasets"].make(there)
    names = ["dataset", "kind", "row_count", "byte_size", "manifest_id", "moved_at", "move", "description"]
    renamed = visible.select(names).rename_columns(
        [{"row_count": "rows", "byte_size": "bytes"}.get(n, n) for n in names]
    )
    counts = there["snapshots"].group_by(["dataset"], use_threads=False).aggregate([("manifest_id", "count")])
    joined = renamed.join(counts, ["dataset"], join_type="left outer", use_threads=False).sort_by("dataset")
    numbers = pc.fill_null(joined["manifest_id_count"], 0)
    return joined.drop_columns(["manifest_id_count"]).append_column("snapshots", numbers)


def _dataset_cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        text(row["dataset"]),
        text(row["kind"]),
        "" if row["rows"] is None else f"{row['rows']:,}",
        f"{row['snapshots']:,}",
        time_text(row["moved_at"]),
        text(row["description"]),
    )


def _namespace(call: CatalogCall, there: Mapping[str, pa.Table], namespace: str, limit: int | None) -> View:
    import pyarrow.compute as pc

    inside = rows_where(there["tables"], namespace=namespace).sort_by("table")
    if not len(inside) and not len(rows_where(there["namespaces"], namespace=namespace)):
        raise NotFound(f"there is no namespace {namespace!r}; `{call.again('catalog ls')}` lists them")
    widths = pc.fill_null(pc.list_value_length(inside["columns"]), 0)
    names = ["table", "kind", "description", "owner", "location"]
    found = inside.select(names).add_column(2, "columns", widths)
    rows = found.slice(0, shown_count(limit, as_json=call.as_json, total=len(found))).to_pylist()
    data = call.document("catalog ls", namespace=namespace, total=len(found), tables=rows)
    cells = [(text(row["table"]), text(row["kind"]), f"{row['columns']:,}", text(row["description"])) for row in rows]
    total = Line(count(len(found), "table"), style="dim")
    table = Table(_TABLES, cells, more=len(found) - len(cells), how="--limit N shows more")
    parts: list[Part] = [table, Line(""), total] if rows else [Line(f"Namespace {text(namespace)} has no tables.")]
    return View(data=data, parts=parts)
