"""`holdfast diff`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.cli.call import Call, common_options, split_words
from holdfast.cli.output import Column, Facts, Line, Part, Table, View
from holdfast.cli.shapes import EXAMPLES_MAX, artifact_json, move_json
from holdfast.cli.words import count, size_text
from holdfast.errors import BadInput

if TYPE_CHECKING:
    from holdfast.chain.chain import Chain
    from holdfast.chain.diff import Diff
    from holdfast.chain.pointer import Move

__all__ = ["command", "find_named"]


def find_named(chain: Chain, name: str) -> Move:
    """A snapshot by `REF`, `@OFFSET`, `run:ID`, `tag:KEY=VALUE` or `current`."""
    if name == "current":
        return chain.find()
    if name.startswith("@"):
        if not name[1:].isascii() or not name[1:].isdigit():
            raise BadInput(f"{name!r} is not an offset: use @ and a number, as in @1; `holdfast history` shows them")
        return chain.find(offset=int(name[1:]))
    kind, colon, rest = name.partition(":")
    if colon and kind == "run":
        return chain.find(run_id=rest)
    if colon and kind == "tag":
        key, equals, value = rest.partition("=")
        if not equals:
            raise BadInput(f"{name!r} is not a tag: use tag:KEY=VALUE; `holdfast tags` lists them")
        return chain.find(tag=(key, value))
    return chain.find(ref=name)


@click.command(name="diff")
@click.argument("words", nargs=-1, metavar="[URL] FROM TO")
@common_options
def command(words: tuple[str, ...], layout: str | None, as_json: bool) -> None:
    """Show what changed between two snapshots.

    FROM and TO are each a ref, an offset of `history` such as @1, a run as run:ID, a tag as tag:KEY=VALUE, or the
    word current.

    JSON: from, to (snapshots), added, removed (artifacts), kept, change_count, before, after (artifacts, rows, bytes).

    \b
    Examples:
      holdfast diff ./users @1 @0
      holdfast diff ./users tag:release=stable current
      holdfast diff ./users run:nightly-7 run:nightly-8 --json
    """
    url, (source_name, target_name) = split_words(words, 2, "[URL] FROM TO")
    call = Call(url, layout=layout, as_json=as_json)
    source, target = find_named(call.chain, source_name), find_named(call.chain, target_name)
    found = call.chain.diff(source, target)
    layout_of = call.chain.layout
    parts: list[Part] = [
        Facts([("from", layout_of.ref_of(source.manifest_path)), ("to", layout_of.ref_of(target.manifest_path))]),
        Line(""),
        _stats(found),
        Line(""),
        Line(
            f"{count(found.change_count, 'change')}: {len(found.added)} added, {len(found.removed)} removed,"
            f" {found.kept} kept"
        ),
    ]
    if found.change_count:
        parts += [Line(""), _artifacts(found)]
    data = {
        "command": "diff",
        "chain": call.identity,
        "from": move_json(call.chain, source),
        "to": move_json(call.chain, target),
        "added": [artifact_json(one) for one in found.added],
        "removed": [artifact_json(one) for one in found.removed],
        "kept": found.kept,
        "change_count": found.change_count,
        "before": _stats_json(found, after=False),
        "after": _stats_json(found, after=True),
    }
    call.output.show(View(data=data, parts=parts))


def _stats_json(found: Diff, *, after: bool) -> dict[str, int]:
    stats = found.after if after else found.before
    return {"artifacts": stats.artifacts, "rows": stats.rows, "bytes": stats.bytes}


def _stats(found: Diff) -> Table:
    before, after = found.before, found.after
    sign = "+" if after.bytes >= before.bytes else "-"
    columns = (
        Column(title=""),
        Column(title="before", right=True),
        Column(title="after", right=True),
        Column(title="change", right=True),
    )
    rows = [
        ("artifacts", f"{before.artifacts:,}", f"{after.artifacts:,}", f"{after.artifacts - before.artifacts:+,}"),
        ("rows", f"{before.rows:,}", f"{after.rows:,}", f"{after.rows - before.rows:+,}"),
        ("size", size_text(before.bytes), size_text(after.bytes), sign + size_text(abs(after.bytes - before.bytes))),
    ]
    return Table(columns, rows)


def _artifacts(found: Diff) -> Table:
    changes = [("+", one) for one in found.added] + [("-", one) for one in found.removed]
    rows = [
        (mark, f"{one.row_count:,}", size_text(one.byte_size), one.path) for mark, one in changes[: 2 * EXAMPLES_MAX]
    ]
    columns = (
        Column(title=""),
        Column(title="rows", right=True),
        Column(title="size", right=True),
        Column(title="path", keep="middle", least=20),
    )
    return Table(columns, rows, more=max(0, len(changes) - 2 * EXAMPLES_MAX))
