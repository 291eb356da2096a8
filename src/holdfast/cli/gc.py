"""`holdfast gc`: collect, purge, restore, list."""

from __future__ import annotations

import click

from holdfast.cli.gc_collect import command as collect
from holdfast.cli.gc_list import command as list_pending
from holdfast.cli.gc_purge import command as purge
from holdfast.cli.gc_restore import command as restore

__all__ = ["command"]


@click.group(name="gc", invoke_without_command=True)
@click.pass_context
def command(context: click.Context) -> None:
    """Collect old snapshots, restore them, or delete them.

    Two steps: what is collected is out of sight and can be restored; what is purged is gone.

    \b
    Examples:
      holdfast gc collect ./users --retention 5
      holdfast gc restore ./users
      holdfast gc purge ./users --grace 7d
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


for one in (collect, purge, restore, list_pending):
    command.add_command(one)
