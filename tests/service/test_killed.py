"""A service killed by the system before each write of a fold: nothing is lost, nothing is half visible."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from holdfast.catalog import Workspace
from holdfast.catalog.cursor import read_cursor
from holdfast.service.compactor import CompactorService
from holdfast.storage.capabilities import Reader
from tests.catalog.auditing import audit
from tests.service.support import (
    WAIT_MAX_S,
    call,
    edge,
    edges_of,
    local_root,
    serving,
    table,
    tables_of,
    tell,
    until,
    workspace_on,
)

ROOT = Path(__file__).resolve().parents[2]
STEPS_MAX = 40


class Services:
    """Starts services that die, one at a time."""

    def __init__(self, root: Path) -> None:
        command = [sys.executable, "-m", "tests.service.dying_service", str(root)]
        self._process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self.ended: int | None = None

    @contextmanager
    def running(self, workspace: str, dies_at: int) -> Iterator[str]:
        """The address of one. In the end it is stopped, if it lives: `ended` says how it went."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"workspace": workspace, "dies_at": dies_at}) + "\n")
        self._process.stdin.flush()
        started = self._line()
        try:
            yield started["url"]
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(started["pid"], signal.SIGTERM)
            self.ended = self._line()["ended"]

    def _line(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the services' process has ended"
        return json.loads(line)

    def close(self) -> None:
        self._process.communicate(timeout=WAIT_MAX_S)
        assert self._process.returncode == 0


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Services]:
    made = Services(tmp_path / "root")
    yield made
    made.close()


def prepared(tmp_path: Path, name: str) -> Workspace:
    workspace = workspace_on(local_root(tmp_path / "root"), name)
    workspace.initialize()
    return workspace


def is_whole(workspace: Workspace, domain: str) -> bool:
    return workspace.domain(domain).verify() == [] and audit(workspace.store) == []


def test_a_change_is_there_once_whenever_its_compactor_was_killed(tmp_path: Path, services: Services) -> None:
    """C23, C17, C9: SIGKILL before every write of the fold in turn, then the same call to the next service."""
    killed = 0
    for step in range(1, STEPS_MAX):
        workspace = prepared(tmp_path, f"w{step}")
        with workspace.domain("catalog").lock() as guard:
            (path,) = tell(workspace, table("a"))
            body = {"domain": "catalog", "paths": [path], "ticket": guard.ticket}
            with services.running(workspace.name, dies_at=step) as url, died():
                call(url, "POST", "/compact", body)
            if services.ended == 0:
                break
            assert services.ended == -signal.SIGKILL
            killed += 1
            assert tables_of(workspace) in ([], ["a"]), "whole or not at all"
            with serving(CompactorService(workspace)) as url:
                again = call(url, "POST", "/compact", body)
            assert (again.status, again.document["watermark"]["position"]) == (200, 1)
        assert tables_of(workspace) == ["a"]
        assert is_whole(workspace, "catalog")
    assert 5 < killed < STEPS_MAX - 1


def test_what_was_notified_is_folded_once_whenever_the_compactor_was_killed(tmp_path: Path, services: Services) -> None:
    """C23, C18, C9: the same under the compactor's own lock, and no cursor was written before all was folded."""
    killed = 0
    for step in range(1, STEPS_MAX):
        workspace = prepared(tmp_path, f"w{step}")
        (path,) = tell(workspace, edge(1))
        event_id = path[-31:-5]
        told = {"domain": "lineage", "paths": [path], "cursor": event_id}
        with services.running(workspace.name, dies_at=step) as url, died():
            call(url, "POST", "/notify", told)
            until(partial(is_at, url, event_id))
        if services.ended == 0:
            break
        assert services.ended == -signal.SIGKILL
        killed += 1
        if read_cursor(Reader(workspace.store), "lineage") is not None:
            assert edges_of(workspace) == {"s1"}, "a cursor says that all before it is folded"
        with serving(CompactorService(workspace)) as url:
            call(url, "POST", "/notify", told)
            until(partial(is_at, url, event_id))
        assert edges_of(workspace) == {"s1"}
        assert is_whole(workspace, "lineage")
    assert 5 < killed < STEPS_MAX - 1


def died() -> AbstractContextManager[None]:
    """Around a call that may get no answer."""
    return contextlib.suppress(OSError, http.client.HTTPException)


def is_at(url: str, event_id: str) -> bool:
    return bool(call(url, "GET", "/cursor/lineage").document["event_id"] == event_id)
