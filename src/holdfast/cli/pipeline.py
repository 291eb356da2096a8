"""`holdfast pipeline`: what is done with a pipeline's file before it is run."""

from __future__ import annotations

import click

from holdfast.cli.pipeline_check import command as check
from holdfast.cli.pipeline_new import command as new
from holdfast.cli.pipeline_schema import command as schema

__all__ = ["command"]

_COMMANDS = (new, check, schema)


class _InOrder(click.Group):
    """Lists commands as one would use them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [str(one.name) for one in _COMMANDS]


@click.group(name="pipeline", cls=_InOrder, invoke_without_command=True)
@click.pass_context
def command(context: click.Context) -> None:
    """Pipeline files: write a first one, see what is wrong with one, and in which order it would be made.

    Nothing of this needs Spark. `holdfast run FILE` makes what the file says.

    \b
    Examples:
      holdfast pipeline new pipeline.toml
      holdfast pipeline check pipeline.toml --param day=2026-11-16
      holdfast pipeline schema > pipeline.schema.json
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


for one in _COMMANDS:
    command.add_command(one)
