"""`get` and `multiget`: what is printed, for people and for programs, and what is not there."""

from __future__ import annotations

import base64
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest

from holdfast.kv import publish_rows
from tests.cli.kv_data import make_blobs, make_documents, make_prices, make_users
from tests.cli.support import DataSet, Program, environment


@pytest.fixture
def people(tmp_path: Path) -> DataSet:
    return make_users(tmp_path)


def test_get_prints_a_row_by_its_columns(holdfast: Program, people: DataSet) -> None:
    """K22: get."""
    assert holdfast("get", people, "3").out.split() == ["name", "Barbara", "version", "3"]


def test_get_as_json_says_where_the_value_comes_from(holdfast: Program, people: DataSet) -> None:
    """K24: get has a JSON form of a stable shape."""
    data = holdfast("get", people, "3", "--json").data
    assert data == {
        "command": "get",
        "chain": f"{people.folder.as_uri()}#kv",
        "ref": people.refs()[0],
        "key": 3,
        "shard": data["shard"],
        "found": True,
        "value": {"name": "Barbara", "version": 3},
    }


def test_a_key_that_is_not_there_is_exit_code_three_and_one_line(holdfast: Program, people: DataSet) -> None:
    """K22: a key that is not there is told from one with an empty value."""
    assert f"there is no key 77 in snapshot {people.refs()[0]}" in holdfast.fails("get", people, "77", code=3)
    data = holdfast("get", people, "77", "--json", code=3).data
    assert (data["found"], data["value"]) == (False, None)


def test_a_negative_number_is_a_key_and_not_an_option(holdfast: Program, people: DataSet) -> None:
    """K26: negative keys are taken as they are typed."""
    assert "Donald" in holdfast("get", people, "-2").out
    assert "Frances" in holdfast("multiget", people, "-1", "--offset", "1").out
    assert "No such option '--jason'" in holdfast.fails("get", people, "3", "--jason", code=2)


@pytest.mark.parametrize("how", [(), ("--direct",), ("--cached",)], ids=["default", "direct", "cached"])
def test_each_way_to_read_gives_the_same_answers(holdfast: Program, people: DataSet, how: tuple[str, ...]) -> None:
    """K22: get and multiget read by range requests or from mapped files."""
    assert holdfast("get", people, "1", "--json", *how).data["value"] == {"name": "Grace", "version": 3}
    rows = holdfast("multiget", people, "0", "9", "--json", *how, code=3).data["rows"]
    assert [(row["key"], row["found"]) for row in rows] == [(0, True), (9, False)]


def test_a_composite_key_is_typed_with_commas(holdfast: Program, tmp_path: Path) -> None:
    prices = make_prices(tmp_path)
    assert "12.50" in holdfast("get", prices, "de,2026-03-01").out
    assert holdfast("get", prices, "nl,2026-03-02", "--json").data["key"] == ["nl", "2026-03-02"]
    assert "2 parts, not 1" in holdfast.fails("get", prices, "de", code=2)
    assert "is not a date" in holdfast.fails("get", prices, "de,monday", code=2)


def test_what_json_has_no_word_for_is_spelled_as_text(holdfast: Program, tmp_path: Path) -> None:
    """K24: bytes as base64, dates and decimals as text, and never a NaN that JSON does not know."""
    value = holdfast("get", make_prices(tmp_path), "de,2026-03-01", "--json").data["value"]
    assert value == {
        "price": "12.50",
        "seen": "2026-03-01T12:30:00+00:00",
        "token": {"base64": base64.b64encode(bytes(15) + b"\x07").decode()},
        "ratio": "NaN",
        "note": None,
        "places": [{"city": "Köln", "mark": {"base64": "/w=="}}],
    }


def test_bytes_are_shown_as_text_where_they_are_text(holdfast: Program, tmp_path: Path) -> None:
    blobs = make_blobs(tmp_path)
    assert holdfast("get", blobs, "readme").out == "hello there\n"
    assert holdfast("get", blobs, "logo").out == "0x89504e470d0a00ff\n"
    assert holdfast("get", blobs, "empty").out == "\n"
    assert holdfast("get", blobs, "readme", "--json").data["value"] == {"base64": "aGVsbG8gdGhlcmU="}


@pytest.mark.parametrize("key, stored", [("logo", b"\x89PNG\r\n\x00\xff"), ("empty", b"")])
def test_raw_writes_the_bytes_as_they_are(tmp_path: Path, key: str, stored: bytes) -> None:
    """K22: --raw adds nothing and changes nothing."""
    blobs = make_blobs(tmp_path)
    ran = subprocess.run(
        [sys.executable, "-m", "holdfast.cli", "get", str(blobs), key, "--raw"],
        capture_output=True,
        check=False,
        timeout=60,
        env=environment(),
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, stored, b"")


