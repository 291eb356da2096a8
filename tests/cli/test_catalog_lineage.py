"""`holdfast catalog lineage`, `register-lineage` and `openlineage`: from a file with SQL to columns, and to events."""

from __future__ import annotations

import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.cli.support import Program

PLACE = "./lake/acme/prod"
SQL = "SELECT id, price * n AS total FROM sales.lines WHERE n > 0"


@pytest.fixture
def report(holdfast: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace with two tables, and a statement that makes one from the other."""
    for name in ("OPENLINEAGE_URL", "HOLDFAST_OPENLINEAGE_URL", "OPENLINEAGE_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    holdfast("init", PLACE)
    register = ("catalog", "register", PLACE)
    holdfast(*register, "sales")
    columns = [word for name in ("id", "price", "n") for word in ("--column", f"{name}:double")]
    holdfast(*register, "sales.lines", *columns)
    holdfast(*register, "sales.report", "--column", "id:double", "--column", "total:double")
    file = tmp_path / "report.sql"
    file.write_text(SQL)
    return file


def test_lineage_is_told_from_a_file_and_asked_for_by_column(
    holdfast: Program, report: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C28: from SQL by hand, then up and down by column; text fits a terminal."""
    dry = holdfast("catalog", "register-lineage", PLACE, "sales.report", "--sql", report, "--dry-run", "--json").data
    assert (dry["told"], dry["snapshot_version"], dry["columns"]) == (False, None, ["id", "total"])
    assert holdfast("catalog", "lineage", PLACE, "sales.report", "--json").data["total"] == 0
    told = holdfast("catalog", "register-lineage", PLACE, "sales.report", "--sql", report, "--json").data
    assert (told["told"], told["inputs"], told["edges"]) == (True, ["sales.lines"], dry["edges"])
    assert told["snapshot_version"] is not None
    again = holdfast("catalog", "register-lineage", PLACE, "sales.report", "--statement", SQL, "--json").data
    assert again["snapshot_version"] is None, "nothing new"
    column = holdfast("catalog", "lineage", PLACE, "sales.report.total", "--json").data
    assert (column["name"], column["column"], column["total"]) == ("sales.report", "total", 2)
    assert {edge["source_column"] for edge in column["edges"]} == {"price", "n"}
    down = holdfast("catalog", "lineage", PLACE, "sales.lines.n", "--downstream", "--indirect", "--json").data
    assert [(edge["target_column"], edge["kind"]) for edge in down["edges"]] == [
        ("", "filter"), ("total", "transformation")
    ]  # fmt: skip
    monkeypatch.setenv("COLUMNS", "60")
    for words in (["--columns"], ["--columns", "--indirect", "--depth", "all"], ["--column", "total"]):
        lines = holdfast("catalog", "lineage", PLACE, "sales.report", *words).out.splitlines()
        assert "transformation" in "\n".join(lines)
        assert [line for line in lines if len(line) > 60] == []


def test_what_cannot_be_told_is_said_and_what_cannot_be_right_is_refused(holdfast: Program, report: Path) -> None:
    """C28: a remark for columns nobody knows; one line for SQL that names what is not there."""
    report.write_text("SELECT * FROM elsewhere.t")
    said = holdfast("catalog", "register-lineage", PLACE, "sales.report", "--sql", report).out
    assert "remark: columns cannot be told: those of elsewhere.t are not known" in said
    for sql, message in (("SELECT nope FROM sales.lines", "nope"), ("SELEC 1", "not SQL"), ("DROP TABLE x", "SELECT")):
        report.write_text(sql)
        failed = holdfast("catalog", "register-lineage", PLACE, "x", "--sql", report, code=2)
        assert message in failed.err
        assert failed.err.count("\n") == 1
    for given in ([], ["--sql", report, "--statement", SQL]):
        assert "one of them" in holdfast("catalog", "register-lineage", PLACE, "x", *given, code=2).err
    failed = holdfast("catalog", "lineage", PLACE, "sales.report", "--indirect", code=2)
    assert "--columns" in failed.err


def test_events_are_exported_to_standard_output_and_to_a_file(holdfast: Program, report: Path) -> None:
    """C29: one JSON object a line, the same bytes each time."""
    export = ("catalog", "openlineage", "export", PLACE)
    assert holdfast(*export).out == ""
    holdfast("catalog", "register-lineage", PLACE, "sales.report", "--sql", report, "--run", "r1")
    _runs(report.parent)
    lines = holdfast(*export).out
    assert [orjson.loads(line)["eventType"] for line in lines.splitlines()] == ["START", "COMPLETE"]
    assert holdfast(*export).out == lines
    file = report.parent / "events.ndjson"
    data = holdfast(*export, "--output", file, "--json").data
    assert (data["total"], data["file"], data["events"]) == (2, str(file), [])
    assert file.read_text() == lines
    assert len(holdfast(*export, "--json").data["events"]) == 2
    last = orjson.loads(lines.splitlines()[-1])
    assert last["outputs"][0]["facets"]["columnLineage"]["fields"].keys() == {"id", "total"}
    assert holdfast(*export, "--since", "2030-01-01").out == ""
    assert "--since" in holdfast(*export, "--since", "soon", code=2).err
    assert "r9" in holdfast(*export, "--run", "r9", code=3).err


def test_without_the_library_one_is_told_what_to_install(
    holdfast: Program, report: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C29: OpenLineage is an extra."""
    monkeypatch.delitem(sys.modules, "holdfast.catalog.openlineage_datasets", raising=False)
    monkeypatch.setitem(sys.modules, "openlineage.client", None)
    assert "holdfast[openlineage]" in holdfast("catalog", "openlineage", "export", PLACE, code=2).err


def test_events_are_sent_to_whoever_is_configured(
    holdfast: Program, report: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C29: nobody configured is bad input, nobody there is a store that did not answer."""
    _runs(report.parent)
    emit = ("catalog", "openlineage", "emit", PLACE)
    assert "HOLDFAST_OPENLINEAGE_URL" in holdfast(*emit, code=2).err
    got: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(orjson.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *words: object) -> None:
            """Quiet."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    monkeypatch.setenv("HOLDFAST_OPENLINEAGE_URL", f"http://127.0.0.1:{server.server_address[1]}")
    try:
        data = holdfast(*emit, "--json").data
    finally:
        server.shutdown()
        server.server_close()
        thread.join(30)
    assert (data["total"], data["sent"]) == (2, 2)
    assert [event["eventType"] for event in got] == ["START", "COMPLETE"]
    failed = holdfast(*emit, code=7)
    assert "0 of 2 events were sent" in failed.err


def _runs(folder: Path) -> None:
    from datetime import UTC, datetime

    from holdfast.catalog import open_workspace
    from holdfast.catalog.compactor import Compactor
    from holdfast.catalog.payloads import RunFinished, RunStarted

    at = datetime(2026, 3, 14, 12, tzinfo=UTC)
    workspace = open_workspace(str(folder / "lake"), tenant="acme", workspace="prod")
    ledger = workspace.ledger("executions")
    said = [RunStarted(run_id="r1", pipeline="p", started_at=at), RunFinished(run_id="r1", finished_at=at)]
    Compactor(workspace, "executions").compact([ledger.append(one).path for one in said])
