"""What a benchmark found, as a table of at most 100 columns and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field

__all__ = ["Report", "Target", "duration", "rate", "ratio", "render", "to_json"]

WIDTH_MAX = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A promise about a figure."""

    claim: str
    value: float
    limit: float
    at_least: bool = False

    @property
    def met(self) -> bool:
        return self.value >= self.limit if self.at_least else self.value <= self.limit

    def __str__(self) -> str:
        bound = f"{'at least' if self.at_least else 'at most'} {self.limit:g}"
        return f"{'met   ' if self.met else 'MISSED'} {self.claim}: {self.value:.2f} ({bound})"


@dataclass(slots=True, kw_only=True)
class Report:
    """One benchmark's findings."""

    name: str
    about: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]] = field(default_factory=list)
    figures: dict[str, float] = field(default_factory=dict)
    """The same, as numbers: seconds, ratios, exponents."""
    targets: list[Target] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def duration(seconds: float) -> str:
    """Three digits and a unit."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}" if seconds / scale < 100 else f"{seconds / scale:.0f} {unit}"
    return f"{seconds / 1e-9:.0f} ns"


def rate(per_second: float) -> str:
    """Three digits, thousands or millions."""
    for unit, scale in (("M", 1e6), ("k", 1e3)):
        if per_second >= scale:
            return f"{per_second / scale:.3g}{unit}"
    return f"{per_second:.0f}"


def ratio(value: float) -> str:
    return f"{value:.2f}×" if value < 100 else f"{value:.0f}×"


def render(report: Report) -> Iterator[str]:
    """The lines of the table: the first column to the left, figures to the right."""
    yield f"{report.name}: {report.about}"
    table = [report.columns, *report.rows]
    widths = [max(len(row[column]) for row in table) for column in range(len(report.columns))]
    widths[0] = min(widths[0], WIDTH_MAX - sum(width + 2 for width in widths[1:]) - 2)
    for row in table:
        cells = [
            row[0][: widths[0]].ljust(widths[0]),
            *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)),
        ]
        yield "  " + "  ".join(cells).rstrip()
    yield from (f"  {note}" for note in report.notes)
    yield from (f"  {target}" for target in report.targets)


def to_json(report: Report) -> dict[str, object]:
    """A stable shape: figures by name, targets with their verdict."""
    return {
        "name": report.name,
        "about": report.about,
        "figures": report.figures,
        "targets": [{**asdict(target), "met": target.met} for target in report.targets],
        "notes": report.notes,
    }
