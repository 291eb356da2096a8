"""`holdfast catalog search`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.cli.catalog_call import CatalogCall, at_option, catalog_extra, moment_or_none, workspace_and_rest
from holdfast.cli.catalog_find import KINDS
from holdfast.cli.graph_shapes import text
from holdfast.cli.output import Column, Line, Part, Table, View
from holdfast.errors import NotAChain, NotFound

if TYPE_CHECKING:
    from datetime import datetime

    from holdfast.catalog.search import SearchIndex

__all__ = ["command"]

_COLUMNS = (
    Column(title="kind"),
    Column(title="name", keep="middle", least=16),
    Column(title="description", least=12),
    Column(title="score", right=True),
)


@click.command(name="search")
@click.argument("words", nargs=-1, metavar="[WORKSPACE] WORD...")
@click.option("--kind", type=click.Choice(KINDS), help="Only these.")
@click.option("--limit", type=click.IntRange(min=1), default=10, show_default=True, help="How many to show.")
@click.option(
    "--no-refresh",
    is_flag=True,
    help="Ask the index as it is, even if the catalog has moved since: for who may only read.",
)
@at_option
def command(
    words: tuple[str, ...], kind: str | None, limit: int, no_refresh: bool, at: str | None, as_json: bool
) -> None:
    """Find namespaces, tables and data sets by words.

    In names, descriptions, columns and tags, the best first. A word may be the beginning of one, and may have a typo.
    If the catalog has moved, the index is built anew first. Where a workspace is configured, the first word is a URL
    only if it has a scheme, such as s3://, or begins with /, ./, ../ or ~.

    JSON: asked, hits (kind, name, description, score), refreshed, built_from (the catalog's manifest_id; null for an
    empty one).

    \b
    Examples:
      holdfast catalog search ./lake/acme/prod custmer orders
      holdfast catalog search s3://bucket/lake/acme/prod email --kind table --limit 50 --json
    """
    from holdfast.catalog.search import refresh_search

    url, rest = workspace_and_rest(words)
    if not rest:
        raise click.UsageError("expected [WORKSPACE] WORD..., got no WORD", ctx=click.get_current_context())
    asked, moment = " ".join(rest), moment_or_none(at)
    call = CatalogCall(url, as_json=as_json)
    refreshed = False
    with catalog_extra(), call.output.progress("searching"):
        if moment is None and not no_refresh:
            refreshed = refresh_search(call.workspace) is not None
        index = _index(call, moment)
        hits = index.find(asked, limit=limit, kind=kind)
    data = call.document(
        "catalog search",
        asked=asked,
        hits=[{"kind": hit.kind, "name": hit.name, "description": hit.description, "score": hit.score} for hit in hits],
        refreshed=refreshed,
        built_from=index.built_from.manifest_id,
    )
    cells = [(hit.kind, text(hit.name), text(hit.description), f"{hit.score:.2f}") for hit in hits]
    parts: list[Part] = [Table(_COLUMNS, cells)] if hits else [Line(f"Nothing fits {text(asked)!r}.")]
    call.output.show(View(data=data, parts=parts))


def _index(call: CatalogCall, moment: datetime | None) -> SearchIndex:
    from holdfast.catalog.search import load_search

    try:
        return load_search(call.workspace, at=moment)
    except (NotAChain, NotFound):
        if moment is None:
            raise NotFound("this workspace has no search index yet; search without --no-refresh builds it") from None
        raise NotFound("there was no search index at that time; name a later one, or leave out --at") from None
