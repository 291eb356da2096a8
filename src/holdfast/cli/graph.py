"""`holdfast graph`: what is done with graphs, and what is asked of them."""

from __future__ import annotations

import click

from holdfast.cli.graph_build import command as build
from holdfast.cli.graph_compact import command as compact
from holdfast.cli.graph_diff import command as diff
from holdfast.cli.graph_edges import command as edges
from holdfast.cli.graph_files import dependencies, dependents
from holdfast.cli.graph_info import command as info
from holdfast.cli.graph_neighbors import command as neighbors
from holdfast.cli.graph_nodes import command as nodes
from holdfast.cli.graph_path import command as path
from holdfast.cli.graph_reach import command as reach
from holdfast.cli.graph_replace import command as replace

__all__ = ["command"]

_COMMANDS = (build, replace, info, nodes, edges, neighbors, path, reach, dependents, dependencies, diff, compact)


class _InOrder(click.Group):
    """Lists commands as one would use them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [str(one.name) for one in _COMMANDS]


@click.group(name="graph", cls=_InOrder, invoke_without_command=True)
@click.pass_context
def command(context: click.Context) -> None:
    """Build graphs, ask them, and see what changed.

    A graph has versions, 1, 2, 3 and so on. Every question may be put to any of them: --version 3, --tag
    release=stable, --at 2026-11-15; without, to the visible one. What holds for every chain holds for graphs too:
    `holdfast history`, `tag`, `rollback`, `forward`, `verify` and `gc`.

    \b
    Examples:
      holdfast graph build ./code --nodes nodes.parquet --edges edges.parquet
      holdfast graph neighbors ./code json.loads --direction in --type CALLS
      holdfast graph diff ./code 3 current
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


for one in _COMMANDS:
    command.add_command(one)
