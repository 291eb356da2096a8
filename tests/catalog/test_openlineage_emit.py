"""OpenLineage events are sent to a real server that records them, and nothing a listener does is in anybody's way."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from holdfast.catalog.openlineage import run_events
from holdfast.catalog.openlineage_emit import (
    URL_VARIABLE,
    Emitter,
    connect_from_environment,
    emitter_from_environment,
)
from holdfast.catalog.workspace import Workspace
from tests.catalog.openlineage_spec import event_problems
from tests.catalog.test_openlineage import full


class Listener(ThreadingHTTPServer):
    """Records what it is sent. It may be told to refuse, or to keep everybody waiting."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.got: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.paths: set[str] = set()
        self.status = 201
        self.refused_next: list[bool] = []
        """For the next events, whether each is refused."""
        self.open = threading.Event()
        self.open.set()
        self.asked = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: Listener

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.asked.set()
        self.server.open.wait(60)
        refused = bool(self.server.refused_next) and self.server.refused_next.pop(0)
        status = 400 if refused else self.server.status
        if status < 300:
            self.server.got.append(json.loads(body))
            self.server.keys.append(self.headers.get("Authorization"))
            self.server.paths.add(self.path)
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *words: object) -> None:
        """Quiet."""


@pytest.fixture
def listener() -> Iterator[Listener]:
    server = Listener()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield server
    server.open.set()
    server.shutdown()
    server.server_close()
    thread.join(30)


@pytest.fixture(scope="module")
def workspace() -> Workspace:
    return full()


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing of the machine's own settings."""
    import os

    for name in [one for one in os.environ if one.startswith(("OPENLINEAGE", "HOLDFAST_OPENLINEAGE"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)


def test_events_arrive_as_they_are_exported(workspace: Workspace, listener: Listener) -> None:
    """C29: emitted when configured; made and sent in the background, in order, once."""
    emitter = emitter_from_environment({URL_VARIABLE: listener.url, "OPENLINEAGE_API_KEY": "k"}, patience_s=60)
    emitter.emit(lambda: run_events(workspace, run_id="nightly-1"))
    done = emitter.close()
    expected = run_events(workspace, run_id="nightly-1")
    assert (done.sent, done.failed, done.dropped, done.problem, done.finished) == (len(expected), 0, 0, "", True)
    assert [event["run"]["runId"] for event in listener.got] == [event.run.runId for event in expected]
    assert [problem for event in listener.got for problem in event_problems(event)] == []
    assert listener.paths == {"/api/v1/lineage"}
    assert set(listener.keys) == {"Bearer k"}


@pytest.mark.parametrize("how", ["variable", "file"])
def test_the_client_s_own_configuration_counts(
    workspace: Workspace, listener: Listener, how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C29: whoever has configured OpenLineage's client need not say it again."""
    if how == "variable":
        monkeypatch.setenv("OPENLINEAGE_URL", listener.url)
        # The client writes these for itself; named here, they are put back when the test ends.
        for name in ("TYPE", "URL"):
            value = "http" if name == "TYPE" else listener.url
            monkeypatch.setenv(f"OPENLINEAGE__TRANSPORT__TRANSPORTS__DEFAULT_HTTP__{name}", value)
    else:
        (tmp_path / "openlineage.yml").write_text(f"transport:\n  type: http\n  url: {listener.url}\n")
    emitter = emitter_from_environment(patience_s=60)
    emitter.emit(run_events(workspace, run_id="nightly-2"))
    assert emitter.close().sent == 2
    assert len(listener.got) == 2


def test_nobody_is_configured_and_nothing_happens(workspace: Workspace) -> None:
    """C29: only when configured; a switch turns it off."""
    assert connect_from_environment({}) is None
    assert connect_from_environment({URL_VARIABLE: "http://127.0.0.1:9", "OPENLINEAGE_DISABLED": "true"}) is None
    with emitter_from_environment({}) as emitter:
        assert not emitter.is_on
        emitter.emit(lambda: run_events(workspace, run_id="no such run"))
    done = emitter.close()
    assert (done.sent, done.failed, done.problem, done.finished) == (0, 0, "", True)


def test_a_listener_that_refuses_is_a_warning_and_is_soon_left_alone(
    workspace: Workspace, listener: Listener, caplog: pytest.LogCaptureFixture
) -> None:
    """C29: errors become a warning, never an error of the publisher; and nobody is asked for ever."""
    listener.status = 400
    emitter = emitter_from_environment({URL_VARIABLE: listener.url}, patience_s=60)
    with caplog.at_level(logging.WARNING, "holdfast.openlineage"):
        emitter.emit(run_events(workspace))
        done = emitter.close()
    assert done.sent == 0
    assert done.failed == len(run_events(workspace))
    assert "could not be sent" in done.problem
    assert len(caplog.records) == 3, "after three in a row nobody is tried again"


def test_a_listener_that_refuses_now_and_then_is_still_sent_to(workspace: Workspace, listener: Listener) -> None:
    """C29: only refusals in a row count; each event that was refused is counted."""
    events = run_events(workspace)
    listener.refused_next = [True, False] * (len(events) // 2)
    emitter = emitter_from_environment({URL_VARIABLE: listener.url}, patience_s=60)
    emitter.emit(events)
    done = emitter.close()
    assert (done.failed, done.sent) == (len(events) // 2, len(events) - len(events) // 2)
    assert len(events) // 2 > 3, "more than may fail in a row"


def test_after_the_end_nothing_is_accepted(workspace: Workspace, listener: Listener) -> None:
    """C29: what came too late is counted, not lost in silence."""
    emitter = emitter_from_environment({URL_VARIABLE: listener.url}, patience_s=60)
    emitter.emit(run_events(workspace, run_id="nightly-2"))
    assert emitter.close().dropped == 0
    emitter.emit(run_events(workspace, run_id="nightly-2"))
    assert (emitter.close().dropped, emitter.close().sent) == (1, 2)


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "not a url"])
def test_nobody_there_is_a_warning(workspace: Workspace, url: str) -> None:
    """C29: a wrong address costs nothing but the events."""
    with emitter_from_environment({URL_VARIABLE: url}, patience_s=60) as emitter:
        emitter.emit(run_events(workspace, run_id="nightly-2"))
    done = emitter.close()
    assert (done.sent, done.finished) == (0, True)
    assert done.problem


def test_events_that_cannot_be_made_are_a_warning(workspace: Workspace, listener: Listener) -> None:
    """C29: making them is part of the background too."""
    with emitter_from_environment({URL_VARIABLE: listener.url}, patience_s=60) as emitter:
        emitter.emit(lambda: run_events(workspace, run_id="no such run"))
        emitter.emit(run_events(workspace, run_id="nightly-2"))
    done = emitter.close()
    assert "no such run" in done.problem
    assert done.sent == 2, "the next ones are sent all the same"


def test_a_listener_that_hangs_delays_nobody_and_little_waits(workspace: Workspace, listener: Listener) -> None:
    """C29: `emit` returns while the listener holds the first event; what waits is bounded, and so is closing."""
    listener.open.clear()
    events = run_events(workspace, run_id="nightly-2")
    connect = connect_from_environment({URL_VARIABLE: listener.url})
    emitter = Emitter(connect, waiting_max=2, patience_s=0.01)
    emitter.emit(events)
    assert listener.asked.wait(60)
    for _ in range(5):
        emitter.emit(events)
    done = emitter.close()
    assert (done.sent, done.dropped, done.finished) == (0, 3, False)
    listener.open.set()
