"""`holdfast catalog openlineage`: export, emit."""

from __future__ import annotations

import click

from holdfast.cli.catalog_openlineage_emit import command as emit
from holdfast.cli.catalog_openlineage_export import command as export

__all__ = ["command"]


@click.group(name="openlineage", invoke_without_command=True)
@click.pass_context
def command(context: click.Context) -> None:
    """Give the runs of a workspace to tools that understand OpenLineage.

    Each run, task and publish becomes run events, with what it read and made. Ids are derived, so the same run is the
    same to whoever gets it twice.

    \b
    Examples:
      holdfast catalog openlineage export ./lake/acme/prod
      HOLDFAST_OPENLINEAGE_URL=http://localhost:5000 holdfast catalog openlineage emit ./lake/acme/prod
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


for one in (export, emit):
    command.add_command(one)
