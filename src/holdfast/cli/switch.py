"""`holdfast switch`."""

from __future__ import annotations

import click

from holdfast.cli.call import Call, by_option, common_options, split_words, why_option
from holdfast.cli.output import Command, Line, View
from holdfast.errors import BadInput

__all__ = ["command"]

_OTHER = {"legacy": "pointer", "pointer": "legacy"}
_SAYS = {
    "legacy": "Writers publish to the legacy path only from now on. Readers go on reading.",
    "pointer": "Writers publish by the pointer again. What the legacy path held is the newest snapshot.",
}


@click.command(name="switch")
@click.argument("words", nargs=-1, metavar="[URL] legacy|pointer")
@why_option
@by_option
@common_options
def command(words: tuple[str, ...], why: str, by: str | None, layout: str | None, as_json: bool) -> None:
    """Switch to legacy-only writes, or back to the pointer.

    To legacy it is refused until root and legacy manifest are current. Readers keep working at every step.

    JSON: publishing, undo.

    \b
    Examples:
      holdfast switch ./workspace#domain:catalog legacy --why "rollback playbook"
      holdfast switch ./workspace#domain:catalog pointer
    """
    url, (to,) = split_words(words, 1, "[URL] legacy|pointer")
    if to not in _OTHER:
        raise BadInput(f"{to!r} is no way of publishing: use legacy or pointer")
    call = Call(url, layout=layout, as_json=as_json, by=by)
    call.chain.switch_publishing(to, why=why)
    undo = call.again("switch", _OTHER[to])
    data = {"command": "switch", "chain": call.identity, "publishing": to, "undo": undo}
    call.output.show(View(data=data, parts=[Line(_SAYS[to], style="bold"), Command("undo it", undo)]))
