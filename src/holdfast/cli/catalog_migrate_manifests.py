"""`holdfast catalog migrate-manifests`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.cli.call import by_option
from holdfast.cli.catalog_call import CatalogCall, workspace_argument
from holdfast.cli.graph_call import json_option
from holdfast.cli.output import Column, Command, Line, Part, Table, View
from holdfast.cli.words import count

if TYPE_CHECKING:
    from holdfast.catalog.migrate import Step

__all__ = ["command"]

_COLUMNS = (
    Column(title="domain"),
    Column(title="what"),
    Column(title="from", keep="middle", least=16),
    Column(title="state", least=16),
)


@click.command(name="migrate-manifests")
@workspace_argument
@click.option("--apply", is_flag=True, help="Convert it. Without this it only says what was found.")
@click.option(
    "--superseded",
    is_flag=True,
    help="Take over what lies at tenant=TENANT/_catalog and tenant=TENANT/_events below the root, too.",
)
@by_option
@json_option
def command(url: str | None, apply: bool, superseded: bool, by: str | None, as_json: bool) -> None:
    """Convert what an older release left: old names of domains, camelCase fields, old layouts. Deletes nothing.

    A dry run unless --apply is given. Readers read all the time; stop the writers of the older release first. It may be
    stopped and repeated at any time, and done twice it finds nothing the second time.

    JSON: applied, steps (what, domain, source, count, done, advice).

    \b
    Examples:
      holdfast catalog migrate-manifests ./lake/acme/prod
      holdfast catalog migrate-manifests s3://bucket/lake/acme/prod --superseded --apply --json
    """
    call = CatalogCall(url, as_json=as_json, by=by, may_be_new=True)
    from holdfast.catalog.migrate import migrate

    steps = migrate(call.workspace, superseded=superseded, enforce=apply)
    data = call.document(
        "catalog migrate-manifests",
        applied=apply,
        steps=[
            {
                "what": step.what,
                "domain": step.domain or None,
                "source": step.source,
                "count": step.count,
                "done": step.done,
                "advice": step.advice,
            }
            for step in steps
        ],
    )
    again = call.again("catalog migrate-manifests", *(["--superseded"] if superseded else []), "--apply")
    call.output.show(View(data=data, parts=_parts(steps, apply, again)))


def _parts(steps: list[Step], apply: bool, again: str) -> list[Part]:
    if not steps:
        return [Line("Nothing is left of older releases.", style="green")]
    rows = [(step.domain or "all", _what(step), step.source, _state(step)) for step in steps]
    converted = sum(step.done for step in steps)
    head = f"Converted {count(converted, 'thing')}." if apply else f"Found {count(len(steps), 'thing')} to look at."
    parts: list[Part] = [Line(head, style="bold"), Line(""), Table(_COLUMNS, rows)]
    if apply:
        return [*parts, Line(""), Line("Nothing of the old layout was changed or deleted.")]
    if any(not step.advice for step in steps):
        parts += [Line(""), Line("This was a dry run."), Command("convert it", again)]
    return parts


def _what(step: Step) -> str:
    if step.what in {"counter", "mirror", "root"}:
        return step.what
    return count(step.count, "row" if step.what == "state" else "event")


def _state(step: Step) -> str:
    return step.advice or ("converted" if step.done else "to convert")
