"""`holdfast graph path`."""

from __future__ import annotations

from typing import Any

import click

from holdfast.cli.failures import EXIT_NOT_FOUND
from holdfast.cli.graph_call import GraphLook, graph_and, type_option, version_options
from holdfast.cli.graph_shapes import ID, text
from holdfast.cli.output import Column, Line, Part, Table, View
from holdfast.cli.values import value_text
from holdfast.cli.words import count

__all__ = ["command"]

_COLUMNS = (
    Column(title="step", right=True),
    Column(title="edge", keep="middle", least=8),
    ID,
    Column(title="file", keep="end", least=10),
)


@click.command(name="path")
@click.argument("words", nargs=-1, metavar="[URL] FROM TO")
@type_option("edges")
@click.option("--depth", type=click.IntRange(min=0), metavar="N", help="Give up beyond so many edges.")
@version_options
@click.pass_context
def command(
    context: click.Context,
    words: tuple[str, ...],
    types: tuple[str, ...],
    depth: int | None,
    version: int | None,
    tag: str | None,
    at: str | None,
    as_json: bool,
) -> None:
    """Show a shortest path from one node to another.

    Along the edges, as they point. The exit code is 3 if there is none.

    JSON: version, from, to, found, edges (source, target, type, file, metadata; none from a node to itself).

    \b
    Examples:
      holdfast graph path ./code app.main json.loads
      holdfast graph path ./code app.main json.loads --type CALLS --depth 6 --json
    """
    url, (source, target) = graph_and(words, 2, "[URL] FROM TO")
    look = GraphLook(url, version=version, tag=tag, at=at, as_json=as_json)
    found = look.graph.shortest_path(source, target, types=types, depth=depth)
    edges: list[dict[str, Any]] = [] if found is None else found.to_dicts()
    data = look.document("path", **{"from": source, "to": target}, found=found is not None, edges=edges)
    parts: list[Part]
    if found is None:
        kinds = f" of type {' or '.join(types)}" if types else ""
        reach = "" if depth is None else f" within {count(depth, 'edge')}"
        parts = [Line(f"There is no path{reach} along edges{kinds} from {value_text(source)} to {value_text(target)}.")]
    else:
        parts = [_table(look, source, edges), Line(""), Line(count(len(edges), "edge"), style="dim")]
    look.output.show(View(data=data, parts=parts))
    if found is None:
        context.exit(EXIT_NOT_FOUND)


def _table(look: GraphLook, source: str, edges: list[dict[str, Any]]) -> Table:
    stops = [("", source), *((f"-{edge['type']}->", edge["target"]) for edge in edges)]
    known = {node.semantic_id: node.file for node in look.graph.nodes(ids=[id_ for _, id_ in stops])}
    rows = [
        (str(step), text(arrow), text(id_), text(known.get(id_, "(not there)")))
        for step, (arrow, id_) in enumerate(stops)
    ]
    return Table(_COLUMNS, rows)
