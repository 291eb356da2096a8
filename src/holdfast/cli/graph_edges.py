"""`holdfast graph edges`."""

from __future__ import annotations

import click

from holdfast.cli.call import url_argument
from holdfast.cli.graph_call import (
    GraphLook,
    limit_option,
    metadata_filter,
    metadata_option,
    shown_count,
    type_option,
    version_options,
)
from holdfast.cli.graph_shapes import EDGE_COLUMNS, answer_parts, edge_cells, first_rows
from holdfast.cli.output import View

__all__ = ["command"]


@click.command(name="edges")
@url_argument
@type_option("edges")
@click.option("--source", metavar="ID", help="Only edges that start here.")
@click.option("--target", metavar="ID", help="Only edges that end here.")
@click.option("--file", "files", multiple=True, metavar="FILE", help="Only of this file; may be given several times.")
@metadata_option
@limit_option
@version_options
def command(
    url: str | None,
    types: tuple[str, ...],
    source: str | None,
    target: str | None,
    files: tuple[str, ...],
    metadata: tuple[str, ...],
    limit: int | None,
    version: int | None,
    tag: str | None,
    at: str | None,
    as_json: bool,
) -> None:
    """List edges, by type, ends, file or metadata.

    All that fit everything that is asked for.

    JSON: version, total, edges (source, target, type, file, metadata).

    \b
    Examples:
      holdfast graph edges ./code --type CALLS --target json.loads
      holdfast graph edges ./code --file src/app.py --version 3
      holdfast graph edges s3://bucket/team/graphs/code --type 'http:*' --json
    """
    wanted = metadata_filter(metadata)
    look = GraphLook(url, version=version, tag=tag, at=at, as_json=as_json)
    found = look.graph.edges(type=types, source=source, target=target, file=files, metadata=wanted)
    rows = first_rows(found, shown_count(limit, as_json=as_json, total=len(found)))
    data = look.document("edges", total=len(found), edges=rows)
    look.output.show(View(data=data, parts=answer_parts(EDGE_COLUMNS, rows, edge_cells, total=len(found), noun="edge")))
