"""The code graph of Python's own standard library: built on Spark, asked, changed, compared, taken back.

    python examples/code_graph.py                               # the whole library
    python examples/code_graph.py --packages json email         # some packages of it; these two always
    python examples/code_graph.py --files 100 --directory ./g   # the first files only, in a place of your choice

Nodes are modules, classes, functions and methods; edges say CONTAINS, CALLS and IMPORTS_FROM. Each file is parsed by
Python's `ast` in a Spark task, which gives facts: what is defined, imported and called there. What names mean is found
out for all files at once, by joins. What it makes is left behind, to try things on.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import os
import shlex
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its usual name
from pyspark.sql.pandas.types import from_arrow_schema

from holdfast.cli.main import main as holdfast
from holdfast.errors import BadRows
from holdfast.graph.store import GraphStore
from holdfast.spark import local_spark
from holdfast.spark.graph import publish_graph

FACTS = pa.schema(
    [
        ("kind", pa.string()),  # definition, import, call, or unreadable
        ("file", pa.string()),
        ("module", pa.string()),
        ("source", pa.string()),  # the id of what is defined, or of what imports or calls
        ("parent", pa.string()),  # definition: the id of what it is in
        ("type", pa.string()),
        ("name", pa.string()),  # definition: its name in the module; import: the name that it binds
        ("target", pa.string()),  # import: the module
        ("member", pa.string()),  # import: what is taken out of it
        ("candidates", pa.list_(pa.string())),  # call: what may be meant, the likeliest first
        ("times", pa.int32()),
        ("line", pa.int32()),
        ("end_line", pa.int32()),
        ("content_hash", pa.string()),
    ]
)
LEFT_OUT = {"__pycache__", "site-packages", "dist-packages", "test", "tests", "idle_test"}
RENAMED = ("email/utils.py", "parsedate_to_datetime", "parse_date")
ADDED = ("json/tool.py", "\n\ndef count_keys(text):\n    return len(json.loads(text))\n")
STORY = {"email", "json"}  # always there: the story is about them
OLD_ID = "email.utils:parsedate_to_datetime"


# -- from one file to facts -------------------------------------------------------------------------------------------


class FactsOfFile(ast.NodeVisitor):
    """What one module defines, imports and calls. A name that is defined twice is one definition: the first."""

    def __init__(self, file: str, source: bytes) -> None:
        self.file = file
        parts = file.removesuffix(".py").split("/")
        self.package = parts[:-1]
        self.module = ".".join(self.package if parts[-1] == "__init__" else parts)
        self.lines = source.splitlines()
        self.rows: list[dict[str, Any]] = []
        self._scope: list[tuple[str, bool]] = []  # names around, and whether each is a class
        self._seen: set[str] = set()
        self._bound: dict[str, tuple[str, str | None]] = {}  # what imported names stand for: module and member
        self._calls: dict[tuple[str, str], list[int]] = {}  # lines, by caller and what is called

    def here(self) -> str:
        """The id of the definition that is being visited."""
        return f"{self.module}:{'.'.join(name for name, _ in self._scope)}" if self._scope else self.module

    def fact(self, kind: str, line: int, **fields: object) -> None:
        place = {"kind": kind, "file": self.file, "module": self.module, "source": self.here(), "line": line}
        self.rows.append({**place, **fields})

    def define(self, kind: str, parent: str | None, line: int, end_line: int) -> None:
        """One node, unless the name is taken already."""
        if self.here() not in self._seen:
            self._seen.add(self.here())
            digest = hashlib.sha256(b"\n".join(self.lines[line - 1 : end_line])).hexdigest()[:16]
            name = ".".join(name for name, _ in self._scope)
            self.fact("definition", line, parent=parent, type=kind, name=name, end_line=end_line, content_hash=digest)

    def visit_Module(self, node: ast.Module) -> None:
        self.define("MODULE", None, 1, max(1, len(self.lines)))
        self.generic_visit(node)
        for (source, name), lines in self._calls.items():
            candidates = self._candidates(source, name)
            self.fact("call", min(lines), source=source, candidates=candidates, times=len(lines))

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._inside(node, "CLASS", is_class=True)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._inside(node, "METHOD" if self._scope and self._scope[-1][1] else "FUNCTION", is_class=False)

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815 - ast's name

    def _inside(
        self, node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef, kind: str, *, is_class: bool
    ) -> None:
        parent = self.here()
        self._scope.append((node.name, is_class))
        self.define(kind, parent, node.lineno, node.end_lineno or node.lineno)
        self.generic_visit(node)
        self._scope.pop()

    def visit_Import(self, node: ast.Import) -> None:
        for one in node.names:
            bound = one.name if one.asname else one.name.partition(".")[0]
            self._bound[one.asname or bound] = (bound, None)
            self.fact("import", node.lineno, source=self.module, target=one.name)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        above = self.package[: len(self.package) - node.level + 1] if node.level else []
        target = ".".join([*above, *([node.module] if node.module else [])])
        for one in node.names:
            name = one.asname or one.name
            self._bound[name] = (target, one.name)
            self.fact("import", node.lineno, source=self.module, target=target, member=one.name, name=name)

    def visit_Call(self, node: ast.Call) -> None:
        name = _dotted(node.func)
        classes = [index for index, (_, is_class) in enumerate(self._scope) if is_class]
        if name is not None and classes and name.partition(".")[0] in {"self", "cls"}:
            name = ".".join([*(one for one, _ in self._scope[: classes[-1] + 1]), *name.split(".")[1:]])
        if name is not None:
            self._calls.setdefault((self.here(), name), []).append(node.lineno)
        self.generic_visit(node)

    def _candidates(self, source: str, name: str) -> list[str]:
        """What a called name may be, as `module:name`: inside the caller, in this module, or by way of an import."""
        head, *rest = name.split(".")
        found = [f"{source}.{name}"] if ":" in source else []
        if head not in self._bound:
            return [*found, f"{self.module}:{name}"]
        module, member = self._bound[head]
        if member is not None:
            found.append(f"{module}:{'.'.join([member, *rest])}")
            module = f"{module}.{member}"
        return [*found, *([f"{'.'.join([module, *rest[:-1]])}:{rest[-1]}"] if rest else [])]


def _dotted(node: ast.expr) -> str | None:
    """`a.b.c`, or None for what is called by no name."""
    if isinstance(node, ast.Attribute):
        before = _dotted(node.value)
        return None if before is None else f"{before}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else None


def facts_of(file: str, source: bytes) -> list[dict[str, Any]]:
    reader = FactsOfFile(file, source)
    try:
        reader.visit(ast.parse(source))
    except (SyntaxError, ValueError):
        return [{"kind": "unreadable", "file": file, "module": reader.module}]
    return reader.rows


def parse_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What a Spark task does: names of files in, facts out."""
    for batch in batches:
        for file, path in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True):
            yield pa.RecordBatch.from_pylist(facts_of(file, Path(path).read_bytes()), schema=FACTS)


