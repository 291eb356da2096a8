"""What else a code graph can be kept in: SQLite with indexes, igraph in memory; each used as its friends would use it.

igraph is in the extra `bench`; where it is not installed, it is left out.
"""

from __future__ import annotations

import importlib
import pickle
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from holdfast.graph.snapshot import GraphSnapshot
from holdfast.graph.store import GraphStore

__all__ = ["ENGINES", "Engine"]

DEPTH = 4


class Engine(Protocol):
    """One graph on a disk, with what the benchmarks ask of it."""

    def load(self, nodes: pa.Table, edges: pa.Table) -> None:
        """Store all of it, durably."""
        ...

    def reopen(self) -> None:
        """As a new process would, ready for any query."""
        ...

    def by_type(self, type_: str) -> int: ...

    def by_name(self, name: str) -> int: ...

    def neighbors(self, id_: str) -> Sequence[str]: ...

    def search(self, id_: str) -> int:
        """How many nodes are at most four edges away."""
        ...

    def replace_file(self, file: str, nodes: pa.Table, edges: pa.Table) -> None:
        """New contents for one file, durably."""
        ...

    def tag(self, name: str) -> None:
        """Give what is there now a name to come back to."""
        ...


class Holdfast:
    """This one, written by a process that stays and so holds the lock, as the owner of a database does."""

    def __init__(self, folder: Path) -> None:
        self._lock = ExitStack()
        self._holds_lock = False
        self._url = f"file://{folder / 'graph'}"
        self._store: GraphStore | None = None
        self._now: GraphSnapshot | None = None

    @property
    def store(self) -> GraphStore:
        self._store = self._store or GraphStore.open(self._url)
        return self._store

    @property
    def now(self) -> GraphSnapshot:
        self._now = self._now or self.store.snapshot()
        return self._now

    def load(self, nodes: pa.Table, edges: pa.Table) -> None:
        self._store = GraphStore.create(self._url)
        self._store.commit(nodes=nodes, edges=edges)

    def reopen(self) -> None:
        self._lock.close()
        self._holds_lock = False
        self._store, self._now = None, None
        arrays = self.now.arrays
        _ = arrays.index, arrays.incoming, arrays.nodes_of_file  # made when first asked for: ask now

    def by_type(self, type_: str) -> int:
        return len(self.now.nodes(type=type_))

    def by_name(self, name: str) -> int:
        return len(self.now.nodes(name=name))

    def neighbors(self, id_: str) -> Sequence[str]:
        return self.now.neighbors(id_)

    def search(self, id_: str) -> int:
        return len(self.now.breadth_first(id_, depth=DEPTH))

    def replace_file(self, file: str, nodes: pa.Table, edges: pa.Table) -> None:
        if not self._holds_lock:
            self._lock.enter_context(self.store.writing())
            self._holds_lock = True
        self.store.replace_files([file], nodes=nodes, edges=edges)

    def tag(self, name: str) -> None:
        self.store.tag_snapshot(None, {"name": name})


