"""Writes the reference of the command line from the commands themselves.

    python -m tools.cli_reference docs/cli.md

A test compares the page with what this would write, so the page is never behind the program.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import click

WIDTH = 100
PREAMBLE = """\
# The command line

Written by `make docs-cli` from the commands themselves. Every command takes `--json`; errors go to stderr.
"""


def load() -> click.Group:
    """The program's root command."""
    root = importlib.import_module("holdfast.cli.main").cli
    if not isinstance(root, click.Group):
        raise TypeError(f"holdfast.cli.main:cli is a {type(root).__name__}, not a click.Group")
    return root


def walk(command: click.Command, context: click.Context) -> Iterator[tuple[click.Command, click.Context]]:
    """A command with its context, then everything below it, in the order of `--help`, without the hidden ones."""
    yield command, context
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            if below is not None and not below.hidden:
                yield from walk(below, start(below, name, context))


def start(command: click.Command, name: str, parent: click.Context | None = None) -> click.Context:
    """A context that renders the same on every terminal."""
    return click.Context(
        command, info_name=name, parent=parent, color=False, terminal_width=WIDTH, max_content_width=WIDTH
    )


def commands(root: click.Group) -> Iterator[tuple[click.Command, click.Context]]:
    """Every visible command of the program, groups included."""
    return walk(root, start(root, "holdfast"))


def reference(root: click.Group) -> str:
    """The whole page."""
    sections = [PREAMBLE]
    for command, context in commands(root):
        help_text = "\n".join(line.rstrip() for line in command.get_help(context).splitlines())
        sections.append(f"## {context.command_path}\n\n```\n{help_text}\n```\n")
    return "\n".join(sections)


def main(arguments: list[str]) -> int:
    """Write the page to the file that is named, or to the terminal."""
    page = reference(load())
    if arguments:
        Path(arguments[0]).write_text(page, encoding="utf-8")
    else:
        sys.stdout.write(page)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
