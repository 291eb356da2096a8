"""A small graph for the tests of the command line, in files of every format."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.graph.store import GraphStore
from tests.cli.support import Program

Row = Mapping[str, Any]

NODES: list[Row] = [
    {"semantic_id": "app.main", "type": "FUNCTION", "name": "main", "file": "src/app.py", "content_hash": "007",
     "metadata": {"line": 3, "async": False}},
    {"semantic_id": "app.load", "type": "FUNCTION", "name": "load", "file": "src/app.py", "metadata": {"line": 9}},
    {"semantic_id": "db.open", "type": "FUNCTION", "name": "open", "file": "src/db.py"},
    {"semantic_id": "db.Pool", "type": "CLASS", "name": "Pool", "file": "src/db.py", "metadata": {"line": 1}},
    {"semantic_id": "web.NA", "type": "http:route", "name": "NA", "file": "src/web.py"},
]  # fmt: skip
EDGES: list[Row] = [
    {"source": "app.main", "target": "app.load", "type": "CALLS", "metadata": {"line": 4}},
    {"source": "app.load", "target": "db.open", "type": "CALLS"},
    {"source": "db.open", "target": "db.Pool", "type": "USES"},
    {"source": "web.NA", "target": "app.main", "type": "CALLS"},
]
DB_AFTER: list[Row] = [
    {"semantic_id": "db.open", "type": "FUNCTION", "name": "open", "file": "src/db.py", "metadata": {"line": 12}},
    {"semantic_id": "db.close", "type": "FUNCTION", "name": "close", "file": "src/db.py"},
]
"""What is in src/db.py later: the pool is gone, `open` has moved, `close` is new."""


def write(path: Path, rows: Sequence[Row]) -> Path:
    """Rows as a file of the format that its name asks for."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.name.endswith(".parquet"):
        pq.write_table(table(rows), path)
    elif ".csv" in path.name:
        with _opened(path) as stream:
            writer = csv.DictWriter(stream, table(rows).column_names)
            writer.writeheader()
            writer.writerows(table(rows).to_pylist())
    else:
        with _opened(path) as stream:
            stream.writelines(json.dumps(row) + "\n" for row in rows)
    return path


def table(rows: Sequence[Row]) -> pa.Table:
    """Rows as a table of text, with the columns that any of them has."""
    names = dict.fromkeys(name for row in rows for name in row)
    return pa.table({name: pa.array([_text(row.get(name)) for row in rows], pa.string()) for name in names})


def _text(value: object) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value)


def _opened(path: Path) -> Any:
    return gzip.open(path, "wt", newline="") if path.name.endswith(".gz") else path.open("w", newline="")


def make_code(holdfast: Program, folder: Path) -> Path:
    """Two versions with something in them: 2, tagged release=first, and 3, in which src/db.py was replaced."""
    place = folder / "graphs" / "code"
    nodes, edges = write(folder / "nodes.jsonl", NODES), write(folder / "edges.jsonl", EDGES)
    holdfast("graph", "build", place, "--nodes", nodes, "--edges", edges, "--tag", "release=first")
    holdfast("graph", "replace", place, "--nodes", write(folder / "db.jsonl", DB_AFTER))
    return place


def contents(place: Path) -> dict[str, list[dict[str, Any]]]:
    """Everything that is in the visible version."""
    graph = GraphStore.open(str(place)).snapshot()
    return {"nodes": graph.nodes().to_dicts(), "edges": graph.edges().to_dicts()}
