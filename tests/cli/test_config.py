"""Settings: flags, then the environment, then the nearest holdfast.toml."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.cli.config import Settings, load_settings
from holdfast.errors import BadInput
from tests.cli.support import DataSet, Program


def write(folder: Path, text: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "holdfast.toml").write_text(text)


def test_a_flag_counts_before_the_environment_and_that_before_the_file(
    holdfast: Program, users: DataSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K24: configuration from flags, environment, holdfast.toml, in that order."""
    write(tmp_path, f'chain = "{users}"\nretention = 3\n')

    def kept(*words: str) -> tuple[int, int]:
        data = holdfast("gc", "collect", *words, "--json").data
        return data["retention"], len(data["kept"])

    assert kept() == (3, 3)
    monkeypatch.setenv("HOLDFAST_RETENTION", "2")
    assert kept() == (2, 2)
    assert kept("--retention", "1") == (1, 1)


def test_the_chain_and_who_asks_are_chosen_in_the_same_order(
    holdfast: Program, users: DataSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K24: the same order for the URL and for the name in the log."""
    others = [DataSet(tmp_path / name) for name in ("in-file", "in-environment")]
    for other in others:
        other.publish("run-1")
    write(tmp_path, 'chain = "in-file"\nby = "file"\n')

    def chain(*words: object) -> str:
        return str(holdfast("history", *words, "--json").data["chain"])

    def who(*words: str) -> str:
        holdfast("rollback", users, *words)
        seen = users.chain.handle.read_pointer()
        assert seen is not None
        users.chain.forward()
        return seen.pointer.moves[-1].by

    assert chain() == f"{others[0].folder.as_uri()}#kv"
    assert who() == "file"
    monkeypatch.setenv("HOLDFAST_CHAIN", str(others[1]))
    monkeypatch.setenv("HOLDFAST_BY", "environment")
    assert chain() == f"{others[1].folder.as_uri()}#kv"
    assert who() == "environment"
    assert chain(users) == f"{users.folder.as_uri()}#kv"
    assert who("--by", "flag") == "flag"


def test_commands_with_more_words_find_the_configured_chain_too(
    holdfast: Program, users: DataSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_CHAIN", str(users))
    assert holdfast("tag", "release=stable", "--json").data["tags"] == {"release": "stable"}
    assert holdfast("diff", "@1", "@0", "--json").data["change_count"] == 2
    assert holdfast("status", "0" * 26, "--json").data["verdict"] == "superseded"
    collection = holdfast("gc", "collect", "--retention", "2", "--apply", "--json").data["collection"]
    assert holdfast("gc", "restore", collection, "--json").data["collection"] == collection
    assert "undo it: holdfast forward\n" in holdfast("rollback").out


def test_the_nearest_file_upwards_counts_and_its_paths_start_there(tmp_path: Path) -> None:
    write(tmp_path, 'chain = "far"\n')
    write(tmp_path / "a", 'chain = "near#kv"\ngrace = "12h"\n')
    (tmp_path / "a" / "b" / "c").mkdir(parents=True)

    found = load_settings(environ={}, folder=tmp_path / "a" / "b" / "c")

    assert found == Settings(chain=str(tmp_path / "a" / "near#kv"), grace_s=12 * 3600)


def test_the_grace_period_is_read_from_the_configuration(
    holdfast: Program, users: DataSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_GRACE", "1d12h")
    assert holdfast("gc", "purge", users, "--json").data["grace_s"] == 36 * 3600
    assert holdfast("gc", "purge", users, "--grace", "30m", "--json").data["grace_s"] == 1800


def test_tables_of_the_file_belong_to_others(tmp_path: Path) -> None:
    write(tmp_path, 'by = "me"\n[pipeline]\nname = "x"\n')
    assert load_settings(environ={}, folder=tmp_path) == Settings(by="me")


@pytest.mark.parametrize(
    "text, says",
    [
        pytest.param("retension = 3", "unknown setting 'retension'", id="misspelt"),
        pytest.param("retention = 'many'", "whole number", id="no number"),
        pytest.param("retention = true", "whole number", id="a truth"),
        pytest.param("grace = 7", "is not a duration", id="no unit"),
        pytest.param("chain = 7", "should be text", id="no text"),
        pytest.param("chain = ", "cannot be read", id="no TOML"),
    ],
)
def test_a_setting_that_cannot_be_right_is_refused_by_the_name_of_its_file(
    holdfast: Program, tmp_path: Path, text: str, says: str
) -> None:
    write(tmp_path, text)
    error = holdfast.fails("history", code=2)
    assert says in error
    assert str(tmp_path / "holdfast.toml") in error


def test_a_wrong_variable_is_refused_by_its_name() -> None:
    with pytest.raises(BadInput, match="HOLDFAST_RETENTION: retention should be a whole number"):
        load_settings(environ={"HOLDFAST_RETENTION": "few"}, folder=Path("/"))