def parse(spark: SparkSession, checkout: Path, files: Sequence[str], table: Path) -> DataFrame:
    """The facts of some files, as a table, so that each is parsed once.

    Tasks open the files: Spark's own readers overlook those whose names begin with `_`, such as `__init__.py`.
    """
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call] # tasks have no examples
    listed = spark.createDataFrame(pa.table({"file": files, "path": [str(checkout / one) for one in files]}))
    parsed = listed.repartition(min(4, len(files))).mapInArrow(parse_batches, from_arrow_schema(FACTS))
    parsed.write.parquet(f"file://{table}")
    return spark.read.parquet(f"file://{table}")


# -- from facts to a graph --------------------------------------------------------------------------------------------


def nodes_of(facts: DataFrame) -> DataFrame:
    return facts.sparkSession.sql(
        """
        SELECT source AS semantic_id, type, element_at(split(source, '[.:]'), -1) AS name, file, content_hash,
               to_json(named_struct('line', line, 'end_line', end_line)) AS metadata
        FROM {facts} WHERE kind = 'definition'
        """,
        facts=facts,
    )


def edges_of(facts: DataFrame) -> DataFrame:
    """CONTAINS is a fact. Who is imported and called is found out by joining names with what they stand for."""
    sql = facts.sparkSession.sql
    return sql(
        """
        SELECT parent AS source, source AS target, 'CONTAINS' AS type, file, NULL AS metadata
        FROM {facts} WHERE kind = 'definition' AND parent IS NOT NULL
        UNION ALL
        SELECT i.source, d.source, 'IMPORTS_FROM', i.file, to_json(named_struct('line', min(i.line)))
        FROM (SELECT source, file, line, explode(array(target, concat(target, '.', member))) AS target
              FROM {facts} WHERE kind = 'import') i
        JOIN {facts} d ON d.source = i.target AND d.type = 'MODULE'
        GROUP BY i.source, d.source, i.file
        UNION ALL
        SELECT source, target, 'CALLS', file, to_json(named_struct('line', min(line), 'times', sum(times)))
        FROM (SELECT c.source, c.file, c.line, c.times, c.candidates, min_by(n.id, place) AS target
              FROM (SELECT *, posexplode(candidates) AS (place, candidate) FROM {facts} WHERE kind = 'call') c
              JOIN {names} n ON concat(n.module, ':', n.name) = c.candidate AND contains(n.id, ':')
              GROUP BY c.source, c.file, c.line, c.times, c.candidates)
        GROUP BY source, target, file
        """,
        facts=facts,
        names=names_of(facts),
    )


