"""`holdfast sql migrate`."""

from __future__ import annotations

import click

from holdfast.cli.output import Line, View, make_output

__all__ = ["command"]


@click.command(name="migrate")
@click.argument("url", metavar="URL")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")
def command(url: str, as_json: bool) -> None:
    """Make the tables, or bring them to this release. Running it again changes nothing.

    JSON: url, before, after (schema versions; before is 0 where there were no tables).

    \b
    Examples:
      holdfast sql migrate sqlite:///manifests.db
      holdfast sql migrate postgresql://host/database
    """
    from holdfast.chain.sql.migration import migrate

    output = make_output(as_json=as_json)
    done = migrate(url)
    said = f"{done.url} is at schema version {done.after}"
    said += " already; nothing was changed." if done.before == done.after else f" now; it was at {done.before}."
    data = {"command": "sql migrate", "url": done.url, "before": done.before, "after": done.after}
    output.show(View(data=data, parts=[Line(said)]))
