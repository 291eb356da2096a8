"""`holdfast graph nodes`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from holdfast.cli.failures import EXIT_NOT_FOUND
from holdfast.cli.graph_call import (
    GraphLook,
    limit_option,
    metadata_filter,
    metadata_option,
    shown_count,
    type_option,
    version_options,
)
from holdfast.cli.graph_shapes import NODE_COLUMNS, answer_parts, first_rows, node_cells
from holdfast.cli.kv import several_keys
from holdfast.cli.output import Facts, Line, Part, View
from holdfast.cli.values import value_text
from holdfast.cli.words import count

__all__ = ["command"]

_MISSING_NAMED_MAX = 20


@click.command(name="nodes")
@click.argument("words", nargs=-1, metavar="[URL] [ID]...")
@type_option("nodes")
@click.option("--name", metavar="TEXT", help="Only nodes of this name.")
@click.option("--file", "files", multiple=True, metavar="FILE", help="Only of this file; may be given several times.")
@metadata_option
@limit_option
@version_options
@click.pass_context
def command(
    context: click.Context,
    words: tuple[str, ...],
    types: tuple[str, ...],
    name: str | None,
    files: tuple[str, ...],
    metadata: tuple[str, ...],
    limit: int | None,
    version: int | None,
    tag: str | None,
    at: str | None,
    as_json: bool,
) -> None:
    """List nodes, by id, type, name, file or metadata.

    All that fit everything that is asked for. One ID shows all about that node. The exit code is 3 if an ID is not
    there. Where a chain is configured, the first word is a URL only if it has a scheme, such as s3://, or begins
    with /, ./, ../ or ~.

    JSON: version, total, nodes (semantic_id, type, name, file, content_hash, metadata), missing.

    \b
    Examples:
      holdfast graph nodes ./code json.loads
      holdfast graph nodes ./code --type FUNCTION --name main
      holdfast graph nodes ./code --type 'http:*' --tag release=stable
      holdfast graph nodes s3://bucket/team/graphs/code --file src/app.py --metadata async=true --json
    """
    url, ids = several_keys(words)
    wanted = metadata_filter(metadata)
    look = GraphLook(url, version=version, tag=tag, at=at, as_json=as_json)
    found = look.graph.nodes(type=types, name=name, file=files, metadata=wanted, ids=ids or None)
    rows = first_rows(found, shown_count(limit, as_json=as_json, total=len(found)))
    there = set(found.ids()) if ids else set()
    missing = [one for one in dict.fromkeys(ids) if one not in there]
    data = look.document("nodes", total=len(found), nodes=rows, missing=missing)
    parts: list[Part] = []
    if len(ids) == 1 and rows:
        parts = [_everything(rows[0])]
    elif rows or not missing:
        parts = answer_parts(NODE_COLUMNS, rows, node_cells, total=len(found), noun="node")
    if missing:
        named = " ".join(map(value_text, missing[:_MISSING_NAMED_MAX]))
        more = "" if len(missing) <= _MISSING_NAMED_MAX else f" and {count(len(missing) - _MISSING_NAMED_MAX, 'other')}"
        parts.append(Line(f"Not there: {named}{more}", style="yellow"))
    look.output.show(View(data=data, parts=parts))
    if missing:
        context.exit(EXIT_NOT_FOUND)


def _everything(node: Mapping[str, Any]) -> Facts:
    from holdfast.graph.records import node_id

    metadata = node["metadata"] if isinstance(node["metadata"], Mapping) else {}
    facts = [
        ("id", value_text(node["semantic_id"])),
        ("type", value_text(node["type"])),
        ("name", value_text(node["name"])),
        ("file", value_text(node["file"])),
        *((("content hash", value_text(node["content_hash"])),) if node["content_hash"] else ()),
        *((value_text(key), value_text(value)) for key, value in metadata.items()),
        ("128-bit id", node_id(node["semantic_id"]).hex()),
    ]
    return Facts(facts, whole=True)
