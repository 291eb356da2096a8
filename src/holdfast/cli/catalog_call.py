"""What the commands for a workspace share: which workspace, how its names are spelled, and where the answer goes."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from holdfast.cli.call import without_password
from holdfast.cli.config import load_settings
from holdfast.cli.graph_call import json_option, parse_moment
from holdfast.cli.kv import is_place
from holdfast.cli.output import Output, make_output
from holdfast.cli.words import count
from holdfast.errors import BadInput

if TYPE_CHECKING:
    from holdfast.catalog.remote_compactor import RemoteCompactor
    from holdfast.catalog.workspace import Workspace

__all__ = [
    "CatalogCall",
    "at_option",
    "catalog_extra",
    "compactor_option",
    "moment_or_none",
    "split_name",
    "workspace_and",
    "workspace_and_rest",
    "workspace_argument",
]

_F = TypeVar("_F", bound=Callable[..., object])
_EXTRA = ("duckdb", "rapidfuzz", "sqlglot")
_HINT = "its last two segments are tenant and workspace, as in s3://bucket/lake/acme/prod or ./lake/acme/prod"

workspace_argument = click.argument("url", required=False, metavar="[WORKSPACE]")
compactor_option = click.option(
    "--compactor",
    metavar="URL",
    help="Have a compactor service fold it, with a token from HOLDFAST_COMPACTOR_TOKEN or the first of the file that "
    "HOLDFAST_COMPACTOR_TOKENS names. HOLDFAST_COMPACTOR; in this process if there is none.",
)
_TOKEN_VARIABLE = "HOLDFAST_COMPACTOR_TOKEN"


def at_option(function: _F) -> _F:
    """The time that is asked about, and how the answer is printed."""
    function = json_option(function)
    return click.option(
        "--at", metavar="TIME", help="As it was then, in UTC: 2026-11-15T12:30, or a day's first moment."
    )(function)


def moment_or_none(at: str | None) -> datetime | None:
    return None if at is None else parse_moment(at)


def workspace_and(words: Sequence[str], needed: int, usage: str) -> tuple[str | None, list[str]]:
    """`[WORKSPACE] NAME`: the workspace's URL, if there is one more word than `needed`, and the others."""
    if len(words) == needed + 1:
        return words[0], list(words[1:])
    if len(words) == needed and load_settings().workspace is not None:
        return None, list(words)
    hint = " and no workspace is configured" if len(words) == needed else ""
    raise click.UsageError(
        f"expected {usage}, got {count(len(words), 'argument')}{hint}", ctx=click.get_current_context()
    )


def workspace_and_rest(words: Sequence[str], most: int | None = None) -> tuple[str | None, list[str]]:
    """`[WORKSPACE] [WORD]...`: the first is a workspace where none is configured, or if it is written as a URL."""
    url: str | None = None
    rest = list(words)
    if rest and (is_place(rest[0]) or load_settings().workspace is None):
        url, rest = rest[0], rest[1:]
    if most is not None and len(rest) > most:
        raise click.UsageError(f"{rest[most]!r} is one word too many", ctx=click.get_current_context())
    return url, rest


def split_name(name: str) -> tuple[str, str | None]:
    """`sales.orders` as namespace and table; a namespace alone has no dot. A table's name has none either."""
    namespace, dot, table = name.rpartition(".")
    if not dot:
        return name, None
    if not namespace or not table:
        raise BadInput(f"{name!r} names nothing: use NAMESPACE or NAMESPACE.TABLE, as in sales or sales.orders")
    return namespace, table


@contextmanager
def catalog_extra() -> Iterator[None]:
    """Around what needs libraries that a plain installation does not have."""
    try:
        yield
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in _EXTRA:
            raise
        raise BadInput(f"this needs {missing}, which is not installed: pip install 'holdfast[catalog]'") from None


class CatalogCall:
    """Everything a command on a workspace needs. The workspace is there already, unless it `may_be_new`."""

    def __init__(self, url: str | None, *, as_json: bool, by: str | None = None, may_be_new: bool = False) -> None:
        settings = load_settings()
        place = url if url is not None else settings.workspace
        if place is None:
            raise BadInput(
                "no workspace was named; give its URL first, set HOLDFAST_WORKSPACE, or set `workspace` in "
                f"holdfast.toml: {_HINT}"
            )
        self.as_json = as_json
        self.output: Output = make_output(as_json=as_json)
        self._url = url
        self._settings = settings
        self.workspace: Workspace = _opened(place, by or settings.by)
        if not may_be_new:
            self.workspace.read_root()

    def remote_compactor(self, given: str | None, domain: str = "catalog") -> RemoteCompactor | None:
        """The compactor service that was named or is configured; None if events are folded in this process."""
        address = given or self._settings.compactor
        if address is None:
            return None
        from holdfast.catalog.remote_compactor import RemoteCompactor, token_of

        file = self._settings.compactor_tokens
        return RemoteCompactor(
            address,
            token=token_of(os.environ.get(_TOKEN_VARIABLE), None if file is None else Path(file)),
            domain=domain,
            tenant=self.workspace.tenant,
            workspace=self.workspace.name,
        )

    def document(self, command: str, **fields: object) -> dict[str, Any]:
        """A JSON document of this workspace."""
        return {"command": command, "workspace": self.workspace.url, **fields}

    def again(self, command: str, *words: str) -> str:
        """The command line of another command on the same workspace."""
        place = [] if self._url is None else [without_password(self._url)]
        return shlex.join(["holdfast", *command.split(), *place, *words])


def _opened(place: str, by: str | None) -> Workspace:
    from holdfast.catalog.workspace import open_workspace

    root, tenant, name = _parts(place)
    return open_workspace(root, tenant=tenant, workspace=name, by=by)


def _parts(place: str) -> tuple[str, str, str]:
    """Root, tenant and workspace."""
    scheme, mark, rest = place.partition("://")
    path = rest if mark else os.path.normpath(os.path.expanduser(place))
    before, _, name = path.rstrip("/").rpartition("/")
    above, slash, tenant = before.rpartition("/")
    # The first segment of a URL is a bucket, so it is no tenant. Of a path both must be written out: the name of the
    # folder that one stands in should not become a tenant by accident.
    if not {tenant, name}.isdisjoint({"", ".", ".."}) or (mark and not slash):
        raise BadInput(f"{without_password(place)!r} names no workspace: {_HINT}")
    root = above or ("/" if slash else ".")
    return (f"{scheme}://{root}" if mark else root), tenant, name