def names_of(facts: DataFrame) -> DataFrame:
    """(module, name, id): what each name of a module stands for. Its own definitions come first, then its submodules,
    then what it imports, also from modules that have imported it themselves."""
    sql = facts.sparkSession.sql
    names = sql(
        """
        SELECT module, name, source AS id, 0 AS rank FROM {facts} WHERE kind = 'definition' AND type <> 'MODULE'
        UNION ALL
        SELECT regexp_replace(source, '[.]?[^.]*$', ''), element_at(split(source, '[.]'), -1), source, 1
        FROM {facts} WHERE type = 'MODULE'
        """,
        facts=facts,
    )
    for rank in (2, 3):
        names = sql(
            """
            SELECT module, name, min_by(id, struct(rank, id)) AS id, min(rank) AS rank FROM (
                SELECT module, name, id, rank FROM {names}
                UNION ALL
                SELECT i.module, if(i.member = '*', n.name, i.name), n.id, {rank}
                FROM {facts} i JOIN {names} n ON n.module = i.target
                WHERE i.kind = 'import' AND (n.name = i.member OR (i.member = '*' AND n.name RLIKE '^[a-zA-Z][^.]*$')))
            GROUP BY module, name
            """,
            facts=facts, names=names, rank=rank,
        ).cache()  # fmt: skip
    return names


# -- the sources ------------------------------------------------------------------------------------------------------


