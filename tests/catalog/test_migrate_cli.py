"""`holdfast catalog migrate-manifests`, on copies of what older releases left."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.cli.support import Program
from tests.golden.make_old import OLD


@pytest.fixture
def holdfast(monkeypatch: pytest.MonkeyPatch) -> Program:
    return Program(monkeypatch)


@pytest.mark.parametrize("layout", ["named", "pointers", "tenant"])
def test_a_dry_run_then_the_conversion_then_nothing(tmp_path: Path, holdfast: Program, layout: str) -> None:
    """C4: JSON says what was found, and what was done; the second time there is nothing."""
    shutil.copytree(OLD / layout, tmp_path / "lake")
    words = ["catalog", "migrate-manifests", f"{tmp_path}/lake/acme/prod"]
    words += ["--superseded"] if layout == "tenant" else []
    planned = holdfast(*words, "--json").data
    assert planned["applied"] is False
    assert {step["done"] for step in planned["steps"]} == {False}
    shown = holdfast(*words).out
    assert "This was a dry run." in shown
    assert f"holdfast {' '.join(words)} --apply" in shown
    done = holdfast(*words, "--apply", "--json").data
    assert [{**step, "done": True} for step in planned["steps"]] == done["steps"]
    assert holdfast(*words, "--apply", "--json").data["steps"] == []
    assert "Nothing is left of older releases." in holdfast(*words).out
    assert "1 namespace, 1 table" in holdfast("catalog", "ls", words[2]).out


def test_old_workspaces_are_asked_and_initialized_as_they_are(tmp_path: Path, holdfast: Program) -> None:
    """C4: every question is answered before anything was converted; `init` moves it forward."""
    shutil.copytree(OLD / "named", tmp_path / "lake")
    place = f"{tmp_path}/lake/acme/prod"
    assert "orders" in holdfast("catalog", "ls", place, "sales").out
    assert "bigint" in holdfast("catalog", "show", place, "sales.orders").out
    assert "raw.orders" in holdfast("catalog", "lineage", place, "sales.orders").out
    assert "holdfast init" in holdfast.fails("catalog", "register", place, "sales.more", code=3)
    assert "records made" in holdfast("init", place).out
    assert "Nothing to make" in holdfast("init", place).out
    assert "is registered" in holdfast("catalog", "register", place, "sales.more").out
    assert "3 tables" in holdfast("catalog", "compact", place).out + holdfast("catalog", "ls", place, "sales").out


def test_a_place_where_nothing_is_is_refused(tmp_path: Path, holdfast: Program) -> None:
    """C4: a mistyped name does not become a workspace."""
    words = ("catalog", "migrate-manifests", f"{tmp_path}/lake/acme/typo", "--apply", "--superseded")
    assert "check its name" in holdfast.fails(*words, code=3)
    assert not list(tmp_path.rglob("*.json"))
