"""Graphs for tests on Spark: as Arrow tables, as DataFrames, and what a store answers about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from holdfast.graph.records import EDGE_COLUMNS, NODE_COLUMNS
from holdfast.graph.store import GraphStore

Rows = Sequence[Mapping[str, str | None]]

ODD_TEXTS = [
    "a",
    "A",
    "a ",
    " a",
    "é",
    "e\u0301",
    "ß",
    "\U0001f600",
    "\uffff",
    "\x00",
    "a\x00",
    "'",
    '"',
    "a\nb",
    "->",
    "%2F",
    "\\",
]
"""Texts that something, somewhere, takes for each other, or puts in another order."""
ids = st.one_of(st.sampled_from(ODD_TEXTS), st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6))


def node(semantic_id: str, **more: str | None) -> dict[str, str | None]:
    return {
        "semantic_id": semantic_id,
        "type": "T",
        "name": "",
        "file": "",
        "content_hash": None,
        "metadata": None,
    } | more


def edge(source: str, target: str, kind: str = "CALLS", **more: str | None) -> dict[str, str | None]:
    return {"source": source, "target": target, "type": kind, "file": "", "metadata": None} | more


def table_of_nodes(rows: Rows) -> pa.Table:
    return pa.table({name: pa.array([row[name] for row in rows], pa.string()) for name in NODE_COLUMNS})


def table_of_edges(rows: Rows) -> pa.Table:
    return pa.table({name: pa.array([row[name] for row in rows], pa.string()) for name in EDGE_COLUMNS})


def frame(spark: SparkSession, table: pa.Table, partitions: int = 3) -> DataFrame:
    """Rows in several partitions, in no helpful order."""
    return spark.createDataFrame(table).repartition(partitions)


def nodes_frame(spark: SparkSession, rows: Rows) -> DataFrame:
    return frame(spark, table_of_nodes(rows))


def edges_frame(spark: SparkSession, rows: Rows) -> DataFrame:
    return frame(spark, table_of_edges(rows))


def contents(store: GraphStore, version: int | None = None) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Everything that queries see, read without Spark."""
    snapshot = store.snapshot(version)
    return _sorted(snapshot.nodes().table), _sorted(snapshot.edges().table)


def collected(nodes: DataFrame, edges: DataFrame) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The same from DataFrames."""
    return _sorted(nodes.toArrow()), _sorted(edges.toArrow())


def _sorted(table: pa.Table) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table.to_pylist()
    return sorted(rows, key=lambda row: [str(value) for value in row.values()])


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[dict[str, str | None]], list[dict[str, str | None]]]:
    """Nodes and edges, some twice just so, some edges without a file or to nowhere."""
    files = st.sampled_from(["", "a.py", "b.py", "é.py"])
    known = draw(st.lists(ids, min_size=1, max_size=25, unique=True))
    optional = st.sampled_from([None, "{}", '{"line":1}'])
    nodes = [
        node(one, type=draw(st.sampled_from(["F", "C", "http:get"])), file=draw(files), metadata=draw(optional))
        for one in known
    ]
    ends = st.sampled_from(known)
    keys = draw(st.lists(st.tuples(ends, ends, st.sampled_from(["CALLS", "USES"])), max_size=40, unique=True))
    edges = [edge(*key, file=draw(files), metadata=draw(optional)) for key in keys]
    nodes += draw(st.lists(st.sampled_from(nodes), max_size=3))
    if edges:
        edges += draw(st.lists(st.sampled_from(edges), max_size=3))
    if draw(st.integers(0, 4)) == 0:
        edges.append(edge(draw(ends), "nowhere at all"))
    if draw(st.integers(0, 4)) == 0:
        nodes.append({**draw(st.sampled_from(nodes)), "name": "another"})
    return nodes, edges
