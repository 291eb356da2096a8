"""`holdfast sql status`."""

from __future__ import annotations

import shlex

import click

from holdfast.cli.output import Column, Command, Line, Part, Table, View, make_output

__all__ = ["command"]

_COLUMNS = (
    Column(title="chain", keep="middle", least=16),
    Column(title="layout"),
    Column(title="artifacts", keep="middle", least=20),
)


@click.command(name="status")
@click.argument("url", metavar="URL")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")
def command(url: str, as_json: bool) -> None:
    """Say which tables and chains a database has. Changes nothing.

    JSON: url, version (0 where there are no tables), needed, current, chains (chain, layout, artifacts).

    \b
    Examples:
      holdfast sql status sqlite:///manifests.db
    """
    from holdfast.chain.sql.migration import schema_status

    output = make_output(as_json=as_json)
    found = schema_status(url)
    parts: list[Part] = [Line(f"{found.url} is at schema version {found.version}; this release needs {found.needed}.")]
    if not found.is_current:
        parts.append(Command("bring it there", shlex.join(["holdfast", "sql", "migrate", found.url])))
    elif found.chains:
        parts += [Line(""), Table(_COLUMNS, found.chains)]
    else:
        parts.append(Line("It holds no chain yet."))
    data = {
        "command": "sql status",
        "url": found.url,
        "version": found.version,
        "needed": found.needed,
        "current": found.is_current,
        "chains": [
            {"chain": name, "layout": layout, "artifacts": artifacts} for name, layout, artifacts in found.chains
        ],
    }
    output.show(View(data=data, parts=parts))
