"""What comes before every address: who calls, and counting what was answered."""

from __future__ import annotations

import json
import logging
import threading
from collections import Counter
from collections.abc import Mapping

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.service.tokens import Tokens

__all__ = ["Gatekeeper", "Requests"]

_OPEN = "/health"
_ROUTES = ("/compact", "/notify", "/cursor", "/metrics", "/health")
_log = logging.getLogger("holdfast.compactor")


class Requests:
    """How many answers there were, by address and status."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, int]] = Counter()

    def add(self, path: str, status: int) -> None:
        # Only addresses that exist become labels: a caller must not be able to make new ones.
        route = next((one for one in _ROUTES if path == one or path.startswith(f"{one}/")), "other")
        with self._lock:
            self._counts[route, status] += 1

    def snapshot(self) -> Mapping[tuple[str, int], int]:
        with self._lock:
            return dict(self._counts)


class Gatekeeper:
    """Lets in who brings a token: 401 without one, 403 with one that is not valid. The application is not asked."""

    def __init__(self, app: ASGIApp, *, tokens: Tokens | None, requests: Requests) -> None:
        self._app = app
        self._tokens = tokens
        self._requests = requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path: str = scope["path"]

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._requests.add(path, message["status"])
            await send(message)

        refused = None if path == _OPEN else self._refusal(scope)
        if refused is None:
            await self._app(scope, receive, counted)
            return
        status, error, words = refused
        _log.warning("%s %s: %d %s", scope["method"], _route(path), status, error)
        body = json.dumps({"error": error, "message": words}).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        if status == 401:
            headers.append((b"www-authenticate", b'Bearer realm="holdfast"'))
        headers.append((b"connection", b"close"))  # the body was not read
        await counted({"type": "http.response.start", "status": status, "headers": headers})
        await counted({"type": "http.response.body", "body": body})

    def _refusal(self, scope: Scope) -> tuple[int, str, str] | None:
        if self._tokens is None:
            return None
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        kind, _, token = (given[0] if len(given) == 1 else b"").partition(b" ")
        if kind.lower() != b"bearer" or not token.strip():
            return 401, "TokenMissing", "this compactor wants a token: send 'Authorization: Bearer TOKEN'"
        if not self._tokens.allows(token.strip().decode("latin-1")):
            return 403, "TokenRefused", "this token is not valid here; use one of the compactor's tokens file"
        return None


def _route(path: str) -> str:
    """The path in a log line: an unknown one may hold anything."""
    return path if path in _ROUTES else "(another address)"
