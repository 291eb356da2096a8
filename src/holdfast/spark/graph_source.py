"""Two DataFrames brought to the columns of a graph, and what is wrong with their rows (G6, G23, G25). All in the JVM.

1. Columns and types are looked at before any job; rows are counted and checked in one pass over each DataFrame.
2. Both are cached meanwhile: counting, joining, choosing ranges and writing read the caller's source once.
3. What only neighbours in the order of keys can show, the same key twice, is found where segments are written.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from holdfast.errors import BadInput, BadRows
from holdfast.graph.records import EDGE_COLUMNS, edge_schema, node_schema
from holdfast.graph.segment import SegmentKind
from holdfast.spark.failures import SPARK_ERRORS, failure_of_job
from holdfast.spark.source import check_frame

__all__ = ["KEY_COLUMNS", "GraphRows", "GraphSource", "spark_failures"]

KEY_COLUMNS: dict[SegmentKind, tuple[str, ...]] = {"nodes": ("semantic_id",), "edges": ("source", "type", "target")}
"""What records are known by, in the order in which segments are sorted."""
_REQUIRED: dict[SegmentKind, tuple[str, ...]] = {
    "nodes": ("semantic_id", "type"),
    "edges": ("source", "target", "type"),
}
_TEXT = frozenset({"string", "varchar", "char", "void"})
_SAMPLES_MAX = 5


@contextmanager
def spark_failures() -> Iterator[None]:
    """Whatever Spark says about a failed job becomes one line."""
    try:
        yield
    except SPARK_ERRORS as error:
        raise failure_of_job(error) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphSource:
    """Nodes and edges in the columns that are stored, not looked at yet."""

    nodes: DataFrame
    edges: DataFrame

    @classmethod
    def of(cls, nodes: DataFrame, edges: DataFrame) -> GraphSource:
        """BadInput if the columns do not fit. Runs no job."""
        return cls(nodes=_canonical(nodes, "nodes"), edges=_canonical(edges, "edges"))

    @contextmanager
    def counted(self) -> Iterator[GraphRows]:
        """The rows, cached for as long as the block runs, and checked one by one. BadRows names what is wrong."""
        with ExitStack() as caches:
            nodes = self.nodes.persist(StorageLevel.MEMORY_AND_DISK)
            caches.callback(nodes.unpersist)
            edges = self.edges.persist(StorageLevel.MEMORY_AND_DISK)
            caches.callback(edges.unpersist)
            node_count, _ = _checked(nodes, "nodes")
            edge_count, without_file = _checked(edges, "edges")
            yield GraphRows(
                nodes=nodes, edges=edges, node_count=node_count, edge_count=edge_count, without_file=without_file
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphRows:
    """Nodes and edges that were counted."""

    nodes: DataFrame
    edges: DataFrame
    node_count: int
    edge_count: int
    without_file: int
    """Edges that do not say which file they belong to."""

    def check_ends(self) -> None:
        """BadRows if an edge has an end that is no node."""
        if not self.edge_count:
            return
        ends = self.edges.selectExpr("source AS id").union(self.edges.selectExpr("target AS id")).distinct()
        nowhere = ends.join(self.nodes.selectExpr("semantic_id AS id"), "id", "left_anti")
        with spark_failures():
            if nowhere.isEmpty():
                return
            dangling = self._touching(nowhere)
            count = dangling.count()
            samples = dangling.orderBy(*KEY_COLUMNS["edges"]).limit(_SAMPLES_MAX).collect()
        names = ", ".join(f"{row.source!r} -{row.type}-> {row.target!r}" for row in samples)
        raise BadRows(
            f"nothing was published: {count:,} edges have an end that is not there: {names}; "
            "add the nodes, leave out the edges, or keep them with dangling='keep'"
        )

    def _touching(self, ids: DataFrame) -> DataFrame:
        """The keys of edges that have one of these ends, each once."""
        keys = KEY_COLUMNS["edges"]
        sides = [
            self.edges.selectExpr(f"{end} AS id", *keys).join(ids, "id", "left_semi").select(*keys)
            for end in ("source", "target")
        ]
        return sides[0].union(sides[1]).distinct()

    def filed_edges(self) -> DataFrame:
        """Edges, each with a file: its own, or its source's."""
        if not self.without_file:
            return self.edges
        # A node that is there twice, just so, is one: its edges must not become more by it.
        owners = self.nodes.selectExpr("semantic_id AS source", "file AS owner").dropDuplicates(["source"])
        found = (
            self.edges.where("file = ''")
            .join(owners, "source", "left")
            .selectExpr("source", "target", "type", "coalesce(owner, '') AS file", "metadata")
        )
        if self.without_file == self.edge_count:
            return found
        return self.edges.where("file <> ''").select(*EDGE_COLUMNS).union(found)


def _canonical(df: DataFrame, kind: SegmentKind) -> DataFrame:
    """The columns of a segment, in their order, as plain text: no collation decides what is the same id."""
    check_frame(df)
    found: StructType = df.schema
    schema = node_schema() if kind == "nodes" else edge_schema()
    at: dict[str, str] = {}
    for index, column in enumerate(found):
        if column.name not in schema.names:
            raise BadInput(f"{kind} have no column {column.name!r}; the columns are {', '.join(schema.names)}")
        if column.name in at:
            raise BadInput(f"{kind} have two columns {column.name!r}; leave one out")
        if column.dataType.typeName() not in _TEXT:
            raise BadInput(
                f"column {column.name!r} of {kind} should be text, not {column.dataType.simpleString()}: "
                f"{_advice(column.name, column.dataType.typeName())}"
            )
        at[column.name] = f"c{index}"
    columns = []
    for wanted in schema:
        if wanted.name not in at and wanted.name in _REQUIRED[kind]:
            raise BadInput(f"{kind} need a column {wanted.name!r}; there are {', '.join(at) or 'none'}")
        text = f"CAST({at.get(wanted.name, 'NULL')} AS STRING)"
        filled = text if wanted.nullable or wanted.name in _REQUIRED[kind] else f"coalesce({text}, '')"
        columns.append(f"{filled} AS {wanted.name}")
    return df.toDF(*at.values()).selectExpr(*columns)


def _advice(name: str, kind: str) -> str:
    if kind in {"struct", "map", "array", "variant"}:
        return f"to_json({name}) makes it so"
    return f"cast({name} AS STRING) makes it so"


def _checked(frame: DataFrame, kind: SegmentKind) -> tuple[int, int]:
    """How many rows there are, and how many without a file. BadRows for those that can be no record."""
    names = (node_schema() if kind == "nodes" else edge_schema()).names
    problems = {
        **{f"have no {name!r}": f"{name} IS NULL" for name in _REQUIRED[kind]},
        **{f"have an empty {name!r}": f"{name} = ''" for name in _REQUIRED[kind]},
        **{f"have a {name!r} that is no UTF-8": f"NOT is_valid_utf8({name})" for name in names},
    }
    counts = [f"count_if({sql}) AS p{index}" for index, sql in enumerate(problems.values())]
    with spark_failures():
        found = frame.selectExpr("count(*) AS total", "count_if(file = '') AS unfiled", *counts).collect()[0]
    for index, problem in enumerate(problems):
        if found[f"p{index}"]:
            raise BadRows(f"nothing was published: {found[f'p{index}']:,} {kind} {problem}; fix or leave them out")
    return found.total, found.unfiled
