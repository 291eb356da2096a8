"""`holdfast reconcile`."""

from __future__ import annotations

import click

from holdfast.cli.call import Call, by_option, common_options, url_argument
from holdfast.cli.output import Column, Command, Line, Part, Table, View
from holdfast.cli.words import count

__all__ = ["command"]

_COLUMNS = (
    Column(title="found", least=28),
    Column(title="key", keep="middle", least=16),
    Column(title="state", least=16),
)


@click.command(name="reconcile")
@url_argument
@click.option("--apply", is_flag=True, help="Repair it. Without this it only says what was found.")
@by_option
@common_options
def command(url: str | None, apply: bool, by: str | None, layout: str | None, as_json: bool) -> None:
    """Find what interrupted writers left undone, and finish it. Deletes nothing.

    A dry run unless --apply is given. Orphans are only reported here: `holdfast gc collect` takes them.

    JSON: applied, findings (what, key, repaired, advice).

    \b
    Examples:
      holdfast reconcile ./workspace#domain:catalog
      holdfast reconcile ./workspace#domain:catalog --apply
    """
    call = Call(url, layout=layout, as_json=as_json, by=by)
    findings = call.chain.reconcile(enforce=apply)
    rows = [(one.what, one.key, "repaired" if one.repaired else one.advice or "to repair") for one in findings]
    parts: list[Part] = [Line("Nothing was left undone.", style="green")]
    if findings:
        repaired = sum(one.repaired for one in findings)
        head = f"Found {count(len(findings), 'thing')} left undone" + (f", repaired {repaired}." if apply else ".")
        parts = [Line(head, style="bold"), Line(""), Table(_COLUMNS, rows)]
        if not apply and any(not one.advice for one in findings):
            parts += [Line(""), Line("This was a dry run."), Command("repair it", call.again("reconcile", apply=True))]
    data = {
        "command": "reconcile",
        "chain": call.identity,
        "applied": apply,
        "findings": [
            {"what": one.what, "key": one.key, "repaired": one.repaired, "advice": one.advice} for one in findings
        ],
    }
    call.output.show(View(data=data, parts=parts))
