"""`gc collect`, `gc purge`, `gc restore` and `gc list`."""

from __future__ import annotations

import pytest

from tests.cli.support import DataSet, Program


@pytest.mark.parametrize("words", [["collect", "--retention", "2"], ["purge", "--grace", "0s"]])
def test_a_dry_run_is_the_default_and_changes_nothing(holdfast: Program, users: DataSet, words: list[str]) -> None:
    """S39: dry run by default from the command line."""
    users.publish("run-5")
    users.chain.collect(retention=4)
    before = users.listing()
    verb, *options = words

    out = holdfast("gc", verb, users, *options).out
    data = holdfast("gc", verb, users, *options, "--json").data

    assert users.listing() == before
    assert data["applied"] is False
    assert "This was a dry run." in out
    assert f"do it: holdfast gc {verb} {users} {' '.join(options)} --apply" in out


def test_collect_says_exactly_what_would_go(holdfast: Program, users: DataSet) -> None:
    """S40: keeps the newest two and the tagged one."""
    users.chain.tag(users.chain.find(run_id="run-1"), {"release": "stable"})

    out = holdfast("gc", "collect", users, "--retention", "2").out
    data = holdfast("gc", "collect", users, "--retention", "2", "--json").data

    assert [one["run_id"] for one in data["snapshots"]] == ["run-2"]
    assert sorted(one["run_id"] for one in data["kept"]) == ["run-1", "run-3", "run-4"]
    assert sorted(one["what"] for one in data["condemned"]) == ["artifact", "manifest", "run"]
    assert "Would collect 1 snapshot: 3 snapshots kept, 1 of them because visible, tagged or in use." in out
    assert "1 artifact, 1 manifest, 1 run record" in out
    assert users.refs()[2] in out


def test_collect_then_restore_brings_everything_back(holdfast: Program, users: DataSet) -> None:
    """S39: collect is recoverable, and says how; restore undoes it."""
    refs = users.refs()

    out = holdfast("gc", "collect", users, "--retention", "1", "--apply").out
    collection = out.partition("This is collection ")[2][:26]

    assert users.refs() == refs[:1]
    assert f"undo it: holdfast gc restore {users} {collection}" in out
    assert collection in holdfast("gc", "list", users).out
    assert collection in holdfast("gc", "restore", users).out
    assert "Restored: 3 snapshots" in holdfast("gc", "restore", users, collection).out
    assert users.refs() == refs
    assert users.chain.verify() == []


def test_purge_deletes_what_is_due_and_says_that_it_is_final(holdfast: Program, users: DataSet) -> None:
    """S39: purge only after the grace period."""
    holdfast("gc", "collect", users, "--retention", "1", "--apply")

    early = holdfast("gc", "purge", users, "--apply").out
    assert "nothing to purge with a grace period of 7d" in early
    assert "1 collection pending; the oldest may be purged from" in early
    assert len([key for key in users.listing() if key.startswith("shards")]) == 4

    out = holdfast("gc", "purge", users, "--grace", "0s", "--apply").out
    assert "Deleted what 1 collection took out of sight at least 0s ago: 3 artifacts, 3 manifests" in out
    assert "It cannot be restored." in out
    assert len([key for key in users.listing() if key.startswith("shards")]) == 1
    assert holdfast("gc", "list", users, "--json").data["collections"] == []
    assert users.chain.verify() == []


def test_purge_and_list_as_json(holdfast: Program, users: DataSet) -> None:
    collected = holdfast("gc", "collect", users, "--retention", "2", "--apply", "--by", "ops", "--json").data
    listed = holdfast("gc", "restore", users, "--json").data["collections"]
    purged = holdfast("gc", "purge", users, "--grace", "0s", "--apply", "--json").data

    assert [one["collection"] for one in listed] == [collected["collection"]]
    assert (listed[0]["by"], listed[0]["retention"], listed[0]["snapshots"]) == ("ops", 2, [1, 0])
    assert purged["collections"] == [collected["collection"]]
    assert purged["byte_size"] == collected["byte_size"] > 0
    assert {one["key"] for one in purged["deleted"]} == {one["key"] for one in collected["condemned"]}


def test_restore_as_json(holdfast: Program, users: DataSet) -> None:
    collection = holdfast("gc", "collect", users, "--retention", "3", "--apply", "--json").data["collection"]
    data = holdfast("gc", "restore", users, collection, "--json").data
    assert (data["collection"], data["snapshots"], data["objects"]) == (collection, [0], 3)


def test_nothing_to_collect_is_said_plainly(holdfast: Program, users: DataSet) -> None:
    assert "There is nothing to collect: 4 snapshots kept." in holdfast("gc", "collect", users, "--retention", "9").out
    assert "Nothing is collected" in holdfast("gc", "list", users).out


@pytest.mark.parametrize("apply", [[], ["--apply"]])
def test_a_retention_of_zero_is_refused(holdfast: Program, users: DataSet, apply: list[str]) -> None:
    """S40: retention=0 is refused."""
    before = users.listing()
    assert "keep at least 1" in holdfast.fails("gc", "collect", users, "--retention", "0", *apply, code=2)
    assert users.listing() == before


@pytest.mark.parametrize(
    "words, says",
    [
        pytest.param(["collect"], "--retention N", id="no retention"),
        pytest.param(["purge", "--grace", "7"], "7d, 12h, 30m or 0s", id="grace without a unit"),
        pytest.param(["purge", "--grace", "-1d"], "is not a duration", id="negative grace"),
        pytest.param(["restore", "01KA4CZGT8E5YB7QJ0V3M2N1XR"], "no collection", id="unknown collection"),
        pytest.param(["restore", "seven"], "no collection 'seven' is pending", id="no collection id"),
    ],
)
def test_a_wrong_call_is_refused_in_one_line(holdfast: Program, users: DataSet, words: list[str], says: str) -> None:
    verb, *others = words
    assert says in holdfast.fails("gc", verb, users, *others, code=2)


def test_collection_fails_closed_when_a_kept_manifest_cannot_be_read(holdfast: Program, users: DataSet) -> None:
    path = users.folder / users.chain.find(offset=1).manifest_path
    path.write_text("{")
    assert "is damaged" in holdfast.fails("gc", "collect", users, "--retention", "2", "--apply", code=6)
    assert len(users.refs()) == 4
