"""`graph build`: from files to a version, and what is refused before there is one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli.graph_write import put_everything
from holdfast.errors import Conflict
from holdfast.graph.records import canonical_edges, canonical_nodes
from holdfast.graph.store import CommitResult, GraphStore
from tests.cli.graph_data import EDGES, NODES, Row, contents, table, write
from tests.cli.support import DataSet, Program, environment

FORMATS = ["parquet", "csv", "csv.gz", "jsonl", "ndjson", "jsonl.gz"]
EXPECTED_NODES = sorted(
    ({"name": "", "content_hash": None, "metadata": None, **row} for row in NODES), key=lambda row: row["semantic_id"]
)


@pytest.mark.parametrize("ending", FORMATS)
def test_files_of_every_format_make_the_same_graph(holdfast: Program, tmp_path: Path, ending: str) -> None:
    """G6, G8: all that files say is there, text as it was: `007` and a function called NA too."""
    nodes, edges = write(tmp_path / f"nodes.{ending}", NODES), write(tmp_path / f"edges.{ending}", EDGES)
    made = holdfast("graph", "build", tmp_path / "code", "--nodes", nodes, "--edges", edges, "--json").data
    assert (made["version"], made["committed"], made["created"]) == (2, True, True)
    assert (made["nodes"], made["edges"]) == (5, 4)
    found = contents(tmp_path / "code")
    assert found["nodes"] == EXPECTED_NODES
    keys = [(row["source"], row["type"], row["target"], row["file"], row["metadata"]) for row in found["edges"]]
    assert keys == [
        ("app.load", "CALLS", "db.open", "src/app.py", None),
        ("app.main", "CALLS", "app.load", "src/app.py", {"line": 4}),
        ("db.open", "USES", "db.Pool", "src/db.py", None),
        ("web.NA", "CALLS", "app.main", "src/web.py", None),
    ]


def test_a_folder_and_several_files_are_one_input(holdfast: Program, tmp_path: Path) -> None:
    """Folders as other programs leave them: parts below each other, and marks that are not data."""
    folder = tmp_path / "nodes"
    for number, row in enumerate(NODES[:-1]):
        write(folder / f"day={number % 2}" / f"part-{number}.{FORMATS[number]}", [row])
    (folder / "_SUCCESS").touch()
    (folder / ".part-0.parquet.crc").write_bytes(b"x")
    last = write(tmp_path / "last.csv", NODES[-1:])
    holdfast("graph", "build", tmp_path / "code", "--nodes", folder, "--nodes", last)
    assert contents(tmp_path / "code")["nodes"] == EXPECTED_NODES


def test_building_the_same_again_makes_no_version(holdfast: Program, tmp_path: Path) -> None:
    """G15: without a difference nothing is written, and the program says so."""
    words = built(holdfast, tmp_path)
    again = holdfast(*words, "--json").data
    assert (again["version"], again["committed"], again["changes"], again["undo"]) == (2, False, [], None)
    assert "Nothing differs from version 2" in holdfast(*words).out


def test_a_build_is_the_whole_graph_and_with_add_it_is_more(holdfast: Program, tmp_path: Path) -> None:
    """G15: what the files no longer have leaves; `--add` leaves alone what it does not name."""
    built(holdfast, tmp_path)
    place, extra = tmp_path / "code", [{"semantic_id": "x", "type": "FUNCTION", "file": "src/x.py"}]
    more = write(tmp_path / "more.csv", extra)
    added = holdfast("graph", "build", place, "--nodes", more, "--add", "--json").data
    assert (added["nodes"], added["edges"]) == (6, 4)
    assert [row["added"] for row in added["changes"]] == [1]
    whole = holdfast("graph", "build", place, "--nodes", more, "--json").data
    assert (whole["version"], whole["nodes"], whole["edges"]) == (4, 1, 0)
    assert sum(row["removed"] for row in whole["changes"]) == 9
    assert holdfast("graph", "nodes", place, "--json").data["nodes"][0]["semantic_id"] == "x"
    assert GraphStore.open(str(place)).chain.verify() == []


def test_records_of_no_file_belong_to_the_whole_too(holdfast: Program, tmp_path: Path) -> None:
    """Nodes without a file, edges from nowhere, and edges of a file that has nothing else leave like all others."""
    nodes = write(tmp_path / "a.csv", [{"semantic_id": "loose", "type": "T"}])
    nowhere = {"source": "nobody", "target": "loose", "type": "E"}
    edges = write(
        tmp_path / "b.csv", [nowhere, {"source": "loose", "target": "loose", "type": "E", "file": "edges.py"}]
    )
    place = tmp_path / "code"
    holdfast("graph", "build", place, "--nodes", nodes, "--edges", edges, "--dangling", "keep")
    other = write(tmp_path / "c.csv", [{"semantic_id": "other", "type": "T"}])
    whole = holdfast("graph", "build", place, "--nodes", other, "--json").data
    assert (whole["nodes"], whole["edges"]) == (1, 0)


def test_the_new_version_is_tagged_and_the_log_says_who_and_why(holdfast: Program, tmp_path: Path) -> None:
    words = built(holdfast, tmp_path, "--tag", "release=first", "--tag", "a=b", "--why", "a start", "--by", "ada")
    del words
    chain = GraphStore.open(str(tmp_path / "code")).chain
    newest = chain.list_snapshots()[-1]
    assert dict(newest.tags) == {"release": "first", "a": "b"}
    assert newest.snapshot.by == "ada"


def test_undo_is_what_the_program_says_it_is(holdfast: Program, tmp_path: Path) -> None:
    words = built(holdfast, tmp_path)
    write(tmp_path / "nodes.csv", NODES[:1])
    undo = holdfast("graph", "build", *words[2:5], "--json").data["undo"]
    holdfast(*undo.split()[1:])
    assert holdfast("graph", "info", tmp_path / "code", "--json").data["version"] == 2


@pytest.mark.parametrize(
    "nodes, edges, says",
    [
        ([{"semantic_id": "a", "type": "T"}], [{"source": "a", "target": "b", "type": "E"}], "'a' -E-> 'b'"),
        ([{"semantic_id": "a", "type": "T"}, {"semantic_id": "a", "type": "U"}], [], "different contents"),
        ([{"semantic_id": "", "type": "T"}], [], "1 nodes have no 'semantic_id'"),
        ([{"type": "T"}], [], "nodes need a column 'semantic_id'"),
        ([{"semantic_id": "a", "type": "T", "colour": "red"}], [], "nodes have no column 'colour'"),
        ([{"semantic_id": "a", "type": "T", "metadata": "line 3"}], [], "should be a JSON object"),
        ([{"semantic_id": "a", "type": "T", "metadata": [3]}], [], "should be a JSON object"),
    ],
    ids=["nowhere", "twice", "empty id", "no id", "unknown column", "no JSON", "no object"],
)
def test_a_first_build_that_is_refused_leaves_nothing(
    holdfast: Program, tmp_path: Path, nodes: list[Row], edges: list[Row], says: str
) -> None:
    """G23: edges to nowhere are named and refused, like all that cannot be a graph; not even an empty one is made."""
    words: list[object] = ["--nodes", write(tmp_path / "n.csv", nodes)]
    words += ["--edges", write(tmp_path / "e.csv", edges)] if edges else []
    assert says in holdfast.fails("graph", "build", tmp_path / "code", *words, code=2)
    assert not (tmp_path / "code").exists()


def test_dangling_edges_are_kept_if_asked(holdfast: Program, tmp_path: Path) -> None:
    """G23: kept, and shown as what they are."""
    nodes = write(tmp_path / "n.csv", [{"semantic_id": "a", "type": "T"}])
    edges = write(tmp_path / "e.csv", [{"source": "a", "target": "b", "type": "E"}])
    holdfast("graph", "build", "code", "--nodes", nodes, "--edges", edges, "--dangling", "keep")
    assert "b   (not there)" in holdfast("graph", "neighbors", "code", "a").out


@pytest.mark.parametrize(
    "name, content, says",
    [
        ("n.txt", b"", "Files are told by their ends"),
        ("n.parquet", b"PAR1 or not", "cannot be read"),
        ("n.csv", b"", "cannot be read: Empty CSV file"),
        ("n.csv", b"semantic_id,type\na\n", "cannot be read: CSV parse error: Expected 2 columns, got 1"),
        ("n.jsonl", b'{"semantic_id": "a", "type": "T"}\n{"semantic_id": \n', "line 2 is not JSON"),
        ("n.jsonl", b'["a"]\n', "line 1 is no object"),
        ("n.jsonl", b'{"semantic_id": 7, "type": "T"}\n', "line 1: 'semantic_id' should be text, not 7"),
        ("n.jsonl", b'{"semantic_id": "a", "type": "T", "size": 1}\n', "'size'"),
        ("n.jsonl.gz", b"not compressed", "cannot be read"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(
    holdfast: Program, tmp_path: Path, name: str, content: bytes, says: str
) -> None:
    (tmp_path / name).write_bytes(content)
    line = holdfast.fails("graph", "build", "code", "--nodes", name, code=2)
    assert name in line
    assert says in line
    assert not (tmp_path / "code").exists()


@pytest.mark.parametrize(
    "words, says",
    [
        ([], "no files; give --nodes PATH"),
        (["--nodes", "gone.csv"], "--nodes gone.csv: there is no such file"),
        (["--edges", "empty"], "--edges empty: the folder is empty"),
        (["--nodes", "n.csv", "--add", "--spark"], "do not go together"),
        (["--nodes", "n.csv", "--tag", "release"], "'release' is not a tag"),
        (["--nodes", "n.csv", "--dangling", "drop"], "is not one of"),
    ],
)
def test_a_call_that_cannot_be_right_is_refused(holdfast: Program, tmp_path: Path, words: list[str], says: str) -> None:
    write(tmp_path / "n.csv", NODES)
    (tmp_path / "empty").mkdir()
    assert says in holdfast.fails("graph", "build", "code", *words, code=2)
    assert not (tmp_path / "code").exists()


def test_another_kind_of_chain_is_not_built_upon(holdfast: Program, users: DataSet, tmp_path: Path) -> None:
    before = users.listing()
    nodes = write(tmp_path / "n.csv", NODES)
    assert "is no graph" in holdfast.fails("graph", "build", users, "--nodes", nodes, code=2)
    assert users.listing() == before


def test_a_file_that_another_writer_adds_meanwhile_does_not_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G18: a whole build ends with the whole, whoever commits in between; it says so if that never ends."""
    mine, theirs = GraphStore.create(str(tmp_path / "code")), GraphStore.open(str(tmp_path / "code"))
    real, turns = GraphStore.replace_files, iter([1])

    def late(store: GraphStore, *words: Any, **options: Any) -> CommitResult:
        for turn in turns:
            row = {"semantic_id": f"theirs-{turn}", "type": "T", "file": f"theirs-{turn}.py"}
            theirs.commit(nodes=canonical_nodes(table([row])))
        return real(store, *words, **options)

    monkeypatch.setattr(GraphStore, "replace_files", late)
    nodes, edges = canonical_nodes(table(NODES)), canonical_edges(table(EDGES))
    put_everything(mine, nodes, edges, dangling="refuse", tags={}, why="")
    assert contents(tmp_path / "code")["nodes"] == EXPECTED_NODES

    numbers = iter(range(2, 100))
    turns = (next(numbers) for _ in [0])

    def always(store: GraphStore, *words: Any, **options: Any) -> CommitResult:
        row = {"semantic_id": f"theirs-{next(numbers)}", "type": "T", "file": f"file-{next(numbers)}.py"}
        theirs.commit(nodes=canonical_nodes(table([row])))
        return real(store, *words, **options)

    monkeypatch.setattr(GraphStore, "replace_files", always)
    with pytest.raises(Conflict, match="build again"):
        put_everything(mine, nodes, edges, dangling="refuse", tags={}, why="")


