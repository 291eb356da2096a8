"""`holdfast pipeline new`."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click

from holdfast.cli.graph_call import json_option
from holdfast.cli.output import Command, Line, Part, View, make_output
from holdfast.errors import BadInput

__all__ = ["command"]


@click.command(name="new")
@click.argument("file", default="pipeline.toml", metavar="[FILE]")
@click.option("--name", metavar="NAME", help="What the pipeline is called; as the file if left out.")
@json_option
def command(file: str, name: str | None, as_json: bool) -> None:
    """Write a first pipeline file, with a comment beside every line. A file that is there is never replaced.

    JSON: file, name.

    \b
    Examples:
      holdfast pipeline new
      holdfast pipeline new orders/pipeline.toml --name orders
    """
    from holdfast.pipeline.file_fields import PIPELINE
    from holdfast.pipeline.file_new import first_file

    path = Path(file)
    called = name if name is not None else re.sub(r"[^A-Za-z0-9._-]+", "-", path.stem).strip("-._") or "pipeline"
    kind = next(one.kind for one in PIPELINE.fields if one.name == "name")
    for problem in kind.problems(called, ("name",)):
        raise BadInput(problem.message)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as new:
            new.write(first_file(called, shlex.quote(file)))
    except FileExistsError:
        raise BadInput(f"{file!r} is there already: give another name, or change that one") from None
    except OSError as error:
        raise BadInput(f"{file!r} cannot be written: {error.strerror}") from None
    parts: list[Part] = [
        Line(f"Written to {file}.", style="bold"),
        Command("check it", f"holdfast pipeline check {shlex.quote(file)}"),
    ]
    data = {"command": "pipeline new", "file": file, "name": called}
    make_output(as_json=as_json).show(View(data=data, parts=parts))
