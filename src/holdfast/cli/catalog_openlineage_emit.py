"""`holdfast catalog openlineage emit`."""

from __future__ import annotations

import click

from holdfast.cli.catalog_call import CatalogCall, workspace_argument
from holdfast.cli.catalog_openlineage_export import chosen_events, openlineage_extra, which_options
from holdfast.cli.graph_call import json_option
from holdfast.cli.output import Line, View
from holdfast.cli.words import count
from holdfast.errors import BadInput, StoreUnavailable

__all__ = ["command"]


@click.command(name="emit")
@workspace_argument
@which_options
@click.option(
    "--timeout", "patience_s", type=click.FloatRange(min=0.1), default=60.0, show_default=True, metavar="SECONDS",
    help="How long to try in all.",
)  # fmt: skip
@json_option
def command(
    url: str | None, since: str | None, run_id: str | None, namespace: str | None, patience_s: float, as_json: bool
) -> None:
    """Send the runs of a workspace to whoever listens to OpenLineage events.

    To HOLDFAST_OPENLINEAGE_URL, or as OpenLineage's own client is configured: OPENLINEAGE_URL, or openlineage.yml.
    Sending again is safe: ids stay the same.

    JSON: total, sent.

    \b
    Examples:
      HOLDFAST_OPENLINEAGE_URL=http://localhost:5000 holdfast catalog openlineage emit ./lake/acme/prod
      holdfast catalog openlineage emit ./lake/acme/prod --run nightly-7 --json
    """
    from holdfast.catalog.openlineage_emit import URL_VARIABLE, emitter_from_environment

    call = CatalogCall(url, as_json=as_json)
    emitter = emitter_from_environment(patience_s=patience_s)
    if not emitter.is_on:
        raise BadInput(
            f"nobody is configured to listen; set {URL_VARIABLE} or OPENLINEAGE_URL, or write openlineage.yml"
        )
    events = chosen_events(call, since, run_id, namespace)
    with openlineage_extra():
        emitter.emit(events)
        done = emitter.close()
    if done.sent < len(events):
        raise StoreUnavailable(f"{done.sent} of {len(events)} events were sent: {done.problem}; send them again later")
    data = call.document("catalog openlineage emit", total=len(events), sent=done.sent)
    call.output.show(View(data=data, parts=[Line(f"{count(done.sent, 'event')} sent.")]))
