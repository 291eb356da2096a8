"""`holdfast catalog sql`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from holdfast.cli.catalog_call import CatalogCall, at_option, catalog_extra, moment_or_none, workspace_and
from holdfast.cli.graph_shapes import text
from holdfast.cli.output import Column, Line, Part, Table, View
from holdfast.cli.values import json_value
from holdfast.cli.words import count

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["command"]

_ROWS_MAX = 100_000
_SHOWN = 200
_LEAST = 6


@click.command(name="sql")
@click.argument("words", nargs=-1, metavar="[WORKSPACE] QUESTION")
@click.option(
    "--limit-rows",
    type=click.IntRange(min=1),
    default=_ROWS_MAX,
    show_default=True,
    metavar="N",
    help="How many rows an answer may have; one with more is refused.",
)
@at_option
def command(words: tuple[str, ...], limit_rows: int, at: str | None, as_json: bool) -> None:
    """Ask the catalog in SQL.

    One SELECT, in DuckDB's SQL, over system.namespaces, tables, columns, datasets, dataset_snapshots, inputs, edges,
    runs, tasks, materializations, pipelines, schedules, pipeline_runs, pipeline_tasks, quarantine and commits. Only
    the domains that it names are read, and nothing can be changed. With --at the tables are as they were then, except
    commits: those are history.

    JSON: columns (name, type), rows (lists of values, in the order of the columns), total.

    \b
    Examples:
      holdfast catalog sql ./lake/acme/prod 'SELECT namespace, count(*) FROM system.tables GROUP BY 1'
      holdfast catalog sql ./lake/acme/prod 'SELECT * FROM system.runs' --limit-rows 500 --json
    """
    from holdfast.catalog.sql import QueryLimits, query

    url, (statement,) = workspace_and(words, 1, "[WORKSPACE] QUESTION")
    moment = moment_or_none(at)
    call = CatalogCall(url, as_json=as_json)
    with catalog_extra(), call.output.progress("asking"):
        answer = query(call.workspace, statement, at=moment, limits=QueryLimits(rows=limit_rows))
    shown = len(answer) if as_json else min(_SHOWN, len(answer))
    rows = _rows(answer.slice(0, shown))
    data = call.document(
        "catalog sql",
        columns=[{"name": field.name, "type": str(field.type)} for field in answer.schema],
        rows=json_value(rows) if as_json else [],
        total=len(answer),
    )
    call.output.show(View(data=data, parts=_parts(answer, rows)))


def _rows(table: pa.Table) -> list[list[object]]:
    """By place, not by name: SQL may give two columns the same one."""
    return [list(row) for row in zip(*(column.to_pylist() for column in table.columns), strict=True)]


def _parts(answer: pa.Table, rows: Sequence[Sequence[object]]) -> list[Part]:
    import pyarrow as pa

    numbers = [
        pa.types.is_integer(field.type) or pa.types.is_floating(field.type) or pa.types.is_decimal(field.type)
        for field in answer.schema
    ]
    columns = [
        Column(title=text(field.name), keep="middle", least=None if number else _LEAST, right=number)
        for field, number in zip(answer.schema, numbers, strict=True)
    ]
    cells = [[text(value) for value in row] for row in rows]
    table = Table(columns, cells, more=len(answer) - len(cells))
    return [table, Line(""), Line(count(len(answer), "row"), style="dim")]
