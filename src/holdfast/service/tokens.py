"""Who may call: bearer tokens from a file, or from the environment, and never from a command line.

A file holds a token a line; all of them are valid at once, so that one can be replaced without a pause: add the new
one, move the callers, take the old one out. The file is read again whenever it changes. One that cannot be read or
holds no token lets nobody in.

Only digests are kept and compared, each in constant time, and all of them for every call: neither a log line nor a
`repr` nor the time that an answer takes tells anything about a token.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import re
import threading
from pathlib import Path

from holdfast.errors import BadInput

__all__ = ["Tokens"]

TOKEN_LENGTH_MIN = 16
_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]+")
_log = logging.getLogger("holdfast.compactor")


class Tokens:
    """The tokens that are valid now. Safe for many threads."""

    __slots__ = ("_digests", "_lock", "_path", "_seen")

    def __init__(self, *, path: Path | None = None, text: str | None = None) -> None:
        """From a file, or from text such as a variable of the environment: separated by white space."""
        if (path is None) == (text is None):
            raise BadInput("tokens come from a file or from the environment; give one of the two")
        self._path = path
        self._lock = threading.Lock()
        self._seen: tuple[int, int, int] | None = None
        self._digests: tuple[bytes, ...] = ()
        if text is not None:
            self._digests = _digests(text.split(), "the environment")
        else:
            self._read()

    def __repr__(self) -> str:
        return f"Tokens({'environment' if self._path is None else str(self._path)})"

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("tokens do not travel")

    def __len__(self) -> int:
        return len(self._digests)

    def allows(self, token: str) -> bool:
        """Whether this is one of them."""
        self._refresh()
        given = hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
        found = False
        for known in self._digests:
            found |= hmac.compare_digest(known, given)
        return found

    def _refresh(self) -> None:
        if self._path is None:
            return
        with self._lock:
            try:
                if _stamp(self._path) != self._seen:
                    self._read()
                    _log.info("%d tokens are valid from now on, as %s says", len(self._digests), self._path)
            except (OSError, BadInput) as error:
                if self._digests or self._seen is not None:
                    _log.error("nobody is let in: %s", error)
                self._digests, self._seen = (), None

    def _read(self) -> None:
        assert self._path is not None
        try:
            seen = _stamp(self._path)  # before the bytes: what changes in between is read again
            lines = self._path.read_text(encoding="ascii").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise BadInput(f"the tokens' file {self._path} cannot be read: {type(error).__name__}") from None
        self._digests = _digests([line for one in lines if (line := one.strip()) and line[0] != "#"], str(self._path))
        self._seen = seen


def _stamp(path: Path) -> tuple[int, int, int]:
    found = os.stat(path)
    return found.st_ino, found.st_mtime_ns, found.st_size


def _digests(tokens: list[str], where: str) -> tuple[bytes, ...]:
    """Messages name a line's place and never what is there."""
    if not tokens:
        raise BadInput(f"{where} holds no token; write one a line, of at least {TOKEN_LENGTH_MIN} characters")
    for place, token in enumerate(tokens, 1):
        if len(token) < TOKEN_LENGTH_MIN or not _TOKEN.fullmatch(token):
            raise BadInput(
                f"token {place} of {where} cannot be one: use at least {TOKEN_LENGTH_MIN} letters, digits or any of "
                "._~+/=-"
            )
    return tuple(hashlib.sha256(token.encode()).digest() for token in tokens)
