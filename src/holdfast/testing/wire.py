"""A wire between a client and a server that can be watched and cut: for answers that are lost, and servers that die.

Every message from the client is shown to a plan before it goes on. The plan lets it pass or cuts the wire there, before
the message or after its answer; `on_cut` is what else happens at that moment, such as the server being killed.
"""

from __future__ import annotations

import contextlib
import enum
import socket
import threading
from collections.abc import Callable, Iterator

__all__ = ["Cut", "Watch", "Wire"]

_CHUNK = 1 << 16
_WAIT_S = 30.0


class Cut(enum.Enum):
    """What a plan does to a message."""

    PASS = "pass"
    BEFORE = "before"
    """It never arrives; the connection is dead."""
    ANSWER = "answer"
    """It arrives and is answered; the answer is lost and the connection dead."""


Watch = Callable[[bytes], Cut]


def pass_all(_message: bytes) -> Cut:
    """The plan of a wire that only carries."""
    return Cut.PASS


class Wire:
    """Listens on a port of its own and carries every connection to `target`."""

    def __init__(self, target: int, *, watch: Watch = pass_all, on_cut: Callable[[], None] = lambda: None) -> None:
        self.watch = watch
        self.on_cut = on_cut
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._threads: list[threading.Thread] = []
        self._open: list[socket.socket] = []
        self._closed = False
        self._spawn(self._accept)

    def close(self) -> None:
        """Cut everything and stop listening."""
        self._closed = True
        # Closing a socket does not wake a thread that waits in accept; a last visitor does.
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1.0):
            pass
        self._listener.close()
        for one in list(self._open):
            _hang_up(one)
        for thread in self._threads:
            thread.join(_WAIT_S)

    def _spawn(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._closed:  # ends with `close`
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self._target), timeout=_WAIT_S)
            except OSError:
                _hang_up(client)
                continue
            server.settimeout(None)
            self._open += [client, server]
            lost = threading.Event()
            self._spawn(_both(self._forward, client, server, lost))
            self._spawn(_both(self._back, server, client, lost))

    def _forward(self, client: socket.socket, server: socket.socket, lost: threading.Event) -> None:
        for message in _messages(client):
            match self.watch(message):
                case Cut.BEFORE:
                    self.on_cut()
                    break
                case Cut.ANSWER:
                    lost.set()
                case Cut.PASS:
                    pass
            server.sendall(message)
        _hang_up(client)
        _hang_up(server)

    def _back(self, server: socket.socket, client: socket.socket, lost: threading.Event) -> None:
        for message in _messages(server):
            if lost.is_set():
                self.on_cut()
                break
            client.sendall(message)
        _hang_up(client)
        _hang_up(server)


def _both(
    work: Callable[[socket.socket, socket.socket, threading.Event], None],
    source: socket.socket,
    target: socket.socket,
    lost: threading.Event,
) -> Callable[[], None]:
    def run() -> None:
        with contextlib.suppress(OSError):
            work(source, target, lost)

    return run


def _messages(source: socket.socket) -> Iterator[bytes]:
    """What arrives, until it ends."""
    while True:  # ends with the connection
        try:
            found = source.recv(_CHUNK)
        except OSError:
            return
        if not found:
            return
        yield found


def _hang_up(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()
