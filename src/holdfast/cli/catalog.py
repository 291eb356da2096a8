"""`holdfast catalog`: what a workspace holds, asked in every way, and what people say about it."""

from __future__ import annotations

import click

from holdfast.cli.catalog_announce import command as announce
from holdfast.cli.catalog_anti_entropy import command as anti_entropy
from holdfast.cli.catalog_compact import command as compact
from holdfast.cli.catalog_drop import command as drop
from holdfast.cli.catalog_lineage import command as lineage
from holdfast.cli.catalog_ls import command as ls
from holdfast.cli.catalog_migrate_manifests import command as migrate_manifests
from holdfast.cli.catalog_openlineage import command as openlineage
from holdfast.cli.catalog_register import command as register
from holdfast.cli.catalog_register_lineage import command as register_lineage
from holdfast.cli.catalog_search import command as search
from holdfast.cli.catalog_show import command as show
from holdfast.cli.catalog_sql import command as sql

__all__ = ["command"]

_COMMANDS = (
    ls,
    show,
    sql,
    search,
    lineage,
    openlineage,
    register,
    register_lineage,
    drop,
    announce,
    compact,
    anti_entropy,
    migrate_manifests,
)


class _InOrder(click.Group):
    """Lists commands as one would use them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [str(one.name) for one in _COMMANDS]


@click.group(name="catalog", cls=_InOrder, invoke_without_command=True)
@click.pass_context
def command(context: click.Context) -> None:
    """See what a workspace holds, and say what it should know.

    A workspace is named by its URL, whose last two segments are tenant and workspace: s3://bucket/lake/acme/prod. It
    may be left out where HOLDFAST_WORKSPACE or `workspace` in the nearest holdfast.toml names it. `holdfast init` makes
    one.

    \b
    Examples:
      holdfast catalog ls ./lake/acme/prod
      holdfast catalog search ./lake/acme/prod customer orders
      holdfast catalog lineage ./lake/acme/prod sales.orders --depth all
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


for one in _COMMANDS:
    command.add_command(one)
