"""`holdfast serve compactor` as a process: how it starts, what it says, how it ends."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast.catalog import Workspace
from tests.cli.support import Program, environment
from tests.service.support import ULID, WAIT_MAX_S, call, edge, edges_of, table, tables_of, tell

TOKEN, OTHER, WRONG = "served-token-012345678", "second-token-012345678", "foreign-token-01234567"


@pytest.fixture
def place(workspace: Workspace, tmp_path: Path) -> str:
    return str(tmp_path / "root" / "acme" / "prod")


@pytest.fixture
def holdfast(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Program:
    for name in [one for one in os.environ if one.startswith("HOLDFAST_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return Program(monkeypatch)


@contextmanager
def process(
    folder: Path, *words: str, environ: Mapping[str, str] | None = None
) -> Iterator[tuple[Any, subprocess.Popen[str]]]:
    """A real one: what it said when it was ready, and the process. Its log is in `log` of the folder."""
    command = [sys.executable, "-m", "holdfast.cli", "serve", "compactor", *words, "--port", "0", "--json"]
    with (folder / "log").open("w") as log:
        running = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=log, text=True, cwd=folder, env={**environment(), **(environ or {})}
        )
        try:
            assert running.stdout is not None
            line = running.stdout.readline()
            assert line, (folder / "log").read_text()
            yield json.loads(line), running
        finally:
            running.kill()
            running.communicate(timeout=WAIT_MAX_S)


def test_it_serves_until_sigterm_finishes_what_was_begun_and_tells_no_token(
    workspace: Workspace, place: str, tmp_path: Path, holdfast: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C17, C18: the real process: commands fold through it, SIGTERM loses nothing and ends with 0, and no token is in
    its log, its command line, its answers or its metrics."""
    tokens = tmp_path / "tokens"
    tokens.write_text(f"{TOKEN}\n{OTHER}\n")
    paths = tell(workspace, *(edge(number) for number in range(30)))
    with process(tmp_path, place, "--tokens-file", str(tokens)) as (ready, running):
        url = ready["url"]
        assert ready == {
            "command": "serve compactor",
            "workspace": workspace.url,
            "url": url,
            "domains": ["catalog", "lineage", "executions"],
            "authenticated": True,
        }
        monkeypatch.setenv("HOLDFAST_COMPACTOR", url)
        assert "wants a token" in holdfast.fails("catalog", "register", place, "sales", code=7)
        monkeypatch.setenv("HOLDFAST_COMPACTOR_TOKEN", WRONG)
        assert "does not accept the token" in holdfast.fails("catalog", "register", place, "sales", code=7)
        monkeypatch.delenv("HOLDFAST_COMPACTOR_TOKEN")
        (tmp_path / "holdfast.toml").write_text('compactor_tokens = "tokens"\n')
        holdfast("catalog", "compact", place)
        holdfast("catalog", "register", place, "crm")
        holdfast("catalog", "register", place, "crm.people", "--compactor", url)
        monkeypatch.setenv("HOLDFAST_COMPACTOR_TOKEN", OTHER)
        holdfast("catalog", "drop", place, "crm.people")
        holdfast("catalog", "register", place, "crm.orders")
        answers = [call(url, "GET", f"/metrics?token={TOKEN}", token=TOKEN), call(url, "GET", f"/{TOKEN}", token=TOKEN)]
        answers += [
            call(url, "POST", "/compact", {"domain": TOKEN[:5], "paths": [f"ledger/catalog/{ULID}.json"]}, token=token)
            for token in (TOKEN, WRONG)
        ]
        command_line = Path(f"/proc/{running.pid}/cmdline").read_bytes()
        for path in paths:
            assert call(url, "POST", "/notify", {"domain": "lineage", "paths": [path]}, token=TOKEN).status == 202
        running.send_signal(signal.SIGTERM)
        assert running.wait(WAIT_MAX_S) == 0
    assert tables_of(workspace) == ["orders"]
    assert len(edges_of(workspace)) == 30
    log = (tmp_path / "log").read_text()
    lines = [json.loads(line) for line in log.splitlines()]
    assert lines[-1]["message"] == "stopped; everything that was notified is folded"
    assert any("snapshot 1 published from 2 events that were asked for" in line["message"] for line in lines)
    assert any(line["level"] == "warning" and "403 TokenRefused" in line["message"] for line in lines)
    log = log.replace(f"/{TOKEN}", "")  # the address that a caller who has the token asked for
    for token in (TOKEN, OTHER, WRONG):
        assert token not in log
        assert token.encode() not in command_line
        assert all(token not in str(answer).replace(f"/{TOKEN}", "") for answer in answers)


def test_what_cannot_be_served_is_told_in_one_line(place: str, tmp_path: Path, holdfast: Program) -> None:
    """C17: no workspace, no tokens for others, no such file, a port that is taken; and no token is repeated."""
    assert "without tokens anybody could publish" in holdfast.fails(
        "serve", "compactor", place, "--host", "0.0.0.0", "--port", "0", code=2
    )
    assert "no workspace at" in holdfast.fails("serve", "compactor", tmp_path / "root" / "acme" / "dev", code=3)
    assert "cannot be read" in holdfast.fails("serve", "compactor", place, "--tokens-file", tmp_path / "none", code=2)
    (tmp_path / "tokens").write_text("hunter2\n")
    assert "hunter2" not in holdfast.fails("serve", "compactor", place, "--tokens-file", tmp_path / "tokens", code=2)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert "choose another" in holdfast.fails("serve", "compactor", place, "--port", port, code=2)
    assert "certificate and its key" in holdfast.fails("serve", "compactor", place, "--tls-cert", "x", code=2)


def test_a_command_says_that_nobody_answers(
    place: str, holdfast: Program, monkeypatch: pytest.MonkeyPatch, workspace: Workspace
) -> None:
    """C17: in one line with what to do; and the change that was told is folded by whoever is told of it next."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    monkeypatch.setenv("HOLDFAST_COMPACTOR", f"http://127.0.0.1:{port}")
    assert "does not answer" in holdfast.fails("catalog", "register", place, "sales", code=7)
    assert "no address of a compactor" in holdfast.fails("catalog", "register", place, "x", "--compactor", "x", code=2)
    monkeypatch.delenv("HOLDFAST_COMPACTOR")
    assert holdfast("catalog", "compact", place, "--json").data["domains"][0]["events"] == 1
    holdfast("catalog", "register", place, "sales.orders")
    assert tables_of(workspace) == ["orders"]
    tell(workspace, table("x"))
