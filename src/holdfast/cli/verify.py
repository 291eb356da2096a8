"""`holdfast verify`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.cli.call import Call, common_options, require_there, url_argument
from holdfast.cli.failures import EXIT_DAMAGED
from holdfast.cli.output import Command, Line, Part, Progress, View
from holdfast.cli.words import count

if TYPE_CHECKING:
    from holdfast.chain.verify import Break

__all__ = ["command"]


class _Counted:
    """Passes progress on and remembers how many artifacts there were."""

    def __init__(self, then: Progress) -> None:
        self.total = 0
        self._then = then

    def __call__(self, done: int, total: int) -> None:
        self.total = total
        self._then(done, total)


@click.command(name="verify")
@url_argument
@click.option("--quick", is_flag=True, help="Ask the store for sizes instead of reading and hashing every artifact.")
@common_options
@click.pass_context
def command(context: click.Context, url: str | None, quick: bool, layout: str | None, as_json: bool) -> None:
    """Check everything, pointer to bytes, and list every break. Changes nothing.

    The exit code is 6 if anything is broken. With --layout, a chain whose pointer was lost is told from none at all.

    JSON: ok, quick, artifacts (how many were checked), breaks (invariant, key, problem).

    \b
    Examples:
      holdfast verify ./users
      holdfast verify s3://bucket/team/datasets/users --quick
      holdfast verify ./users --json
    """
    call = Call(url, layout=layout, as_json=as_json, may_be_lost=True)
    with call.output.progress("verifying artifacts") as progress:
        counted = _Counted(progress)
        breaks = call.chain.verify(read_artifacts=not quick, progress=counted)
    if not breaks:
        require_there(call.chain)
    checked = f"{count(counted.total, 'artifact')} {'sized' if quick else 'hashed'}"
    parts: list[Part] = [
        Line(f"Nothing is broken: pointer, log, manifests, tags and runs read, {checked}.", style="green")
    ]
    if breaks:
        parts = [Line(f"{count(len(breaks), 'break')} found ({checked}):", style="bold red"), Line("")]
        for one in breaks:
            parts += [Line(f"{one.invariant}  {one.key}"), Line(_problem(one), indent=4)]
        parts += [
            Line(""),
            Command("what an interrupted writer left undone", call.again("reconcile")),
            Command("make an older snapshot visible", call.again("rollback")),
        ]
    data = {
        "command": "verify",
        "chain": call.identity,
        "ok": not breaks,
        "quick": quick,
        "artifacts": counted.total,
        "breaks": [{"invariant": one.invariant, "key": one.key, "problem": one.problem} for one in breaks],
    }
    call.output.show(View(data=data, parts=parts))
    if breaks:
        context.exit(EXIT_DAMAGED)


def _problem(one: Break) -> str:
    """Without the key where the problem repeats it."""
    return one.problem.removeprefix(f"{one.key!r} is damaged: ")
