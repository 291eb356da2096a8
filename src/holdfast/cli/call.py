"""One call of a command: which chain it is about, who asks, and where the answer goes."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

import click

from holdfast.cli.config import Settings, load_settings
from holdfast.cli.output import Output, make_output
from holdfast.cli.session import current_session
from holdfast.errors import BadInput, NotAChain, ObjectNotFound

if TYPE_CHECKING:
    from holdfast.chain.chain import Chain

__all__ = [
    "Call",
    "by_option",
    "common_options",
    "require_there",
    "snapshot_options",
    "split_words",
    "url_argument",
    "why_option",
    "without_password",
]

_F = TypeVar("_F", bound=Callable[..., object])

url_argument = click.argument("url", required=False, metavar="[URL]")
by_option = click.option("--by", metavar="NAME", help="Who the log says did it; HOLDFAST_BY, or user@host:pid.")
why_option = click.option("--why", default="", metavar="TEXT", help="A reason, kept in the log of moves.")


def common_options(function: _F) -> _F:
    """What every command takes."""
    function = click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")(
        function
    )
    return click.option(
        "--layout",
        metavar="NAME",
        help="kv, graph, table, orchestration or domain:NAME; also the URL's #fragment. Found by looking if not given.",
    )(function)


def snapshot_options(function: _F) -> _F:
    """The ways to name one snapshot; they exclude each other."""
    function = click.option("--offset", type=int, metavar="N", help="By its place in `history`; 0 is the newest.")(
        function
    )
    function = click.option("--run-id", metavar="ID", help="By the run that published it.")(function)
    return click.option("--ref", metavar="REF", help="By its ref, as `history` shows it.")(function)


def split_words(words: Sequence[str], needed: int, usage: str) -> tuple[str | None, list[str]]:
    """Arguments that may begin with a URL: the URL if there is one more than `needed`, and the others."""
    if len(words) == needed + 1:
        return words[0], list(words[1:])
    if len(words) == needed:
        return None, list(words)
    raise click.UsageError(f"expected {usage}, got {len(words)} arguments", ctx=click.get_current_context())


def without_password(url: str) -> str:
    """A URL as it may be printed. A database takes its password from its own environment too."""
    from holdfast.chain.sql.url import without_secrets

    return without_secrets(url)


class Call:
    """Everything a command needs, made from what was typed and what is configured."""

    def __init__(
        self,
        url: str | None,
        *,
        layout: str | None,
        as_json: bool,
        by: str | None = None,
        may_be_lost: bool = False,
    ) -> None:
        session = current_session()
        if session is not None:
            if url is not None or layout is not None:
                raise BadInput(
                    f"this prompt is on {session.chain.handle.identity}; `exit`, then `holdfast repl` on another"
                )
            self.as_json = as_json or session.as_json
            self.settings: Settings = session.settings
            self.output: Output = session.output(as_json=as_json)
            self.chain: Chain = session.chain
            self._url, self._layout = session.url, session.layout
            return
        self.as_json = as_json
        self.settings = load_settings()
        self.output = make_output(as_json=as_json)
        self._url = url
        self._layout = layout
        self._may_be_lost = may_be_lost and layout is not None
        self.chain = self._open(by or self.settings.by)

    @property
    def identity(self) -> str:
        """URL#layout: what documents call the chain."""
        return self.chain.handle.identity

    def again(self, command: str, *words: str, **options: object) -> str:
        """The command line of another command on the same chain."""
        line = ["holdfast", *command.split()]
        if self._url is not None:
            line.append(without_password(self._url))
        line += words
        if self._layout is not None:
            line += ["--layout", self._layout]
        for name, value in options.items():
            flag = "--" + name.replace("_", "-")
            line += [flag] if value is True else [flag, str(value)]
        return shlex.join(line)

    def _open(self, by: str | None) -> Chain:
        from holdfast.chain.opening import open_chain
        from holdfast.chain.sql.url import is_sql_url

        url = self._url if self._url is not None else self.settings.chain
        if url is None:
            raise BadInput(
                "no chain was named; give its URL first, set HOLDFAST_CHAIN, or set `chain` in holdfast.toml"
            )
        manifests = None if is_sql_url(url) else self.settings.manifests
        chain = open_chain(url, layout=self._layout, manifests=manifests, by=by)
        chain.when_moved(lambda: _announce(chain))
        if not self._may_be_lost:
            require_there(chain)
        return chain


def _announce(chain: Chain) -> None:
    """Tell the catalog of the workspace that the chain lies in, if it does. Only a command that moves it comes here."""
    from holdfast.catalog.datasets import announcer_of

    announcer = announcer_of(chain)
    if announcer is not None:
        announcer()


def require_there(chain: Chain) -> None:
    """NotAChain unless something is there: a layout that was named was not looked for yet."""
    keys = [key for key in (chain.layout.pointer_key, chain.layout.mirror_key) if key is not None]
    if not any(_exists(chain, key) for key in keys):
        raise NotAChain(f"no {chain.layout.name} chain at {chain.handle.records.url!r}: {keys[0]!r} does not exist")


def _exists(chain: Chain, key: str) -> bool:
    try:
        chain.handle.records.get(key)
    except ObjectNotFound:
        return False
    return True