def test_spark_builds_and_compacts_the_same_graph(tmp_path: Path) -> None:
    """G17, G25: `--spark` reads the same files and makes the same graph; its JVM keeps its words to itself."""
    for name, rows in (("nodes", NODES), ("edges", EDGES)):
        write(tmp_path / name / "1.jsonl", rows[:2])
        write(tmp_path / name / "2.csv", rows[2:3])
        write(tmp_path / name / "3.parquet", rows[3:])
    script = (
        "from holdfast.cli.main import main\n"
        "files = ['--nodes', 'nodes', '--edges', 'edges']\n"
        "assert main(['graph', 'build', 'plain', *files]) == 0\n"
        "assert main(['graph', 'build', 'spark', *files, '--spark', '--tag', 'by=spark']) == 0\n"
        "assert main(['graph', 'build', 'spark', '--nodes', 'nodes/1.jsonl', '--add']) == 0\n"
        "assert main(['graph', 'replace', 'spark', '--file', 'src/web.py']) == 0\n"
        "assert main(['graph', 'build', 'plain', *files]) == 0\n"
        "assert main(['graph', 'replace', 'plain', '--file', 'src/web.py']) == 0\n"
        "assert main(['graph', 'compact', 'spark', '--spark']) == 0\n"
        'open(\'bad.jsonl\', \'w\').write(\'{"semantic_id": "a", "type": "T", "size": 1}\\n\')\n'
        "assert main(['graph', 'build', 'spark', '--nodes', 'bad.jsonl', '--spark']) == 2\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=400,
        env=environment(),
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr.count("\n") == 1
    assert "'size'" in done.stderr
    assert "Version 2 is visible: 5 nodes, 4 edges." in done.stdout
    assert "Version 4 is visible, with the same contents." in done.stdout
    assert contents(tmp_path / "spark") == contents(tmp_path / "plain")
    store = GraphStore.open(str(tmp_path / "spark"))
    assert len(store.state().segments) == 2
    assert store.find_snapshot("by", "spark").manifest_id == 2


def built(holdfast: Program, folder: Path, *more: str) -> list[object]:
    """The words that built the small graph."""
    nodes, edges = write(folder / "nodes.csv", NODES), write(folder / "edges.csv", EDGES)
    words: list[object] = ["graph", "build", folder / "code", "--nodes", nodes, "--edges", edges, *more]
    holdfast(*words)
    return words
