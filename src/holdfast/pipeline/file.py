"""Pipeline files: `read_pipeline("pipeline.toml", {"day": "2026-11-15"})`.

What is wrong is said all at once, with the line of the file (or of the SQL file beside it) and what may have been
meant. `inspect_pipeline` gives it back, with warnings; `read_pipeline` raises it.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from holdfast.errors import BadInput, NotFound
from holdfast.pipeline.file_build import build_pipeline, without_wrong
from holdfast.pipeline.file_fields import PIPELINE
from holdfast.pipeline.file_parameters import fill_and_tell
from holdfast.pipeline.file_places import Places, find_places
from holdfast.pipeline.plan_check import check_meaning, first_problems
from holdfast.pipeline.plan_problem import Problem, raise_errors
from holdfast.pipeline.spec import Pipeline

__all__ = ["PipelineFile", "inspect_pipeline", "read_pipeline"]

_AT = re.compile(r" \(at (?:line (?P<line>\d+), column \d+|end of document)\)$")

_UNREAD = "SELECT * FROM VALUES (1)"
"""Instead of SQL that cannot be read: it names nothing and hides its columns, so that nothing else is said of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineFile:
    """What a file says, and what is wrong with it."""

    path: Path
    pipeline: Pipeline | None
    """None where there are errors."""
    problems: tuple[Problem, ...]
    """By line; errors, or else warnings."""
    locate: Callable[[Problem], Problem] = lambda problem: problem
    """The same problem with its file and line, for those that only Spark can see."""

    @property
    def errors(self) -> tuple[Problem, ...]:
        return tuple(one for one in self.problems if not one.is_warning)

    @property
    def warnings(self) -> tuple[Problem, ...]:
        return tuple(one for one in self.problems if one.is_warning)


def read_pipeline(path: str | Path, parameters: Mapping[str, str] | None = None) -> Pipeline:
    """The pipeline of a file; BadPipeline with everything that is wrong with it."""
    found = inspect_pipeline(path, parameters)
    raise_errors(found.problems, what=str(path))
    assert found.pipeline is not None
    return found.pipeline


def inspect_pipeline(path: str | Path, parameters: Mapping[str, str] | None = None) -> PipelineFile:
    """The same without raising; only a file that is not there, or a parameter that it has not, is an error."""
    path, text = Path(path), ""
    try:
        text = path.read_bytes().decode("utf-8-sig")
        document = tomllib.loads(text)
    except OSError as error:
        raise _unreadable(path, error) from None
    except UnicodeDecodeError as error:
        line = bytes(error.object[: error.start]).count(b"\n") + 1
        return _broken(path, line, "this is not UTF-8: save the file as UTF-8")
    except tomllib.TOMLDecodeError as error:
        return _broken(path, *_syntax(str(error), text))
    return _Reading(path, document, find_places(text)).result(parameters or {})


def _unreadable(path: Path, error: OSError) -> BadInput | NotFound:
    if isinstance(error, FileNotFoundError):
        return NotFound(f"there is no file {str(path)!r}; `holdfast pipeline new` writes a first one")
    return BadInput(f"{str(path)!r} cannot be read: {error.strerror}")


def _broken(path: Path, line: int, message: str) -> PipelineFile:
    problem = Problem(where=(), message=message, file=str(path), line=line)
    return PipelineFile(path=path, pipeline=None, problems=(problem,))


def _syntax(said: str, text: str) -> tuple[int, str]:
    """The parser's words, and the line that it puts in brackets behind them."""
    at = _AT.search(said)
    line = int(at["line"]) if at and at["line"] else len(text.rstrip().splitlines()) or 1
    words = said[: at.start()] if at else said
    return line, f"this is not TOML: {words[:1].lower()}{words[1:]}"


@dataclass(slots=True)
class _Reading:
    path: Path
    document: dict[str, Any]
    places: Places
    sql_files: dict[str, Path] = field(default_factory=dict)
    """Of steps whose SQL is in a file of its own."""

    def result(self, parameters: Mapping[str, str]) -> PipelineFile:
        shape = list(PIPELINE.problems(self.document, ()))
        good = without_wrong(self.document, shape)
        shape += self._load_sql(good)
        pipeline, unfilled = fill_and_tell(build_pipeline(good, folder=self.path.parent), parameters)
        problems = first_problems(shape, unfilled, check_meaning(pipeline))
        located = sorted(map(self._located, problems), key=lambda one: (one.file != str(self.path), one.file, one.line))
        is_good = all(one.is_warning for one in located)
        return PipelineFile(
            path=self.path, pipeline=pipeline if is_good else None, problems=tuple(located), locate=self._located
        )

    def _load_sql(self, document: dict[str, Any]) -> list[Problem]:
        """Put the text of SQL files where `sql` would be."""
        problems = []
        for name, step in document.get("steps", {}).items():
            if "file" in step and "sql" not in step:
                file = self.path.parent / step["file"]
                self.sql_files[name] = file
                try:
                    step["sql"] = file.read_text(encoding="utf-8-sig")
                except (OSError, UnicodeDecodeError) as error:
                    why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
                    message = f"the SQL file {step['file']!r} cannot be read beside this one: {why}"
                    problems.append(Problem(where=("steps", name, "file"), message=message))
                    step["sql"] = _UNREAD
        return problems

    def _located(self, one: Problem) -> Problem:
        if len(one.where) == 3 and one.where[0] == "steps" and one.where[2] == "sql":
            file = self.sql_files.get(str(one.where[1]))
            if file is not None:
                return replace(one, file=str(file), line=one.row or 1)
        return replace(one, file=str(self.path), line=self.places.line(one.where, one.row))
