"""`holdfast sql`: the tables of chains whose records live in a database."""

from __future__ import annotations

import click

from holdfast.cli.sql_migrate import command as migrate
from holdfast.cli.sql_status import command as status

__all__ = ["command"]


@click.group(name="sql", invoke_without_command=True)
@click.pass_context
def command(context: click.Context) -> None:
    """Make and look at the tables of chains in a database.

    Chains in a database are named by its URL everywhere else too: `holdfast history sqlite:///manifests.db`.

    \b
    Examples:
      holdfast sql migrate sqlite:///manifests.db
      holdfast sql status postgresql://host/database
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


for one in (migrate, status):
    command.add_command(one)
