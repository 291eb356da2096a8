"""`holdfast rollback`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.cli.call import Call, by_option, common_options, snapshot_options, url_argument, why_option
from holdfast.cli.downstream import DownstreamSearch
from holdfast.cli.output import Column, Command, Facts, Line, Part, Table, View
from holdfast.cli.shapes import EXAMPLES_MAX, snapshot_json, snapshot_text
from holdfast.cli.words import count
from holdfast.clock import format_time

if TYPE_CHECKING:
    from holdfast.chain.lineage import Downstream
    from holdfast.chain.moved import RolledBack

__all__ = ["command", "moved_json", "moved_parts"]


@click.command(name="rollback")
@url_argument
@snapshot_options
@click.option(
    "--downstream-in",
    multiple=True,
    metavar="URL",
    help="A chain, or a folder of chains, to search for what was built from it. The data sets beside it if not given.",
)
@why_option
@by_option
@common_options
def command(
    url: str | None,
    ref: str | None,
    run_id: str | None,
    offset: int | None,
    downstream_in: tuple[str, ...],
    why: str,
    by: str | None,
    layout: str | None,
    as_json: bool,
) -> None:
    """Make an older snapshot the visible one. Without --ref, --run-id or --offset: the one before.

    Nothing is deleted: `holdfast forward` undoes it. Names every published snapshot that was built from what is
    taken back.

    JSON: moved, left, current (snapshots), downstream (chain, ref, run_id, published_at, built_from, visible),
    searched, skipped, repair_pending, undo.

    \b
    Examples:
      holdfast rollback ./users
      holdfast rollback ./users --offset 2 --why "wrong prices since Monday"
      holdfast rollback s3://bucket/team/datasets/users --run-id nightly-7
      holdfast rollback ./users --downstream-in ./scores --downstream-in ./reports
    """
    call = Call(url, layout=layout, as_json=as_json, by=by)
    search = DownstreamSearch.around(call.chain, downstream_in)
    current = call.chain.current()
    if (ref, run_id, offset) != (None, None, None) and current is not None:
        target = call.chain.find(ref=ref, run_id=run_id, offset=offset)
        if target.manifest_path == current.manifest_path:
            data = {"command": "rollback", "chain": call.identity, "moved": False, "current": snapshot_json(current)}
            line = Line(f"{current.ref} is what readers see already; nothing was changed.")
            call.output.show(View(data=data, parts=[line, Command("see", call.again("history"))]))
            return
    moved = call.chain.rollback(ref=ref, run_id=run_id, offset=offset, why=why, downstream_in=search.handles)
    is_forward = moved.current.manifest_id > moved.left.manifest_id
    undo = call.again("rollback", ref=moved.left.ref) if is_forward else call.again("forward")
    data = {
        **moved_json("rollback", call.identity, moved, undo=undo),
        "downstream": [_downstream_json(one) for one in moved.downstream],
        "searched": search.searched,
        "unread": list(moved.unread),
    }
    parts = [*moved_parts("Rolled back.", moved), *_downstream_parts(moved, search), Command("undo it", undo)]
    call.output.show(View(data=data, parts=parts))


def moved_json(command_name: str, chain: str, moved: RolledBack, *, undo: str) -> dict[str, object]:
    return {
        "command": command_name,
        "chain": chain,
        "moved": True,
        "left": snapshot_json(moved.left),
        "current": snapshot_json(moved.current),
        "repair_pending": list(moved.repair_pending),
        "undo": undo,
    }


def moved_parts(headline: str, moved: RolledBack) -> list[Part]:
    from holdfast.chain.moved import ANNOUNCEMENT

    parts: list[Part] = [
        Line(f"{headline} Readers see this from their next refresh on; nothing was deleted.", style="bold"),
        Facts([("left", snapshot_text(moved.left)), ("current", snapshot_text(moved.current))]),
    ]
    if ANNOUNCEMENT in moved.repair_pending:
        parts.append(Line("The catalog could not be told: run `holdfast catalog announce` once it can be reached."))
    unwritten = [what for what in moved.repair_pending if what != ANNOUNCEMENT]
    if unwritten:
        what = " and ".join(unwritten)
        parts.append(
            Line(f"The pointer has moved, but the {what} could not be written: run `holdfast reconcile --apply`.")
        )
    return parts


def _downstream_json(one: Downstream) -> dict[str, object]:
    return {
        "chain": one.chain,
        "ref": one.snapshot.ref,
        "run_id": one.snapshot.run_id,
        "published_at": format_time(one.snapshot.published_at),
        "built_from": one.built_from,
        "visible": one.visible,
    }


def _downstream_parts(moved: RolledBack, search: DownstreamSearch) -> list[Part]:
    parts: list[Part] = [Line("")]
    if moved.downstream:
        rows = [
            (one.chain, one.snapshot.run_id, "yes" if one.visible else "", one.built_from)
            for one in moved.downstream[: 2 * EXAMPLES_MAX]
        ]
        columns = (
            Column(title="chain", keep="end", least=20),
            Column(title="run_id", keep="middle", least=12),
            Column(title="visible"),
            Column(title="built_from", keep="middle", least=16),
        )
        number = len(moved.downstream)
        was = "was" if number == 1 else "were"
        parts += [
            Line(f"{count(number, 'published snapshot')} downstream {was} built from what was rolled back:"),
            Table(columns, rows, more=max(0, number - 2 * EXAMPLES_MAX)),
        ]
    elif search.searched:
        parts.append(
            Line(f"Nothing in {count(len(search.searched), 'other chain')} was built from what was rolled back.")
        )
    else:
        parts.append(Line("Downstream was not searched: name chains with --downstream-in URL."))
    parts += [Line(f"Could not look into {problem}", style="yellow") for problem in moved.unread]
    return parts
