"""`holdfast pipeline check`."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import click

from holdfast.cli.graph_call import json_option
from holdfast.cli.output import Command, Line, Part, Verbatim, View, make_output
from holdfast.cli.pipeline_call import only_option, param_option, parameters_of, plan_json, plan_parts
from holdfast.cli.words import count

if TYPE_CHECKING:
    from holdfast.pipeline.plan_problem import Problem

__all__ = ["command"]

_EXIT_BAD_INPUT = 2


@click.command(name="check")
@click.argument("file", metavar="FILE")
@param_option
@only_option
@json_option
def command(file: str, params: tuple[str, ...], only: tuple[str, ...], as_json: bool) -> int:
    """Say everything that is wrong with a pipeline's file, with lines, or show the plan. Nothing is run.

    SQL is read, but not run: whether the columns of files are what the SQL takes them for is seen by a run.

    Exit code 2 if something is wrong; warnings alone are 0.

    JSON: file, ok, problems (severity, file, line, where, message), and if ok pipeline, workspace, parameters,
    fingerprint, tasks (id, kind, name, reads, level) in order, datasets (name, kind, needs, fingerprint).

    \b
    Examples:
      holdfast pipeline check pipeline.toml
      holdfast pipeline check pipeline.toml --param day=2026-11-16 --only user_totals
    """
    from holdfast.pipeline.file import inspect_pipeline
    from holdfast.pipeline.plan import plan

    output = make_output(as_json=as_json)
    found = inspect_pipeline(file, parameters_of(params))
    data: dict[str, object] = {
        "command": "pipeline check",
        "file": file,
        "ok": found.pipeline is not None,
        "problems": [_problem_json(one) for one in found.problems],
    }
    parts: list[Part] = [Verbatim(str(one)) for one in found.problems]
    if found.pipeline is None:
        bad = Line(f"{count(len(found.errors), 'problem')} in {file}: nothing of it can be run.", style="bold red")
        output.show(View(data=data, parts=[*parts, bad]))
        return _EXIT_BAD_INPUT
    made = plan(found.pipeline, only=only)
    words = [file, *(f"--param={one}" for one in params), *(f"--only={one}" for one in only)]
    run = Command("run it", f"holdfast run {shlex.join(words)}")
    gap: list[Part] = [Line("")] if parts else []
    output.show(View(data={**data, **plan_json(made)}, parts=[*plan_parts(made), *gap, *parts, Line(""), run]))
    return 0


def _problem_json(one: Problem) -> dict[str, object]:
    return {
        "severity": "warning" if one.is_warning else "error",
        "file": one.file,
        "line": one.line,
        "where": list(one.where),
        "message": one.message,
    }
