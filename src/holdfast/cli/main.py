"""The program: `holdfast COMMAND`. A command's module is imported when it is called (or when help lists it)."""

from __future__ import annotations

import importlib
from collections.abc import Sequence

import click

from holdfast import __version__
from holdfast.cli.failures import report

__all__ = ["cli", "main"]

_COMMANDS = (
    "get",
    "multiget",
    "info",
    "shards",
    "route",
    "repl",
    "graph",
    "run",
    "runs",
    "init",
    "catalog",
    "pipeline",
    "serve",
    "history",
    "show",
    "diff",
    "rollback",
    "forward",
    "tag",
    "tags",
    "verify",
    "gc",
    "reconcile",
    "status",
    "switch",
    "sql",
    "iam",
)


class LazyGroup(click.Group):
    """A group whose commands live in modules of their names, each as `command`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        found = importlib.import_module(f"holdfast.cli.{cmd_name}").command
        assert isinstance(found, click.Command)
        return found


@click.group(
    cls=LazyGroup,
    invoke_without_command=True,
    context_settings={"max_content_width": 100},
)
@click.version_option(__version__, prog_name="holdfast", help="Show the version.")
@click.pass_context
def cli(context: click.Context) -> None:
    """Immutable, versioned snapshots on plain object storage.

    A chain is named by its URL: a path, file://, s3://, gs://, az://, or its database, sqlite:/// or postgresql://. It
    may be left out where HOLDFAST_CHAIN or `chain` in the nearest holdfast.toml names it. With HOLDFAST_MANIFESTS or
    `manifests`, a database's URL, the records of a chain in a store are looked for there. Flags count before
    HOLDFAST_* (BY, RETENTION, GRACE, MODE, CACHE too), and those before the file.

    Exit codes: 0 done, 2 bad input, 3 not found, 4 somebody else was first, 5 writer fenced off, 6 damage found, 7
    store failed, 8 build failed.

    \b
    Examples:
      holdfast get ./users 42
      holdfast history s3://bucket/team/datasets/users
      holdfast rollback s3://bucket/team/datasets/users --why "bad prices"
      holdfast gc collect ./users --retention 5
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program and answer with its exit code."""
    args = None if arguments is None else list(arguments)
    try:
        result = cli.main(args=args, prog_name="holdfast", standalone_mode=False)
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - the outermost edge: reported, never swallowed
        return report(error)
    return result if isinstance(result, int) else 0
