"""`holdfast graph neighbors`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from holdfast.cli.graph_call import GraphLook, graph_and, limit_option, shown_count, type_option, version_options
from holdfast.cli.graph_shapes import ID, answer_parts, first_rows, text
from holdfast.cli.output import Column, View

__all__ = ["command"]

_COLUMNS = (
    Column(title="edge", keep="middle", least=10),
    ID,
    Column(title="type", keep="middle", least=8),
    Column(title="file", keep="end", least=10),
)


@click.command(name="neighbors")
@click.argument("words", nargs=-1, metavar="[URL] ID")
@type_option("edges")
@click.option(
    "--direction",
    type=click.Choice(["out", "in", "both"]),
    default="both",
    show_default=True,
    help="Where edges from here lead, where edges to here come from, or both.",
)
@limit_option
@version_options
def command(
    words: tuple[str, ...],
    types: tuple[str, ...],
    direction: str,
    limit: int | None,
    version: int | None,
    tag: str | None,
    at: str | None,
    as_json: bool,
) -> None:
    """Show what is next to a node.

    A line for each edge from it, by type and target, and then for each edge to it.

    JSON: version, id, total, neighbors (direction, edge_type, edge_metadata, semantic_id, type, name, file; the
    last three are null where the edge points to nothing).

    \b
    Examples:
      holdfast graph neighbors ./code json.loads
      holdfast graph neighbors ./code json.loads --direction in --type CALLS
      holdfast graph neighbors s3://bucket/team/graphs/code json.loads --version 3 --json
    """
    url, (id_,) = graph_and(words, 1, "[URL] ID")
    look = GraphLook(url, version=version, tag=tag, at=at, as_json=as_json)
    ways = ("out", "in") if direction == "both" else (direction,)
    answers = [look.graph.outgoing(id_, types) if way == "out" else look.graph.incoming(id_, types) for way in ways]
    total = sum(map(len, answers))
    room = shown_count(limit, as_json=as_json, total=total)
    found: list[dict[str, Any]] = []
    for way, answer in zip(ways, answers, strict=True):
        end = "target" if way == "out" else "source"
        found += [
            {"direction": way, "edge_type": row["type"], "edge_metadata": row["metadata"], "semantic_id": row[end]}
            for row in first_rows(answer, room - len(found))
        ]
    ends = sorted({row["semantic_id"] for row in found})
    known = {row["semantic_id"]: row for row in look.graph.nodes(ids=ends).to_dicts()}
    for row in found:
        node = known.get(row["semantic_id"], {})
        row |= {name: node.get(name) for name in ("type", "name", "file")}
    data = look.document("neighbors", id=id_, total=total, neighbors=found)
    parts = answer_parts(_COLUMNS, found, _cells, total=total, noun="edge")
    look.output.show(View(data=data, parts=parts))


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    edge = text(row["edge_type"])
    arrow = f"-{edge}->" if row["direction"] == "out" else f"<-{edge}-"
    return (
        arrow,
        text(row["semantic_id"]),
        "(not there)" if row["type"] is None else text(row["type"]),
        text(row["file"]),
    )
