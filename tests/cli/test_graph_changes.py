"""`graph replace`, `diff`, `compact`: from one version to the next."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast.graph.store import GraphStore
from tests.cli.graph_data import DB_AFTER, NODES, Row, contents, make_code, write
from tests.cli.support import Program


@pytest.fixture
def code(holdfast: Program, tmp_path: Path) -> Path:
    return make_code(holdfast, tmp_path)


def changed(data: dict[str, Any]) -> set[tuple[str, str, str, int, int, int]]:
    return {
        (one["kind"], one["file"], one["type"], one["added"], one["removed"], one["changed"]) for one in data["changes"]
    }


DB_CHANGES = {
    ("nodes", "src/db.py", "CLASS", 0, 1, 0),
    ("nodes", "src/db.py", "FUNCTION", 1, 0, 1),
    ("edges", "src/db.py", "USES", 0, 1, 0),
}


def test_replacing_files_says_what_changed_and_leaves_others_alone(holdfast: Program, code: Path) -> None:
    """G15: what the file no longer has leaves, with its edges; nothing of other files changes."""
    holdfast("rollback", code)
    nodes = code.parents[1] / "db.jsonl"
    data = holdfast("graph", "replace", code, "--nodes", nodes, "--json").data
    assert (data["version"], data["committed"], data["files"]) == (4, True, ["src/db.py"])
    assert changed(data) == DB_CHANGES
    found = contents(code)
    assert [row["semantic_id"] for row in found["nodes"]] == ["app.load", "app.main", "db.close", "db.open", "web.NA"]
    assert len(found["edges"]) == 3
    again = holdfast("graph", "replace", code, "--nodes", nodes)
    assert again.out == "Nothing differs from version 4, so there is no new one.\n"


def test_a_file_that_is_only_named_becomes_empty(holdfast: Program, code: Path) -> None:
    """G15, G23: unless an edge from elsewhere would point to nothing."""
    says = holdfast.fails("graph", "replace", code, "--file", "src/db.py", code=2)
    assert "'app.load' -CALLS-> 'db.open'" in says
    said = holdfast("graph", "replace", code, "--file", "src/web.py", "--tag", "web=gone").out
    assert "Version 4 is visible: 1 file replaced." in said
    assert "nodes: 1 removed" in said
    assert holdfast("graph", "nodes", code, "--tag", "web=gone", "--json").data["total"] == 4
    holdfast("graph", "replace", code, "--file", "src/db.py", "--dangling", "keep")
    assert holdfast("graph", "nodes", code, "--file", "src/db.py", "--json").data["total"] == 0


@pytest.mark.parametrize(
    "words, says",
    [
        ([], "which files?"),
        (["--edges", "edge.csv"], "belong to other files than those replaced"),
        (["--nodes", "gone.csv"], "there is no such file"),
    ],
)
def test_replacing_what_cannot_be_replaced_is_refused(
    holdfast: Program, code: Path, tmp_path: Path, words: list[str], says: str
) -> None:
    """G15: an edge of another file is not slipped in."""
    row: Row = {"source": "web.NA", "target": "db.open", "type": "CALLS"}
    write(tmp_path / "edge.csv", [row])
    more = ["--file", "src/db.py"] if "--edges" in words else []
    assert says in holdfast.fails("graph", "replace", code, *words, *more, code=2)
    assert holdfast("graph", "info", code, "--json").data["version"] == 3


@pytest.mark.parametrize("names", [("2", "3"), ("tag:release=first", "current"), ("@1", "@0"), ("000002", "000003")])
def test_a_diff_is_by_file_and_type_and_by_record(holdfast: Program, code: Path, names: tuple[str, str]) -> None:
    """G20: added, removed and changed, the changed ones before and after."""
    data = holdfast("graph", "diff", code, *names, "--json").data
    assert (data["from"], data["to"]) == (2, 3)
    assert changed(data) == DB_CHANGES
    assert [row["semantic_id"] for row in data["nodes"]["added"]] == ["db.close"]
    assert [row["semantic_id"] for row in data["nodes"]["removed"]] == ["db.Pool"]
    (pair,) = data["nodes"]["changed"]
    assert (pair["before"]["metadata"], pair["after"]["metadata"]) == (None, {"line": 12})
    assert [(row["source"], row["target"]) for row in data["edges"]["removed"]] == [("db.open", "db.Pool")]
    said = holdfast("graph", "diff", code, *names, "--records").out.splitlines()
    assert "nodes: 1 added, 1 removed, 1 changed" in said
    assert [line.split()[:2] for line in said[-4:]] == [["+", "node"], ["-", "node"], ["~", "node"], ["-", "edge"]]


def test_a_diff_backwards_is_the_other_way_round(holdfast: Program, code: Path) -> None:
    """G20: also between versions that a rollback left behind."""
    holdfast("rollback", code)
    forth, back = (holdfast("graph", "diff", code, *one, "--json").data for one in (("2", "3"), ("3", "current")))
    assert forth["nodes"]["added"] == back["nodes"]["removed"]
    assert forth["edges"]["removed"] == back["edges"]["added"]


def test_a_diff_of_one_file_is_of_that_file(holdfast: Program, code: Path, tmp_path: Path) -> None:
    """G20: one that moved from file to file belongs to both."""
    moved = [{**row, "file": "src/new.py"} for row in DB_AFTER]
    holdfast("graph", "build", code, "--nodes", write(tmp_path / "m.jsonl", moved), "--add")
    data = holdfast("graph", "diff", code, "3", "4", "--file", "src/db.py", "--json").data
    assert [pair["after"]["file"] for pair in data["nodes"]["changed"]] == ["src/new.py"] * 2
    said = holdfast("graph", "diff", code, "2", "3", "--file", "src/app.py").out
    assert said == "No node and no edge differs between version 2 and version 3 in src/app.py.\n"


def test_many_changes_are_cut_and_say_so(holdfast: Program, code: Path, tmp_path: Path) -> None:
    rows = [{"semantic_id": f"n{number}", "type": "T", "file": f"f{number:03}"} for number in range(70)]
    said = holdfast("graph", "build", code, "--nodes", write(tmp_path / "n.csv", rows)).out
    assert "nodes: 70 added, 5 removed" in said
    out = holdfast("graph", "diff", code, "3", "4", "--limit", 10, "--records").out
    assert out.count("shows more, --json all)") == 2
    assert "… and 65 more" in out
    assert len(holdfast("graph", "diff", code, "3", "4", "--json").data["nodes"]["added"]) == 70


def test_compacting_changes_no_answer(holdfast: Program, code: Path) -> None:
    """G17: fewer segments, the same contents, nothing that a diff would show; and only once."""
    before = contents(code)
    assert "There is nothing to merge: 4 segments" in holdfast("graph", "compact", code).out
    data = holdfast("graph", "compact", code, "--all", "--json").data
    assert (data["version"], data["committed"]) == (4, True)
    assert [data[when][kind] for when in ("before", "after") for kind in ("nodes", "edges")] == [2, 2, 1, 1]
    assert contents(code) == before
    assert "No node and no edge differs" in holdfast("graph", "diff", code, "3", "4").out
    assert holdfast("graph", "compact", code, "--all", "--json").data["committed"] is False
    assert holdfast("graph", "nodes", code, "--version", 2, "--json").data["total"] == len(NODES)
    assert GraphStore.open(str(code)).chain.verify() == []


@pytest.mark.parametrize(
    "words, code_, says",
    [
        (["diff", "2"], 2, "expected [URL] FROM TO"),
        (["diff", "2", "9"], 3, "'000009'"),
        (["diff", "2", "tag:release"], 2, "use tag:KEY=VALUE"),
        (["diff", "2", "yesterday"], 2, "is not a snapshot ref"),
        (["compact", "--all", "--spark"], 2, "--spark merges everything by itself"),
    ],
)
def test_bad_calls_get_one_line(holdfast: Program, code: Path, words: list[str], code_: int, says: str) -> None:
    assert says in holdfast.fails("graph", words[0], code, *words[1:], code=code_)


@pytest.mark.parametrize("words", [["replace", "--file", "x"], ["diff", "1", "2"], ["compact"]], ids=" ".join)
def test_a_place_without_a_graph_is_refused_and_not_made(holdfast: Program, tmp_path: Path, words: list[str]) -> None:
    assert "no graph at" in holdfast.fails("graph", words[0], tmp_path / "nothing", *words[1:], code=2)
    assert not (tmp_path / "nothing").exists()


@pytest.mark.parametrize("command", ["build", "compact"])
def test_without_pyspark_it_says_so(
    holdfast: Program, code: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "holdfast.spark.session", None)
    words = ["--nodes", code.parents[1] / "nodes.jsonl"] if command == "build" else []
    assert "--spark needs PySpark" in holdfast.fails("graph", command, code, "--spark", *words, code=2)
