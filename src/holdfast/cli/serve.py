"""`holdfast serve`: compactor."""

from __future__ import annotations

import click

from holdfast.cli.serve_compactor import command as compactor

__all__ = ["command"]


@click.group(name="serve", invoke_without_command=True)
@click.pass_context
def command(context: click.Context) -> None:
    """Answer over HTTP, until a signal ends it.

    \b
    Examples:
      holdfast serve compactor ./lake/acme/prod
      holdfast serve compactor s3://bucket/lake/acme/prod --host 0.0.0.0 --tokens-file /etc/holdfast/tokens
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


command.add_command(compactor)
