"""Compressed rows hold exactly the edges they were built from, in one order, in both directions."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import BadInput
from holdfast.graph import adjacency as adjacency_module
from holdfast.graph.adjacency import NO_TYPE, NODES_MAX, Adjacency, Types, type_table
from tests.graph.small_graphs import Model, models, random_model, some_nodes, type_filters

TINY = Model(3, [(0, 1, 0), (1, 2, 1)])
NAMES: Any = ["CALLS"]
"""Not what the types allow: a caller without a type checker."""


def same_rows(one: Adjacency, other: Adjacency) -> bool:
    return all(
        np.array_equal(getattr(one, name), getattr(other, name)) for name in ("offsets", "targets", "types", "edges")
    )


@given(model=models(), types=type_filters, direction=st.sampled_from(["out", "in"]))
def test_each_node_has_its_own_edges_in_order_of_type_target_and_position(
    model: Model, types: list[int] | None, direction: str
) -> None:
    """G22: outgoing and incoming edges and neighbours, by type; an empty list of types means all."""
    adjacency = model.adjacency() if direction == "out" else model.adjacency().reversed()
    plain = model if direction == "out" else model.backwards()

    assert (adjacency.node_count, adjacency.edge_count) == (model.node_count, len(model.edges))
    for node in range(model.node_count):
        row = plain.row(node, types)
        assert adjacency.edges_of(node, types).tolist() == [position for _, _, position in row]
        assert adjacency.neighbors(node, types).tolist() == sorted({target for _, target, _ in row})
        assert adjacency.degree(node, types) == len(row)


@given(data=st.data(), model=models(), types=type_filters)
def test_expanding_many_nodes_is_expanding_each_of_them(
    data: st.DataObject, model: Model, types: list[int] | None
) -> None:
    frontier = data.draw(some_nodes(model))

    expansion = model.adjacency().expand(frontier, types)

    assert list(zip(*(column.tolist() for column in expansion), strict=True)) == [
        (node, target, position) for node in frontier for _, target, position in model.row(node, types)
    ]


@given(model=models())
def test_turning_around_twice_gives_the_same_rows(model: Model) -> None:
    adjacency = model.adjacency()
    assert same_rows(adjacency.reversed().reversed(), adjacency)
    assert adjacency.reversed().marks is adjacency.marks


@given(model=models())
def test_a_graph_too_large_for_two_passes_is_sorted_in_three(model: Model) -> None:
    with patch.object(adjacency_module, "_PACKED_BITS", 0):
        in_three = model.adjacency()
    assert same_rows(in_three, model.adjacency())


def test_the_order_of_rows_does_not_depend_on_the_width_of_the_numbers() -> None:
    model = random_model(3, 200, 2_000)
    columns = np.array(model.edges).T
    for kind in (np.int16, np.int32, np.uint32, np.int64, np.uint64):
        sources, targets, types = columns.astype(kind)
        assert same_rows(Adjacency.build(200, sources, targets, types), model.adjacency())


def test_a_row_longer_than_most_names_each_neighbour_once() -> None:
    """A hub takes another way through the code than a short row."""
    model = Model(300, [(0, (7 * number) % 300, number % 4) for number in range(1_000)])
    adjacency = model.adjacency()
    assert adjacency.neighbors(0).tolist() == list(range(300))
    assert adjacency.neighbors(0, [2]).tolist() == sorted({target for _, target, kind in model.edges if kind == 2})
    assert adjacency.neighbors(0, np.array([2], dtype=np.int16)).tolist() == adjacency.neighbors(0, [2]).tolist()


def test_a_type_that_no_edge_has_matches_nothing_while_no_types_match_all() -> None:
    """G22: an empty type list means all, everywhere; the name of an unknown type must not become one."""
    adjacency = TINY.adjacency()
    assert adjacency.neighbors(0, [NO_TYPE]).tolist() == []
    assert adjacency.neighbors(0, [9, NO_TYPE]).tolist() == []
    no_types: list[Types] = [None, [], (), np.empty(0, dtype=np.int16)]
    for everything in no_types:
        assert adjacency.neighbors(0, everything).tolist() == [1]
        assert type_table(everything) is None


def test_answers_cannot_be_used_to_change_the_rows() -> None:
    adjacency = TINY.adjacency()
    for answer in (adjacency.neighbors(0), adjacency.edges_of(0)):
        with pytest.raises(ValueError, match="read-only"):
            answer[0] = 2


def test_an_adjacency_travels_to_another_process() -> None:
    adjacency = random_model(5, 50, 200).adjacency()
    there = pickle.loads(pickle.dumps(adjacency))
    assert same_rows(there, adjacency)
    assert there.marks.node_count == 50


def test_stored_arrays_become_rows_again() -> None:
    adjacency = random_model(6, 50, 200).adjacency()
    again = Adjacency(adjacency.offsets, adjacency.targets, adjacency.types, adjacency.edges)
    assert same_rows(again, adjacency)
    assert again.marks.node_count == 50


def of(*columns: list[int] | list[float], nodes: int = 3) -> Adjacency:
    sources, targets, types = (np.array(column) for column in columns)
    return Adjacency.build(nodes, sources, targets, types)


def stored(offsets: npt.NDArray[np.int64]) -> Adjacency:
    """Rows of no edges, whatever the offsets say."""
    targets, types, edges = np.empty(0, dtype=np.int32), np.empty(0, dtype=np.int16), np.empty(0, dtype=np.int64)
    return Adjacency(offsets, targets, types, edges)


@pytest.mark.parametrize(
    "call, said",
    [
        (lambda: of([0, 3], [1, 1], [0, 0]), "edge 1 has the source 3: it must be from 0 to 2"),
        (lambda: of([0, 1], [1, -1], [0, 0]), "edge 1 has the target -1"),
        (lambda: of([0], [1], [NO_TYPE]), "edge 0 has the type 32767"),
        (lambda: of([0], [0], [0], nodes=0), "the graph has no nodes"),
        (lambda: of([0, 1], [1], [0]), "2 sources, 1 targets and 1 types"),
        (lambda: of([0.5], [1], [0]), "sources of edges must be a plain array of whole numbers"),
        (lambda: of([], [], [], nodes=-1), "not -1"),
        (lambda: of([], [], [], nodes=NODES_MAX + 1), "a graph holds 0 to"),
        (lambda: TINY.adjacency().neighbors(3), "there is no node 3: this graph has nodes 0 to 2"),
        (lambda: TINY.adjacency().edges_of(-1), "there is no node -1"),
        (lambda: TINY.adjacency().degree(3), "there is no node 3"),
        (lambda: TINY.adjacency().expand([0, 3]), "there is no node 3"),
        (lambda: TINY.adjacency().expand([-1, 0]), "there is no node -1"),
        (lambda: TINY.adjacency().expand(np.array([0.5])), "whole numbers"),
        (lambda: Model(0, []).adjacency().neighbors(0), "this graph has no nodes"),
        (lambda: TINY.adjacency().neighbors(0, [-1]), "an edge type is a number from 0 to 32767"),
        (lambda: TINY.adjacency().neighbors(0, [1 << 15]), "an edge type is a number from 0 to 32767"),
        (lambda: TINY.adjacency().neighbors(0, NAMES), "edge types are a list of whole numbers"),
        (lambda: stored(np.empty(0, dtype=np.int64)), "give at least"),
        (lambda: stored(np.array([0, 1])), "differ in length: build it again"),
    ],
)
def test_what_cannot_be_right_is_refused_by_name(call: Callable[[], object], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        call()


def test_a_graph_without_nodes_and_one_without_edges_are_graphs() -> None:
    assert Model(0, []).adjacency().expand([]).targets.tolist() == []
    alone = Model(2, []).adjacency()
    assert alone.neighbors(1).tolist() == []
    assert alone.reversed().degree(0) == 0
