"""`holdfast tag`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.cli.call import Call, by_option, common_options, snapshot_options
from holdfast.cli.output import Command, Facts, Line, View
from holdfast.cli.words import tags_text
from holdfast.errors import BadInput

if TYPE_CHECKING:
    from holdfast.chain.chain import Chain
    from holdfast.chain.pointer import Move

__all__ = ["command"]


@click.command(name="tag")
@click.argument("words", nargs=-1, metavar="[URL] KEY=VALUE...")
@snapshot_options
@click.option("--remove", multiple=True, metavar="KEY", help="Take this tag away; may be given several times.")
@by_option
@common_options
def command(
    words: tuple[str, ...],
    ref: str | None,
    run_id: str | None,
    offset: int | None,
    remove: tuple[str, ...],
    by: str | None,
    layout: str | None,
    as_json: bool,
) -> None:
    """Tag a snapshot: the visible one, or the one that is named. A tagged snapshot is never collected.

    JSON: ref, manifest_id, before, tags (all it has now), undo.

    \b
    Examples:
      holdfast tag ./users release=stable
      holdfast tag ./users release=stable owner=ml --offset 1
      holdfast tag ./users --remove release --run-id nightly-7
    """
    url, pairs = _split(words)
    changes = _changes(pairs, remove)
    call = Call(url, layout=layout, as_json=as_json, by=by)
    target = call.chain.find(ref=ref, run_id=run_id, offset=offset)
    before = _tags(call.chain, target)
    call.chain.tag(target, changes)
    after = _tags(call.chain, target)
    name = call.chain.layout.ref_of(target.manifest_path)
    undo = _undo(call, name, before, changes)
    data = {
        "command": "tag",
        "chain": call.identity,
        "ref": name,
        "manifest_id": target.target_id,
        "before": before,
        "tags": after,
        "undo": undo,
    }
    kept = "Tagged: the collector will keep this snapshot." if after else "No tag is left: the collector may take it."
    facts = [("ref", name), ("before", tags_text(before) or "none"), ("tags", tags_text(after) or "none")]
    parts = [Line(kept, style="bold"), Facts(facts), *((Command("undo it", undo),) if undo else ())]
    call.output.show(View(data=data, parts=parts))


def _split(words: tuple[str, ...]) -> tuple[str | None, list[str]]:
    """The URL, if the first word is one: it has no `=`, or a slash before it."""
    if words and ("=" not in words[0] or "/" in words[0].partition("=")[0]):
        return words[0], list(words[1:])
    return None, list(words)


def _changes(pairs: list[str], remove: tuple[str, ...]) -> dict[str, str | None]:
    changes: dict[str, str | None] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals:
            raise BadInput(f"{pair!r} is not a tag: use KEY=VALUE, as in release=stable")
        changes[key] = value
    both = sorted(set(changes) & set(remove))
    if both:
        raise BadInput(f"tag {both[0]!r} is both set and removed: choose one")
    changes |= dict.fromkeys(remove)
    if not changes:
        raise BadInput("there is nothing to do; give KEY=VALUE, or --remove KEY")
    return changes


def _tags(chain: Chain, target: Move) -> dict[str, str]:
    return next(
        (dict(one.tags) for one in chain.list_snapshots() if one.snapshot.manifest_id == target.target_id),
        {},
    )


def _undo(call: Call, ref: str, before: dict[str, str], changes: dict[str, str | None]) -> str | None:
    """The command that sets what was there before; None if nothing has changed."""
    changed = [key for key in changes if before.get(key) != changes[key]]
    if not changed:
        return None
    words = [f"{key}={before[key]}" for key in changed if key in before]
    added = [key for key in changed if key not in before]
    for key in added:
        words += ["--remove", key]
    return call.again("tag", *words, ref=ref)
