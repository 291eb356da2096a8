"""`history` and `show`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.support import DataSet, Program


def test_history_is_a_table_of_what_was_visible_newest_first(holdfast: Program, users: DataSet) -> None:
    """K21: offset, published_at, run_id, ref, tags and current."""
    users.chain.tag(users.chain.find(offset=1), {"release": "stable"})

    lines = holdfast("history", users).out.splitlines()

    assert lines[0].split() == ["offset", "published_at", "(UTC)", "run_id", "ref", "tags", "current"]
    assert lines[1].split() == ["0", "2026-03-14", "13:30:00", "run-4", users.refs()[0], "yes"]
    assert lines[2].split() == ["1", "2026-03-14", "12:30:00", "run-3", users.refs()[1], "release=stable"]
    assert len(lines) == 5


def test_history_as_json_has_the_same_and_more(holdfast: Program, users: DataSet) -> None:
    """K24, S32a: history has a JSON form, with what was rolled back still in it."""
    users.chain.rollback()

    data = holdfast("history", users, "--json").data

    assert (data["command"], data["more"]) == ("history", False)
    assert data["chain"] == f"{users.folder.as_uri()}#kv"
    assert [one["offset"] for one in data["snapshots"]] == [0, 1, 2, 3]
    assert [one["run_id"] for one in data["snapshots"]] == ["run-4", "run-3", "run-2", "run-1"]
    assert [one["current"] for one in data["snapshots"]] == [False, True, False, False]
    assert data["snapshots"][0]["published_at"] == "2026-03-14T13:30:00.000000Z"
    assert set(data["snapshots"][0]) == {
        "offset", "ref", "manifest_id", "run_id", "published_at", "commit_ulid", "by", "tags", "current",
    }  # fmt: skip


def test_history_says_how_to_see_more_and_that_something_was_rolled_back(holdfast: Program, users: DataSet) -> None:
    users.chain.rollback()

    out = holdfast("history", users, "--limit", "2").out

    assert "… and older ones: --limit 20 shows more" in out
    assert "Readers see offset 1" in out
    assert f"holdfast forward {users}" in out


def test_history_fits_a_terminal_of_eighty_columns(
    holdfast: Program, users: DataSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    users.publish("a-run-id-that-is-much-longer-than-anybody-would-like-to-read", tags={"a-long-tag": "long " * 20})
    monkeypatch.setenv("COLUMNS", "80")

    lines = holdfast("history", users).out.splitlines()

    assert max(map(len, lines)) <= 80
    assert "current" in lines[0]
    assert "…" in lines[1]


def test_nothing_is_shortened_into_a_pipe(holdfast: Program, users: DataSet) -> None:
    users.publish("a-run-id-that-is-much-longer-than-anybody-would-like-to-read")
    assert users.refs()[0] in holdfast("history", users).out


def test_history_of_any_layout_is_found_by_looking_or_named(
    holdfast: Program, catalog: DataSet, tmp_path: Path
) -> None:
    graph = DataSet(tmp_path / "graph", "graph")
    graph.publish("build-1", kind="nodes")

    assert holdfast("history", graph, "--json").data["snapshots"][0]["ref"] == "000001"
    for words in ([catalog], [f"{catalog}#domain:catalog"], [catalog, "--layout", "domain:catalog"]):
        data = holdfast("history", *words, "--json").data
        assert [one["ref"] for one in data["snapshots"]] == [f"{1:020}", f"{0:020}"]


def test_show_describes_one_snapshot(holdfast: Program, users: DataSet) -> None:
    out = holdfast("show", users, "--offset", "1").out
    data = holdfast("show", users, "--run-id", "run-3", "--json").data

    assert users.refs()[1] in out
    assert "1 artifact, 30 rows, 180 B" in out
    assert (data["ref"], data["row_count"], data["byte_size"]) == (users.refs()[1], 30, 180)
    assert [one["row_count"] for one in data["artifacts"]] == [30]


def test_show_says_what_a_snapshot_was_built_from(holdfast: Program, users: DataSet, tmp_path: Path) -> None:
    scores = DataSet(tmp_path / "datasets" / "scores")
    scores.publish("scores-1", inputs=(users.chain.pin(),), tags={"born": "tagged"})

    out = holdfast("show", scores).out

    assert f"{users.folder.as_uri()}#kv {users.refs()[0]}" in out
    assert "born=tagged" in out
