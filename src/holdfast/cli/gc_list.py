"""`holdfast gc list`, and what `holdfast gc restore` shows when it is not told what to restore."""

from __future__ import annotations

import click

from holdfast.cli.call import Call, common_options, url_argument
from holdfast.cli.output import Column, Command, Line, Part, Table, View
from holdfast.cli.words import size_text, time_text
from holdfast.clock import format_time

__all__ = ["command", "pending_view"]

_COLUMNS = (
    Column(title="collection"),
    Column(title="collected_at (UTC)"),
    Column(title="snapshots", right=True),
    Column(title="size", right=True),
    Column(title="by", keep="middle", least=6),
)


@click.command(name="list")
@url_argument
@common_options
def command(url: str | None, layout: str | None, as_json: bool) -> None:
    """List the collections that were not purged yet, oldest first.

    JSON: collections (collection, collected_at, by, retention, snapshots, objects, byte_size, purging).

    \b
    Examples:
      holdfast gc list ./users
    """
    call = Call(url, layout=layout, as_json=as_json)
    call.output.show(pending_view(call, "gc list"))


def pending_view(call: Call, command_name: str) -> View:
    """The collections that can be restored."""
    pending = call.chain.pending_collections()
    rows = [
        (
            record.collection,
            time_text(record.collected_at),
            str(len(record.snapshots)),
            size_text(record.byte_size),
            "being purged" if one.purging else record.by,
        )
        for one, record in pending
    ]
    parts: list[Part] = [Line("Nothing is collected, so there is nothing to restore or purge.")]
    if pending:
        parts = [
            Table(_COLUMNS, rows),
            Line(""),
            Command("restore the newest", call.again("gc restore", pending[-1][1].collection)),
            Command("see what a purge would delete", call.again("gc purge")),
        ]
    data = {
        "command": command_name,
        "chain": call.identity,
        "collections": [
            {
                "collection": record.collection,
                "collected_at": format_time(record.collected_at),
                "by": record.by,
                "retention": record.retention,
                "snapshots": list(record.snapshots),
                "objects": len(record.condemned),
                "byte_size": record.byte_size,
                "purging": one.purging,
            }
            for one, record in pending
        ],
    }
    return View(data=data, parts=parts)
