"""What the commands for graphs share: which graph, which version of it, and how it is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import click
import orjson

from holdfast.cli.call import Call, split_words, without_password
from holdfast.cli.config import load_settings
from holdfast.cli.output import Output
from holdfast.cli.words import count
from holdfast.errors import BadInput, NotAChain

if TYPE_CHECKING:
    from holdfast.chain.pointer import Move
    from holdfast.graph.direct import DirectGraph
    from holdfast.graph.store import GraphStore

__all__ = [
    "GraphCall",
    "GraphLook",
    "graph_and",
    "json_option",
    "limit_option",
    "metadata_filter",
    "metadata_option",
    "parse_moment",
    "parse_tag",
    "shown_count",
    "type_option",
    "version_options",
]

_F = TypeVar("_F", bound=Callable[..., object])
_SHOWN = 50

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")
limit_option = click.option(
    "--limit",
    type=click.IntRange(min=1),
    metavar="N",
    help=f"How many to show; {_SHOWN} if not given, and with --json all.",
)
metadata_option = click.option(
    "--metadata",
    multiple=True,
    metavar="KEY=VALUE",
    help='Only with this attribute; VALUE is JSON, such as 12, true or "12", or else text. May be given several times.',
)


def type_option(what: str) -> Callable[[_F], _F]:
    return click.option(
        "--type",
        "types",
        multiple=True,
        metavar="TYPE",
        help=f"Only {what} of this type; `http:*` stands for all that begin with `http:`. May be given several times.",
    )


def version_options(function: _F) -> _F:
    """The ways to name a version; they exclude each other."""
    function = json_option(function)
    function = click.option(
        "--at",
        metavar="TIME",
        help="The version that was visible then, in UTC: 2026-11-15T12:30, or a day's first moment.",
    )(function)
    function = click.option("--tag", metavar="KEY=VALUE", help="The newest version with this tag.")(function)
    return click.option(
        "--version", type=click.IntRange(min=1), metavar="N", help="The version of this number; the visible one if not."
    )(function)


def graph_and(words: Sequence[str], needed: int, usage: str) -> tuple[str | None, list[str]]:
    """The URL, if there is one, and the words behind it; says what is missing where only a URL was given."""
    if len(words) == needed and load_settings().chain is None:
        raise click.UsageError(
            f"expected {usage}, got {count(needed, 'argument')} and no chain is configured",
            ctx=click.get_current_context(),
        )
    return split_words(words, needed, usage)


def parse_tag(text: str) -> tuple[str, str]:
    """`release=stable` as its two words."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise BadInput(f"{text!r} is not a tag: use KEY=VALUE, as in release=stable; `holdfast tags` lists them")
    return key, value


def metadata_filter(pairs: Sequence[str]) -> dict[str, object]:
    """What `--metadata` asks for. A value that is JSON is that value; what is not, is text."""
    wanted: dict[str, object] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key:
            raise BadInput(f"--metadata {pair!r} is no attribute: use KEY=VALUE, as in line=12 or async=true")
        try:
            wanted[key] = orjson.loads(text)
        except orjson.JSONDecodeError:
            wanted[key] = text
    return wanted


def shown_count(limit: int | None, *, as_json: bool, total: int) -> int:
    """How many of them are shown."""
    if limit is not None:
        return min(limit, total)
    return total if as_json else min(_SHOWN, total)


class GraphCall(Call):
    """A call of a command on a graph that is there."""

    def __init__(self, url: str | None, *, as_json: bool, by: str | None = None) -> None:
        from holdfast.graph.store import GraphStore

        try:
            super().__init__(url, layout=None, as_json=as_json, by=by)
        except NotAChain as error:
            place = url or load_settings().chain or ""
            raise NotAChain(
                f"no graph at {without_password(place)!r}; check the URL, or make one with `holdfast graph build`"
            ) from error
        if self.chain.layout.name != "graph":
            raise BadInput(f"{self.identity} is no graph; `holdfast show` describes what it is, or name another")
        self.store = GraphStore(self.chain)

    @contextmanager
    def working(self, label: str) -> Iterator[None]:
        """Shows a person that something is going on."""
        with working(self.output, label):
            yield


@contextmanager
def working(output: Output, label: str) -> Iterator[None]:
    with output.progress(label):
        yield


class GraphLook:
    """One look into a graph: at the version that was named, or at the visible one."""

    def __init__(self, url: str | None, *, version: int | None, tag: str | None, at: str | None, as_json: bool) -> None:
        given = [name for name, value in (("--version", version), ("--tag", tag), ("--at", at)) if value is not None]
        if len(given) > 1:
            raise BadInput(f"{' and '.join(given)} each name a version; give one of them")
        named = None if tag is None else parse_tag(tag)
        moment = None if at is None else parse_moment(at)
        self.call = GraphCall(url, as_json=as_json)
        self.output = self.call.output
        self.as_json = as_json
        self.move: Move = self.call.store.find(version=version, tag=named, at=moment)

    @property
    def store(self) -> GraphStore:
        return self.call.store

    @property
    def version(self) -> int:
        return self.move.target_id

    @cached_property
    def graph(self) -> DirectGraph:
        """The version, asked where it lies: a command has one question, and most need little of a graph."""
        return self.store.direct(self.version)

    def document(self, command: str, **fields: object) -> dict[str, Any]:
        """A JSON document of this look."""
        return {"command": f"graph {command}", "chain": self.call.identity, "version": self.version, **fields}


def parse_moment(text: str) -> datetime:
    """What `--at` names; UTC where it does not say."""
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise BadInput(
            f"--at {text!r} is not a time: use 2026-11-15, 2026-11-15T12:30 or 2026-11-15T12:30:00Z"
        ) from None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
