"""`graph nodes`, `edges`, `neighbors`, `path`, `reach`, `dependents`, `dependencies`, `info`: asking any version."""

from __future__ import annotations

from datetime import timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from holdfast.graph.store import GraphStore
from tests.cli.graph_data import make_code, write
from tests.cli.support import DataSet, Program

QUESTIONS: list[list[str]] = [
    ["info"],
    ["nodes"],
    ["edges"],
    ["neighbors", "app.load"],
    ["path", "web.NA", "db.open"],
    ["reach", "web.NA"],
    ["dependents", "src/db.py"],
    ["dependencies", "src/app.py"],
]
KEYS = {
    "info": {"current", "published_at", "run_id", "nodes", "edges", "node_types", "edge_types", "segments", "tags"},
    "nodes": {"total", "nodes", "missing"},
    "edges": {"total", "edges"},
    "neighbors": {"id", "total", "neighbors"},
    "path": {"from", "to", "found", "edges"},
    "reach": {"total", "nodes"},
    "dependents": {"asked", "transitive", "total", "files"},
    "dependencies": {"asked", "transitive", "total", "files"},
}


@pytest.fixture
def code(holdfast: Program, tmp_path: Path) -> Path:
    return make_code(holdfast, tmp_path)


def ids(found: list[dict[str, Any]]) -> list[str]:
    return [row["semantic_id"] for row in found]


@pytest.mark.parametrize("words", QUESTIONS, ids=" ".join)
def test_every_question_may_be_put_to_every_version(holdfast: Program, code: Path, words: list[str]) -> None:
    """G21, G22: by number, by tag, by time, after a rollback; the document has what its help promises."""
    store = GraphStore.open(str(code))

    def asked(*flags: object) -> int:
        data = holdfast("graph", words[0], code, *words[1:], *flags, "--json").data
        assert set(data) == {"command", "chain", "version"} | KEYS[words[0]]
        assert data["command"] == f"graph {words[0]}"
        return int(data["version"])

    assert asked() == 3
    assert [asked("--version", number) for number in (2, 3)] == [2, 3]
    assert asked("--tag", "release=first") == 2
    moment = store.find(version=2).at
    assert asked("--at", moment.isoformat()) == asked("--at", moment.replace(tzinfo=None).isoformat()) == 2
    assert asked("--at", moment.astimezone(timezone(timedelta(hours=9))).isoformat()) == 2
    store.chain.rollback()
    assert asked() == 2
    assert asked("--version", 3) == 3


@pytest.mark.parametrize(
    "flags, expected",
    [
        (["--type", "FUNCTION"], ["app.load", "app.main", "db.open"]),
        (["--type", "http:*", "--type", "CLASS"], ["db.Pool", "web.NA"]),
        (["--name", "NA"], ["web.NA"]),
        (["--file", "src/app.py"], ["app.load", "app.main"]),
        (["--metadata", "line=9"], ["app.load"]),
        (["--metadata", "async=false", "--metadata", "line=3"], ["app.main"]),
        (["--metadata", 'line="9"'], []),
        (["--type", "FUNCTION", "--file", "src/db.py"], ["db.open"]),
        (["--type", "NOTHING"], []),
    ],
)
def test_nodes_are_found_by_all_that_is_asked(
    holdfast: Program, code: Path, flags: list[str], expected: list[str]
) -> None:
    """G21: type, also by its beginning, name, file, metadata, combined."""
    data = holdfast("graph", "nodes", code, "--version", 2, *flags, "--json").data
    assert (ids(data["nodes"]), data["total"]) == (expected, len(expected))


def test_one_node_is_shown_with_all_that_is_known(holdfast: Program, code: Path) -> None:
    """G21: by its id, metadata and 128-bit id included."""
    said = holdfast("graph", "nodes", code, "app.main").out
    for line in ("id            app.main", "content hash  007", "line          3", "async         false"):
        assert line in said.splitlines()
    assert GraphStore.open(str(code)).snapshot().node("app.main").id.hex() in said


def test_ids_that_are_not_there_are_named_with_exit_code_three(holdfast: Program, code: Path) -> None:
    """G21: what was found is shown all the same."""
    data = holdfast("graph", "nodes", code, "app.main", "nope", "db.Pool", "--json", code=3).data
    assert (ids(data["nodes"]), data["missing"]) == (["app.main"], ["nope", "db.Pool"])
    said = holdfast("graph", "nodes", code, "app.main", "nope", code=3).out
    assert "Not there: nope" in said
    assert holdfast("graph", "nodes", code, "nope", code=3).out == "Not there: nope\n"


@pytest.mark.parametrize(
    "flags, expected",
    [
        (["--type", "USES"], [("db.open", "db.Pool")]),
        (["--source", "app.main"], [("app.main", "app.load")]),
        (["--target", "app.main"], [("web.NA", "app.main")]),
        (["--file", "src/app.py"], [("app.load", "db.open"), ("app.main", "app.load")]),
        (["--metadata", "line=4"], [("app.main", "app.load")]),
        (["--source", "nope"], []),
    ],
)
def test_edges_are_found_by_all_that_is_asked(
    holdfast: Program, code: Path, flags: list[str], expected: list[tuple[str, str]]
) -> None:
    """G22: ends, types, files, metadata."""
    data = holdfast("graph", "edges", code, "--version", 2, *flags, "--json").data
    assert [(row["source"], row["target"]) for row in data["edges"]] == expected