def test_raw_is_refused_where_there_are_no_bytes_to_write(holdfast: Program, tmp_path: Path, people: DataSet) -> None:
    assert "these are rows; use --json" in holdfast.fails("get", people, "3", "--raw", code=2)
    assert "give one of them" in holdfast.fails("get", people, "3", "--raw", "--json", code=2)
    assert "there is no key none" in holdfast.fails("get", make_blobs(tmp_path), "none", "--raw", code=3)


def test_json_values_are_printed_as_json_that_cannot_ring_the_bell(holdfast: Program, tmp_path: Path) -> None:
    documents = make_documents(tmp_path)
    out = holdfast("get", documents, "a").out
    assert '"text": "bell\\u0007"' in out
    assert "\x07" not in out
    assert holdfast("get", documents, "a", "--json").data["value"] == {"x": [1, {"y": None}], "text": "bell\x07"}
    assert holdfast("get", documents, "b").out == "null\n"
    assert holdfast("get", documents, "b", "--json").data["found"] is True


def test_multiget_answers_in_the_order_asked_and_names_what_is_missing(holdfast: Program, people: DataSet) -> None:
    """K22: multiget; the exit code says that something was not there."""
    result = holdfast("multiget", people, "4", "77", "-1", "4", code=3)
    lines = result.out.splitlines()
    assert lines[0].split() == ["id", "name", "version"]
    assert [line.split()[0] for line in lines[1:4]] == ["4", "-1", "4"]
    assert lines[4] == "Not there: 77"
    data = holdfast("multiget", people, "4", "77", "--json", code=3).data
    assert data["rows"] == [
        {"key": 4, "found": True, "value": {"name": "Donald", "version": 3}},
        {"key": 77, "found": False, "value": None},
    ]
    assert (data["ref"], data["found_count"], data["missing_count"]) == (people.refs()[0], 1, 1)


def test_rows_of_many_columns_are_printed_as_blocks_that_fit_a_terminal(
    holdfast: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    wide = DataSet(tmp_path / "wide")
    row = {f"column_{number}": "x" * 100 for number in range(30)}
    publish_rows(wide.chain, [(1, row), (2, row)], key_names=("id",))
    lines = holdfast("multiget", wide, "2", "1").out.splitlines()
    assert [line.split()[1] for line in lines if line.startswith("id ")] == ["2", "1"]
    assert max(map(len, lines)) == 80
    assert sum(line.startswith("column_29 ") for line in lines) == 2


def test_keys_come_from_a_file_or_from_the_standard_input(
    holdfast: Program, people: DataSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K22: --keys-from, one key a line."""
    (tmp_path / "keys.txt").write_bytes(b"1\r\n\n-2\n")
    rows = holdfast("multiget", people, "5", "--keys-from", tmp_path / "keys.txt", "--json").data["rows"]
    assert [row["key"] for row in rows] == [5, 1, -2]
    monkeypatch.setattr("sys.stdin", StringIO("0\n3"))
    rows = holdfast("multiget", people, "--keys-from", "-", "--json").data["rows"]
    assert [row["key"] for row in rows] == [0, 3]
    assert "cannot be read" in holdfast.fails("multiget", people, "--keys-from", tmp_path / "none", code=2)
    assert "no keys" in holdfast.fails("multiget", people, code=2)


def test_where_a_chain_is_configured_every_word_is_a_key_unless_it_is_written_as_a_url(
    holdfast: Program, people: DataSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K24: the chain of a command that is given none."""
    monkeypatch.setenv("HOLDFAST_CHAIN", str(people))
    assert holdfast("get", "1", "--json").data["key"] == 1
    assert [row["key"] for row in holdfast("multiget", "1", "2", "--json").data["rows"]] == [1, 2]
    blobs = make_blobs(tmp_path)
    assert "hello there" in holdfast("multiget", blobs.folder.as_uri(), "readme").out
    assert "hello there" in holdfast("get", blobs, "readme").out


def test_one_word_without_a_chain_says_what_is_expected(holdfast: Program, people: DataSet) -> None:
    assert "expected [URL] KEY, got 1 argument" in holdfast.fails("get", people, code=2)
    assert "expected [URL] KEY, got no arguments" in holdfast.fails("route", code=2)
