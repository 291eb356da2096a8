"""One output object, two implementations: a terminal that people read, and JSON that programs read.

A command makes one `View`: the JSON document, and the parts that say the same to people. The document is a stable
contract: fields may be added, none is renamed or removed. It always has `command` and, where there is one, `chain`
(URL#layout); times are UTC text that sorts, sizes are bytes. It is the only thing on stdout; warnings, errors and
progress go to stderr.

People's output fits the terminal (or `COLUMNS`): long refs are shortened there. Into a pipe nothing is shortened.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from io import StringIO
from typing import Literal, Protocol

from holdfast.cli.words import shorten

__all__ = [
    "Column",
    "Command",
    "ConsoleOutput",
    "Facts",
    "JsonOutput",
    "Line",
    "Output",
    "Part",
    "Progress",
    "Table",
    "Verbatim",
    "View",
    "make_output",
]

Progress = Callable[[int, int], None]
_GAP = 2
_WIDTH_UNLIMITED = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column; one with a `least` width may be shortened down to it, keeping the end of the text that tells most."""

    title: str
    keep: Literal["start", "middle", "end"] = "start"
    least: int | None = None
    right: bool = False


@dataclass(frozen=True, slots=True)
class Line:
    """A sentence."""

    text: str
    style: str = ""
    indent: int = 0


@dataclass(frozen=True, slots=True)
class Command:
    """Something to type next, and what it would do. Never shortened or wrapped, so that it can be copied."""

    purpose: str
    text: str


@dataclass(frozen=True, slots=True)
class Facts:
    """Names with values, shortened to the terminal unless they are wanted `whole`: then the terminal wraps them."""

    pairs: Sequence[tuple[str, str]]
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Verbatim:
    """Lines that are never shortened or wrapped, so that they can be copied."""

    text: str


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text; `more` says how many were left out, and `how` shows them."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[str]]
    more: int = 0
    how: str = "--json lists all"


Part = Line | Command | Facts | Verbatim | Table


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What a command has to say, for programs and for people."""

    data: Mapping[str, object]
    parts: Sequence[Part]


class Output(Protocol):
    """Where a command speaks."""

    def show(self, view: View) -> None:
        """Say the result."""
        ...

    def progress(self, label: str) -> AbstractContextManager[Progress]:
        """A callable (done, total) for as long as the block lasts."""
        ...


def make_output(*, as_json: bool, one_line: bool = False) -> Output:
    return JsonOutput(one_line=one_line) if as_json else ConsoleOutput(width=_width(), color=_wants_color())


def _width() -> int | None:
    """The terminal's width, or None where nothing limits it."""
    if os.environ.get("COLUMNS", "").isdigit() or sys.stdout.isatty():
        return max(40, shutil.get_terminal_size().columns)
    return None


def _wants_color() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def _silent(done: int, total: int) -> None:
    del done, total


class JsonOutput:
    """One document on stdout; on one line where several follow each other (`repl`)."""

    def __init__(self, *, one_line: bool = False) -> None:
        self._indent = None if one_line else 2

    def show(self, view: View) -> None:
        _write(json.dumps(view.data, indent=self._indent, ensure_ascii=False, allow_nan=False) + "\n")

    @contextmanager
    def progress(self, label: str) -> Iterator[Progress]:
        del label
        yield _silent


class ConsoleOutput:
    """Text for people."""

    def __init__(self, *, width: int | None, color: bool) -> None:
        self._width = width
        self._color = color

    def show(self, view: View) -> None:
        from rich.console import Console

        page = StringIO()
        console = Console(
            file=page,
            width=self._width or _WIDTH_UNLIMITED,
            force_terminal=self._color,
            color_system="standard" if self._color else None,
            highlight=False,
            markup=False,
            emoji=False,
            legacy_windows=False,
        )
        for part in view.parts:
            self._render(console, part)
        _write("".join(f"{line.rstrip()}\n" for line in page.getvalue().splitlines()))

    @contextmanager
    def progress(self, label: str) -> Iterator[Progress]:
        if not sys.stderr.isatty():
            yield _silent
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(label, total=None)
            yield lambda done, total: bar.update(task, completed=done, total=total)

    def _render(self, console: object, part: Part) -> None:
        from rich.console import Console
        from rich.padding import Padding
        from rich.text import Text

        assert isinstance(console, Console)
        match part:
            case Line(text, style, indent):
                console.print(Padding(Text(text, style=style), (0, 0, 0, indent)))
            case Command(purpose, text):
                line = Text(f"  {purpose}: ", style="dim").append(text, style="cyan not dim")
                console.print(line, soft_wrap=True)
            case Verbatim(text):
                console.print(Text(text), soft_wrap=True)
            case Facts(pairs, whole):
                label_width = max((len(name) for name, _ in pairs), default=0)
                for name, value in pairs:
                    room = (self._width or _WIDTH_UNLIMITED) - label_width - _GAP
                    line = Text(f"{name:<{label_width}}  ", style="dim")
                    shown = value if whole else shorten(value, room, keep="middle")
                    console.print(line.append(shown, style="not dim"), soft_wrap=True)
            case Table():
                self._render_table(console, part)

    def _render_table(self, console: object, table: Table) -> None:
        from rich.console import Console
        from rich.table import Table as Grid
        from rich.text import Text

        assert isinstance(console, Console)
        widths = fit(table.columns, table.rows, self._width)
        grid = Grid(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold")
        for column, width in zip(table.columns, widths, strict=True):
            title = Text(shorten(column.title, width))
            grid.add_column(title, width=width, no_wrap=True, justify="right" if column.right else "left")
        for row in table.rows:
            cells = zip(row, table.columns, widths, strict=True)
            grid.add_row(*(Text(shorten(cell, width, keep=column.keep)) for cell, column, width in cells))
        console.print(grid)
        if table.more:
            console.print(Text(f"… and {table.more:,} more ({table.how})", style="dim"))


def fit(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int | None) -> list[int]:
    """How wide each column is: as its text, or less where the terminal is narrower; who can spare most gives first."""
    widths = [
        max([len(column.title), *(len(row[index]) for row in rows)], default=0) for index, column in enumerate(columns)
    ]
    if width is None:
        return widths
    room = width - _GAP * (len(columns) - 1)
    for _ in range(sum(widths)):  # each turn takes one character away
        givers = [
            index for index, column in enumerate(columns) if column.least is not None and widths[index] > column.least
        ]
        if sum(widths) <= room or not givers:
            break
        widths[max(givers, key=lambda index: widths[index] - (columns[index].least or 0))] -= 1
    return widths


def _write(text: str) -> None:
    """At once and flushed, so that a reader that has gone away is noticed here and not when the program ends."""
    sys.stdout.write(text)
    sys.stdout.flush()
