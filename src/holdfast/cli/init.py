"""`holdfast init`."""

from __future__ import annotations

import click

from holdfast.cli.call import by_option
from holdfast.cli.catalog_call import CatalogCall, workspace_argument
from holdfast.cli.graph_call import json_option
from holdfast.cli.output import Command, Line, Part, View
from holdfast.cli.words import count

__all__ = ["command"]


@click.command(name="init")
@workspace_argument
@by_option
@json_option
def command(url: str | None, by: str | None, as_json: bool) -> None:
    """Make a workspace.

    The last two segments of its URL are tenant and workspace. Where there is one already, what is missing is made and
    nothing else is touched: run it as often as you like.

    JSON: workspace, tenant, name, made (keys; none if it was there).

    \b
    Examples:
      holdfast init s3://bucket/lake/acme/prod
      holdfast init ./lake/acme/prod --json
    """
    call = CatalogCall(url, as_json=as_json, by=by, may_be_new=True)
    workspace = call.workspace
    made = list(workspace.initialize())
    title = f"{workspace.name} of {workspace.tenant} at {workspace.url}"
    if not made:
        parts: list[Part] = [Line(f"Nothing to make: workspace {title} is there.")]
    else:
        parts = [
            Line(f"Workspace {title} is ready: {count(len(made), 'record')} made."),
            Command("next", call.again("catalog register", "NAMESPACE")),
        ]
    data = call.document("init", tenant=workspace.tenant, name=workspace.name, made=made)
    call.output.show(View(data=data, parts=parts))
