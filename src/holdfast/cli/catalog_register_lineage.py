"""`holdfast catalog register-lineage`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import IO, Any

import click

from holdfast.cli.call import by_option
from holdfast.cli.catalog_call import CatalogCall, catalog_extra, workspace_and
from holdfast.cli.catalog_lineage import end_text
from holdfast.cli.catalog_register import fresh_key
from holdfast.cli.graph_call import json_option
from holdfast.cli.graph_shapes import text
from holdfast.cli.output import Column, Command, Line, Part, Table, View
from holdfast.cli.words import count
from holdfast.errors import BadInput

__all__ = ["command"]

_COLUMNS = (
    Column(title="from", keep="middle", least=14),
    Column(title="to", keep="middle", least=14),
    Column(title="kind", least=14),
)
_SHOWN = 50


@click.command(name="register-lineage")
@click.argument("words", nargs=-1, metavar="[WORKSPACE] OUTPUT")
@click.option(
    "--sql",
    "file",
    type=click.File(encoding="utf-8"),
    metavar="FILE",
    help="The file with the statement that makes it; - reads it from standard input.",
)
@click.option("--statement", metavar="SQL", help="The statement itself, instead of a file.")
@click.option(
    "--dialect", default="spark", show_default=True, metavar="NAME", help="Whose SQL it is, as sqlglot names it."
)
@click.option("--run", "run_id", default="", metavar="RUN", help="The run that made it, if one did.")
@click.option("--dry-run", is_flag=True, help="Show what the statement says, and change nothing.")
@by_option
@json_option
def command(
    words: tuple[str, ...],
    file: IO[str] | None,
    statement: str | None,
    dialect: str,
    run_id: str,
    dry_run: bool,
    by: str | None,
    as_json: bool,
) -> None:
    """Tell, from a SQL statement, what a table or data set is made from.

    The statement is read, not run: SELECT, CREATE TABLE or VIEW … AS, or INSERT INTO. Columns of the tables in it are
    those that the catalog knows; where it knows none, lineage is told between tables, and a remark says so. What an
    earlier statement said of the same output, and this one does not, is taken out.

    JSON: output, told, inputs, columns, remarks, edges (source, target, source_column, target_column, kind),
    snapshot_version (null if nothing changed).

    \b
    Examples:
      holdfast catalog register-lineage ./lake/acme/prod sales.report --sql report.sql
      holdfast catalog register-lineage ./lake/acme/prod sales.ids --statement 'SELECT id FROM sales.orders'
      holdfast catalog register-lineage ./lake/acme/prod sales.report --sql report.sql --dry-run --json
      cat report.sql | holdfast catalog register-lineage s3://bucket/lake/acme/prod sales.report --sql -
    """
    url, (output,) = workspace_and(words, 1, "[WORKSPACE] OUTPUT")
    if (file is None) == (statement is None):
        raise BadInput("say how it is made: give --sql FILE or --statement SQL, one of them")
    sql = statement if file is None else file.read()
    assert sql is not None
    call = CatalogCall(url, as_json=as_json, by=by)
    with catalog_extra():
        from holdfast.catalog.column_lineage_told import sql_lineage, tell_lineage

        found = sql_lineage(call.workspace, sql, output, dialect=dialect)
    done = None if dry_run else tell_lineage(call.workspace, found, run_id=run_id, key=fresh_key(call.workspace))
    names = ("source", "target", "source_column", "target_column", "kind")
    edges: list[dict[str, Any]] = [{name: getattr(edge, name) or "" for name in names} for edge in found.edges]
    data = call.document(
        "catalog register-lineage",
        output=output,
        told=not dry_run,
        inputs=list(found.inputs),
        columns=list(found.columns),
        remarks=list(found.remarks),
        edges=edges,
        snapshot_version=None if done is None else done.snapshot_version,
    )
    tables = sum(not edge["source_column"] for edge in edges)
    summary = f"{count(tables, 'table')} and {count(len(edges) - tables, 'column edge')}"
    said = f"{text(output)} would be made from {summary}." if dry_run else f"{text(output)} is made from {summary}."
    parts: list[Part] = [Line(said)]
    parts += [Line(f"remark: {text(remark)}") for remark in found.remarks]
    if dry_run and edges:
        parts += [Line(""), Table(_COLUMNS, [_cells(one) for one in edges[:_SHOWN]], more=max(0, len(edges) - _SHOWN))]
    elif edges:
        parts.append(Command("look at it", call.again("catalog lineage", output, "--columns")))
    call.output.show(View(data=data, parts=parts))


def _cells(edge: Mapping[str, Any]) -> tuple[str, ...]:
    whole = {**edge, "source_snapshot": "", "target_snapshot": ""}
    return end_text(whole, "source"), end_text(whole, "target"), text(edge["kind"])
