"""`holdfast catalog lineage`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from holdfast.cli.catalog_call import CatalogCall, at_option, moment_or_none, workspace_and
from holdfast.cli.graph_call import limit_option, shown_count
from holdfast.cli.graph_shapes import answer_parts, text
from holdfast.cli.output import Column, Line, View
from holdfast.errors import BadInput

__all__ = ["command", "end_text"]

_COLUMNS = (
    Column(title="depth", right=True),
    Column(title="from", keep="middle", least=14),
    Column(title="to", keep="middle", least=14),
    Column(title="kind", least=14),
    Column(title="run_id", keep="middle", least=8),
)


@click.command(name="lineage")
@click.argument("words", nargs=-1, metavar="[WORKSPACE] NAME[.COLUMN]")
@click.option("--downstream", is_flag=True, help="What was made from it, instead of what it was made from.")
@click.option("--column", metavar="NAME", help="Only of this column; as good as NAME.COLUMN.")
@click.option("--columns", is_flag=True, help="Column by column, of all its columns, instead of whole tables.")
@click.option(
    "--indirect",
    is_flag=True,
    help="With columns: also those that decide about rows, by a filter, join, group or sort.",
)
@click.option("--snapshot", metavar="N", help="Only of this snapshot of it.")
@click.option("--depth", default="1", show_default=True, metavar="N|all", help="How far to follow; all for all.")
@limit_option
@at_option
def command(
    words: tuple[str, ...],
    downstream: bool,
    column: str | None,
    columns: bool,
    indirect: bool,
    snapshot: str | None,
    depth: str,
    limit: int | None,
    at: str | None,
    as_json: bool,
) -> None:
    """Show what a table or data set was made from, or what was made from it.

    From edges that were reported, and from the snapshots that every published data set pins. An end is shown as
    NAME, NAME:COLUMN, or NAME@SNAPSHOT. How one column is made of another is its kind: identity, transformation or
    aggregation, or conditional or window where it only decides. `register-lineage` tells lineage from SQL.

    JSON: name, column (null for all of it), direction, total, edges (depth, source, target, source_column,
    target_column, source_snapshot, target_snapshot, kind, run_id; empty text for what is not known).

    \b
    Examples:
      holdfast catalog lineage ./lake/acme/prod sales.orders
      holdfast catalog lineage ./lake/acme/prod users --downstream --depth all
      holdfast catalog lineage ./lake/acme/prod sales.orders --columns
      holdfast catalog lineage ./lake/acme/prod sales.orders.total --depth all
      holdfast catalog lineage s3://bucket/lake/acme/prod users --snapshot 7 --json
    """
    from holdfast.catalog.lineage import load_lineage

    url, (name,) = workspace_and(words, 1, "[WORKSPACE] NAME[.COLUMN]")
    moment, levels = moment_or_none(at), _depth(depth)
    call = CatalogCall(url, as_json=as_json)
    end = "source" if downstream else "target"
    graph = load_lineage(call.workspace, at=moment)
    if column is None and not columns:
        name, column = graph.split(name)
    if indirect and column is None and not columns:
        raise BadInput("--indirect is about columns; give --columns, or NAME.COLUMN")
    found = graph.walk(name, end, column=column, columns=columns, indirect=indirect, snapshot=snapshot, depth=levels)
    total = len(found)
    rows = found.slice(0, shown_count(limit, as_json=as_json, total=total)).to_pylist()
    data = call.document(
        "catalog lineage",
        name=name,
        column=column,
        direction="downstream" if downstream else "upstream",
        total=total,
        edges=rows,
    )
    parts = answer_parts(_COLUMNS, rows, _cells, total=total, noun="edge")
    if not total:
        thing = text(name) + (f":{text(column)}" if column else "")
        of = "the columns of " if columns and column is None else ""
        made = f"was made from {of}{thing}" if downstream else f"{of}{thing} {'were' if of else 'was'} made from"
        parts = [Line(f"It is not known what {made}.")]
    call.output.show(View(data=data, parts=parts))


def end_text(edge: Mapping[str, Any], end: str) -> str:
    """One end of an edge: `orders`, `orders:id`, `orders@7`."""
    column, snapshot = edge[f"{end}_column"], edge[f"{end}_snapshot"]
    return text(edge[end]) + (f":{text(column)}" if column else "") + (f"@{text(snapshot)}" if snapshot else "")


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    return str(row["depth"]), end_text(row, "source"), end_text(row, "target"), text(row["kind"]), text(row["run_id"])


def _depth(word: str) -> int | None:
    if word == "all":
        return None
    if not (word.isascii() and word.isdigit()) or int(word) < 1:
        raise BadInput(f"--depth {word!r} leads nowhere: use 1 or more, or all")
    return int(word)
