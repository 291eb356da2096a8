"""A compactor that runs somewhere else, called over HTTP: a `Compactor` for who may not publish.

    compactor = RemoteCompactor("https://compactor.internal:8765", token=token, tenant="acme", workspace="prod")
    Catalog(workspace, compact=compactor)                      # changes that somebody waits for (C17)
    compactor.notify("lineage", [receipt.path])                # events that will be folded soon (C18)

An error that the service reports is raised here as if the fold had run in this process. An answer that was lost says
nothing about what happened; but folding the same events again changes nothing, so the call is simply made again, a few
times, and only then StoreUnavailable is raised.
"""

from __future__ import annotations

import http.client
import ssl
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar
from urllib.parse import quote, urlsplit

import orjson

from holdfast import errors
from holdfast.catalog.compactor import Compaction
from holdfast.catalog.watermark import Watermark
from holdfast.clock import Clock, SystemClock
from holdfast.codec import Fields
from holdfast.errors import BadInput, CorruptRecord, HoldfastError, StoreDenied, StoreUnavailable

__all__ = ["Notified", "RemoteCompactor", "TokenSource", "token_of"]

ATTEMPTS_MAX = 4
PAUSE_S, PAUSE_MAX_S = 0.1, 5.0
TIMEOUT_S = 30.0
_ANSWER_BYTES_MAX = 1 << 20
_IDLE_MAX = 8
_RETRIED = frozenset({"Conflict", "QueueFull", "StoreUnavailable"})
"""Answers after which the same call may succeed. A lock that was lost is none of them: it has to be taken again."""

_T = TypeVar("_T")

