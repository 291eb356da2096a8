"""`holdfast catalog register`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.call import by_option
from holdfast.cli.catalog_call import CatalogCall, compactor_option, split_name, workspace_and
from holdfast.cli.graph_call import json_option, parse_tag
from holdfast.cli.output import Command, Line, View
from holdfast.cli.words import count
from holdfast.errors import BadInput, NotFound

if TYPE_CHECKING:
    from holdfast.catalog.group_commit import Applied
    from holdfast.catalog.payloads import Column
    from holdfast.catalog.workspace import Workspace

__all__ = ["applied_json", "command", "fresh_key"]


@click.command(name="register")
@click.argument("words", nargs=-1, metavar="[WORKSPACE] NAMESPACE[.TABLE]")
@click.option(
    "--column",
    "columns",
    multiple=True,
    metavar="NAME:TYPE",
    help="A column of the table; may be given several times, in the table's order.",
)
@click.option("--description", default="", metavar="TEXT", help="What it is, for people and for search.")
@click.option("--owner", default="", metavar="NAME", help="Who answers questions about it.")
@click.option(
    "--tag",
    "tags",
    multiple=True,
    metavar="KEY=VALUE",
    help="A tag of the table, or a property of the namespace; may be given several times.",
)
@click.option("--location", default="", metavar="URL", help="Where the table's data is.")
@click.option(
    "--update",
    is_flag=True,
    help="Say anew all that is known of one that is there: what is not given is no longer known.",
)
@compactor_option
@by_option
@json_option
def command(
    words: tuple[str, ...],
    columns: tuple[str, ...],
    description: str,
    owner: str,
    tags: tuple[str, ...],
    location: str,
    update: bool,
    compactor: str | None,
    by: str | None,
    as_json: bool,
) -> None:
    """Make a namespace or a table known, or change what is known of it.

    It is visible to every reader when the command ends. A table needs its namespace first.

    JSON: kind, name, updated, event_id, position, snapshot_version.

    \b
    Examples:
      holdfast catalog register ./lake/acme/prod sales --description "What we sold"
      holdfast catalog register ./lake/acme/prod sales.orders --column id:bigint --column paid:boolean --tag pii=no
      holdfast catalog register s3://bucket/lake/acme/prod sales.orders --update --column id:bigint
    """
    from holdfast.catalog.operations import Catalog

    url, (name,) = workspace_and(words, 1, "[WORKSPACE] NAMESPACE[.TABLE]")
    namespace, table = split_name(name)
    pairs = dict(parse_tag(one) for one in tags)
    described: dict[str, Any] = {"description": description, "owner": owner}
    if table is None:
        if columns or location:
            raise BadInput(f"{name!r} is a namespace, which has no columns and no location; a table is NAMESPACE.TABLE")
        described["properties"] = pairs
    else:
        described |= {"columns": _parse_columns(columns), "tags": pairs, "location": location}
    call = CatalogCall(url, as_json=as_json, by=by)
    catalog = Catalog(call.workspace, call.remote_compactor(compactor))
    described["key"] = fresh_key(call.workspace)
    change: Callable[..., Applied]
    if table is None:
        change = catalog.update_namespace if update else catalog.create_namespace
        applied = change(namespace, **described)
    else:
        change = catalog.update_table if update else catalog.register_table
        applied = _told(call, lambda: change(namespace, table, **described), namespace)
    kind = "namespace" if table is None else "table"
    data = call.document("catalog register", kind=kind, name=name, updated=update, **applied_json(applied))
    detail = f" with {count(len(columns), 'column')}" if table is not None else ""
    said = f"{kind.capitalize()} {name} is {'updated' if update else 'registered'}{detail}."
    call.output.show(View(data=data, parts=[Line(said), Command("look at it", call.again("catalog show", name))]))


def fresh_key(workspace: Workspace) -> str:
    """A name for this call's event. A call is a change of its own, also where the same was said, and undone, before."""
    from holdfast.chain.ids import next_ulid

    return f"cli-{next_ulid(workspace.clock, workspace.randomness, after=None)}"


def applied_json(applied: Applied) -> dict[str, object]:
    """Which event it was, and which snapshot of the catalog shows it."""
    return {
        "event_id": applied.receipt.event_id,
        "position": applied.receipt.position,
        "snapshot_version": applied.compaction.snapshot_version,
    }


def _told(call: CatalogCall, change: Callable[[], Applied], namespace: str) -> Applied:
    try:
        return change()
    except NotFound as error:
        if f"namespace {namespace!r}" not in str(error):
            raise
        make = call.again("catalog register", namespace)
        raise NotFound(f"there is no namespace {namespace!r}; check the name, or make it with `{make}`") from None


def _parse_columns(words: Sequence[str]) -> tuple[Column, ...]:
    from holdfast.catalog.payloads import Column

    found = []
    for word in words:
        name, colon, kind = word.partition(":")
        if not colon or not name.strip() or not kind.strip():
            raise BadInput(f"--column {word!r} is no column: use NAME:TYPE, as in id:bigint")
        found.append(Column(name=name.strip(), type=kind.strip()))
    return tuple(found)
