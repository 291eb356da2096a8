"""`holdfast pipeline`: a first file, what is wrong with one, its plan, and the schema for editors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast.pipeline.schema import pipeline_schema
from tests.cli.support import Program

BAD = """\
name = "bad"
[sources.orders]
path = "a"
[datasets.all]
kind = "kv"
from = "ordrs"
key = "id"
shard = 8
"""


def test_a_first_file_is_written_once_and_its_plan_is_shown(
    holdfast: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C30: from nothing to a plan in two commands, on a terminal of 80 columns, with what to type next."""
    monkeypatch.setenv("COLUMNS", "80")
    assert holdfast("pipeline", "new", "shop/orders of may.toml").out.splitlines() == [
        "Written to shop/orders of may.toml.",
        "  check it: holdfast pipeline check 'shop/orders of may.toml'",
    ]
    shown = holdfast("pipeline", "check", "shop/orders of may.toml", "--param", "day=2027-01-02").out
    assert max(map(len, shown.splitlines()[:-1])) <= 80
    assert [line.split() for line in shown.splitlines()] == [
        ["Pipeline", "orders-of-may:", "2", "data", "sets", "in", "4", "turns"],
        ["what", "kind", "reads", "makes"],
        ["1", "orders", "csv", "data/2027-01-02/orders.csv", "view", "orders"],
        ["2", "paid", "sql", "orders", "view", "paid"],
        ["3", "totals", "sql", "paid", "view", "totals"],
        ["4", "paid_orders", "table", "paid", "data", "set,", "files"],
        ["5", "user_totals", "kv", "totals", *shown.splitlines()[6].split()[4:]],
        [],
        ["run", "it:", "holdfast", "run", "'shop/orders", "of", "may.toml'", "--param=day=2027-01-02"],
    ]
    assert "is there already" in holdfast.fails("pipeline", "new", "shop/orders of may.toml", code=2)
    assert "use 1 to 128 letters" in holdfast.fails("pipeline", "new", "x.toml", "--name", "a b", code=2)
    assert holdfast("pipeline", "new", "--name", "mine", "--json").data == {
        "command": "pipeline new", "file": "pipeline.toml", "name": "mine",
    }  # fmt: skip


def test_problems_are_listed_one_a_line_and_the_exit_code_tells(holdfast: Program, tmp_path: Path) -> None:
    """C30: `pipeline.toml:12: …`, with what was meant, for people and for programs."""
    (tmp_path / "bad.toml").write_text(BAD, encoding="utf-8")
    assert holdfast("pipeline", "check", "bad.toml", code=2).out.splitlines() == [
        "bad.toml:6: there is no source or step 'ordrs': did you mean 'orders'?",
        "bad.toml:8: unknown key 'shard' in a kv data set: did you mean 'shards'?",
        "2 problems in bad.toml: nothing of it can be run.",
    ]
    found = holdfast("pipeline", "check", "bad.toml", "--json", code=2).data
    assert found["ok"] is False
    assert found["problems"][1] == {
        "severity": "error", "file": "bad.toml", "line": 8, "where": ["datasets", "all", "shard"],
        "message": "unknown key 'shard' in a kv data set: did you mean 'shards'?",
    }  # fmt: skip


def test_the_plan_is_a_document_too(holdfast: Program) -> None:
    """C30: tasks in order, what each data set needs, warnings, and only what was asked for."""
    holdfast("pipeline", "new")
    found = holdfast("pipeline", "check", "pipeline.toml", "--only", "paid_orders", "--json").data
    assert (found["ok"], found["problems"], found["pipeline"]) == (True, [], "pipeline")
    assert found["parameters"] == {"day": "2026-11-15", "least_price": 0}
    assert [(one["id"], one["reads"], one["level"]) for one in found["tasks"]] == [
        ("source:orders", [], 0), ("step:paid", ["orders"], 1), ("dataset:paid_orders", ["paid"], 2),
    ]  # fmt: skip
    assert [(one["name"], one["kind"], one["needs"]) for one in found["datasets"]] == [
        ("paid_orders", "table", ["orders", "paid"])
    ]


def test_warnings_are_shown_with_the_plan(holdfast: Program, tmp_path: Path) -> None:
    text = BAD.replace("ordrs", "orders").replace("shard =", "shards =") + '[sources.more]\npath = "b"\n'
    (tmp_path / "warned.toml").write_text(text, encoding="utf-8")
    shown = holdfast("pipeline", "check", "warned.toml").out
    assert "warned.toml:9: warning: no data set needs source 'more': it is not read" in shown.splitlines()


@pytest.mark.parametrize(
    "words, code, said",
    [
        (["gone.toml"], 3, "there is no file 'gone.toml'; `holdfast pipeline new` writes a first one"),
        (["pipeline.toml", "--param", "day"], 2, "--param 'day': write NAME=VALUE"),
        (["pipeline.toml", "--param", "dya=1"], 2, "no parameter 'dya': did you mean 'day'?"),
        (["pipeline.toml", "--only", "totals"], 2, "no data set 'totals': did you mean 'user_totals'?"),
    ],
)
def test_a_wrong_call_says_what_to_do(holdfast: Program, words: list[str], code: int, said: str) -> None:
    holdfast("pipeline", "new")
    assert said in holdfast.fails("pipeline", "check", *words, code=code)


def test_the_schema_is_printed_as_it_is(holdfast: Program) -> None:
    """C30: `holdfast pipeline schema > pipeline.schema.json` is a file for editors."""
    assert json.loads(holdfast("pipeline", "schema").out) == pipeline_schema()
    assert holdfast("pipeline", "schema", "--json").data["schema"] == pipeline_schema()


def test_the_group_alone_shows_its_commands(holdfast: Program) -> None:
    shown = holdfast("pipeline").out
    assert [line.split()[0] for line in shown.partition("Commands:")[2].splitlines() if line.strip()] == [
        "new", "check", "schema",
    ]  # fmt: skip
