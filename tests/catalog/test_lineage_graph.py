"""Walking a lineage by numbers gives what walking it edge by edge does."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.catalog.lineage_graph import EDGE_SCHEMA, LineageGraph
from holdfast.errors import BadInput

NAMES = st.sampled_from(["a", "b", "c", "d"])
COLUMNS = st.sampled_from(["", "", "x", "y"])
SNAPSHOTS = st.sampled_from(["", "", "1", "2"])
EDGES = st.lists(
    st.fixed_dictionaries(
        {
            "source": NAMES, "target": NAMES, "source_column": COLUMNS, "target_column": COLUMNS,
            "source_snapshot": SNAPSHOTS, "target_snapshot": SNAPSHOTS, "kind": st.just("k"), "run_id": st.just(""),
        }
    ),
    max_size=12,
    unique_by=lambda edge: tuple(edge.values()),
)  # fmt: skip
Edge = dict[str, Any]


def plainly(
    edges: list[Edge], name: str, end: str, *, column: str | None, columns: bool, indirect: bool,
    snapshot: str | None, depth: int | None,
) -> list[tuple[int, Edge]]:  # fmt: skip
    """By the rules, one edge after the other."""
    other = "source" if end == "target" else "target"
    by_column = columns or column is not None

    def is_whole(edge: Edge) -> bool:
        return (edge["source_column"], edge["target_column"]) == ("", "")

    def ends(edge: Edge) -> tuple[str, ...]:
        return tuple(edge[one] for one in ("source", "target", "source_snapshot", "target_snapshot"))

    def counts(edge: Edge) -> bool:
        if by_column:
            return edge["source_column"] != "" and (indirect or edge["target_column"] != "")
        return is_whole(edge) or ends(edge) not in {ends(one) for one in edges if is_whole(one)}

    def begins(edge: Edge) -> bool:
        about_rows = end == "target" and edge["target_column"] == ""
        fits = column is None or edge[f"{end}_column"] == column or about_rows
        return edge[end] == name and fits and (snapshot is None or edge[f"{end}_snapshot"] == snapshot)

    def follows(edge: Edge, before: Edge) -> bool:
        if edge[end] != before[other]:
            return False
        if by_column and end == "target" and edge["target_column"] == "":
            return True
        if by_column and edge[f"{end}_column"] != before[f"{other}_column"]:
            return False
        here, there = edge[f"{end}_snapshot"], before[f"{other}_snapshot"]
        return here == there or "" in (here, there)

    left = [edge for edge in edges if counts(edge)]
    met = [edge for edge in left if begins(edge)]
    found, level = [], 1
    while met and (depth is None or level <= depth):
        found += [(level, edge) for edge in met]
        left = [edge for edge in left if edge not in met]
        met = [edge for edge in left if any(follows(edge, before) for before in met)]
        level += 1
    return sorted(found, key=lambda one: (one[0], *(one[1][key] for key in EDGE_SCHEMA.names)))


@settings(max_examples=400)
@given(
    EDGES, NAMES, st.sampled_from(["source", "target"]), st.none() | st.sampled_from(["x", "z"]), st.booleans(),
    st.booleans(), st.none() | st.sampled_from(["1", "3"]), st.none() | st.integers(1, 3),
)  # fmt: skip
def test_a_walk_finds_what_the_rules_say(
    edges: list[Edge], name: str, end: str, column: str | None, columns: bool, indirect: bool, snapshot: str | None,
    depth: int | None,
) -> None:  # fmt: skip
    """C28: any depth, either way, by table and by column, at a snapshot."""
    asked: dict[str, Any] = {
        "column": column, "columns": columns, "indirect": indirect, "snapshot": snapshot, "depth": depth
    }  # fmt: skip
    graph = LineageGraph(pa.Table.from_pylist(edges, schema=EDGE_SCHEMA))
    found = graph.walk(name, end, **asked).to_pylist()
    expected = [{"depth": level, **edge} for level, edge in plainly(edges, name, end, **asked)]
    assert found == expected
    assert graph.walk(name, end, **asked).to_pylist() == found, "asked again, the same"


def test_what_cannot_be_asked_is_refused_and_what_nobody_knows_leads_nowhere() -> None:
    graph = LineageGraph(EDGE_SCHEMA.empty_table())
    assert len(graph.walk("a", "target", depth=None)) == 0
    with pytest.raises(BadInput, match="source or a target"):
        graph.walk("a", "middle")
    with pytest.raises(BadInput, match="leads nowhere"):
        graph.walk("a", "target", depth=0)
