"""`rollback` and `forward`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.support import DataSet, Program


@pytest.mark.parametrize(
    "words, run_id",
    [
        pytest.param([], "run-3", id="without anything, to the one before"),
        pytest.param(["--offset", "2"], "run-2", id="by offset"),
        pytest.param(["--run-id", "run-1"], "run-1", id="by run id"),
    ],
)
def test_rollback_moves_to_the_snapshot_that_was_named(
    holdfast: Program, users: DataSet, words: list[str], run_id: str
) -> None:
    """S35, K21: rollback by offset or by run id."""
    data = holdfast("rollback", users, *words, "--json").data

    assert (data["moved"], data["left"]["run_id"], data["current"]["run_id"]) == (True, "run-4", run_id)
    current = users.chain.current()
    assert current is not None
    assert current.run_id == run_id


def test_rollback_by_ref_says_what_it_left_and_how_to_undo_it(holdfast: Program, users: DataSet) -> None:
    """S35, K21: rollback by ref; nothing is deleted, and the undo that it names works."""
    before = users.listing()
    newest, _, wanted, _ = users.refs()

    out = holdfast("rollback", users, "--ref", wanted, "--why", "bad prices", "--by", "ops").out

    assert f"left     {newest}" in out
    assert f"current  {wanted}" in out
    assert f"undo it: holdfast forward {users}" in out
    assert set(before) <= set(users.listing())
    pointer = users.chain.handle.read_pointer()
    assert pointer is not None
    assert (pointer.pointer.moves[-1].why, pointer.pointer.moves[-1].by) == ("bad prices", "ops")

    data = holdfast("forward", users, "--json").data
    assert (data["left"]["ref"], data["current"]["ref"]) == (wanted, newest)
    assert data["undo"] == f"holdfast rollback {users} --ref {wanted}"
    assert "Rolled forward." in _again(holdfast, users)


def _again(holdfast: Program, users: DataSet) -> str:
    holdfast("rollback", users)
    return holdfast("forward", users).out


def test_rollback_names_everything_downstream_beside_it(holdfast: Program, users: DataSet, tmp_path: Path) -> None:
    """S35: what was built from the snapshots that are taken back, directly or through others, is named."""
    scores, report = DataSet(tmp_path / "datasets" / "scores"), DataSet(tmp_path / "datasets" / "report")
    scores.publish("old-scores", inputs=(users.chain.pin(users.chain.list_manifests()[1]),))
    scores.publish("scores-4", inputs=(users.chain.pin(),))
    report.publish("report-1", inputs=(scores.chain.pin(),))
    (tmp_path / "datasets" / "notes").mkdir()
    (tmp_path / "datasets" / "notes" / "readme").write_text("no chain")

    result = holdfast("rollback", users, "--json").data

    assert {(one["chain"].rpartition("/")[2], one["run_id"]) for one in result["downstream"]} == {
        ("scores#kv", "scores-4"),
        ("report#kv", "report-1"),
    }
    assert all(one["visible"] for one in result["downstream"])
    assert len(result["searched"]) == 2
    users.chain.forward()
    out = holdfast("rollback", users).out
    assert "2 published snapshots downstream were built from what was rolled back" in out
    assert "scores-4" in out


def test_rollback_looks_downstream_where_it_is_told(holdfast: Program, tmp_path: Path) -> None:
    source, derived = DataSet(tmp_path / "source"), DataSet(tmp_path / "elsewhere" / "derived")
    source.publish("run-1")
    source.publish("run-2")
    derived.publish("derived-1", inputs=(source.chain.pin(),))

    assert "Downstream was not searched" in holdfast("rollback", source).out
    for place in (derived, tmp_path / "elsewhere"):
        source.chain.forward()
        data = holdfast("rollback", source, "--downstream-in", place, "--json").data
        assert [one["run_id"] for one in data["downstream"]] == ["derived-1"]


def test_a_damaged_neighbour_does_not_stand_in_the_way_of_a_rollback(
    holdfast: Program, users: DataSet, tmp_path: Path
) -> None:
    broken = DataSet(tmp_path / "datasets" / "broken")
    broken.publish("run-1")
    (broken.folder / "_CURRENT").write_text("{")

    result = holdfast("rollback", users)

    assert f"current  {users.refs()[1]}" in result.out
    assert f"Could not look into {broken.folder.as_uri()}#kv" in result.out


def test_a_damaged_snapshot_can_be_seen_and_rolled_back(holdfast: Program, users: DataSet) -> None:
    (users.folder / users.chain.find(offset=0).manifest_path).write_text("{")

    assert holdfast("history", users, "--json").data["snapshots"][0]["current"] is True
    assert holdfast("rollback", users, "--json").data["current"]["run_id"] == "run-3"
    assert "is damaged" in holdfast.fails("forward", users, code=6)


def test_rolling_back_to_what_is_visible_changes_nothing(holdfast: Program, users: DataSet) -> None:
    before = users.listing()

    result = holdfast("rollback", users, "--offset", "0", "--json")

    assert result.data["moved"] is False
    assert users.listing() == before


@pytest.mark.parametrize(
    "words, code, says",
    [
        pytest.param(["--ref", "x", "--offset", "1"], 2, "give one of ref, run id, offset", id="two at once"),
        pytest.param(["--run-id", "run-1", "--offset", "1"], 2, "run_id and offset", id="two others at once"),
        pytest.param(["--offset", "9"], 3, "no snapshot with offset 9", id="unknown offset"),
        pytest.param(["--run-id", "run-9"], 3, "no snapshot with run id 'run-9'", id="unknown run"),
        pytest.param(["--offset", "-1"], 2, "offset -1 is negative", id="negative offset"),
        pytest.param(["--ref", "seven"], 2, "'seven' is not a snapshot ref", id="no ref"),
        pytest.param(["--downstream-in", "nowhere"], 2, "--downstream-in nowhere", id="no chain downstream"),
    ],
)
def test_a_rollback_that_cannot_be_right_says_so_and_moves_nothing(
    holdfast: Program, users: DataSet, words: list[str], code: int, says: str
) -> None:
    before = users.listing()
    assert says in holdfast.fails("rollback", users, *words, code=code)
    assert users.listing() == before


def test_forward_without_a_rollback_says_that_there_is_nothing_to_undo(holdfast: Program, users: DataSet) -> None:
    assert "nothing was rolled back" in holdfast.fails("forward", users, code=3)


def test_the_first_snapshot_has_nothing_before_it(holdfast: Program, tmp_path: Path) -> None:
    only = DataSet(tmp_path / "only")
    only.publish("run-1")
    assert "no earlier snapshot" in holdfast.fails("rollback", only, code=3)
