"""How nodes, edges and changes look in JSON documents and in tables; the same in every command of graphs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from holdfast.cli.output import Column, Line, Part, Table
from holdfast.cli.values import value_text

if TYPE_CHECKING:
    import pyarrow as pa

    from holdfast.graph.answers import Answer
    from holdfast.graph.changes import Counts

    Report = Mapping[tuple[str, str, str], Counts]

__all__ = [
    "EDGE_COLUMNS",
    "ID",
    "NODE_COLUMNS",
    "answer_parts",
    "changes_json",
    "changes_parts",
    "edge_cells",
    "first_rows",
    "node_cells",
    "sums_lines",
    "text",
]

ID = Column(title="id", keep="middle", least=16)
NODE_COLUMNS = (
    Column(title="type", keep="middle", least=8),
    ID,
    Column(title="name", keep="middle", least=8),
    Column(title="file", keep="end", least=10),
)
EDGE_COLUMNS = (
    Column(title="source", keep="middle", least=14),
    Column(title="type", keep="middle", least=8),
    Column(title="target", keep="middle", least=14),
    Column(title="file", keep="end", least=10),
)
_CHANGE_COLUMNS = (
    Column(title=""),
    Column(title="file", keep="end", least=12),
    Column(title="type", keep="middle", least=8),
    Column(title="added", right=True),
    Column(title="removed", right=True),
    Column(title="changed", right=True),
)


def text(value: object) -> str:
    """A cell; empty for what is not there."""
    return "" if value is None else value_text(value)


def node_cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    return text(row["type"]), text(row["semantic_id"]), text(row["name"]), text(row["file"])


def edge_cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    return text(row["source"]), text(row["type"]), text(row["target"]), text(row["file"])


def first_rows(answer: Answer[Any], number: int) -> list[dict[str, Any]]:
    """The first records as plain data, metadata parsed."""
    from holdfast.graph.answers import Answer

    table: pa.Table = answer.table
    return Answer(lambda: table.slice(0, number), dict).to_dicts()


def answer_parts(
    columns: Sequence[Column],
    rows: Sequence[Mapping[str, Any]],
    cells: Callable[[Mapping[str, Any]], Sequence[str]],
    *,
    total: int,
    noun: str,
) -> list[Part]:
    """A table and how much of all it is: `50 of 79,870 nodes`."""
    if not total:
        return [Line(f"No {noun}s fit.")]
    nouns = noun if total == 1 else f"{noun}s"
    line = f"{total:,} {nouns}" if len(rows) == total else f"{len(rows):,} of {total:,} {nouns}; --limit N shows more"
    return [Table(columns, [cells(row) for row in rows]), Line(""), Line(line, style="dim")]


def changes_json(report: Report) -> list[dict[str, object]]:
    """What changed, by kind, file and type."""
    return [
        {
            "kind": kind,
            "file": file,
            "type": type_,
            "added": counts.added,
            "removed": counts.removed,
            "changed": counts.changed,
        }
        for (kind, file, type_), counts in sorted(report.items())
    ]


def changes_parts(report: Report, *, limit: int = 20, how: str = "--json lists all") -> list[Part]:
    """What changed in each file, nodes first, and the sums."""
    ordered = sorted(report.items(), key=lambda item: (item[0][1], item[0][0] != "nodes", item[0][2]))
    rows = [
        (kind, text(file) or "(none)", text(type_), *_numbers(counts))
        for (kind, file, type_), counts in ordered[:limit]
    ]
    table = Table(_CHANGE_COLUMNS, rows, more=max(0, len(report) - limit), how=how)
    parts: list[Part] = [table, Line("")] if rows else []
    return [*parts, *(Line(line) for line in sums_lines(report))]


def sums_lines(report: Report) -> list[str]:
    """`nodes: 3 added, 1 changed`, and the same of edges."""
    lines = []
    for kind in ("nodes", "edges"):
        of_kind = [counts for (one, _, _), counts in report.items() if one == kind]
        sums = {what: sum(getattr(counts, what) for counts in of_kind) for what in ("added", "removed", "changed")}
        said = ", ".join(f"{number:,} {what}" for what, number in sums.items() if number)
        lines.append(f"{kind}: {said or 'no change'}")
    return lines


def _numbers(counts: Counts) -> tuple[str, ...]:
    return tuple(f"{number:,}" if number else "" for number in (counts.added, counts.removed, counts.changed))
