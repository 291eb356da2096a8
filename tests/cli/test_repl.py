"""`repl`, fed from a pipe: the same answers as the shell's, one snapshot at a time, and on after every error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.kv_data import Script, make_blobs, make_users, publish_users, script_runner, shard_files
from tests.cli.support import DataSet, Program, Result

SAME = ["get 3", "get -2", "multiget 3 77", "info", "shards --limit 2", "route 3", "history --limit 2"]


@pytest.fixture
def people(tmp_path: Path) -> DataSet:
    return make_users(tmp_path)


@pytest.fixture
def script(holdfast: Program, monkeypatch: pytest.MonkeyPatch) -> Script:
    return script_runner(holdfast, monkeypatch)


def documents(result: Result) -> list[Any]:
    return [json.loads(line) for line in result.out.splitlines()]


@pytest.mark.parametrize("line", SAME)
def test_the_prompt_answers_as_the_shell_does(holdfast: Program, script: Script, people: DataSet, line: str) -> None:
    """K23: the same commands, with the same words."""
    name, *words = line.split()
    code = 3 if "77" in words else 0
    in_shell = holdfast(name, people, *words, code=code)
    at_prompt = script(people, line, code=code)
    assert (at_prompt.out, at_prompt.err) == (in_shell.out, in_shell.err)
    in_shell = holdfast(name, people, *words, "--json", code=code)
    at_prompt = script(people, f"{line} --json", code=code)
    assert {**documents(at_prompt)[0], "age_s": 0} == {**in_shell.data, "age_s": 0}


def test_use_switches_and_says_to_what(script: Script, people: DataSet) -> None:
    """K23: use --offset, --ref and --latest."""
    refs = people.refs()
    out = script(people, "use --offset 2", "get 3", f"use --ref {refs[1]}", "get 3", "use --latest", "get 3").out
    lines = [line for line in out.splitlines() if "name " not in line]
    assert lines[0] == f"Now at offset 2: {refs[2]}"
    assert lines[1].startswith("people: 8 rows in 4 shards, published 2026-03-14 10:30:00 UTC by run build-1")
    assert lines[3] == f"Now at the ref: {refs[1]}"
    assert lines[6] == f"Now at the visible snapshot: {refs[0]}"
    assert [lines[index].split() for index in (2, 5, 8)] == [["version", str(number)] for number in (1, 2, 3)]


def test_use_as_json_names_the_snapshot_and_whether_it_stays(script: Script, people: DataSet) -> None:
    """K23, K24: use has a JSON form."""
    used, latest = documents(script(people, "use --offset 1", "use --latest", words=("--json",)))
    assert (used["command"], used["ref"], used["run_id"], used["pinned"]) == ("use", people.refs()[1], "build-2", True)
    assert (latest["ref"], latest["pinned"]) == (people.refs()[0], False)


@pytest.mark.parametrize(
    "line, code",
    [("use", 2), ("use --offset 1 --latest", 2), ("use --offset -1", 2), ("use --offset 9", 3), ("use --ref none", 2)],
)
def test_a_switch_that_cannot_be_made_changes_nothing(script: Script, people: DataSet, line: str, code: int) -> None:
    """K23: after a failed switch the snapshot from before is served."""
    result = script(people, "use --offset 1", line, "get 3 --json", code=code)
    assert json.loads(result.out.splitlines()[-1])["ref"] == people.refs()[1]
    assert result.err.startswith("error: ")
    assert result.err.count("\n") == 1


def test_the_prompt_can_begin_at_any_snapshot(script: Script, people: DataSet) -> None:
    assert documents(script(people, "get 3", words=("--json", "--offset", "2")))[0]["value"]["version"] == 1


def test_one_command_may_look_at_another_snapshot_without_a_switch(script: Script, people: DataSet) -> None:
    """K22, K23: --ref and --offset at the prompt."""
    answers = documents(script(people, "get 3 --offset 2", "get 3", words=("--json",)))
    assert [one["value"]["version"] for one in answers] == [1, 3]


def test_refresh_serves_what_was_published_meanwhile(
    holdfast: Program, people: DataSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K23: the reader stays on its snapshot until it is told to refresh."""

    class Lines:
        """A pipe that somebody publishes between two lines of."""

        def __iter__(self) -> Any:
            yield "get 3\n"
            publish_users(people, 4)
            yield "get 3\n"
            yield "refresh\n"
            yield "get 3\n"
            yield "refresh\n"
            yield "use --offset 1\n"
            yield "refresh\n"

        def isatty(self) -> bool:
            return False

    monkeypatch.setattr("sys.stdin", Lines())
    before, still, swapped, after, unchanged, _, pinned = documents(holdfast("repl", people, "--json"))
    assert [one["value"]["version"] for one in (before, still, after)] == [3, 3, 4]
    assert [one["refreshed"] for one in (swapped, unchanged, pinned)] == ["swapped", "unchanged", "unchanged"]
    assert (swapped["run_id"], pinned["run_id"], pinned["pinned"]) == ("build-4", "build-3", True)