class Sqlite:
    """Two tables with the indexes that the queries need, in one file, written ahead, synced at every commit."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "graph.sqlite"
        self._db = self._connect()

    def _connect(self) -> sqlite3.Connection:
        db = sqlite3.connect(self._file)
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        db.execute(f"PRAGMA mmap_size = {1 << 34}")
        return db

    def load(self, nodes: pa.Table, edges: pa.Table) -> None:
        db = self._db
        with db:
            db.execute("CREATE TABLE nodes (id TEXT PRIMARY KEY, type TEXT, name TEXT, file TEXT, metadata TEXT)")
            db.execute("CREATE TABLE edges (source TEXT, target TEXT, type TEXT, PRIMARY KEY (source, type, target))")
            self._put(nodes, edges)
            for table, column in (("nodes", "type"), ("nodes", "name"), ("nodes", "file"), ("edges", "target")):
                db.execute(f"CREATE INDEX {table}_{column} ON {table} ({column})")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def _put(self, nodes: pa.Table, edges: pa.Table) -> None:
        self._db.executemany("INSERT INTO nodes VALUES (?, ?, ?, ?, ?)", _rows(nodes))
        self._db.executemany("INSERT OR IGNORE INTO edges VALUES (?, ?, ?)", _rows(edges))

    def reopen(self) -> None:
        self._db.close()
        self._db = self._connect()
        self.by_name("")

    def by_type(self, type_: str) -> int:
        return len(self._db.execute("SELECT * FROM nodes WHERE type = ?", (type_,)).fetchall())

    def by_name(self, name: str) -> int:
        return len(self._db.execute("SELECT * FROM nodes WHERE name = ?", (name,)).fetchall())

    def neighbors(self, id_: str) -> Sequence[str]:
        found = self._db.execute("SELECT DISTINCT target FROM edges WHERE source = ? ORDER BY target", (id_,))
        return [target for (target,) in found]

    def search(self, id_: str) -> int:
        walk = f"""WITH RECURSIVE near (id, depth) AS (
            VALUES (?, 0) UNION SELECT target, depth + 1 FROM near JOIN edges ON source = id WHERE depth < {DEPTH}
        ) SELECT nodes.id, type, name, file, min(depth) FROM near JOIN nodes ON nodes.id = near.id GROUP BY nodes.id"""
        return len(self._db.execute(walk, (id_,)).fetchall())

    def replace_file(self, file: str, nodes: pa.Table, edges: pa.Table) -> None:
        with self._db:
            self._db.execute("DELETE FROM edges WHERE source IN (SELECT id FROM nodes WHERE file = ?)", (file,))
            self._db.execute("DELETE FROM nodes WHERE file = ?", (file,))
            self._put(nodes, edges)

    def tag(self, name: str) -> None:
        """SQLite keeps one version: a copy of the file is the tag."""
        with sqlite3.connect(self._file.with_name(f"{name}.sqlite")) as copy:
            self._db.backup(copy)


class Igraph:
    """A graph in memory with an array of each attribute; pickled as a whole."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "graph.pickle"
        self._graph: Any = None
        self._numbers: dict[str, int] = {}

    def load(self, nodes: pa.Table, edges: pa.Table) -> None:
        igraph = importlib.import_module("igraph")  # in an extra
        self._numbers = {id_: number for number, id_ in enumerate(nodes.column("semantic_id").to_pylist())}
        unique = edges.group_by(["source", "target", "type"]).aggregate([])
        ends = [[self._numbers[id_] for id_ in unique.column(end).to_pylist()] for end in ("source", "target")]
        self._graph = igraph.Graph(len(nodes), list(zip(*ends, strict=True)), directed=True)
        for name in nodes.column_names:
            self._graph.vs[name] = nodes.column(name).to_pylist()
        self._graph.es["type"] = unique.column("type").to_pylist()
        self._save()

    def _save(self) -> None:
        with self._file.open("wb") as file:
            pickle.dump(self._graph, file, pickle.HIGHEST_PROTOCOL)

    def reopen(self) -> None:
        with self._file.open("rb") as file:
            self._graph = pickle.load(file)
        self._numbers = {id_: number for number, id_ in enumerate(self._graph.vs["semantic_id"])}

    def by_type(self, type_: str) -> int:
        return len([vertex.attributes() for vertex in self._graph.vs.select(type_eq=type_)])

    def by_name(self, name: str) -> int:
        return len([vertex.attributes() for vertex in self._graph.vs.select(name_eq=name)])

    def neighbors(self, id_: str) -> Sequence[str]:
        vertices = self._graph.vs
        return sorted({vertices[n]["semantic_id"] for n in self._graph.neighbors(self._numbers[id_], mode="out")})

    def search(self, id_: str) -> int:
        found = self._graph.neighborhood(self._numbers[id_], order=DEPTH, mode="out")
        return len([vertex.attributes() for vertex in self._graph.vs[found]])

    def replace_file(self, file: str, nodes: pa.Table, edges: pa.Table) -> None:
        """Attributes are set, and the whole is written again: there is no smaller way to keep it."""
        numbers = [self._numbers[id_] for id_ in nodes.column("semantic_id").to_pylist()]
        self._graph.vs[numbers]["metadata"] = nodes.column("metadata").to_pylist()
        self._save()

    def tag(self, name: str) -> None:
        self._file.with_name(f"{name}.pickle").write_bytes(self._file.read_bytes())


ENGINES: dict[str, Callable[[Path], Engine]] = {"Holdfast": Holdfast, "SQLite": Sqlite, "igraph": Igraph}


def _rows(table: pa.Table) -> Any:
    return zip(*(column.to_pylist() for column in table.columns), strict=True)
