"""`holdfast catalog show`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.catalog_call import CatalogCall, at_option, moment_or_none, workspace_and
from holdfast.cli.catalog_find import KINDS, find_named, mapping, rows_where
from holdfast.cli.catalog_lineage import end_text
from holdfast.cli.graph_shapes import text
from holdfast.cli.output import Column, Facts, Line, Part, Table, View
from holdfast.cli.values import json_value
from holdfast.cli.words import count, size_text, tags_text, time_text

if TYPE_CHECKING:
    from datetime import datetime

    import pyarrow as pa

__all__ = ["command"]

_SHOWN = 50
_COLUMNS = (
    Column(title="column", keep="middle", least=12),
    Column(title="type", least=8),
    Column(title="null"),
    Column(title="description", least=12),
)
_TABLES = (Column(title="table", keep="middle", least=12), Column(title="columns", right=True))
_INPUTS = (Column(title="made from", keep="middle", least=16), Column(title="kind", least=8))
_SNAPSHOTS = (
    Column(title="snapshot", right=True),
    Column(title="published_at (UTC)"),
    Column(title="run_id", keep="middle", least=10),
    Column(title="rows", right=True),
    Column(title="size", right=True),
    Column(title="visible"),
)
_NEEDS = ("namespaces", "tables", "datasets", "snapshots")


@click.command(name="show")
@click.argument("words", nargs=-1, metavar="[WORKSPACE] NAME")
@click.option("--kind", type=click.Choice(KINDS), help="Which, where several things have this name.")
@at_option
def command(words: tuple[str, ...], kind: str | None, at: str | None, as_json: bool) -> None:
    """Show all that is known of a namespace, a table or a data set.

    JSON: kind, name, description, and of a namespace owner, properties, tables (table, columns); of a table owner,
    table_kind, location, tags, properties, columns (name, type, nullable, description, tags), inputs; of a data set
    chain, dataset_kind, manifest_id, ref, run_id, moved_at, move, why, rows, bytes, tags, columns, inputs, snapshots
    (manifest_id, ref, run_id, published_at, rows, bytes, description, visible). Inputs are edges as in `lineage`.

    \b
    Examples:
      holdfast catalog show ./lake/acme/prod sales.orders
      holdfast catalog show ./lake/acme/prod users --kind dataset --json
      holdfast catalog show s3://bucket/lake/acme/prod sales --at 2026-11-15
    """
    from holdfast.catalog.reading import read_tables

    url, (name,) = workspace_and(words, 1, "[WORKSPACE] NAME")
    moment = moment_or_none(at)
    call = CatalogCall(url, as_json=as_json)
    there = read_tables(call.workspace, "catalog", _NEEDS, at=moment)
    found = find_named(there, name, KINDS if kind is None else (kind,))
    if found.kind == "namespace":
        known, parts = _namespace(there, found.row)
    elif found.kind == "table":
        known, parts = _table(found.row, _inputs(call, name, moment, None))
    else:
        known, parts = _dataset(there, found.row, _inputs(call, name, moment, found.row["manifest_id"]))
    data = call.document("catalog show", kind=found.kind, name=name, **known)
    call.output.show(View(data=data, parts=parts))


Shown = tuple[dict[str, object], list[Part]]


def _facts(*pairs: tuple[str, str]) -> Facts:
    """What there is to say."""
    return Facts([(name, value) for name, value in pairs if value])


def _namespace(there: Mapping[str, pa.Table], row: Mapping[str, Any]) -> Shown:
    import pyarrow.compute as pc

    inside = rows_where(there["tables"], namespace=row["namespace"]).sort_by("table")
    widths = pc.fill_null(pc.list_value_length(inside["columns"]), 0)
    tables = inside.select(["table"]).append_column("columns", widths).to_pylist()
    properties = mapping(row["properties"])
    parts: list[Part] = [
        _facts(
            ("namespace", text(row["namespace"])),
            ("description", text(row["description"])),
            ("owner", text(row["owner"])),
            ("properties", text(tags_text(properties))),
            ("holds", count(len(tables), "table")),
        )
    ]
    cells = [(text(one["table"]), f"{one['columns']:,}") for one in tables[:_SHOWN]]
    parts += _below(_TABLES, cells, len(tables))
    known = {"description": row["description"], "owner": row["owner"], "properties": properties, "tables": tables}
    return known, parts


def _table(row: Mapping[str, Any], inputs: list[dict[str, Any]]) -> Shown:
    columns, tags, properties = _columns_json(row), mapping(row["tags"]), mapping(row["properties"])
    parts: list[Part] = [
        _facts(
            ("table", text(f"{row['namespace']}.{row['table']}")),
            ("kind", text(row["kind"])),
            ("description", text(row["description"])),
            ("owner", text(row["owner"])),
            ("location", text(row["location"])),
            ("tags", text(tags_text(tags))),
            ("properties", text(tags_text(properties))),
        ),
        *_columns_parts(columns),
        *_inputs_parts(inputs),
    ]
    known = {
        "description": row["description"],
        "owner": row["owner"],
        "table_kind": row["kind"],
        "location": row["location"],
        "tags": tags,
        "properties": properties,
        "columns": columns,
        "inputs": inputs,
    }
    return known, parts


def _dataset(there: Mapping[str, pa.Table], row: Mapping[str, Any], inputs: list[dict[str, Any]]) -> Shown:
    every = rows_where(there["snapshots"], dataset=row["dataset"]).sort_by([("manifest_id", "descending")])
    known_of = rows_where(every, manifest_id=row["manifest_id"]).to_pylist()
    said: Mapping[str, Any] = known_of[0] if known_of else dict.fromkeys(every.column_names)
    names = ["manifest_id", "ref", "run_id", "published_at", "row_count", "byte_size", "description"]
    spelled = {"row_count": "rows", "byte_size": "bytes"}
    snapshots: list[dict[str, Any]] = [
        {**one, "visible": one["manifest_id"] == row["manifest_id"]}
        for one in every.select(names).rename_columns([spelled.get(name, name) for name in names]).to_pylist()
    ]
    columns, tags = _columns_json(said), mapping(said["tags"])
    visible = f"{row['manifest_id']}, {row['move']} {time_text(row['moved_at'])} UTC"
    parts: list[Part] = [
        _facts(
            ("data set", text(row["dataset"])),
            ("kind", text(said["kind"])),
            ("chain", text(row["chain"])),
            ("description", text(said["description"])),
            ("snapshot", visible),
            ("why", text(row["why"])),
            ("run", text(said["run_id"])),
            ("holds", "" if said["row_count"] is None else _holds(said)),
            ("tags", text(tags_text(tags))),
        ),
        *_columns_parts(columns),
        *_inputs_parts(inputs),
        *_below(_SNAPSHOTS, [_snapshot_cells(one) for one in snapshots[:_SHOWN]], len(snapshots)),
    ]
    known = {
        "description": said["description"],
        "chain": row["chain"],
        "dataset_kind": said["kind"],
        "manifest_id": row["manifest_id"],
        "ref": row["ref"],
        "run_id": said["run_id"],
        "moved_at": json_value(row["moved_at"]),
        "move": row["move"],
        "why": row["why"],
        "rows": said["row_count"],
        "bytes": said["byte_size"],
        "tags": tags,
        "columns": columns,
        "inputs": inputs,
        "snapshots": json_value(snapshots),
    }
    return known, parts


def _holds(said: Mapping[str, Any]) -> str:
    return f"{count(said['row_count'], 'row')}, {size_text(said['byte_size'])}"


def _snapshot_cells(one: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        str(one["manifest_id"]),
        time_text(one["published_at"]),
        text(one["run_id"]),
        f"{one['rows']:,}",
        size_text(one["bytes"]),
        "yes" if one["visible"] else "",
    )


def _columns_json(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{**column, "tags": mapping(column["tags"])} for column in row["columns"] or []]


def _columns_parts(columns: list[dict[str, Any]]) -> list[Part]:
    cells = [
        (text(one["name"]), text(one["type"]), "" if one["nullable"] else "never", text(one["description"]))
        for one in columns[:_SHOWN]
    ]
    return _below(_COLUMNS, cells, len(columns))


def _inputs(call: CatalogCall, name: str, moment: datetime | None, snapshot: int | None) -> list[dict[str, Any]]:
    """What it was made from; of a data set, what the visible snapshot was."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from holdfast.catalog.lineage import upstream

    edges = upstream(call.workspace, name, at=moment)
    if snapshot is not None:
        edges = edges.filter(pc.is_in(edges["target_snapshot"], value_set=pa.array(["", str(snapshot)])))
    return [dict(row) for row in edges.drop_columns(["depth"]).to_pylist()]


def _inputs_parts(inputs: list[dict[str, Any]]) -> list[Part]:
    return _below(_INPUTS, [(end_text(one, "source"), text(one["kind"])) for one in inputs[:_SHOWN]], len(inputs))


def _below(columns: tuple[Column, ...], cells: Sequence[Sequence[str]], total: int) -> list[Part]:
    return [Line(""), Table(columns, cells, more=total - len(cells))] if cells else []
