"""`holdfast catalog announce`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.cli.call import by_option
from holdfast.cli.catalog_call import CatalogCall, workspace_and_rest
from holdfast.cli.graph_call import json_option
from holdfast.cli.output import Column, Line, Part, Table, View
from holdfast.cli.words import count
from holdfast.errors import NotAChain, NotFound

if TYPE_CHECKING:
    from holdfast.catalog.compactor import Compaction

__all__ = ["command"]

_COLUMNS = (
    Column(title="data set", keep="middle", least=16),
    Column(title="moves", right=True),
    Column(title="catalog"),
)


@click.command(name="announce")
@click.argument("words", nargs=-1, metavar="[WORKSPACE] [DATASET]")
@by_option
@json_option
def command(words: tuple[str, ...], by: str | None, as_json: bool) -> None:
    """Tell the catalog what has become of a data set, or of all.

    What is told comes from the data set's own log, so anybody may tell it, and twice says it once. Where a workspace
    is configured, the first word is a URL only if it has a scheme, such as s3://, or begins with /, ./, ../ or ~.

    JSON: datasets (dataset, moves, published; moves is null where nothing was ever published), published (how many
    snapshots of the catalog this made).

    \b
    Examples:
      holdfast catalog announce ./lake/acme/prod users
      holdfast catalog announce s3://bucket/lake/acme/prod --json
    """
    from holdfast.catalog.announce import announce

    url, rest = workspace_and_rest(words, most=1)
    call = CatalogCall(url, as_json=as_json, by=by)
    done: dict[str, Compaction | None] = {}
    if rest:
        try:
            done[rest[0]] = announce(call.workspace, rest[0])
        except (NotAChain, NotFound):
            raise NotFound(f"data set {rest[0]!r} has no snapshot here; check its name, or publish one first") from None
    else:
        names = call.workspace.dataset_names()
        with call.output.progress("announcing") as progress:
            for place, name in enumerate(names):
                progress(place, len(names))
                try:
                    done[name] = announce(call.workspace, name)
                except (NotAChain, NotFound):
                    done[name] = None  # somebody has begun to write it: there is nothing to tell yet
    listed = [
        {"dataset": name, "moves": None if one is None else one.events, "published": one is not None and one.published}
        for name, one in done.items()
    ]
    published = sum(one is not None and one.published for one in done.values())
    data = call.document("catalog announce", datasets=listed, published=published)
    rows = [(name, "" if one is None else f"{one.events:,}", _verdict(one)) for name, one in done.items()]
    parts: list[Part] = [Table(_COLUMNS, rows), Line("")] if rows else []
    parts.append(Line(f"{count(len(done), 'data set')}, {published:,} with news.", style="dim"))
    call.output.show(View(data=data, parts=parts))


def _verdict(one: Compaction | None) -> str:
    if one is None:
        return "nothing published yet"
    return "told" if one.published else "knew it"
