"""`holdfast catalog drop`."""

from __future__ import annotations

import click

from holdfast.cli.call import by_option
from holdfast.cli.catalog_call import CatalogCall, compactor_option, workspace_and
from holdfast.cli.catalog_find import find_named
from holdfast.cli.catalog_register import applied_json, fresh_key
from holdfast.cli.graph_call import json_option
from holdfast.cli.output import Line, View

__all__ = ["command"]

_KINDS = ("namespace", "table")
"""A data set is not dropped: it is what was published."""


@click.command(name="drop")
@click.argument("words", nargs=-1, metavar="[WORKSPACE] NAMESPACE[.TABLE]")
@click.option("--kind", type=click.Choice(_KINDS), help="Which, where both have this name.")
@compactor_option
@by_option
@json_option
def command(words: tuple[str, ...], kind: str | None, compactor: str | None, by: str | None, as_json: bool) -> None:
    """Take a table, or a namespace without tables, out of the catalog.

    The data stays where it is, and `--at` still shows what was known.

    JSON: kind, name, event_id, position, snapshot_version.

    \b
    Examples:
      holdfast catalog drop ./lake/acme/prod sales.orders
      holdfast catalog drop s3://bucket/lake/acme/prod sales --json
    """
    from holdfast.catalog.operations import Catalog
    from holdfast.catalog.reading import read_tables

    url, (name,) = workspace_and(words, 1, "[WORKSPACE] NAMESPACE[.TABLE]")
    call = CatalogCall(url, as_json=as_json, by=by)
    there = read_tables(call.workspace, "catalog", ["namespaces", "tables", "datasets"])
    found = find_named(there, name, _KINDS if kind is None else (kind,))
    catalog, key = Catalog(call.workspace, call.remote_compactor(compactor)), fresh_key(call.workspace)
    if found.kind == "table":
        applied = catalog.drop_table(found.row["namespace"], found.row["table"], key=key)
    else:
        applied = catalog.delete_namespace(name, key=key)
    data = call.document("catalog drop", kind=found.kind, name=name, **applied_json(applied))
    call.output.show(View(data=data, parts=[Line(f"{found.kind.capitalize()} {name} is dropped.")]))
