"""URLs of databases: `postgresql://host/database?chain=users` and `sqlite:///path.db?chain=users`.

A SQLite path is relative after three slashes and absolute after four, as everywhere else where such URLs are used.
What a URL shows of itself has no user, no password and no key in it; what it connects with has all of them.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

from holdfast.errors import BadInput

__all__ = ["SqlUrl", "is_sql_url", "parse_sql_url", "relative_to", "without_secrets"]

_POSTGRES = frozenset({"postgresql", "postgres"})
_SQLITE = "sqlite"
_SQLITE_START = "sqlite:///"
_SECRETS = frozenset({"user", "password", "passfile", "sslpassword", "sslkey", "sslcert", "oauth_client_secret"})
_POSTGRES_PORT = 5432
_CHAIN = re.compile(r"[^\x00-\x1f\x7f-\x9f]{1,512}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlUrl:
    """One database, and the chain in it if the URL names one."""

    kind: str
    """`postgresql` or `sqlite`."""
    public: str
    """What may be shown: the same for everybody who means this database, whoever they connect as."""
    chain: str | None = None
    target: str = field(repr=False)
    """What the driver connects to: a file's path, or a URL with its credentials."""
    secrets: tuple[str, ...] = field(default=(), repr=False)
    read_only: bool = False

    def naming(self, chain: str) -> str:
        """The public URL of one chain."""
        separator = "&" if "?" in self.public else "?"
        return f"{self.public}{separator}chain={quote(chain, safe=_UNQUOTED)}"

    def scrub(self, text: str) -> str:
        """A driver's message in one line, without what must not be shown."""
        line = " ".join(text.split())
        for secret in self.secrets:
            line = line.replace(secret, "***")
        return line


_UNQUOTED = "/:@,"


def is_sql_url(url: str) -> bool:
    """Whether this names a database rather than a store."""
    scheme, mark, _ = url.partition("://")
    return bool(mark) and scheme in {*_POSTGRES, _SQLITE}


def parse_sql_url(url: str) -> SqlUrl:
    """The parts of a database's URL, or BadInput; the message does not repeat a password."""
    place, _, _ = url.partition("#")
    scheme, mark, rest = place.partition("://")
    if not mark or not is_sql_url(url):
        raise BadInput("not a database URL: use postgresql://host/database?chain=NAME or sqlite:///path.db?chain=NAME")
    _, _, query = rest.partition("?")
    options = parse_qsl(query, keep_blank_values=True)
    names = [value for name, value in options if name == "chain"]
    chain = names[0] if names else None
    if len(names) > 1 or (chain is not None and not _CHAIN.fullmatch(chain)):
        raise BadInput("a database URL names one chain, in 1 to 512 printable characters: ?chain=NAME")
    others = [(name, value) for name, value in options if name != "chain"]
    return _postgres(place, others, chain) if scheme in _POSTGRES else _sqlite(place, others, chain)


def relative_to(url: str, folder: Path) -> str:
    """The same URL where a SQLite file's relative path starts at `folder`."""
    start, _, query = url.partition("?")
    path = unquote(start.removeprefix(_SQLITE_START))
    if not start.startswith(_SQLITE_START) or not path:
        return url
    moved = "".join([_SQLITE_START, quote(os.path.abspath(folder / path), safe=_UNQUOTED)])
    return f"{moved}?{query}" if query else moved


def without_secrets(url: str) -> str:
    """A URL as it may be printed and typed again. A database takes its password from its own environment too."""
    parts = urlsplit(url)
    account, mark, host = parts.netloc.rpartition("@")
    netloc = f"{account.partition(':')[0]}{mark}{host}"
    if not is_sql_url(url):
        return url if netloc == parts.netloc else urlunsplit(parts._replace(netloc=netloc))
    kept = [(name, value) for name, value in parse_qsl(parts.query, keep_blank_values=True) if name not in _SECRETS]
    query = parts.query if len(kept) == len(parse_qsl(parts.query, keep_blank_values=True)) else urlencode(kept)
    text = f"{parts.scheme}://{netloc}{parts.path}"
    text += f"?{query}" if query else ""
    return f"{text}#{parts.fragment}" if parts.fragment else text


def _sqlite(place: str, options: list[tuple[str, str]], chain: str | None) -> SqlUrl:
    path = unquote(place.partition("?")[0].removeprefix(_SQLITE_START))
    if not place.startswith(_SQLITE_START) or not path:
        raise BadInput("sqlite:// needs three slashes before a relative path and four before an absolute one")
    if options and options not in ([("mode", "ro")], [("mode", "rw")]):
        raise BadInput(f"a SQLite URL has no option {options[0][0]!r}: only chain=NAME and mode=ro")
    absolute = os.path.abspath(path)
    return SqlUrl(
        kind=_SQLITE,
        public="".join([_SQLITE_START, quote(absolute, safe=_UNQUOTED)]),
        chain=chain,
        target=absolute,
        read_only=("mode", "ro") in options,
    )


def _postgres(place: str, options: list[tuple[str, str]], chain: str | None) -> SqlUrl:
    parts = urlsplit(place)
    try:
        host = ",".join(_host(one) for one in parts.netloc.rpartition("@")[2].split(","))
        password = parts.password
    except ValueError:
        raise BadInput("the host and port of the database URL cannot be read") from None
    secrets = [value for name, value in options if name in _SECRETS and name != "user"]
    secrets += [text for text in (password, None if password is None else unquote(password)) if text]
    shown = sorted((name, value) for name, value in options if name not in _SECRETS)
    return SqlUrl(
        kind="postgresql",
        public=urlunsplit(("postgresql", host, parts.path, urlencode(shown), "")),
        chain=chain,
        target=urlunsplit(("postgresql", parts.netloc, parts.path, urlencode(options, quote_via=quote), "")),
        secrets=tuple(sorted(set(secrets), key=len, reverse=True)),
    )


def _host(text: str) -> str:
    name, mark, port = text.rpartition(":")
    return name if mark and port == str(_POSTGRES_PORT) else text
