"""The service as a process: a socket, signals, and lines that a person reads.

SIGTERM and SIGINT end it well: nothing new is accepted, what somebody waits for is answered, the batch in hand and what
waits behind it is folded, and the process ends with 0.
"""

from __future__ import annotations

import ipaddress
import json
import logging
import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import uvicorn

from holdfast.clock import format_time
from holdfast.errors import BadInput
from holdfast.service.compactor import STOP_TIMEOUT_S, CompactorService
from holdfast.service.routes import make_app
from holdfast.service.tokens import Tokens

__all__ = ["Listen", "Server", "log_to_stderr", "serve"]

_KEEP_ALIVE_S = 75
_CONNECTIONS_MAX = 512
_log = logging.getLogger("holdfast.compactor")


@dataclass(frozen=True, slots=True, kw_only=True)
class Listen:
    """Where to listen. Port 0 takes a free one. A certificate with its key makes it HTTPS."""

    host: str = "127.0.0.1"
    port: int = 8765
    certificate: Path | None = None
    key: Path | None = None

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None):
            raise BadInput("HTTPS needs a certificate and its key; give both, or none")
        for path in (self.certificate, self.key):
            if path is not None and not path.is_file():
                raise BadInput(f"there is no file {path}; HTTPS needs a certificate and its key")

    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        return all(ipaddress.ip_address(address).is_loopback for address in _addresses(self.host))


def serve(service: CompactorService, *, tokens: Tokens | None, listen: Listen, ready: Callable[[str], None]) -> None:
    """Serve until a signal ends it. `ready` is told the address once it answers."""
    server = Server(service, tokens=tokens, listen=listen, ready=ready)
    # The server handles these itself and raises them once more when it is done: then all is done that they ask for.
    before = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        server.serve_here()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Server(uvicorn.Server):
    """A server on a socket of its own. `should_exit = True` ends it as a signal would."""

    def __init__(
        self,
        service: CompactorService,
        *,
        tokens: Tokens | None = None,
        listen: Listen | None = None,
        ready: Callable[[str], None] = lambda _: None,
    ) -> None:
        place = listen or Listen(port=0)
        if tokens is None and not place.is_loopback():
            raise BadInput(
                f"{place.host} can be reached from other machines, and without tokens anybody could publish; name a "
                "tokens file, or listen on 127.0.0.1"
            )
        service.workspace.read_root()
        super().__init__(
            uvicorn.Config(
                make_app(service, tokens, stopped=_say_left),
                log_config=None,
                access_log=False,
                server_header=False,
                lifespan="on",
                limit_concurrency=_CONNECTIONS_MAX,
                timeout_keep_alive=_KEEP_ALIVE_S,
                timeout_graceful_shutdown=int(STOP_TIMEOUT_S),
                ssl_certfile=place.certificate,
                ssl_keyfile=place.key,
            )
        )
        self._socket = _listening(place)
        self._tell = ready
        host, port = self._socket.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        scheme = "http" if place.certificate is None else "https"
        self.url = f"{scheme}://{shown}:{port}"

    def serve_here(self) -> None:
        """Serve in this thread until it is ended."""
        with self._socket:
            self.run(sockets=[self._socket])

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._tell(self.url)


def _listening(place: Listen) -> socket.socket:
    family = socket.AF_INET6 if ":" in place.host else socket.AF_INET
    try:
        return socket.create_server((place.host, place.port), family=family, backlog=256)
    except (OSError, OverflowError) as error:
        raise BadInput(f"cannot listen on {place.host} port {place.port}: {error}; choose another") from None


def _say_left(left: int) -> None:
    if left:
        _log.warning("stopped with %d notified events not folded; anti-entropy will find them", left)
    else:
        _log.info("stopped; everything that was notified is folded")


def _addresses(host: str) -> list[str]:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise BadInput(f"{host!r} is no address of this machine: {error}; use 127.0.0.1, 0.0.0.0 or a name") from None
    return [str(one[4][0]).partition("%")[0] for one in found]


def log_to_stderr(*, as_json: bool) -> None:
    """Log lines of Holdfast, and warnings of the server below, on stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonLines() if as_json else _Lines())
    for name, level in (("holdfast", logging.INFO), ("uvicorn", logging.WARNING)):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level)


class _Lines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        text = f"{_moment(record)} {record.levelname.lower():7} {record.getMessage()}"
        return text if record.exc_info is None else f"{text}\n{self.formatException(record.exc_info)}"


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {"at": _moment(record), "level": record.levelname.lower(), "message": record.getMessage()}
        if record.exc_info is not None:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def _moment(record: logging.LogRecord) -> str:
    return format_time(datetime.fromtimestamp(record.created, UTC))