@pytest.mark.parametrize(
    "flags, expected",
    [
        ([], [("out", "CALLS", "db.open"), ("in", "CALLS", "app.main")]),
        (["--direction", "in"], [("in", "CALLS", "app.main")]),
        (["--direction", "out", "--type", "CALLS"], [("out", "CALLS", "db.open")]),
        (["--type", "USES"], []),
        (["--limit", "1"], [("out", "CALLS", "db.open")]),
    ],
)
def test_neighbors_are_shown_with_the_edge_that_leads_to_them(
    holdfast: Program, code: Path, flags: list[str], expected: list[tuple[str, str, str]]
) -> None:
    """G22: both ways, by type."""
    data = holdfast("graph", "neighbors", code, "app.load", *flags, "--json").data
    assert [(row["direction"], row["edge_type"], row["semantic_id"]) for row in data["neighbors"]] == expected
    assert all(row["type"] == "FUNCTION" and row["file"] for row in data["neighbors"])


def test_a_path_is_shown_step_by_step_and_none_is_exit_code_three(holdfast: Program, code: Path) -> None:
    """G22: the shortest path, within a depth, along types."""
    asked = ["graph", "path", code, "web.NA", "db.Pool", "--version", 2]
    steps = [line.split()[:3] for line in holdfast(*asked).out.splitlines()[1:6]]
    assert [step[-2] for step in steps] == ["web.NA", "-CALLS->", "-CALLS->", "-CALLS->", "-USES->"]
    for flags in (["--type", "CALLS"], ["--depth", "3"]):
        data = holdfast(*asked, *flags, "--json", code=3).data
        assert (data["found"], data["edges"]) == (False, [])
    assert "There is no path within 3 edges" in holdfast(*asked, "--depth", "3", code=3).out
    assert holdfast("graph", "path", code, "app.main", "app.main", "--json").data["found"] is True


@pytest.mark.parametrize(
    "words, expected",
    [
        (["web.NA", "--depth", "2"], ["web.NA", "app.main", "app.load"]),
        (["db.open", "--direction", "in"], ["db.open", "app.load", "app.main", "web.NA"]),
        (["app.load", "db.Pool", "--order", "depth"], ["app.load", "db.open", "db.Pool"]),
        (["app.load", "--type", "CALLS"], ["app.load", "db.open"]),
    ],
)
def test_what_is_within_reach_is_shown_with_how(
    holdfast: Program, code: Path, words: list[str], expected: list[str]
) -> None:
    """G22: breadth-first and depth-first, both ways, to a depth."""
    data = holdfast("graph", "reach", code, *words, "--version", 2, "--json").data
    assert sorted(ids(data["nodes"])) == sorted(expected)
    graph = GraphStore.open(str(code)).snapshot(2)
    if words[0] == "web.NA":
        assert data["nodes"] == graph.breadth_first("web.NA", depth=2).to_dicts()


def test_files_that_depend_on_a_file_and_those_it_depends_on(holdfast: Program, code: Path) -> None:
    """G22: one step, or as far as it goes."""
    assert holdfast("graph", "dependents", code, "src/db.py", "--json").data["files"] == ["src/app.py"]
    far = holdfast("graph", "dependents", code, "src/db.py", "--transitive", "--json").data
    assert far["files"] == ["src/app.py", "src/web.py"]
    assert holdfast("graph", "dependencies", code, "src/web.py", "--json").data["files"] == ["src/app.py"]
    assert holdfast("graph", "dependencies", code, "src/db.py").out == "No files fit.\n"


def test_info_counts_what_there_is(holdfast: Program, code: Path) -> None:
    """G5, G21: counts by type, segments, tags; of the version that is asked."""
    data = holdfast("graph", "info", code, "--version", 2, "--json").data
    assert (data["nodes"], data["edges"], data["current"]) == (5, 4, False)
    assert data["node_types"] == {"CLASS": 1, "FUNCTION": 3, "http:route": 1}
    assert data["edge_types"] == {"CALLS": 3, "USES": 1}
    assert data["tags"] == {"release": "first"}
    assert {name: data["segments"][name] for name in ("nodes", "edges")} == {"nodes": 1, "edges": 1}
    assert "visible    no, readers see version 3" in holdfast("graph", "info", code, "--version", 2).out


