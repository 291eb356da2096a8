"""Chains with their records in a database: `sql migrate`, `sql status`, and the other commands by its URL."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.chain import Committed, ManifestDraft, open_chain
from holdfast.cli.call import without_password
from tests.cli.support import Program


@pytest.fixture
def database(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'manifests.db'}"


def publish(artifacts: Path, database: str, run_id: str) -> None:
    chain = open_chain(str(artifacts), layout="kv", manifests=database, by="tester")
    with chain.lock() as guard:
        outcome = chain.publish(ManifestDraft(), run=chain.begin_run(run_id), permit=chain.permit(guard))
    assert isinstance(outcome, Committed)


def test_tables_are_made_once_and_shown(holdfast: Program, database: str, tmp_path: Path) -> None:
    assert "holdfast sql migrate" in holdfast("sql", "status", database).out
    assert "now; it was at 0." in holdfast("sql", "migrate", database).out
    data = holdfast("sql", "migrate", database, "--json").data
    assert data["before"] == data["after"] > 0
    assert "It holds no chain yet." in holdfast("sql", "status", database).out

    publish(tmp_path / "data", database, "run-1")
    found = holdfast("sql", "status", database, "--json").data
    assert (found["current"], [one["layout"] for one in found["chains"]]) == (True, ["kv"])
    assert (tmp_path / "data").as_uri() in holdfast("sql", "status", database).out


def test_a_database_without_tables_says_what_to_run(holdfast: Program, database: str) -> None:
    assert f"holdfast sql migrate {database}" in holdfast.fails("history", database, code=2)


def test_every_day_commands_work_on_a_chain_in_a_database(holdfast: Program, database: str, tmp_path: Path) -> None:
    """S33, S34: the same commands on a SQL database."""
    holdfast("sql", "migrate", database)
    for number in (1, 2, 3):
        publish(tmp_path / "data", database, f"run-{number}")

    assert holdfast("rollback", database, "--json").data["current"]["run_id"] == "run-2"
    assert holdfast("forward", database, "--json").data["current"]["run_id"] == "run-3"
    assert holdfast("tag", database, "release=stable", "--offset", "2", "--json").data["tags"] == {"release": "stable"}
    collected = holdfast("gc", "collect", database, "--retention", "1", "--apply", "--json").data
    assert [one["run_id"] for one in collected["snapshots"]] == ["run-2"]
    assert holdfast("verify", database, "--json").data["ok"] is True
    assert [one["run_id"] for one in holdfast("history", database, "--json").data["snapshots"]] == ["run-3", "run-1"]


def test_the_records_of_a_chain_in_a_store_are_where_the_settings_say(
    holdfast: Program, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S34, K24: `manifests` in holdfast.toml, its path relative to the file, or HOLDFAST_MANIFESTS before it."""
    for one, runs in ((database, ["run-1", "run-2"]), (database.replace("manifests.db", "other.db"), ["run-3"])):
        holdfast("sql", "migrate", one)
        for run_id in runs:
            publish(tmp_path / "data", one, run_id)
    assert "no chain" in holdfast.fails("history", tmp_path / "data", code=2)

    (tmp_path / "holdfast.toml").write_text('manifests = "sqlite:///manifests.db"\n')
    (tmp_path / "deeper").mkdir()
    monkeypatch.chdir(tmp_path / "deeper")

    def runs_of(*words: object) -> list[str]:
        return [one["run_id"] for one in holdfast("history", *words, "--json").data["snapshots"]]

    assert runs_of(tmp_path / "data") == ["run-2", "run-1"]
    assert runs_of(database.replace("manifests.db", "other.db")) == ["run-3"], "a database's URL is enough by itself"
    monkeypatch.setenv("HOLDFAST_MANIFESTS", database.replace("manifests.db", "other.db"))
    assert runs_of(tmp_path / "data") == ["run-3"]


@pytest.mark.parametrize(
    "url, shown",
    [
        ("postgresql://ada:secret@db/lake?password=secret&chain=users#kv", "postgresql://ada@db/lake?chain=users#kv"),
        ("postgresql://db/lake?sslmode=require&chain=a%2Fb", "postgresql://db/lake?sslmode=require&chain=a%2Fb"),
        ("sqlite:///x.db?chain=users", "sqlite:///x.db?chain=users"),
    ],
)
def test_commands_to_type_next_have_no_password(url: str, shown: str) -> None:
    """S34: neither before the host nor among the options."""
    assert without_password(url) == shown