def test_an_error_is_one_line_and_the_prompt_goes_on(script: Script, people: DataSet) -> None:
    """K23: a script runs to its end, and its exit code is that of the first failure."""
    result = script(people, "get Ada", "get 77", "gte 3", "get 3 --jason", "get 'x", "get 1 2", "get 3", code=2)
    assert result.out.split() == ["name", "Barbara", "version", "3"]
    errors = result.err.splitlines()
    assert len(errors) == 6
    assert all(line.startswith("error: ") for line in errors)
    for line, says in zip(
        errors,
        [
            "'Ada' is not a whole number",
            "there is no key 77",
            "did you mean get?",
            "No such option",
            "quotation",
            "one KEY",
        ],
        strict=True,
    ):
        assert says in line
    assert "`get --help` shows how it is called" in errors[5]


def test_with_json_every_line_is_answered_by_one_line(script: Script, people: DataSet) -> None:
    """K23, K24: a program can read answers and errors line by line."""
    result = script(people, "get 3", "get Ada", "get 77", "nothing", "info", words=("--json",), code=2)
    answers = documents(result)
    assert [one["command"] for one in answers] == ["get", "get", "get", "nothing", "info"]
    assert [one.get("exit_code") for one in answers] == [None, 2, None, 2, None]
    assert answers[2]["found"] is False
    assert result.err == ""


def test_comments_quotes_and_the_programs_own_name_are_understood(
    script: Script, people: DataSet, tmp_path: Path
) -> None:
    blobs = make_blobs(tmp_path)
    result = script(blobs, "# a comment", "", "  ", "get 'a b'", "holdfast get readme", "exit", "get nothing")
    assert result.out == "quoted\nhello there\n"


def test_the_prompt_is_on_one_data_set(script: Script, people: DataSet, tmp_path: Path) -> None:
    result = script(people, f"history {tmp_path}", "multiget --keys-from -", code=2)
    first, second = result.err.splitlines()
    assert "this prompt is on" in first
    assert "standard input" in second


def test_help_lists_the_commands_and_explains_each(script: Script, people: DataSet) -> None:
    out = script(people, "help").out
    for name in ("get", "multiget", "info", "shards", "route", "history", "use", "refresh", "help", "exit"):
        assert any(line.startswith(f"{name} ") for line in out.splitlines()), name
    explained = script(people, "help get").out
    assert explained.startswith("Usage: get [OPTIONS] KEY\n")
    assert "--offset N" in explained
    assert "--layout" not in explained
    assert script(people, "get --help").out == explained
    assert "did you mean get?" in script(people, "help gte", code=2).err


def test_damage_is_an_error_of_the_line_that_meets_it(script: Script, people: DataSet) -> None:
    """K18: the prompt goes on after a corrupt shard, on the snapshot that it has."""
    for path in shard_files(people):
        if "build-1" in str(path):
            path.unlink()
    result = script(people, "use --offset 2", "get 3", code=6)
    assert "holdfast verify" in result.err
    assert "Barbara" in result.out