TokenSource = str | Callable[[], str | None] | None
"""A token, or what gives the one that is valid now: it is asked for every call, so that tokens can be replaced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notified:
    """What became of a notification."""

    accepted: int
    known: int
    """Paths that waited already."""
    waiting: int


class _Answer(NamedTuple):
    status: int
    document: Mapping[str, object]
    retry_after_s: float | None


class _Lost(Exception):
    """No answer, and why."""


class _Idle:
    """Connections that are open and not in use."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connections: list[http.client.HTTPConnection] = []

    def take(self) -> http.client.HTTPConnection | None:
        with self._lock:
            return self._connections.pop() if self._connections else None

    def give(self, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            if len(self._connections) < _IDLE_MAX:
                self._connections.append(connection)
                return
        connection.close()

    def close(self) -> None:
        with self._lock:
            connections, self._connections = self._connections, []
        for connection in connections:
            connection.close()


class RemoteCompactor:
    """A client of one compactor service. Any number of threads may use it; some connections are kept open."""

    def __init__(
        self,
        url: str,
        *,
        token: TokenSource = None,
        domain: str = "catalog",
        tenant: str | None = None,
        workspace: str | None = None,
        timeout_s: float = TIMEOUT_S,
        context: ssl.SSLContext | None = None,
        clock: Clock | None = None,
    ) -> None:
        """`tenant` and `workspace` say which workspace is meant: a compactor that serves another refuses. `domain` is
        what a call without one is about. `context` is for certificates that the machine does not know."""
        parts = urlsplit(url)
        try:
            port = parts.port
        except ValueError:
            port = -1
        if parts.scheme not in {"http", "https"} or not parts.hostname or port == -1 or parts.query or parts.fragment:
            raise BadInput(f"{url!r} is no address of a compactor; it is like http://127.0.0.1:8765")
        if "@" in parts.netloc:
            raise BadInput("the compactor's address holds a user or a password; give a token instead")
        self._host, self._port, self._base = parts.hostname, port, parts.path.rstrip("/")
        self._context = (context or ssl.create_default_context()) if parts.scheme == "https" else None
        self._token = token
        self._domain = domain
        self._names = {
            name: value for name, value in (("tenant", tenant), ("workspace", workspace)) if value is not None
        }
        self._timeout_s = timeout_s
        self._clock: Clock = clock or SystemClock()
        self._idle = _Idle()
        weakref.finalize(self, self._idle.close)
        self.url = url

    def __repr__(self) -> str:
        return f"RemoteCompactor({self.url!r})"

    def __call__(self, paths: Sequence[str], ticket: str) -> Compaction:
        """What `Catalog` and `GroupCommit` take as `compact`."""
        return self.compact(paths, ticket=ticket)

    def compact(self, paths: Sequence[str], *, ticket: str | None = None, domain: str | None = None) -> Compaction:
        """Fold these events now, under the lock of the ticket, or the compactor's own. Errors are those of a
        `Compactor` here; StoreUnavailable if there is no answer."""
        body = {**self._names, "domain": domain or self._domain, "paths": list(paths)}
        document = self._call("POST", "compact", body if ticket is None else {**body, "ticket": ticket})
        return self._read(document, _compaction)

    def notify(self, domain: str, paths: Sequence[str], cursor: str | None = None) -> Notified:
        """Have these events folded soon, and then the cursor written: the event up to which the ledger was looked
        through. StoreUnavailable if there is no room for a while."""
        body: dict[str, object] = {**self._names, "domain": domain, "paths": list(paths)}
        if cursor is not None:
            body["cursor"] = {"domain": domain, "event_id": cursor}
        return self._read(self._call("POST", "notify", body), _notified)

    def cursor(self, domain: str) -> str | None:
        """The event up to which the domain's ledger was looked through; None before the first."""
        document = self._call("GET", f"cursor/{quote(domain, safe='')}", None)
        return self._read(document, lambda fields: fields.optional_text("event_id"))

    # -- one call -----------------------------------------------------------------------------------------------------

    def _call(self, method: str, path: str, body: Mapping[str, object] | None) -> Mapping[str, object]:
        """The document of a good answer, after some attempts."""
        data = None if body is None else orjson.dumps(body)
        failure: HoldfastError = StoreUnavailable(f"the compactor at {self.url} was not asked")
        wait_s: float | None = None
        for attempt in range(ATTEMPTS_MAX):
            if attempt:
                self._clock.sleep(min(wait_s or PAUSE_S * 2 ** (attempt - 1), PAUSE_MAX_S))
            try:
                answer = self._ask(method, path, data)
            except _Lost as lost:
                failure = StoreUnavailable(
                    f"the compactor at {self.url} does not answer ({lost}); check its address and that it runs, then "
                    "do it again: telling it twice is safe"
                )
                continue
            if answer.status in {200, 202}:
                return answer.document
            failure = self._failure(answer)
            wait_s = answer.retry_after_s
            if not _may_retry(answer):
                break
        raise failure

    def _ask(self, method: str, path: str, data: bytes | None) -> _Answer:
        """One attempt, or two: a connection that was kept may have been closed in the meantime."""
        kept = self._idle.take()
        if kept is not None:
            try:
                return self._send(kept, method, path, data)
            except (ConnectionError, http.client.BadStatusLine):
                pass
            except (OSError, http.client.HTTPException) as error:
                raise _Lost(_reason(error)) from None
        try:
            return self._send(self._connection(), method, path, data)
        except (OSError, http.client.HTTPException) as error:
            raise _Lost(_reason(error)) from None

    def _send(self, connection: http.client.HTTPConnection, method: str, path: str, data: bytes | None) -> _Answer:
        """The answer. The connection is kept for the next call if that is possible, else closed."""
        is_good = False
        try:
            try:
                connection.request(method, f"{self._base}/{path}", body=data, headers=self._headers(data))
            except (BrokenPipeError, ConnectionResetError):
                if connection.sock is None:
                    raise
                # It may have answered and closed before all was sent: too large, say. That answer is worth reading.
            response = connection.getresponse()
            content = response.read(_ANSWER_BYTES_MAX)
            if response.length:  # it ended before it was whole, which a bounded read does not tell by itself
                raise http.client.IncompleteRead(content, response.length)
            is_good = response.isclosed() and not response.will_close
        finally:
            if is_good:
                self._idle.give(connection)
            else:
                connection.close()
        return _Answer(response.status, _document(content), _seconds(response.getheader("Retry-After")))

    def _headers(self, data: bytes | None) -> dict[str, str]:
        headers = {"Accept": "application/json"}
        token = self._token() if callable(self._token) else self._token
        if token is not None:
            if not (token.isascii() and token.isprintable()):
                raise BadInput("the compactor's token holds characters that no token has; check where it is from")
            headers["Authorization"] = f"Bearer {token}"
        if data is not None:
            headers["Content-Type"] = "application/json"
        return headers

    def _connection(self) -> http.client.HTTPConnection:
        if self._context is None:
            return http.client.HTTPConnection(self._host, self._port, timeout=self._timeout_s)
        return http.client.HTTPSConnection(self._host, self._port, timeout=self._timeout_s, context=self._context)

    def close(self) -> None:
        """Close what is kept open. The next call opens a connection again."""
        self._idle.close()

    # -- what an answer means -----------------------------------------------------------------------------------------

    def _failure(self, answer: _Answer) -> HoldfastError:
        """The error that the service has met, as it would have been raised here."""
        name, message = answer.document.get("error"), answer.document.get("message")
        where = f"the compactor at {self.url}"
        if name in {"TokenMissing", "TokenRefused"} or answer.status == 401:
            what = "wants a token" if answer.status == 401 else "does not accept the token"
            return StoreDenied(
                f"{where} {what}; set HOLDFAST_COMPACTOR_TOKEN, or name a file of tokens in HOLDFAST_COMPACTOR_TOKENS"
            )
        if not isinstance(name, str) or not isinstance(message, str):
            return StoreUnavailable(
                f"{where} answered {answer.status} with what is no answer of a compactor; check the address, and what "
                "stands between"
            )
        if name == "QueueFull":
            return StoreUnavailable(f"{where} has no room: {message}")
        if name in {"NoSuchAddress", "BadBody"}:
            return BadInput(f"{where}: {message}")
        kind = getattr(errors, name, None) if name in errors.__all__ else None
        if kind is None:
            return StoreUnavailable(f"{where} failed: {message}")
        arguments = answer.document.get("arguments")
        try:
            made = kind(*arguments) if isinstance(arguments, list) else kind(message)
        except TypeError:
            return StoreUnavailable(f"{where} failed: {message}")
        assert isinstance(made, HoldfastError)
        return made

    def _read(self, document: Mapping[str, object], read: Callable[[Fields], _T]) -> _T:
        try:
            return read(Fields(document, key=self.url))
        except CorruptRecord as error:
            raise StoreUnavailable(
                f"the compactor at {self.url} gave an answer that cannot be read ({error.reason}); check its address "
                "and its release"
            ) from None


def token_of(text: str | None, file: Path | None) -> TokenSource:
    """The first token of some text, or else of a file, which is read again for every call."""
    if text is not None and text.split():
        return text.split()[0]
    if file is None:
        return None

    def first() -> str | None:
        try:
            lines = [line.strip() for line in file.read_text(encoding="ascii").splitlines()]
        except (OSError, UnicodeDecodeError) as error:
            raise BadInput(f"the tokens' file {file} cannot be read: {type(error).__name__}") from None
        return next((line for line in lines if line and line[0] != "#"), None)

    return first


def _may_retry(answer: _Answer) -> bool:
    name = answer.document.get("error")
    return name in _RETRIED or (name is None and answer.status in {429, 502, 503, 504})


def _document(content: bytes) -> Mapping[str, object]:
    """What was answered; nothing for what is no JSON object, such as a proxy's page."""
    try:
        found = orjson.loads(content)
    except orjson.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def _seconds(text: str | None) -> float | None:
    return float(text) if text is not None and text.isascii() and text.isdigit() else None


def _reason(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _compaction(fields: Fields) -> Compaction:
    mark = Fields(fields.mapping("watermark"), key=fields.key)
    published = fields.rest().get("published")
    return Compaction(
        published=published is True,
        manifest_id=fields.optional_number("manifest_version"),
        commit_ulid=fields.optional_text("commit_ulid"),
        snapshot_version=fields.number("snapshot_version"),
        watermark=Watermark(position=mark.number("position"), event_id=mark.optional_text("event_id")),
        events=fields.number("events"),
        quarantined=fields.number("quarantined"),
        merged=fields.texts("merged"),
    )


def _notified(fields: Fields) -> Notified:
    return Notified(accepted=fields.number("accepted"), known=fields.number("known"), waiting=fields.number("waiting"))
