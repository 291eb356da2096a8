"""`holdfast catalog compact` for long ledgers: in bulk here, and on Spark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson
import pytest
from pyspark.sql import SparkSession

from holdfast.catalog import EventDraft, ledger_read, open_workspace
from holdfast.catalog.payloads import NamespaceCreated, RunStarted
from holdfast.cli import catalog_compact
from tests.catalog.test_fold import NOW
from tests.cli.support import Program

PLACE = "./lake/acme/prod"


def test_a_long_ledger_is_folded_in_bulk_and_on_spark(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C18, C19: `--bulk` and `--spark` publish once what the ledger holds, and nothing the second time."""

    @contextmanager
    def shared() -> Iterator[SparkSession]:
        yield spark

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(catalog_compact, "spark_session", shared)
    monkeypatch.setattr(ledger_read, "PAGE_SIZE_MAX", 10)  # so that there are several pages
    holdfast = Program(monkeypatch)
    holdfast("init", PLACE)
    workspace = open_workspace("./lake", tenant="acme", workspace="prod")
    names = [EventDraft(payload=NamespaceCreated(namespace=f"n{number}")) for number in range(25)]
    workspace.ledger("catalog").append_many(names)
    workspace.ledger("executions").append_many([EventDraft(payload=RunStarted(run_id="r", started_at=NOW))])
    workspace.store.put_new("ledger/catalog/notes.txt", b"mine")
    first = orjson.loads(holdfast("catalog", "compact", PLACE, "--bulk", "--domain", "catalog", "--json").out)[
        "domains"
    ]
    assert [(one["events"], one["publishes"], one["foreign"]) for one in first] == [(25, 1, 1)]
    found = orjson.loads(holdfast("catalog", "compact", PLACE, "--spark", "--json").out)["domains"]
    assert [(one["domain"], one["events"], one["publishes"]) for one in found] == [
        ("catalog", 25, 0), ("lineage", 0, 0), ("executions", 1, 1), ("orchestration", 0, 0),
    ]  # fmt: skip
    newer = orjson.loads(holdfast("catalog", "compact", PLACE, "--spark", "--new", "--json").out)["domains"]
    assert [one["events"] for one in newer] == [0, 0, 0, 0]
    refused = holdfast("catalog", "compact", PLACE, "--bulk", "--compactor", "http://127.0.0.1:1", code=2)
    assert "leave one out" in refused.err
