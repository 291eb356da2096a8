"""What both outputs promise, whatever the command."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from holdfast.cli.call import without_password
from holdfast.cli.output import Column, fit
from holdfast.cli.words import duration_text, parse_duration, shorten, size_text
from holdfast.errors import BadInput
from tests.cli.support import DataSet, Program

LONG = "a-run-id-that-is-much-longer-than-anybody-would-like-to-read-in-a-table"
COMMANDS: list[list[str]] = [
    ["history"],
    ["show"],
    ["diff", "@1", "@0"],
    ["rollback"],
    ["tag", "release=stable"],
    ["tags"],
    ["verify"],
    ["reconcile"],
    ["status", "0" * 26],
    ["gc", "collect", "--retention", "1"],
    ["gc", "collect", "--retention", "1", "--apply"],
    ["gc", "list"],
    ["gc", "restore"],
    ["gc", "purge", "--grace", "0s"],
    ["gc", "purge", "--grace", "0s", "--apply"],
]


def with_url(words: list[str], url: object) -> list[str]:
    """The words with the URL where it belongs: after the command."""
    length = 2 if words[0] == "gc" else 1
    return [*words[:length], str(url), *words[length:]]


@pytest.fixture
def long_names(tmp_path: Path) -> DataSet:
    """A data set whose every name is too long, with something to find for every command."""
    found = DataSet(tmp_path / "datasets" / "users")
    found.publish(f"{LONG}-0")
    found.publish(f"{LONG}-1", tags={"a-tag": "with a long value, " * 4})
    found.publish(f"{LONG}-2")
    DataSet(tmp_path / "datasets" / "scores").publish("scores", inputs=(found.chain.pin(),))
    with found.chain.lock():
        found.chain.begin_run(f"{LONG}-failed").fail("on purpose")
    found.chain.store.put_new(found.chain.layout.artifact_key("lost", "0", "part-0"), b"nobody names this")
    if not found.chain.collect(retention=2).collection:
        pytest.fail("there should be a collection to list")
    return found


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_command_fits_eighty_columns(
    holdfast: Program, long_names: DataSet, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")

    lines = holdfast(*with_url(words, long_names)).out.splitlines()

    # A command to copy is never broken; the terminal wraps it.
    assert [line for line in lines if len(line) > 80 and not re.match(r"  [^:]+: holdfast ", line)] == []


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_command_prints_one_json_document_that_names_command_and_chain(
    holdfast: Program, long_names: DataSet, words: list[str]
) -> None:
    """K24: every command has `--json`."""
    result = holdfast(*with_url(words, long_names), "--json")

    data = json.loads(result.out)
    assert data["command"] == (" ".join(words[:2]) if words[0] == "gc" else words[0])
    assert data["chain"] == f"{long_names.folder.as_uri()}#kv"
    assert result.err == ""


@pytest.mark.parametrize(
    "text, seconds",
    [("7d", 604800), ("12h", 43200), ("30m", 1800), ("0s", 0), ("1d12h", 129600), ("1.5h", 5400), ("2w", 1209600)],
)
def test_durations_are_read_as_people_write_them(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds
    assert parse_duration(duration_text(seconds)) == seconds


@pytest.mark.parametrize("text", ["", "7", "d", "-1d", "7 days", "1d 2h x", "1e3s"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(BadInput):
        parse_duration(text)


@pytest.mark.parametrize(
    "size, text",
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1536, "1.5 KiB"), (5 << 30, "5.0 GiB"), (2 << 50, "2.0 PiB")],
)
def test_sizes_are_readable(size: int, text: str) -> None:
    assert size_text(size) == text


@pytest.mark.parametrize("keep, text", [("start", "abcd…"), ("end", "…ghij"), ("middle", "ab…ij")])
def test_long_text_is_shortened_where_it_tells_least(keep: str, text: str) -> None:
    assert shorten("abcdefghij", 5, keep=keep) == text
    assert shorten("abcde", 5, keep=keep) == "abcde"


def test_columns_give_way_by_what_they_can_spare() -> None:
    columns = (Column(title="fixed"), Column(title="ref", least=5), Column(title="tags", least=8))
    rows = [("x" * 10, "r" * 40, "t" * 10)]
    assert fit(columns, rows, None) == [10, 40, 10]
    assert fit(columns, rows, 40) == [10, 16, 10]
    assert fit(columns, rows, 10) == [10, 5, 8]


@pytest.mark.parametrize(
    "url, shown",
    [
        ("postgresql://ada:secret@host:5432/db?chain=users", "postgresql://ada@host:5432/db?chain=users"),
        ("postgresql://ada:se%40cret@host/db#kv", "postgresql://ada@host/db#kv"),
        ("postgresql://ada@host/db", "postgresql://ada@host/db"),
        ("./users#kv", "./users#kv"),
        ("s3://bucket/a@b:c", "s3://bucket/a@b:c"),
    ],
)
def test_no_password_is_printed_into_the_commands_to_type_next(url: str, shown: str) -> None:
    assert without_password(url) == shown
