"""`tag`, `tags` and `diff`."""

from __future__ import annotations

import pytest

from tests.cli.support import DataSet, Program


def test_tagging_adds_and_removes_and_leaves_the_manifests_alone(holdfast: Program, users: DataSet) -> None:
    """S36: tags come later, beside the manifest; last value wins."""
    manifests = {key: value for key, value in users.listing().items() if key.startswith("manifests")}

    holdfast("tag", users, "release=beta", "owner=ml", "--run-id", "run-2")
    data = holdfast("tag", users, "release=stable", "--remove", "owner", "--offset", "2", "--json").data

    assert data["ref"] == users.refs()[2]
    assert (data["before"], data["tags"]) == ({"release": "beta", "owner": "ml"}, {"release": "stable"})
    assert users.chain.find_snapshot("release", "stable").run_id == "run-2"
    assert {key: value for key, value in users.listing().items() if key.startswith("manifests")} == manifests


def test_the_undo_that_tag_names_puts_things_back(holdfast: Program, users: DataSet) -> None:
    holdfast("tag", users, "release=beta")
    result = holdfast("tag", users, "release=stable", "new=one")
    undo = result.out.partition("undo it: holdfast ")[2].strip()

    assert "before  release=beta" in result.out
    assert undo == f"tag {users} release=beta --remove new --ref {users.refs()[0]}"
    assert holdfast(*undo.split(), "--json").data["tags"] == {"release": "beta"}


def test_tags_lists_tagged_snapshots_and_filters_them(holdfast: Program, users: DataSet) -> None:
    """S36: snapshots are found by key, and by key and value."""
    holdfast("tag", users, "release=stable", "--offset", "3")
    holdfast("tag", users, "release=beta", "--offset", "1")
    holdfast("tag", users, "owner=ml")

    def found(*words: str) -> list[str]:
        return [one["run_id"] for one in holdfast("tags", users, *words, "--json").data["snapshots"]]

    assert found() == ["run-4", "run-3", "run-1"]
    assert found("--filter", "release") == ["run-3", "run-1"]
    assert found("--filter", "release=stable") == ["run-1"]
    assert "release=beta" in holdfast("tags", users).out
    assert "No snapshot is tagged colour." in holdfast("tags", users, "--filter", "colour").out


@pytest.mark.parametrize(
    "words, says",
    [
        pytest.param(["plain"], "use KEY=VALUE", id="no value"),
        pytest.param([], "nothing to do", id="nothing"),
        pytest.param(["a=1", "--remove", "a"], "both set and removed", id="both"),
        pytest.param(["=1"], "tag name", id="no name"),
        pytest.param(["a=1", "--ref", "x", "--offset", "1"], "give one of", id="two snapshots"),
    ],
)
def test_a_tag_that_cannot_be_right_is_refused(holdfast: Program, users: DataSet, words: list[str], says: str) -> None:
    assert says in holdfast.fails("tag", users, *words, code=2)


def test_diff_shows_what_came_and_went(holdfast: Program, users: DataSet) -> None:
    """S37: artifacts added and removed, stats before and after, change count."""
    out = holdfast("diff", users, "@1", "@0").out
    data = holdfast("diff", users, "@1", "@0", "--json").data

    assert "2 changes: 1 added, 1 removed, 0 kept" in out
    assert [line.split() for line in out.splitlines() if line.startswith("rows ")] == [["rows", "30", "40", "+10"]]
    assert data["change_count"] == 2
    assert "run_id=run-4" in data["added"][0]["path"]
    assert "run_id=run-3" in data["removed"][0]["path"]
    assert (data["before"]["rows"], data["after"]["rows"]) == (30, 40)


def test_diff_takes_a_snapshot_by_any_of_its_names(holdfast: Program, users: DataSet) -> None:
    holdfast("tag", users, "release=stable", "--offset", "3")
    users.chain.rollback(offset=1)
    ref = users.refs()[3]
    for source in ("@3", ref, "run:run-1", "tag:release=stable"):
        data = holdfast("diff", users, source, "current", "--json").data
        assert (data["from"]["run_id"], data["to"]["run_id"]) == ("run-1", "run-3")


@pytest.mark.parametrize(
    "names, code, says",
    [
        pytest.param(["@x", "@0"], 2, "not an offset", id="bad offset"),
        pytest.param(["tag:release", "@0"], 2, "use tag:KEY=VALUE", id="bad tag"),
        pytest.param(["tag:a=b", "@0"], 3, "no snapshot is tagged a=b", id="unknown tag"),
        pytest.param(["run:nine", "@0"], 3, "no snapshot with run id 'nine'", id="unknown run"),
        pytest.param([], 2, "expected [URL] FROM TO", id="nothing"),
    ],
)
def test_diff_refuses_what_names_no_snapshot(
    holdfast: Program, users: DataSet, names: list[str], code: int, says: str
) -> None:
    assert says in holdfast.fails("diff", users, *names, code=code)
