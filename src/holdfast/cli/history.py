"""`holdfast history`."""

from __future__ import annotations

import click

from holdfast.cli.call import Call, common_options, url_argument
from holdfast.cli.kv import KvCommand
from holdfast.cli.output import Column, Command, Line, Part, Table, View
from holdfast.cli.shapes import REF, snapshot_json
from holdfast.cli.words import tags_text, time_text

__all__ = ["command"]

_COLUMNS = (
    Column(title="offset", right=True),
    Column(title="published_at (UTC)"),
    Column(title="run_id", keep="middle", least=12),
    REF,
    Column(title="tags", least=15),
    Column(title="current"),
)


@click.command(name="history", cls=KvCommand)
@url_argument
@click.option("--limit", type=click.IntRange(min=1), default=10, show_default=True, help="How many snapshots to show.")
@common_options
def command(url: str | None, limit: int, layout: str | None, as_json: bool) -> None:
    """List what was ever visible, newest first.

    Rolled-back snapshots are history; manifests that were never visible, and collected ones, are not.

    JSON: snapshots (offset, ref, manifest_id, run_id, published_at, commit_ulid, by, tags, current), more (true if
    there are older ones).

    \b
    Examples:
      holdfast history s3://bucket/team/datasets/users
      holdfast history ./users --limit 3
      holdfast history ./workspace#domain:catalog --json
    """
    call = Call(url, layout=layout, as_json=as_json)
    listed = call.chain.list_snapshots(limit=limit + 1)[::-1]
    current = call.chain.current()
    shown = [
        (offset, found.snapshot, dict(found.tags), current is not None and found.snapshot.ref == current.ref)
        for offset, found in enumerate(listed[:limit])
    ]
    rows = [
        (str(offset), time_text(one.published_at), one.run_id, one.ref, tags_text(tags), "yes" if is_current else "")
        for offset, one, tags, is_current in shown
    ]
    more = len(listed) > limit
    parts: list[Part] = [Table(_COLUMNS, rows)]
    if more:
        parts.append(Line(f"… and older ones: --limit {10 * limit} shows more"))
    if not listed:
        parts = [Line("Nothing was published here yet.")]
    elif current is not None and current.ref == call.chain.layout.mirror_key:
        parts += [
            Line(""),
            Line(
                f"Readers see {current.ref}: writers publish to the legacy path only, and the history stays as it is."
            ),
            Command("undo it", call.again("switch", "pointer")),
        ]
    elif current is not None and current.ref != listed[0].snapshot.ref:
        everything = call.chain.list_snapshots()[::-1]
        offset = next((index for index, one in enumerate(everything) if one.snapshot.ref == current.ref), None)
        parts += [
            Line(""),
            Line(f"Readers see offset {offset}: what is newer was rolled back."),
            Command("undo it", call.again("forward")),
        ]
    data = {
        "command": "history",
        "chain": call.identity,
        "snapshots": [
            {"offset": offset, **snapshot_json(one), "tags": tags, "current": is_current}
            for offset, one, tags, is_current in shown
        ],
        "more": more,
    }
    call.output.show(View(data=data, parts=parts))
