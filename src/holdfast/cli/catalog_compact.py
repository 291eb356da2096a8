"""`holdfast catalog compact`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import click

from holdfast.cli.call import by_option
from holdfast.cli.catalog_call import CatalogCall, compactor_option, workspace_argument
from holdfast.cli.graph_call import json_option
from holdfast.cli.graph_spark import spark_session
from holdfast.cli.output import Column, Line, Part, Progress, Table, View
from holdfast.cli.words import count
from holdfast.errors import BadInput

if TYPE_CHECKING:
    from holdfast.catalog.compactor import Compaction
    from holdfast.catalog.workspace import Workspace

    _BulkFold = Callable[[Workspace, str, Sequence[str]], Compaction]

__all__ = ["command"]

_COLUMNS = (
    Column(title="domain"),
    Column(title="events", right=True),
    Column(title="publishes", right=True),
    Column(title="snapshot", right=True),
    Column(title="position", right=True),
    Column(title="quarantined", right=True),
)
PAGE_SIZE = 1_000
"""How many events are listed, and folded, at a time."""
_DOMAINS = ("catalog", "lineage", "executions", "orchestration")


@dataclass(slots=True, kw_only=True)
class _Round:
    """What was done for one domain."""

    domain: str
    snapshot_version: int
    position: int
    events: int = 0
    publishes: int = 0
    quarantined: int = 0
    foreign: int = 0

    def add(self, done: Compaction) -> None:
        self.snapshot_version, self.position = done.snapshot_version, done.watermark.position
        self.events += done.events
        self.publishes += done.published
        self.quarantined += done.quarantined


@click.command(name="compact")
@workspace_argument
@click.option(
    "--domain",
    "domains",
    multiple=True,
    type=click.Choice(_DOMAINS),
    help="Only this one; may be given several times. All if not given.",
)
@click.option(
    "--new",
    is_flag=True,
    help="Only what came after the newest event that is folded: quick, but an older one that was missed is not found.",
)
@click.option(
    "--bulk",
    is_flag=True,
    help="Fold all of it before anything is published, once: far quicker for a long ledger.",
)
@click.option("--spark", is_flag=True, help="In bulk, on a local Spark: for a state that is too large for memory.")
@compactor_option
@by_option
@json_option
def command(
    url: str | None,
    domains: tuple[str, ...],
    new: bool,
    bulk: bool,
    spark: bool,
    compactor: str | None,
    by: str | None,
    as_json: bool,
) -> None:
    """Fold what the ledger holds and the catalog does not show yet.

    Lists the ledger and tells the compactor of all of it, a page at a time. What was folded before changes nothing, so
    it may be repeated, and stopped, at any time.

    JSON: domains (domain, events, publishes, quarantined, foreign, snapshot_version, position).

    \b
    Examples:
      holdfast catalog compact ./lake/acme/prod
      holdfast catalog compact s3://bucket/lake/acme/prod --domain lineage --new --json
      holdfast catalog compact s3://bucket/lake/acme/prod --domain executions --spark
    """
    if compactor is not None and (bulk or spark):
        raise BadInput("--bulk and --spark fold here, and --compactor elsewhere; leave one out")
    call = CatalogCall(url, as_json=as_json, by=by)
    done: list[_Round] = []
    with _bulk_fold(bulk, spark) as fold:
        for domain in [name for name in _DOMAINS if name in domains or not domains]:
            with call.output.progress(f"folding {domain}") as progress:
                if fold is None:
                    done.append(_compact(call, domain, new, compactor, progress))
                else:
                    done.append(_compact_at_once(call.workspace, domain, new, fold))
    data = call.document(
        "catalog compact",
        domains=[
            {
                "domain": one.domain,
                "events": one.events,
                "publishes": one.publishes,
                "quarantined": one.quarantined,
                "foreign": one.foreign,
                "snapshot_version": one.snapshot_version,
                "position": one.position,
            }
            for one in done
        ],
    )
    call.output.show(View(data=data, parts=_parts(done)))


def _parts(done: list[_Round]) -> list[Part]:
    rows = []
    for one in done:
        numbers = (one.events, one.publishes, one.snapshot_version, one.position, one.quarantined)
        rows.append((one.domain, *(f"{number:,}" for number in numbers)))
    parts: list[Part] = [Table(_COLUMNS, rows), Line("")]
    publishes, foreign = sum(one.publishes for one in done), sum(one.foreign for one in done)
    parts.append(Line(f"{count(publishes, 'snapshot')} published." if publishes else "Nothing was missing."))
    if foreign:
        parts.append(Line(f"{count(foreign, 'file')} among the events that are none were left alone."))
    return parts


@contextmanager
def _bulk_fold(bulk: bool, spark: bool) -> Iterator[_BulkFold | None]:
    """What folds any number of paths and publishes once; None if it is to be done page by page."""
    if spark:
        with spark_session() as session:
            from holdfast.spark.catalog_fold import compact_domain

            yield partial(compact_domain, session)
    elif bulk:
        from holdfast.catalog.bulk import compact_in_bulk

        yield compact_in_bulk
    else:
        yield None


def _compact_at_once(workspace: Workspace, domain: str, new: bool, fold: _BulkFold) -> _Round:
    """The whole ledger in one listing, one fold and one publish."""
    from holdfast.catalog.reading import read_state

    lister = workspace.ledger_lister(domain)
    state, _ = read_state(workspace, domain)
    found = _Round(domain=domain, snapshot_version=state.snapshot_version, position=state.watermark.position)
    newest = state.watermark.event_id
    paths: list[str] = []
    for page in lister.pages(after=lister.cursor_at(newest) if new and newest else None):
        paths += page.paths
        found.foreign += len(page.foreign)
    if paths:
        found.add(fold(workspace, domain, paths))
    return found


def _compact(call: CatalogCall, domain: str, new: bool, address: str | None, progress: Progress) -> _Round:
    """Every page of the ledger, each folded before the next is listed."""
    from holdfast.catalog.compactor import Compactor
    from holdfast.catalog.reading import read_state

    workspace = call.workspace
    remote = call.remote_compactor(address, domain) if domain != "orchestration" else None  # which no service folds
    compactor, lister = remote or Compactor(workspace, domain), workspace.ledger_lister(domain)
    state, _ = read_state(workspace, domain)
    found = _Round(domain=domain, snapshot_version=state.snapshot_version, position=state.watermark.position)
    newest = state.watermark.event_id
    cursor = lister.cursor_at(newest) if new and newest else None
    while True:
        page = lister.page(after=cursor, size=PAGE_SIZE)
        found.foreign += len(page.foreign)
        if page.paths:
            found.add(compactor.compact(page.paths))
            progress(found.events, found.events)
        if page.is_last:
            return found
        cursor = page.cursor
