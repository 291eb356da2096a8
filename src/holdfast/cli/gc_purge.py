"""`holdfast gc purge`."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import click

from holdfast.cli.call import Call, by_option, common_options, url_argument
from holdfast.cli.output import Command, Line, Part, View
from holdfast.cli.shapes import EXAMPLES_MAX, condemned_json, condemned_summary, condemned_table
from holdfast.cli.words import count, duration_text, parse_duration, time_text

if TYPE_CHECKING:
    from holdfast.chain.purge import Purged

__all__ = ["command"]


@click.command(name="purge")
@url_argument
@click.option("--grace", metavar="TIME", help="Only what was collected longer ago than this: 7d (default), 12h, 0s.")
@click.option("--apply", is_flag=True, help="Do it. Without this it only says what would be deleted.")
@by_option
@common_options
def command(url: str | None, grace: str | None, apply: bool, by: str | None, layout: str | None, as_json: bool) -> None:
    """Delete what was collected, once its grace period is over. This cannot be undone.

    A dry run unless --apply is given. HOLDFAST_GRACE, or `grace` in holdfast.toml, sets another default than 7d.

    JSON: applied, grace_s, collections, deleted (key, what, byte_size, last_id), byte_size, spared, stray_files.

    \b
    Examples:
      holdfast gc purge ./users
      holdfast gc purge ./users --grace 12h --apply
    """
    from holdfast.chain.purge import GRACE_S_DEFAULT

    call = Call(url, layout=layout, as_json=as_json, by=by)
    configured = call.settings.grace_s if call.settings.grace_s is not None else GRACE_S_DEFAULT
    grace_s = parse_duration(grace, name="--grace") if grace is not None else configured
    if apply:
        with call.output.progress("deleting") as progress:
            purged = call.chain.purge(grace_s=grace_s, progress=progress)
    else:
        purged = call.chain.plan_purge(grace_s=grace_s)
    data = {
        "command": "gc purge",
        "chain": call.identity,
        "applied": apply,
        "grace_s": grace_s,
        "collections": list(purged.collections),
        "deleted": [condemned_json(item) for item in purged.deleted],
        "byte_size": purged.byte_size,
        "spared": list(purged.spared),
        "stray_files": list(purged.stray_files),
    }
    call.output.show(View(data=data, parts=_parts(call, purged, grace_s=grace_s, apply=apply)))


def _parts(call: Call, purged: Purged, *, grace_s: float, apply: bool) -> list[Part]:
    grace = duration_text(grace_s)
    if not (purged.collections or purged.stray_files):
        return [Line(f"There is nothing to purge with a grace period of {grace}."), *_pending(call, grace_s)]
    verb = "Deleted" if apply else "Would delete"
    parts: list[Part] = [
        Line(
            f"{verb} what {count(len(purged.collections), 'collection')} took out of sight at least {grace} ago:"
            f" {condemned_summary(purged.deleted)}.",
            style="bold",
        )
    ]
    if purged.stray_files:
        names = ", ".join(purged.stray_files[:EXAMPLES_MAX])
        parts.append(Line(f"{count(len(purged.stray_files), 'leftover file')} of killed writers: {names}"))
    if purged.spared:
        parts.append(Line(f"{count(len(purged.spared), 'object')} stayed, because something needs it after all."))
    parts += [*condemned_table(purged.deleted), Line("")]
    if apply:
        return [*parts, Line("It cannot be restored.")]
    line = Line("This was a dry run. What is purged cannot be restored.")
    return [*parts, line, Command("do it", call.again("gc purge", grace=grace, apply=True))]


def _pending(call: Call, grace_s: float) -> list[Part]:
    """When the next collection may go."""
    pending = call.chain.pending_collections()
    if not pending:
        return []
    due = min(one.at for one, _ in pending) + timedelta(seconds=grace_s)
    number = count(len(pending), "collection")
    return [Line(f"{number} pending; the oldest may be purged from {time_text(due)} UTC on.")]
