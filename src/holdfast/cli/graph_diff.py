"""`holdfast graph diff`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.diff import find_named
from holdfast.cli.graph_call import GraphCall, graph_and, json_option
from holdfast.cli.graph_shapes import changes_json, changes_parts, text
from holdfast.cli.output import Column, Line, Part, Table, View

if TYPE_CHECKING:
    from holdfast.graph.version_diff import GraphDiff

__all__ = ["command"]

_COLUMNS = (
    Column(title=""),
    Column(title=""),
    Column(title="type", keep="middle", least=8),
    Column(title="record", keep="middle", least=24),
    Column(title="file", keep="end", least=10),
)
_MORE = "--limit N shows more, --json all"
_MARKS = {"added": "+", "removed": "-", "changed": "~"}


@click.command(name="diff")
@click.argument("words", nargs=-1, metavar="[URL] FROM TO")
@click.option("--file", "files", multiple=True, metavar="FILE", help="Only of this file; may be given several times.")
@click.option("--records", is_flag=True, help="Show the nodes and edges themselves too, not only how many they are.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=50,
    show_default=True,
    metavar="N",
    help="How many lines to show; --json has all.",
)
@json_option
def command(words: tuple[str, ...], files: tuple[str, ...], records: bool, limit: int, as_json: bool) -> None:
    """Show which nodes and edges differ between versions.

    By file and type, and with --records one by one. FROM and TO are each the number of a version, an offset of
    `history` such as @1, a tag as tag:KEY=VALUE, a run as run:ID, or the word current. Compactions in between do
    not show. `holdfast diff` tells which segments differ.

    JSON: from, to (versions), changes (kind, file, type, added, removed, changed), nodes, edges (each: added,
    removed, changed; the changed ones with before and after).

    \b
    Examples:
      holdfast graph diff ./code 3 current
      holdfast graph diff ./code @1 @0 --records --file src/app.py
      holdfast graph diff ./code tag:release=stable current --json
    """
    from holdfast.graph.version_diff import diff

    url, (source_name, target_name) = graph_and(words, 2, "[URL] FROM TO")
    call = GraphCall(url, as_json=as_json)
    source, target = (find_named(call.chain, name).target_id for name in (source_name, target_name))
    with call.working("comparing"):
        found = diff(call.store, source, target)
    report = {place: counts for place, counts in found.report.items() if not files or place[1] in files}
    data: dict[str, object] = {
        "command": "graph diff",
        "chain": call.identity,
        "from": source,
        "to": target,
        "changes": changes_json(report),
    }
    if as_json:
        data |= {kind: _records(found, kind, files) for kind in ("nodes", "edges")}
    head = Line(f"From version {source} to version {target}:", style="bold")
    parts: list[Part] = [head, *changes_parts(report, limit=limit, how=_MORE)]
    if not report:
        where = f" in {', '.join(map(text, files))}" if files else ""
        parts = [Line(f"No node and no edge differs between version {source} and version {target}{where}.")]
    elif records:
        parts += [Line(""), _table(found, files, limit)]
    call.output.show(View(data=data, parts=parts))


def _records(found: GraphDiff, kind: str, files: tuple[str, ...]) -> dict[str, list[dict[str, Any]]]:
    """The records of one kind, by what became of them. One that moved from file to file belongs to both."""
    by_fate: dict[str, list[dict[str, Any]]] = {}
    for fate in _MARKS:
        rows = getattr(found, f"{fate}_{kind}").to_dicts()
        by_fate[fate] = [row for row in rows if not files or not _files(row).isdisjoint(files)]
    return by_fate


def _files(row: Mapping[str, Any]) -> set[str]:
    return {row["before"]["file"], row["after"]["file"]} if "before" in row else {row["file"]}


def _table(found: GraphDiff, files: tuple[str, ...], limit: int) -> Table:
    rows = [
        (_MARKS[fate], kind.removesuffix("s"), *_cells(row.get("after", row)))
        for kind in ("nodes", "edges")
        for fate, listed in _records(found, kind, files).items()
        for row in listed
    ]
    return Table(_COLUMNS, rows[:limit], more=max(0, len(rows) - limit), how=_MORE)


def _cells(row: Mapping[str, Any]) -> tuple[str, str, str]:
    record = row["semantic_id"] if "semantic_id" in row else f"{row['source']} -> {row['target']}"
    return text(row["type"]), text(record), text(row["file"])
