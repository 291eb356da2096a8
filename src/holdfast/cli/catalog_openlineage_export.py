"""`holdfast catalog openlineage export`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

import click
import orjson

from holdfast.cli.catalog_call import CatalogCall, at_option, moment_or_none, workspace_argument
from holdfast.cli.output import View
from holdfast.errors import BadInput

if TYPE_CHECKING:
    from openlineage.client import event_v2 as ol

__all__ = ["chosen_events", "command", "openlineage_extra", "which_options"]

_F = TypeVar("_F", bound=Callable[..., object])


def which_options(function: _F) -> _F:
    """Which events are meant, and what their jobs are called."""
    function = click.option(
        "--namespace", metavar="NAME", help="The namespace of jobs; holdfast://TENANT/WORKSPACE if not given."
    )(function)
    function = click.option("--run", "run_id", metavar="RUN", help="Only of this run and its tasks.")(function)
    return click.option(
        "--since", metavar="TIME", help="Only what happened from then on, in UTC: 2026-11-15T12:30, or a day."
    )(function)


@contextmanager
def openlineage_extra() -> Iterator[None]:
    """Around what needs a library that a plain installation does not have."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "openlineage":
            raise
        raise BadInput(
            "this needs openlineage-python, which is not installed: pip install 'holdfast[openlineage]'"
        ) from None


def chosen_events(
    call: CatalogCall, since: str | None, run_id: str | None, namespace: str | None, at: datetime | None = None
) -> list[ol.RunEvent]:
    from holdfast.catalog.openlineage import run_events

    with openlineage_extra():
        return run_events(call.workspace, since=_since(since), run_id=run_id, namespace=namespace, at=at)


@click.command(name="export")
@workspace_argument
@which_options
@click.option(
    "--output", "file", type=click.Path(dir_okay=False, writable=True), metavar="FILE",
    help="Write them there instead of to standard output.",
)  # fmt: skip
@at_option
def command(
    url: str | None,
    since: str | None,
    run_id: str | None,
    namespace: str | None,
    file: str | None,
    at: str | None,
    as_json: bool,
) -> None:
    """Print the runs of a workspace as OpenLineage events, one JSON object a line.

    In the order of their times. The same state of the catalog gives the same bytes.

    JSON: total, file (null for standard output), events (empty where they went to a file).

    \b
    Examples:
      holdfast catalog openlineage export ./lake/acme/prod
      holdfast catalog openlineage export ./lake/acme/prod --run nightly-7 --output events.ndjson
      holdfast catalog openlineage export s3://bucket/lake/acme/prod --since 2026-11-15 --json
    """
    moment = moment_or_none(at)
    call = CatalogCall(url, as_json=as_json)
    events = chosen_events(call, since, run_id, namespace, moment)
    from holdfast.catalog.openlineage import event_lines

    lines = b"".join(event_lines(events))
    if file is not None:
        with click.open_file(file, "wb") as opened:
            opened.write(lines)
    elif not as_json:
        click.echo(lines.decode(), nl=False)
        return
    shown = [] if file is not None else [orjson.loads(line) for line in lines.splitlines()]
    data = call.document("catalog openlineage export", total=len(events), file=file, events=shown)
    call.output.show(View(data=data, parts=[]))


def _since(word: str | None) -> datetime | None:
    try:
        return moment_or_none(word)
    except BadInput as error:
        raise BadInput(str(error).replace("--at", "--since", 1)) from None
