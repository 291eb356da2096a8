"""`holdfast gc restore`."""

from __future__ import annotations

import click

from holdfast.cli.call import Call, by_option, common_options
from holdfast.cli.gc_list import pending_view
from holdfast.cli.output import Command, Facts, Line, Part, View
from holdfast.cli.shapes import condemned_summary
from holdfast.cli.words import count

__all__ = ["command"]


@click.command(name="restore")
@click.argument("words", nargs=-1, metavar="[URL] [COLLECTION]")
@by_option
@common_options
def command(words: tuple[str, ...], by: str | None, layout: str | None, as_json: bool) -> None:
    """Take a collection back: its snapshots are history again, whole. Without one, list what can be restored.

    JSON: collection, snapshots (manifest ids), objects, byte_size, undo; without a collection that of `holdfast gc
    list`.

    \b
    Examples:
      holdfast gc restore ./users
      holdfast gc restore ./users 01KA4CZGT8E5YB7QJ0V3M2N1XR
    """
    url, collection = _split(words)
    call = Call(url, layout=layout, as_json=as_json, by=by)
    if collection is None:
        call.output.show(pending_view(call, "gc restore"))
        return
    record = call.chain.restore(collection)
    undo = call.again("gc collect", retention=record.retention, apply=True)
    data = {
        "command": "gc restore",
        "chain": call.identity,
        "collection": collection,
        "snapshots": list(record.snapshots),
        "objects": len(record.condemned),
        "byte_size": record.byte_size,
        "undo": undo,
    }
    parts: list[Part] = [
        Line(f"Restored: {count(len(record.snapshots), 'snapshot')} of the history can be read again.", style="bold"),
        Facts([("collection", collection), ("back", condemned_summary(record.condemned))]),
        Command("see it", call.again("history")),
        Command("collect it again", undo),
    ]
    call.output.show(View(data=data, parts=parts))


def _split(words: tuple[str, ...]) -> tuple[str | None, str | None]:
    """URL and collection; one word alone is a collection if it looks like one."""
    from holdfast.chain.ids import is_ulid

    match words:
        case ():
            return None, None
        case (word,):
            return (None, word) if is_ulid(word) else (word, None)
        case (url, collection):
            return url, collection
        case _:
            raise click.UsageError(
                f"expected [URL] [COLLECTION], got {len(words)} arguments", ctx=click.get_current_context()
            )
