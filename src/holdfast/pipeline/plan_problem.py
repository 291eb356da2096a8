"""One thing that is wrong with a pipeline, and where: in a file by line, in Python by names."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from holdfast.errors import BadPipeline

__all__ = ["Problem", "Where", "raise_errors", "spelled"]

Where = tuple[str | int, ...]
"""The way to a value: ("datasets", "users", "checks", 0)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What is wrong, and what to do. A warning stops nobody."""

    where: Where
    message: str
    is_warning: bool = False
    row: int = 0
    """The line inside the text that lies there, from 1; 0 for all of it."""
    file: str = ""
    line: int = 0

    @property
    def place(self) -> str:
        if not self.file:
            return spelled(self.where) + (f" line {self.row}" if self.row else "")
        return f"{self.file}:{self.line}" if self.line else self.file

    def __str__(self) -> str:
        words = " ".join(self.message.split())
        return f"{self.place}: {'warning: ' if self.is_warning else ''}{words}"


def spelled(where: Where) -> str:
    """`datasets.users.checks[0]`."""
    text = ""
    for one in where:
        text += f"[{one}]" if isinstance(one, int) else f"{'.' if text else ''}{one}"
    return text or "pipeline"


def raise_errors(problems: Iterable[Problem], *, what: str) -> None:
    """BadPipeline with every error among them; nothing if there is none."""
    errors = [str(one) for one in problems if not one.is_warning]
    if errors:
        raise BadPipeline(what, *errors)
