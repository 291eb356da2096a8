"""`holdfast forward`."""

from __future__ import annotations

import click

from holdfast.cli.call import Call, by_option, common_options, url_argument, why_option
from holdfast.cli.output import Command, View
from holdfast.cli.rollback import moved_json, moved_parts

__all__ = ["command"]


@click.command(name="forward")
@url_argument
@why_option
@by_option
@common_options
def command(url: str | None, why: str, by: str | None, layout: str | None, as_json: bool) -> None:
    """Undo the newest rollback.

    JSON: moved, left, current (snapshots), repair_pending, undo.

    \b
    Examples:
      holdfast forward ./users
      holdfast forward ./users --why "it was the dashboard, not the data"
    """
    call = Call(url, layout=layout, as_json=as_json, by=by)
    moved = call.chain.forward(why=why)
    undo = call.again("rollback", ref=moved.left.ref)
    parts = [*moved_parts("Rolled forward.", moved), Command("undo it", undo)]
    call.output.show(View(data=moved_json("forward", call.identity, moved, undo=undo), parts=parts))
