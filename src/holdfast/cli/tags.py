"""`holdfast tags`."""

from __future__ import annotations

import click

from holdfast.cli.call import Call, common_options, url_argument
from holdfast.cli.output import Column, Command, Line, Part, Table, View
from holdfast.cli.shapes import REF, snapshot_json
from holdfast.cli.words import tags_text, time_text

__all__ = ["command"]

_COLUMNS = (
    Column(title="tags", least=20),
    Column(title="published_at (UTC)"),
    Column(title="run_id", keep="middle", least=12),
    REF,
)


@click.command(name="tags")
@url_argument
@click.option("--filter", "wanted", metavar="KEY[=VALUE]", help="Only snapshots with this tag, or this tag and value.")
@common_options
def command(url: str | None, wanted: str | None, layout: str | None, as_json: bool) -> None:
    """List the tagged snapshots, newest first.

    JSON: snapshots (ref, manifest_id, run_id, published_at, commit_ulid, by, tags).

    \b
    Examples:
      holdfast tags ./users
      holdfast tags ./users --filter release
      holdfast tags ./users --filter release=stable --json
    """
    call = Call(url, layout=layout, as_json=as_json)
    key, equals, value = (wanted or "").partition("=")
    found = call.chain.list_snapshots(key or None, value if equals else None)
    tagged = [(one.snapshot, dict(one.tags)) for one in reversed(found) if one.tags]
    rows = [(tags_text(tags), time_text(one.published_at), one.run_id, one.ref) for one, tags in tagged]
    parts: list[Part] = [Table(_COLUMNS, rows)]
    if not tagged:
        what = f"No snapshot is tagged {wanted}." if wanted else "No snapshot is tagged."
        parts = [
            Line(what),
            Command("tag the visible one", call.again("tag", wanted if equals and wanted else "KEY=VALUE")),
        ]
    data = {
        "command": "tags",
        "chain": call.identity,
        "snapshots": [{**snapshot_json(one), "tags": tags} for one, tags in tagged],
    }
    call.output.show(View(data=data, parts=parts))
