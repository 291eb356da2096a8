"""`holdfast graph reach`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from holdfast.cli.graph_call import GraphLook, limit_option, shown_count, type_option, version_options
from holdfast.cli.graph_shapes import ID, answer_parts, first_rows, text
from holdfast.cli.kv import several_keys
from holdfast.cli.output import Column, View

__all__ = ["command"]

_COLUMNS = (
    Column(title="depth", right=True),
    Column(title="type", keep="middle", least=8),
    ID,
    Column(title="reached by", keep="middle", least=12),
)


@click.command(name="reach")
@click.argument("words", nargs=-1, metavar="[URL] ID...")
@type_option("edges")
@click.option(
    "--direction",
    type=click.Choice(["out", "in"]),
    default="out",
    show_default=True,
    help="Along the edges, or against them: who reaches these.",
)
@click.option("--depth", type=click.IntRange(min=0), metavar="N", help="No farther than so many edges.")
@click.option(
    "--order",
    type=click.Choice(["breadth", "depth"]),
    default="breadth",
    show_default=True,
    help="Nearest first, or each branch to its end before the next.",
)
@limit_option
@version_options
def command(
    words: tuple[str, ...],
    types: tuple[str, ...],
    direction: str,
    depth: int | None,
    order: str,
    limit: int | None,
    version: int | None,
    tag: str | None,
    at: str | None,
    as_json: bool,
) -> None:
    """Show every node within reach of some, and how.

    The starts are in it, at depth 0. Where a chain is configured, the first word is a URL only if it has a scheme,
    such as s3://, or begins with /, ./, ../ or ~.

    JSON: version, total, nodes (semantic_id, type, name, file, depth, parent, edge_type; type, name and file are
    null where an edge points to nothing).

    \b
    Examples:
      holdfast graph reach ./code app.main --depth 3
      holdfast graph reach ./code json.loads --direction in --type CALLS
      holdfast graph reach s3://bucket/team/graphs/code app.main --order depth --json
    """
    url, starts = several_keys(words)
    if not starts:
        raise click.UsageError("expected [URL] ID..., got no ID", ctx=click.get_current_context())
    look = GraphLook(url, version=version, tag=tag, at=at, as_json=as_json)
    walk = look.graph.breadth_first if order == "breadth" else look.graph.depth_first
    found = walk(starts, depth=depth, types=types, direction=direction)
    rows = first_rows(found, shown_count(limit, as_json=as_json, total=len(found)))
    data = look.document("reach", total=len(found), nodes=rows)
    parts = answer_parts(_COLUMNS, rows, lambda row: _cells(row, direction), total=len(found), noun="node")
    look.output.show(View(data=data, parts=parts))


def _cells(row: Mapping[str, Any], direction: str) -> tuple[str, ...]:
    edge, parent = text(row["edge_type"]), text(row["parent"])
    how = "" if row["parent"] is None else f"{parent} -{edge}->" if direction == "out" else f"-{edge}-> {parent}"
    return str(row["depth"]), "(not there)" if row["type"] is None else text(row["type"]), text(row["semantic_id"]), how