def test_long_answers_are_cut_and_say_so_and_json_has_them_all(holdfast: Program, tmp_path: Path) -> None:
    rows = [{"semantic_id": f"n{number:04}", "type": "T"} for number in range(1200)]
    holdfast("graph", "build", "big", "--nodes", write(tmp_path / "n.csv", rows))
    said = holdfast("graph", "nodes", "big").out.splitlines()
    assert (len(said), said[-1]) == (1 + 50 + 2, "50 of 1,200 nodes; --limit N shows more")
    assert holdfast("graph", "nodes", "big", "--limit", 7).out.splitlines()[-1].startswith("7 of 1,200 nodes")
    assert len(holdfast("graph", "nodes", "big", "--json").data["nodes"]) == 1200
    few = holdfast("graph", "nodes", "big", "--json", "--limit", 7).data
    assert (len(few["nodes"]), few["total"]) == (7, 1200)


@pytest.mark.parametrize("words", QUESTIONS, ids=" ".join)
def test_answers_fit_the_terminal_and_cannot_move_its_cursor(
    holdfast: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    """G6: ids are any text that a user has; on a terminal they are shown as characters, shortened to its width."""
    long, odd = "x" * 300, "red \x1b[31m\nline\u202e"
    nodes = [{"semantic_id": one, "type": odd, "name": odd, "file": f"{one}.py"} for one in (long, odd, "b")]
    edges = [{"source": long, "target": odd, "type": odd}, {"source": odd, "target": "b", "type": "E"}]
    files = ["--nodes", write(tmp_path / "n.jsonl", nodes), "--edges", write(tmp_path / "e.jsonl", edges)]
    holdfast("graph", "build", "odd", *files)
    answers = {"neighbors": [odd], "path": [long, "b"], "reach": [long]}
    asked = answers.get(words[0], [f"{odd}.py"] if words[0].startswith("depend") else [])
    monkeypatch.setenv("COLUMNS", "80")
    said = holdfast("graph", words[0], "odd", *asked).out
    assert max(map(len, said.splitlines())) <= 80
    assert all(one.isprintable() for one in said.replace("\n", ""))
    exact = holdfast("graph", "nodes", "odd", "--json").data["nodes"]
    assert {row["semantic_id"] for row in exact} == {long, odd, "b"}


def test_the_graph_may_be_configured(holdfast: Program, code: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """K24: with HOLDFAST_CHAIN no command needs the URL, and a URL still counts first."""
    monkeypatch.setenv("HOLDFAST_CHAIN", str(code))
    for words in QUESTIONS:
        assert holdfast("graph", *words, "--json").data["version"] == 3
        assert holdfast("graph", words[0], code, *words[1:], "--version", 2, "--json").data["version"] == 2
    assert holdfast("graph", "nodes", "app.main", "--json").data["total"] == 1


@pytest.mark.parametrize("words", QUESTIONS, ids=" ".join)
def test_what_is_no_graph_is_refused_and_not_made(
    holdfast: Program, users: DataSet, tmp_path: Path, words: list[str]
) -> None:
    assert "is no graph" in holdfast.fails("graph", words[0], users, *words[1:], code=2)
    assert "no graph at" in holdfast.fails("graph", words[0], tmp_path / "nothing", *words[1:], code=2)
    assert not (tmp_path / "nothing").exists()


@pytest.mark.parametrize(
    "words, code_, says",
    [
        (["nodes", "--version", "9"], 3, "no snapshot '000009' was ever visible"),
        (["nodes", "--version", "0"], 2, "0 is not in the range"),
        (["nodes", "--tag", "release=none"], 3, "release"),
        (["nodes", "--tag", "release"], 2, "'release' is not a tag: use KEY=VALUE"),
        (["nodes", "--at", "yesterday"], 2, "'yesterday' is not a time"),
        (["nodes", "--at", "2000-01-01"], 3, "nothing was visible yet"),
        (["nodes", "--at", "2026-01-01", "--version", "2"], 2, "each name a version"),
        (["nodes", "--metadata", "line"], 2, "use KEY=VALUE"),
        (["neighbors"], 2, "expected [URL] ID"),
        (["neighbors", "nope"], 3, "no node 'nope' at version 3"),
        (["path", "app.main"], 2, "expected [URL] FROM TO"),
        (["path", "app.main", "nope"], 3, "no node 'nope' at version 3"),
        (["reach"], 2, "expected [URL] ID..."),
        (["reach", "nope"], 3, "no node 'nope' at version 3"),
        (["dependents", "nope.py"], 3, "no file 'nope.py' at version 3"),
        (["dependents"], 2, "expected [URL] FILE..."),
    ],
)
def test_bad_questions_get_one_line(holdfast: Program, code: Path, words: list[str], code_: int, says: str) -> None:
    assert says in holdfast.fails("graph", words[0], code, *words[1:], code=code_)


@pytest.mark.parametrize("words", [one for one in QUESTIONS if one[0] != "info"], ids=" ".join)
def test_a_damaged_segment_is_exit_code_six_and_nothing_of_it_is_printed(
    holdfast: Program, code: Path, words: list[str]
) -> None:
    """G7: a flipped byte is found before a wrong record is served."""
    for path in code.rglob("*.seg"):
        data = bytearray(path.read_bytes())
        for place in range(8, len(data) - 8):
            data[place] ^= 0xFF
        path.write_bytes(data)
    says = holdfast.fails("graph", words[0], code, *words[1:], code=6)
    assert "damaged" in says
