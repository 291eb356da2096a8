"""A quiet environment, a data set with a history, and the program."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.cli.support import DataSet, Program


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing of the machine's own settings, and a folder of one's own to stand in."""
    for name in [one for one in os.environ if one.startswith("HOLDFAST_") or one in {"COLUMNS", "NO_COLOR"}]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def holdfast(monkeypatch: pytest.MonkeyPatch) -> Program:
    return Program(monkeypatch)


@pytest.fixture
def users(tmp_path: Path) -> DataSet:
    """Four snapshots: run-1 to run-4, each an hour after the other."""
    found = DataSet(tmp_path / "datasets" / "users")
    for number in range(1, 5):
        found.publish(f"run-{number}", rows=10 * number)
    return found


@pytest.fixture
def catalog(tmp_path: Path) -> DataSet:
    """A domain of a workspace, with two snapshots and a legacy mirror."""
    found = DataSet(tmp_path / "workspace", "domain:catalog")
    for number in (1, 2):
        found.publish(f"fold-{number}")
    return found
