"""Sending OpenLineage events to whoever listens, if somebody was configured: never in the way of a publish (C29).

    with emitter_from_environment() as emitter:
        emitter.emit(lambda: run_events(workspace, run_id="nightly-7"))

`emit` returns at once and never raises. Events are made and sent by a thread of the emitter; what waits is bounded, so
is how long `close` waits for it, and whatever goes wrong is a warning in the log of `holdfast.openlineage` and a number
in `Sent`. Events that were not sent are not lost: the catalog has them, and `holdfast catalog openlineage emit` sends
them again, under the same ids.

Who listens is said by `HOLDFAST_OPENLINEAGE_URL`, or in the ways of OpenLineage's own client: `OPENLINEAGE_URL`,
`OPENLINEAGE_CONFIG`, an `openlineage.yml` in this folder or in `~/.openlineage`, or `OPENLINEAGE__TRANSPORT__…`.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from openlineage.client import event_v2 as ol

    Send = Callable[[ol.RunEvent], None]
    Connect = Callable[[], Send]
    Events = Iterable[ol.RunEvent] | Callable[[], Iterable[ol.RunEvent]]

__all__ = ["URL_VARIABLE", "Emitter", "Sent", "connect_from_environment", "emitter_from_environment"]

URL_VARIABLE = "HOLDFAST_OPENLINEAGE_URL"
WAITING_MAX = 100
"""How many calls of `emit` may wait: more are dropped, and counted."""
PATIENCE_S = 5.0
"""How long `close` waits for what is still to be sent."""
REQUEST_TIMEOUT_S = 5.0
FAILURES_MAX = 3
"""After so many events in a row that could not be sent, nobody is thought to listen, and the rest is not tried."""
_log = logging.getLogger("holdfast.openlineage")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """What has become of the events so far."""

    sent: int
    failed: int
    """Events that could not be sent, or were not tried after others could not."""
    dropped: int
    """Calls of `emit` that came while too many waited, or after the end."""
    problem: str
    """The first thing that went wrong; empty if nothing did."""
    finished: bool
    """Whether everything that was accepted has been tried."""


class Emitter:
    """Sends events in the background. Any number of threads may call it; without `connect` it does nothing."""

    def __init__(
        self,
        connect: Connect | None,
        *,
        waiting_max: int = WAITING_MAX,
        patience_s: float = PATIENCE_S,
        failures_max: int = FAILURES_MAX,
    ) -> None:
        self._connect = connect
        self._waiting: queue.Queue[Events | None] = queue.Queue(maxsize=waiting_max)
        self._patience_s = patience_s
        self._failures_max = failures_max
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()
        self._sent = self._failed = self._dropped = 0
        self._in_a_row = 0
        self._problem = ""

    @property
    def is_on(self) -> bool:
        """Whether anybody was configured to listen."""
        return self._connect is not None

    def emit(self, events: Events) -> None:
        """Have events sent, or what makes them: that too is then done in the background."""
        if self._connect is None:
            return
        with self._lock:
            try:
                if self._closing.is_set():
                    raise queue.Full
                self._waiting.put_nowait(events)
            except queue.Full:
                self._dropped += 1
                self._note("too many events wait to be sent; some were dropped")
                return
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="holdfast-openlineage", daemon=True)
                self._thread.start()

    def close(self) -> Sent:
        """Wait for what was accepted, but not longer than the patience of the emitter."""
        self._closing.set()
        thread = self._thread
        if thread is not None:
            with suppress(queue.Full):  # then the thread looks at `closing` when it has emptied the queue
                self._waiting.put_nowait(None)
            thread.join(self._patience_s)
            if thread.is_alive():
                self._note(f"events were not sent within {self._patience_s:g} s; the rest is left behind")
        finished = thread is None or not thread.is_alive()
        return Sent(
            sent=self._sent, failed=self._failed, dropped=self._dropped, problem=self._problem, finished=finished
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- in the thread -------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        send: Send | None = None
        while True:
            try:
                events = self._waiting.get(block=not self._closing.is_set())
            except queue.Empty:
                return
            if events is None:
                return
            try:
                if send is None:
                    assert self._connect is not None
                    send = self._connect()
                self._send_all(send, events() if callable(events) else events)
            except Exception as error:  # noqa: BLE001 - a listener's trouble, of whatever kind, is not the publisher's
                self._failed += 1
                self._note(f"OpenLineage events could not be made: {_first_line(error)}")

    def _send_all(self, send: Send, events: Iterable[ol.RunEvent]) -> None:
        for event in events:
            if self._in_a_row >= self._failures_max:
                self._failed += 1
                continue
            try:
                send(event)
            except Exception as error:  # noqa: BLE001
                self._failed += 1
                self._in_a_row += 1
                self._note(f"an OpenLineage event could not be sent: {_first_line(error)}")
            else:
                self._sent += 1
                self._in_a_row = 0

    def _note(self, problem: str) -> None:
        self._problem = self._problem or problem
        _log.warning("%s", problem)


def emitter_from_environment(
    environ: Mapping[str, str] | None = None, *, waiting_max: int = WAITING_MAX, patience_s: float = PATIENCE_S
) -> Emitter:
    """An emitter to whoever is configured; one that does nothing where nobody is."""
    return Emitter(connect_from_environment(environ), waiting_max=waiting_max, patience_s=patience_s)


def connect_from_environment(environ: Mapping[str, str] | None = None) -> Connect | None:
    """How to reach who listens, or None where nobody does. Nothing is opened yet."""
    environment = os.environ if environ is None else environ
    if environment.get("OPENLINEAGE_DISABLED", "").strip().lower() == "true":
        return None
    if url := environment.get(URL_VARIABLE, ""):
        key = environment.get("OPENLINEAGE_API_KEY", "")
        return lambda: _own_client(url, key)
    named = any(environment.get(name) for name in ("OPENLINEAGE_URL", "OPENLINEAGE_CONFIG"))
    named = named or any(name.startswith("OPENLINEAGE__TRANSPORT__") for name in environment)
    files = (Path("openlineage.yml"), Path("~/.openlineage/openlineage.yml").expanduser())
    return _their_client if named or any(file.is_file() for file in files) else None


def _own_client(url: str, key: str) -> Send:
    """Straight to the URL, one try an event: whoever waits for more configures OpenLineage's client."""
    from openlineage.client.transport.http import HttpConfig, HttpTransport

    config: dict[str, object] = {"url": url, "timeout": REQUEST_TIMEOUT_S, "retry": {"total": 0}}
    if key:
        config["auth"] = {"type": "api_key", "apiKey": key}
    transport = HttpTransport(HttpConfig.from_dict(config))

    def send(event: ol.RunEvent) -> None:
        transport.emit(event)

    return send


def _their_client() -> Send:
    from openlineage.client import OpenLineageClient

    return OpenLineageClient().emit


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
