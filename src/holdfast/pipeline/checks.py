"""What must hold of rows before they are published; where it does not, nothing is, and the rows are named.

Rules about rows are asked of Spark in as few passes as it takes. How much a data set may grow or shrink is asked
against the snapshot that is visible now.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from holdfast.catalog.announce import row_count_of
from holdfast.chain import Manifest
from holdfast.errors import ChecksFailed
from holdfast.pipeline.spec import Check, DataSet, GraphDataset, NotNull, Range, RowChange, RowCount, Unique

if TYPE_CHECKING:
    from holdfast.spark.quality import Broken, Rule
    from holdfast.spark.stage import Stage

__all__ = ["frames_read_twice", "require_checks"]

_EXAMPLES_SHOWN = 3
_VALUE_SHOWN = 40


def require_checks(stage: Stage, dataset: DataSet, before: Manifest | None) -> None:
    """ChecksFailed with every rule that is broken, how many rows break it, and some of them."""
    if isinstance(dataset, GraphDataset):
        failed = [
            *_failed(stage, dataset.nodes, dataset.checks, _counted(before, "total_nodes"), "nodes"),
            *_failed(stage, dataset.edges, dataset.edge_checks, _counted(before, "total_edges"), "edges"),
        ]
    else:
        rows = None if before is None else row_count_of(before)
        failed = _failed(stage, dataset.rows, dataset.checks, rows, "rows")
    if failed:
        raise ChecksFailed(f"data set {dataset.name!r} was not published: {'; '.join(failed)}")


def frames_read_twice(datasets: Sequence[DataSet]) -> list[str]:
    """Frames that are read more than once, for a check and for a build or for several data sets."""
    reads: list[str] = []
    for dataset in datasets:
        if isinstance(dataset, GraphDataset):
            reads += [dataset.nodes, *([dataset.nodes] if dataset.checks else [])]
            reads += [dataset.edges, *([dataset.edges] if dataset.edge_checks else [])]
        else:
            reads += [dataset.rows, *([dataset.rows] if dataset.checks else [])]
    return [name for name in dict.fromkeys(reads) if reads.count(name) > 1]


def _counted(manifest: Manifest | None, name: str) -> int | None:
    stats = None if manifest is None else manifest.payload.get("stats")
    found = stats.get(name) if isinstance(stats, Mapping) else None
    return found if type(found) is int else None


def _failed(stage: Stage, frame: str, checks: Sequence[Check], before: int | None, noun: str) -> list[str]:
    if not checks:
        return []
    rules = [_rule(check, before) for check in checks]
    asked = [rule for rule in rules if rule is not None]
    broken = {id(one.rule): one for one in stage.check(frame, asked)} if asked else {}
    return [
        _told(check, broken[id(rule)], before, noun)
        for check, rule in zip(checks, rules, strict=True)
        if rule is not None and id(rule) in broken
    ]


def _rule(check: Check, before: int | None) -> Rule | None:
    """The rule as Spark is asked; None where there is nothing to compare with."""
    from holdfast.spark import quality

    match check:
        case NotNull(columns=columns):
            return quality.NoNulls(columns=columns)
        case Unique(columns=columns):
            return quality.Unique(columns=columns)
        case Range(column=column, least=least, most=most):
            return quality.InRange(column=column, least=least, most=most)
        case RowCount(least=least, most=most):
            return quality.RowCount(least=least, most=most)
        case RowChange(fewer=fewer, more=more):
            if before is None:
                return None
            return quality.RowCount(
                least=None if fewer is None else _up(before * (1 - fewer)),
                most=None if more is None else int(before * (1 + more)),
            )


def _up(number: float) -> int:
    return max(0, -int(-number // 1))


def _told(check: Check, broken: Broken, before: int | None, noun: str) -> str:
    said = _said(check, broken, before, noun)
    examples = ", ".join(_row(row) for row in broken.examples[:_EXAMPLES_SHOWN])
    return f"{said}: {examples}" if examples else said


def _said(check: Check, broken: Broken, before: int | None, noun: str) -> str:
    match check:
        case NotNull(columns=columns):
            return f"{broken.rows:,} {noun} have no {' or '.join(columns)}"
        case Unique(columns=columns):
            return f"{broken.rows:,} {noun} share their {', '.join(columns)} with others"
        case Range(column=column, least=least, most=most):
            return f"{broken.rows:,} {noun} have a {column} outside of {_span(least, most)}"
        case RowCount(least=least, most=most):
            return f"there are {broken.row_count:,} {noun}, not {_span(least, most)}"
        case RowChange(fewer=fewer, more=more):
            bounds = {"fewer": fewer, "more": more}
            allowed = " and ".join(f"{share:.0%} {word}" for word, share in bounds.items() if share is not None)
            return f"there are {broken.row_count:,} {noun} after {before:,}, and at most {allowed} are allowed"


def _span(least: object, most: object) -> str:
    if most is None:
        return f"{least} or more"
    return f"{most} or less" if least is None else f"{least} to {most}"


def _row(row: Mapping[str, object]) -> str:
    """A row as a person reads it, without drowning in it."""
    inside = ", ".join(f"{name}={_short(value)}" for name, value in row.items())
    return f"({inside})"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _VALUE_SHOWN else f"{text[: _VALUE_SHOWN - 1]}…"