def copy_sources(checkout: Path, packages: Sequence[str], files_max: int | None) -> list[str]:
    """A copy of the library, to change: the files in it, by name."""
    root = Path(sysconfig.get_paths()["stdlib"])
    found = []
    for folder, inside, names in os.walk(root):
        inside[:] = [name for name in inside if name not in LEFT_OUT]
        found += [(Path(folder) / name).relative_to(root).as_posix() for name in names if name.endswith(".py")]
    chosen = [one for one in sorted(found) if not packages or _package(one) in packages][:files_max]
    chosen = sorted({*chosen, *(one for one in found if _package(one) in STORY)})
    for file in chosen:
        (checkout / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(root / file, checkout / file)
    return chosen


def _package(file: str) -> str:
    return file.removesuffix(".py").partition("/")[0]


def change_sources(checkout: Path) -> list[str]:
    """A function gets another name, and another file a new function."""
    file, old, new = RENAMED
    path = checkout / file
    path.write_text(path.read_text(encoding="utf-8").replace(f"def {old}(", f"def {new}("), encoding="utf-8")
    with (checkout / ADDED[0]).open("a", encoding="utf-8") as stream:
        stream.write(ADDED[1])
    return [file, ADDED[0]]


# -- the story --------------------------------------------------------------------------------------------------------


def note(text: str) -> None:
    print(f"    {text}", flush=True)


def question(text: str) -> None:
    print(f"\n    {text}", flush=True)


def command(*words: str, expected: int = 0) -> None:
    """Run the real program and show what was typed."""
    print(f"\n$ {shlex.join(['holdfast', *words])}", flush=True)
    code = holdfast(words)
    if code != expected:
        sys.exit(f"the example expected exit code {expected}, not {code}")


def build(spark: SparkSession, folder: Path, files: Sequence[str], place: str) -> DataFrame:
    """The main job: sources become facts, facts become two DataFrames, and those a version of the graph."""
    facts = parse(spark, folder / "sources", files, folder / "facts" / "all")
    seen = {row["kind"]: row["count"] for row in facts.groupBy("kind").count().collect()}
    note(
        f"{len(files):,} files: {seen['definition']:,} definitions, {seen['import']:,} imports, {seen['call']:,} calls"
    )
    if seen.get("unreadable"):
        note(f"{seen['unreadable']:,} files could not be parsed and are left out")
    publish_graph(nodes_of(facts), edges_of(facts), place, tags={"python": "as it came"}, why="first build")
    graph = GraphStore.open(place).direct()
    kinds = [f"{number:,} {name}" for kind in ("nodes", "edges") for name, number in graph.count_by_type(kind).items()]
    note(f"version {graph.version} is visible: {graph.node_count:,} nodes, {graph.edge_count:,} edges")
    note(", ".join(kinds))
    return facts


def ask(place: str) -> None:
    """What one wants to know before touching a function."""
    command("graph", "nodes", place, OLD_ID)
    question("Who calls it?")
    command("graph", "neighbors", place, OLD_ID, "--direction", "in", "--type", "CALLS")
    question("Which files depend on the one it is in, and which on json's decoder?")
    command("graph", "dependents", place, RENAMED[0], "--limit", "10")
    command("graph", "dependents", place, "json/decoder.py", "--type", "IMPORTS_FROM", "--limit", "10")
    question("How does one get from a function of email to the end of its parser?")
    command("graph", "path", place, "email:message_from_file", "email.feedparser:FeedParser.close")


def change(spark: SparkSession, folder: Path, place: str, facts: DataFrame) -> None:
    """Only what changed is parsed again; only that, and the files that have an edge into it, is replaced."""
    changed = change_sources(folder / "sources")
    note(f"{RENAMED[0]}: {RENAMED[1]} is now {RENAMED[2]}; {ADDED[0]}: a new function count_keys")
    again = parse(spark, folder / "sources", changed, folder / "facts" / "changed")
    facts = facts.where(~F.col("file").isin(changed)).unionByName(again)
    nodes, edges = nodes_of(facts), edges_of(facts).cache()
    store = GraphStore.open(place)

    def replace(files: Sequence[str]) -> None:
        chosen = F.col("file").isin(list(files))
        result = store.replace_files(
            files, nodes=nodes.where(chosen).toArrow(), edges=edges.where(chosen).toArrow(), why="renamed a function"
        )
        touched = sorted({file for _, file, _ in result.changes.report})
        note(f"version {result.version} is visible; records changed in {', '.join(touched)}")

    try:
        replace(changed)
    except BadRows as error:
        note(f"refused: {error}")
        callers = store.direct().dependents(changed)
        note(f"so the {len(callers)} files that depend on them are looked at again too")
        replace(sorted({*changed, *callers}))


def look_back(place: str) -> None:
    """Every version answers: by number, by tag, by time."""
    command("graph", "nodes", place, OLD_ID, expected=3)
    command("graph", "neighbors", place, OLD_ID, "--direction", "in", "--type", "CALLS", "--tag", "python=as it came")


def roll_back(place: str) -> None:
    store = GraphStore.open(place)
    bad = store.current()
    store.tag_snapshot(bad, {"review": "rejected"})
    moved = store.chain.rollback(why="callers were forgotten")
    note(f"version {bad} is tagged review=rejected, and readers see version {moved.current.manifest_id} again")
    note(f"{OLD_ID} is back: line {store.direct().node(OLD_ID).metadata['line']}")
    note(f"nothing is broken: {store.chain.verify() == []}")


def code_graph(spark: SparkSession, folder: Path, *, packages: Sequence[str] = (), files_max: int | None = None) -> str:
    """The whole story in `folder`, which may be empty or not exist; gives the place of the graph."""
    folder = folder.resolve()
    place = str(folder / "graphs" / "python")
    print("\nBuild the graph on Spark from the source files.", flush=True)
    facts = build(spark, folder, copy_sources(folder / "sources", packages, files_max), place)
    print("\nAsk it: no Spark, no JVM, straight from the files.", flush=True)
    ask(place)
    print("\nChange two files and commit only what that changes.", flush=True)
    change(spark, folder, place, facts)
    print("\nWhat is different now?", flush=True)
    command("graph", "diff", place, "@1", "@0")
    print("\nAsk the new version, and the old one.", flush=True)
    look_back(place)
    print("\nThat was not a good idea: roll back.", flush=True)
    roll_back(place)
    return place


@contextmanager
def silent_children() -> Iterator[None]:
    """Programs started meanwhile write their messages to nowhere: the JVM's first words are about itself."""
    sys.stderr.flush()
    kept = os.dup(2)
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--directory", type=Path, help="where to put it; a new temporary directory if not given")
    parser.add_argument("--packages", nargs="+", default=[], metavar="NAME", help="only these, beside email and json")
    parser.add_argument("--files", type=int, metavar="N", help="only so many files, beside those of email and json")
    chosen = parser.parse_args(arguments)
    folder: Path = chosen.directory or Path(tempfile.mkdtemp(prefix="holdfast-code-graph-"))
    if folder.exists() and any(folder.iterdir()):
        sys.exit(f"{folder} is not empty: choose another directory")
    with silent_children():
        spark = local_spark(settings={"spark.sql.shuffle.partitions": "4"})
    try:
        place = code_graph(spark, folder, packages=chosen.packages, files_max=chosen.files)
    finally:
        spark.stop()
    print("\nIt is all left in place. Try:\n")
    for words in (
        ("info",),
        ("nodes", "--type", "CLASS"),
        ("reach", "json:loads", "--depth", "3"),
        ("compact", "--all"),
    ):
        print(f"  {shlex.join(['holdfast', 'graph', words[0], place, *words[1:]])}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
