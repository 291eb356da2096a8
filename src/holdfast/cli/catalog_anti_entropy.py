"""`holdfast catalog anti-entropy`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.cli.call import by_option
from holdfast.cli.catalog_call import CatalogCall, compactor_option, workspace_argument
from holdfast.cli.graph_call import json_option
from holdfast.cli.output import Column, Line, Part, Table, View
from holdfast.cli.words import count
from holdfast.errors import BadInput, Conflict, StoreError

if TYPE_CHECKING:
    from holdfast.catalog.anti_entropy import AntiEntropy, Round

__all__ = ["command"]

_COLUMNS = (
    Column(title="domain"),
    Column(title="events", right=True),
    Column(title="told again", right=True),
    Column(title="pages", right=True),
    Column(title="looked through to"),
)
_DOMAINS = ("catalog", "lineage", "executions", "orchestration")
_SERVED = _DOMAINS[:3]
"""What a compactor service folds."""


@click.command(name="anti-entropy")
@workspace_argument
@click.option(
    "--domain",
    "domains",
    multiple=True,
    type=click.Choice(_DOMAINS),
    help="Only this one; may be given several times. All if not given, or all that a compactor service folds.",
)
@click.option("--once", is_flag=True, help="One round, then end. So it is without --every, too.")
@click.option("--every", type=float, metavar="SECONDS", help="A round whenever this has passed, until it is stopped.")
@click.option("--all", "from_start", is_flag=True, help="Look through the whole ledger, not only behind the cursor.")
@click.option(
    "--settle",
    "settle_s",
    type=float,
    default=600.0,
    show_default=True,
    metavar="SECONDS",
    help="How long an append may be under way: the cursor stays behind what is younger.",
)
@compactor_option
@by_option
@json_option
def command(
    url: str | None,
    domains: tuple[str, ...],
    once: bool,
    every: float | None,
    from_start: bool,
    settle_s: float,
    compactor: str | None,
    by: str | None,
    as_json: bool,
) -> None:
    """Find events that the compactor was never told of, and tell it.

    Lists the ledger behind a cursor, a page at a time, and reads the state; writes nothing itself. With a compactor
    service it needs the rights of the principal compactor-antientropy and no others; without one it folds here.

    JSON: domains (domain, events, told, pages, foreign, cursor, is_complete); with --every one document a round.

    \b
    Examples:
      holdfast catalog anti-entropy ./lake/acme/prod
      holdfast catalog anti-entropy s3://bucket/lake/acme/prod --every 60 --compactor https://compactor:8765
    """
    if once and every is not None:
        raise BadInput("a single round has no --every; leave one of --once and --every out")
    if every is not None and every <= 0:
        raise BadInput(f"rounds every {every:g} seconds make no sense; use more than 0")
    call = CatalogCall(url, as_json=as_json, by=by)
    jobs = _jobs(call, domains, compactor, settle_s)
    while True:
        done, failed = _rounds(jobs, from_start, patient=every is not None)
        _show(call, done)
        for line in failed:
            click.echo(line, err=True)
        if every is None:
            return
        call.workspace.clock.sleep(every)


def _jobs(call: CatalogCall, domains: tuple[str, ...], compactor: str | None, settle_s: float) -> list[AntiEntropy]:
    from holdfast.catalog.anti_entropy import AntiEntropy, fold_here
    from holdfast.storage.principals import grant

    workspace, remote = call.workspace, call.remote_compactor(compactor)
    notify = fold_here(workspace) if remote is None else remote.notify
    rights = grant(workspace.store, "compactor-antientropy")
    return [
        AntiEntropy(domain, rights=rights, notify=notify, clock=workspace.clock, settle_s=settle_s)
        for domain in (domains or (_DOMAINS if remote is None else _SERVED))
    ]


def _rounds(jobs: list[AntiEntropy], from_start: bool, *, patient: bool) -> tuple[list[Round], list[str]]:
    """A round of each. One that fails for now is said, and comes again, where there will be another."""
    done, failed = [], []
    for job in jobs:
        try:
            done.append(job.round(from_start=from_start))
        except (Conflict, StoreError) as error:
            if not patient:
                raise
            failed.append(f"{job.domain}: {error}")
    return done, failed


def _show(call: CatalogCall, done: list[Round]) -> None:
    rows = [
        (one.domain, f"{one.events:,}", f"{one.told:,}", f"{one.pages:,}", one.cursor or "as before") for one in done
    ]
    told = sum(one.told for one in done)
    said = f"{count(told, 'event')} told again." if told else "Nothing was missed."
    parts: list[Part] = [Table(_COLUMNS, rows), Line(""), Line(said)]
    foreign = sum(one.foreign for one in done)
    if foreign:
        parts.append(Line(f"{count(foreign, 'file')} among the events that are none were left alone."))
    if not all(one.is_complete for one in done):
        parts.append(Line("There is more behind it: the next round goes on from the cursor."))
    data = call.document(
        "catalog anti-entropy",
        domains=[
            {
                "domain": one.domain,
                "events": one.events,
                "told": one.told,
                "pages": one.pages,
                "foreign": one.foreign,
                "cursor": one.cursor,
                "is_complete": one.is_complete,
            }
            for one in done
        ],
    )
    call.output.show(View(data=data, parts=parts))
