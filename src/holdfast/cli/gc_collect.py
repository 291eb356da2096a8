"""`holdfast gc collect`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.cli.call import Call, by_option, common_options, url_argument
from holdfast.cli.output import Command, Line, Part, View
from holdfast.cli.shapes import condemned_json, condemned_summary, condemned_table, move_json, snapshots_table
from holdfast.cli.words import count
from holdfast.errors import BadInput

if TYPE_CHECKING:
    from holdfast.chain.collect import CollectionPlan

__all__ = ["command"]


@click.command(name="collect")
@url_argument
@click.option(
    "--retention", type=int, metavar="N", help="How many of the newest snapshots to keep; HOLDFAST_RETENTION."
)
@click.option("--apply", is_flag=True, help="Do it. Without this it only says what would go.")
@by_option
@common_options
def command(
    url: str | None, retention: int | None, apply: bool, by: str | None, layout: str | None, as_json: bool
) -> None:
    """Take out of sight what nothing needs: old snapshots, their files, and what abandoned runs left.

    Keeps the newest N snapshots, the visible one, every tagged one, and whatever those name. Nothing is deleted:
    `holdfast gc restore` brings it back until `holdfast gc purge` has deleted it. A dry run unless --apply is
    given.

    JSON: applied, collection, retention, snapshots, kept, abandoned_runs, condemned (key, what, byte_size,
    last_id), byte_size, unreadable.

    \b
    Examples:
      holdfast gc collect ./users --retention 5
      holdfast gc collect ./users --retention 5 --apply
    """
    call = Call(url, layout=layout, as_json=as_json, by=by)
    keep = retention if retention is not None else call.settings.retention
    if keep is None:
        raise BadInput("how many snapshots should stay? Give --retention N, or `retention` in holdfast.toml")
    plan = call.chain.collect(retention=keep) if apply else call.chain.plan_collection(retention=keep)
    data = {
        "command": "gc collect",
        "chain": call.identity,
        "applied": apply,
        "collection": plan.collection,
        "retention": keep,
        "snapshots": [move_json(call.chain, move) for move in plan.snapshots],
        "kept": [move_json(call.chain, move) for move in plan.kept],
        "abandoned_runs": list(plan.runs),
        "condemned": [condemned_json(item) for item in plan.condemned],
        "byte_size": plan.byte_size,
        "unreadable": list(plan.unreadable),
    }
    call.output.show(View(data=data, parts=_parts(call, plan, keep=keep, apply=apply)))


def _parts(call: Call, plan: CollectionPlan, *, keep: int, apply: bool) -> list[Part]:
    warnings = [Line(f"Stays, because it cannot be read: {problem}", style="yellow") for problem in plan.unreadable]
    if plan.is_empty:
        return [Line(f"There is nothing to collect: {_kept(plan, keep)}."), *warnings]
    verb = "Collected" if apply else "Would collect"
    parts: list[Part] = [
        Line(f"{verb} {count(len(plan.snapshots), 'snapshot')}: {_kept(plan, keep)}.", style="bold"),
    ]
    if plan.condemned:
        parts.append(
            Line(f"{'Out of sight' if apply else 'Would go out of sight'}: {condemned_summary(plan.condemned)}.")
        )
    if plan.runs:
        parts.append(Line(f"{count(len(plan.runs), 'abandoned run')}: {', '.join(plan.runs[:5])}"))
    if plan.snapshots:
        parts += [Line(""), snapshots_table(call.chain, plan.snapshots)]
    parts += [*condemned_table(plan.condemned), *warnings, Line("")]
    if apply and plan.collection is not None:
        parts += [
            Line(f"Nothing was deleted. This is collection {plan.collection}."),
            Command("undo it", call.again("gc restore", plan.collection)),
            Command("delete it after the grace period", call.again("gc purge", apply=True)),
        ]
    elif not apply:
        parts += [Line("This was a dry run."), Command("do it", call.again("gc collect", retention=keep, apply=True))]
    return parts


def _kept(plan: CollectionPlan, keep: int) -> str:
    """How many stay, and why that may be more than was asked for."""
    beyond = len(plan.kept) - keep
    why = f", {beyond} of them because visible, tagged or in use" if beyond > 0 else ""
    return f"{count(len(plan.kept), 'snapshot')} kept{why}"
