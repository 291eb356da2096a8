"""`holdfast status`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.cli.call import Call, common_options, split_words
from holdfast.cli.output import Command, Line, Part, View
from holdfast.cli.shapes import move_json
from holdfast.cli.words import time_text

if TYPE_CHECKING:
    from holdfast.chain.verdict import Verdict

__all__ = ["command"]


@click.command(name="status")
@click.argument("words", nargs=-1, metavar="[URL] COMMIT_ULID")
@click.option("--settle", is_flag=True, help="If it may still land, see to it that it cannot, and answer again.")
@common_options
def command(words: tuple[str, ...], settle: bool, layout: str | None, as_json: bool) -> None:
    """Say what became of a commit whose answer was lost.

    Committed, superseded and never published are for good.

    "open" means that it may still land: ask again, or settle it with --settle.

    JSON: commit_ulid, verdict (committed, superseded, "never published" or open), snapshot (it, or the one that
    took its place).

    \b
    Examples:
      holdfast status ./users 01KA4CZGT8E5YB7QJ0V3M2N1XR
      holdfast status ./users 01KA4CZGT8E5YB7QJ0V3M2N1XR --settle
    """
    url, (commit_ulid,) = split_words(words, 1, "[URL] COMMIT_ULID")
    call = Call(url, layout=layout, as_json=as_json)
    verdict = call.chain.status(commit_ulid, settle=settle)
    data = {
        "command": "status",
        "chain": call.identity,
        "commit_ulid": commit_ulid,
        "verdict": verdict.kind.value,
        "snapshot": None if verdict.move is None else move_json(call.chain, verdict.move),
    }
    call.output.show(View(data=data, parts=_parts(call, verdict)))


def _parts(call: Call, verdict: Verdict) -> list[Part]:
    who = ""
    if verdict.move is not None:
        ref = call.chain.layout.ref_of(verdict.move.manifest_path)
        who = f"{ref}, by {verdict.move.by} at {time_text(verdict.move.at)} UTC"
    match verdict.kind.value:
        case "committed":
            return [Line(f"Committed: {who}.", style="green")]
        case "superseded":
            return [Line(f"Superseded, never visible. First published instead: {who}.", style="yellow")]
        case "open":
            return [
                Line("Open: nothing was published at or after it, so it may still land.", style="yellow"),
                Command("make sure that it cannot", call.again("status", verdict.commit_ulid, settle=True)),
            ]
        case _:
            return [Line("Never published, and it can no longer be.", style="yellow")]
