"""`info`, `shards`, `route`: what a snapshot is, without its data; and which snapshot the commands mean."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from holdfast.kv import publish_rows
from tests.cli.kv_data import make_prices, make_users, publish_users, shard_files
from tests.cli.support import DataSet, Program

COMMANDS = [["get", "3"], ["multiget", "3", "4"], ["info"], ["shards"], ["route", "3"]]
KEYS = {
    "get": {"ref", "key", "shard", "found", "value"},
    "multiget": {"ref", "rows", "found_count", "missing_count"},
    "shards": {"ref", "shards"},
    "route": {"ref", "key", "shard", "shard_count", "routing", "empty", "path", "row_count", "byte_size"},
    "info": {
        "ref", "current", "manifest_id", "run_id", "published_at", "age_s", "row_count", "byte_size", "shard_count",
        "empty_shards", "statistics", "key", "value", "columns", "routing", "shard_format", "inputs", "tags", "custom",
    },
}  # fmt: skip


@pytest.fixture
def people(tmp_path: Path) -> DataSet:
    return make_users(tmp_path)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_snapshot_is_chosen_by_ref_or_offset_and_else_by_the_pointer(
    holdfast: Program, people: DataSet, words: list[str]
) -> None:
    """K22: --ref and --offset bypass the pointer; no flag means its target, offset 0 unless someone rolled back."""
    refs = people.refs()

    def asked(*flags: object) -> str:
        return str(holdfast(words[0], people, *words[1:], *flags, "--json").data["ref"])

    assert [asked("--offset", offset) for offset in range(3)] == refs
    assert [asked("--ref", ref) for ref in refs] == refs
    assert asked() == refs[0]
    people.chain.rollback(offset=2)
    assert asked() == refs[2]
    assert [asked("--offset", offset) for offset in range(3)] == refs
    assert asked("--ref", refs[0]) == refs[0]


def test_the_value_is_that_of_the_snapshot(holdfast: Program, people: DataSet) -> None:
    """K22: offsets are those that history prints."""
    listed = holdfast("history", people, "--json").data["snapshots"]
    for one in listed:
        value = holdfast("get", people, "3", "--offset", one["offset"], "--json").data["value"]
        assert one["run_id"] == f"build-{value['version']}"


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_ref_and_offset_exclude_each_other(holdfast: Program, people: DataSet, words: list[str]) -> None:
    """K22: --ref or --offset, not both."""
    says = holdfast.fails(words[0], people, *words[1:], "--ref", people.refs()[0], "--offset", "1", code=2)
    assert "--ref and --offset both name a snapshot" in says


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_snapshot_that_is_not_there_is_exit_code_three(holdfast: Program, people: DataSet, words: list[str]) -> None:
    """K22, K26: a ref that does not exist is refused."""
    for flags in (["--offset", "3"], ["--ref", people.refs()[0].replace("build-3", "build-9")]):
        says = holdfast.fails(words[0], people, *words[1:], *flags, code=3)
        assert "holdfast history" in says
    assert "is negative" in holdfast.fails(words[0], people, *words[1:], "--offset", "-1", code=2)


def test_rollback_refuses_a_ref_that_does_not_exist_and_moves_nothing(holdfast: Program, people: DataSet) -> None:
    """K21, K26: the pointer never leaves what was published."""
    before = people.listing()
    for ref in (people.refs()[0].replace("build-3", "build-9"), people.refs()[0].replace("2026", "2025")):
        assert "was ever visible" in holdfast.fails("rollback", people, "--ref", ref, code=3)
    assert people.listing() == before
    assert holdfast("info", people, "--json").data["ref"] == people.refs()[0]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_command_prints_one_document_of_a_stable_shape(
    holdfast: Program, people: DataSet, words: list[str]
) -> None:
    """K24: the JSON forms of the commands for key-value data sets."""
    result = holdfast(words[0], people, *words[1:], "--json")
    assert set(result.data) == {"command", "chain"} | KEYS[words[0]]
    assert (result.data["command"], result.err) == (words[0], "")
    assert result.data["chain"] == f"{people.folder.as_uri()}#kv"


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_command_fits_eighty_columns(
    holdfast: Program, people: DataSet, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    publish_users(people, 4, custom={"a long note": "word " * 30}, tags={"release": "long " * 20})
    lines = holdfast(words[0], people, *words[1:]).out.splitlines()
    assert [line for line in lines if len(line) > 80] == []


def test_info_describes_a_snapshot(holdfast: Program, people: DataSet) -> None:
    """K22: info: ref, run, age, rows, bytes, shards, skew, columns, routing, format, inputs, tags."""
    scores = DataSet(people.folder.parent / "scores")
    rows = [(number, {"score": number / 2}) for number in range(100)]
    publish_rows(
        scores.chain, rows, key_names=("id",), shards=4, run_id="scores-1", inputs=[people.chain.pin()],
        custom={"model": "v7"}, tags={"born": "yes"},
    )  # fmt: skip
    scores.chain.tag(scores.chain.find(), {"release": "stable"})

    data = holdfast("info", scores, "--json").data
    out = holdfast("info", scores).out

    assert (data["row_count"], data["shard_count"], data["run_id"], data["value"]) == (100, 4, "scores-1", "row")
    assert data["byte_size"] == sum(path.stat().st_size for path in shard_files(scores))
    assert data["key"] == [{"name": "id", "type": "int64"}]
    assert data["columns"][1] == {"name": "score", "type": "double", "nullable": True}
    assert data["statistics"]["skew"] >= 1
    assert data["inputs"][0]["ref"] == people.refs()[0]
    assert (data["tags"], data["custom"]) == ({"born": "yes", "release": "stable"}, {"model": "v7"})
    assert data["current"] is True
    assert data["published_at"].startswith("2026-03-14T10:30:00")
    assert data["age_s"] > 0
    for text in ("100 rows", "hash of the key", "by run scores-1", " ago", "skew", people.refs()[0], "release=stable"):
        assert text in out, text
    assert re.search(r"score +double +yes +value", out)


def test_info_says_when_readers_see_another_snapshot(holdfast: Program, people: DataSet) -> None:
    assert re.search(r"visible +yes", holdfast("info", people).out)
    assert f"no, readers see {people.refs()[0]}" in holdfast("info", people, "--offset", "1").out


@pytest.mark.parametrize("words", [["info"], ["shards"], ["route", "3"]], ids=" ".join)
def test_info_shards_and_route_read_no_data(holdfast: Program, people: DataSet, words: list[str]) -> None:
    """K22, K26: info does not download the data: it answers where there is none left."""
    with_data = holdfast(words[0], people, *words[1:], "--json").data
    for path in shard_files(people):
        path.unlink()
    without = holdfast(words[0], people, *words[1:], "--json").data
    with_data.pop("age_s", None)
    without.pop("age_s", None)
    assert without == with_data


def test_shards_lists_each_with_its_keys_and_an_empty_one_without_a_file(holdfast: Program, tmp_path: Path) -> None:
    """K22: shards: rows, bytes, smallest and largest key, writer and path."""
    prices = make_prices(tmp_path)
    data = holdfast("shards", prices, "--json").data["shards"]
    assert [one["shard"] for one in data] == list(range(16))
    assert sum(one["row_count"] for one in data) == 4
    used = next(one for one in data if not one["empty"])
    assert set(used) == {
        "shard", "empty", "row_count", "byte_size", "min_key", "max_key", "writer", "path", "checksum",
    }  # fmt: skip
    assert (prices.folder / used["path"]).stat().st_size == used["byte_size"]
    assert used["min_key"][0] in {"de", "nl"}
    out = holdfast("shards", prices, "--limit", "3").out
    assert "… and 13 more (--limit N shows more)" in out
    assert "16 shards, " in out
    assert "of them empty: 4 rows" in out
    assert "(empty)" in holdfast("shards", prices).out


def test_route_names_the_shard_that_holds_the_key(holdfast: Program, tmp_path: Path) -> None:
    """K22: route: the shard's number, its file, and whether it is empty."""
    prices = make_prices(tmp_path)
    listed = holdfast("shards", prices, "--json").data["shards"]
    for day in range(1, 29):
        data = holdfast("route", prices, f"de,2026-03-{day:02}", "--json").data
        one = listed[data["shard"]]
        assert (data["empty"], data["path"], data["shard_count"]) == (one["empty"], one["path"], 16)
        if day in (1, 2):
            assert not data["empty"]
            assert holdfast("get", prices, f"de,2026-03-{day:02}", "--json").data["shard"] == data["shard"]
        if data["empty"]:
            assert "the shard is empty" in holdfast("route", prices, f"de,2026-03-{day:02}").out
