"""Walks find what a plain search over a list of edges finds, in the same order, however they keep track."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from threading import Barrier

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import BadInput
from holdfast.graph.adjacency import NO_TYPE, Adjacency
from holdfast.graph.traverse import Visit, breadth_first, depth_first, reachable, shortest_path
from holdfast.graph.visited import Seen, VisitedMarks
from tests.graph.small_graphs import (
    Model,
    Visited,
    depth_limits,
    models,
    random_model,
    set_sizes,
    sets_up_to,
    some_nodes,
    type_filters,
)

DIAMOND = Model(5, [(0, 1, 0), (0, 2, 0), (1, 3, 0), (2, 3, 0), (3, 0, 0), (3, 3, 0), (1, 3, 0)])
"""Two ways from 0 to 3, one of them twice; a cycle, an edge to itself, and 4 alone."""


def listed(visit: Visit) -> Visited:
    columns = (visit.nodes, visit.depths, visit.parents, visit.edges)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def both_ways(model: Model) -> list[tuple[Model, Adjacency]]:
    adjacency = model.adjacency()
    return [(model, adjacency), (model.backwards(), adjacency.reversed())]


@given(data=st.data(), model=models(), depth_max=depth_limits, types=type_filters, size=set_sizes)
def test_breadth_first_goes_level_by_level_in_row_order(
    data: st.DataObject, model: Model, depth_max: int | None, types: list[int] | None, size: int
) -> None:
    """G22: breadth-first search with depth limit and edge types, both ways."""
    starts = data.draw(some_nodes(model))
    for plain, adjacency in both_ways(model):
        with sets_up_to(size):
            visit = breadth_first(adjacency, starts, depth_max=depth_max, types=types)
        assert listed(visit) == plain.breadth_first(starts, depth_max, types)
        assert len(visit) == len(visit.nodes)


@given(data=st.data(), model=models(), depth_max=depth_limits, types=type_filters, size=set_sizes)
def test_depth_first_follows_each_branch_to_its_end_before_the_next(
    data: st.DataObject, model: Model, depth_max: int | None, types: list[int] | None, size: int
) -> None:
    """G22: depth-first search with depth limit and edge types, both ways."""
    starts = data.draw(some_nodes(model))
    for plain, adjacency in both_ways(model):
        with sets_up_to(size):
            visit = depth_first(adjacency, starts, depth_max=depth_max, types=types)
        assert listed(visit) == plain.depth_first(starts, depth_max, types)


@given(data=st.data(), model=models(), depth_max=depth_limits, types=type_filters, size=set_sizes)
def test_what_is_reachable_is_what_a_walk_finds(
    data: st.DataObject, model: Model, depth_max: int | None, types: list[int] | None, size: int
) -> None:
    """G22: reachability both ways."""
    starts = data.draw(some_nodes(model))
    for plain, adjacency in both_ways(model):
        with sets_up_to(size):
            found = reachable(adjacency, starts, depth_max=depth_max, types=types)
        assert found.tolist() == sorted(node for node, _, _, _ in plain.breadth_first(starts, depth_max, types))


@given(data=st.data(), model=models(nodes_min=1, nodes_max=7, edges_max=14), depth_max=depth_limits, types=type_filters)
def test_the_shortest_path_is_the_first_of_all_shortest_ones(
    data: st.DataObject, model: Model, depth_max: int | None, types: list[int] | None
) -> None:
    """G22: shortest path, the same one always."""
    (_, out), (_, in_) = both_ways(model)
    with sets_up_to(data.draw(set_sizes)):
        for source, target in product(range(model.node_count), repeat=2):
            path = shortest_path(out, in_, source, target, depth_max=depth_max, types=types)
            assert path == model.shortest_path(source, target, depth_max, types)


@given(data=st.data(), model=models(nodes_min=1, nodes_max=40, edges_max=60), types=type_filters)
def test_the_shortest_path_in_a_sparse_graph_is_that_of_a_breadth_first_search(
    data: st.DataObject, model: Model, types: list[int] | None
) -> None:
    """G22: long paths, where the two ends of the search take many steps before they meet."""
    source = data.draw(st.integers(0, model.node_count - 1))
    (_, out), (_, in_) = both_ways(model)
    paths: dict[int, list[tuple[int, int]]] = {-1: []}
    for node, _, parent, edge in model.breadth_first([source], None, types):
        paths[node] = [*paths[parent], (node, edge)]
    for target in range(model.node_count):
        assert shortest_path(out, in_, source, target, types=types) == paths.get(target)


@pytest.mark.parametrize("walk", [breadth_first, depth_first])
@given(data=st.data(), model=models(nodes_min=1), limit=st.integers(0, 6), size=set_sizes)
def test_a_limit_keeps_the_first_so_many_nodes(
    walk: Callable[..., Visit], data: st.DataObject, model: Model, limit: int, size: int
) -> None:
    starts = data.draw(some_nodes(model))
    adjacency = model.adjacency()
    with sets_up_to(size):
        assert listed(walk(adjacency, starts, limit=limit)) == listed(walk(adjacency, starts))[:limit]


def test_cycles_double_edges_and_edges_to_itself_list_each_node_once() -> None:
    adjacency = DIAMOND.adjacency()
    assert listed(breadth_first(adjacency, [0])) == [(0, 0, -1, -1), (1, 1, 0, 0), (2, 1, 0, 1), (3, 2, 1, 2)]
    assert listed(depth_first(adjacency, [0])) == [(0, 0, -1, -1), (1, 1, 0, 0), (3, 2, 1, 2), (2, 1, 0, 1)]
    assert breadth_first(adjacency, [4, 0, 4, 0]).nodes.tolist() == [4, 0, 1, 2, 3]
    assert breadth_first(adjacency, [3, 1], depth_max=0).nodes.tolist() == [3, 1]
    assert reachable(adjacency.reversed(), [3], depth_max=1).tolist() == [1, 2, 3]


def test_a_depth_limit_leaves_nothing_out_that_a_long_branch_met_first() -> None:
    """0-1-2 and 0-2-3: the branch over 1 comes to 2 at depth 2, and 3 is still within two edges of 0."""
    adjacency = Model(4, [(0, 1, 0), (1, 2, 0), (0, 2, 0), (2, 3, 0)]).adjacency()
    assert listed(depth_first(adjacency, [0], depth_max=2)) == [
        (0, 0, -1, -1),
        (1, 1, 0, 0),
        (2, 1, 1, 1),
        (3, 2, 2, 3),
    ]


def test_a_path_from_a_node_to_itself_has_no_edges() -> None:
    out = DIAMOND.adjacency()
    assert shortest_path(out, out.reversed(), 3, 3) == [(3, -1)]
    assert shortest_path(out, out.reversed(), 4, 4, depth_max=0) == [(4, -1)]


def test_a_path_takes_the_lowest_edge_at_each_step() -> None:
    out = DIAMOND.adjacency()
    assert shortest_path(out, out.reversed(), 0, 3) == [(0, -1), (1, 0), (3, 2)]
    assert shortest_path(out, out.reversed(), 0, 3, depth_max=1) is None
    assert shortest_path(out, out.reversed(), 0, 4) is None
    assert shortest_path(out, out.reversed(), 0, 3, types=[NO_TYPE]) is None


def test_an_empty_graph_and_an_empty_list_of_starts_give_an_empty_walk() -> None:
    for model in (Model(0, []), DIAMOND):
        adjacency = model.adjacency()
        assert listed(breadth_first(adjacency, [])) == []
        assert listed(depth_first(adjacency, [])) == []
        assert reachable(adjacency, np.empty(0, dtype=np.int64)).tolist() == []


def test_a_branch_as_long_as_the_graph_is_followed() -> None:
    """No recursion: Python's own stack would end after a thousand calls."""
    length = 20_000
    steps = np.arange(length - 1)
    line = Adjacency.build(length, steps, steps + 1, np.zeros(length - 1, dtype=np.int16))
    assert depth_first(line, [0]).nodes.tolist() == list(range(length))
    path = shortest_path(line, line.reversed(), 0, 2_000)
    assert path is not None
    assert len(path) == 2_001


@pytest.mark.parametrize(
    "call, said",
    [
        (lambda out: breadth_first(out, [0, 5]), "there is no node 5: this graph has nodes 0 to 4"),
        (lambda out: depth_first(out, [-1]), "there is no node -1"),
        (lambda out: reachable(out, [99]), "there is no node 99"),
        (lambda out: shortest_path(out, out.reversed(), 5, 0), "there is no node 5"),
        (lambda out: shortest_path(out, out.reversed(), 0, -1), "there is no node -1"),
        (lambda out: shortest_path(out, Model(1, []).adjacency(), 0, 0), "not of one graph"),
        (lambda out: breadth_first(out, [0], depth_max=-1), "depth_max cannot be -1"),
        (lambda out: depth_first(out, [0], depth_max=-1), "depth_max cannot be -1"),
        (lambda out: reachable(out, [0], depth_max=-1), "depth_max cannot be -1"),
        (lambda out: shortest_path(out, out.reversed(), 0, 1, depth_max=-1), "depth_max cannot be -1"),
        (lambda out: breadth_first(out, [0], limit=-1), "limit cannot be -1"),
        (lambda out: depth_first(out, [0], limit=-1), "limit cannot be -1"),
        (lambda out: breadth_first(out, [0], types=[-1]), "an edge type is a number"),
        (lambda out: VisitedMarks(-1), "cannot have -1 nodes"),
    ],
)
def test_what_cannot_be_right_is_refused_by_name(call: Callable[[Adjacency], object], said: str) -> None:
    adjacency = DIAMOND.adjacency()
    with pytest.raises(BadInput, match=said):
        call(adjacency)


def test_what_one_query_has_seen_is_new_to_the_next_however_many_there_are() -> None:
    """A stamp has 255 values: when they begin again, no node may still bear one from the last time."""
    marks = VisitedMarks(10)
    once, often = np.array([7], dtype=np.int32), np.array([0], dtype=np.int32)
    with sets_up_to(0):
        for number in range(3 * 255):
            with Seen(marks) as seen:
                assert seen.take_new(often if number % 255 else once).tolist() == [0]
    assert marks.idle_count == 1


def test_stamps_go_back_when_a_query_fails() -> None:
    marks = VisitedMarks(10)
    with sets_up_to(0):
        with pytest.raises(IndexError), Seen(marks) as seen:
            seen.take_new(np.array([11], dtype=np.int32))
        with Seen(marks) as seen:
            assert seen.take_new(np.array([3, 3, 1], dtype=np.int32)).tolist() == [0, 2]
            assert seen.take_new(np.array([1, 2, 3], dtype=np.int32)).tolist() == [1]
    assert marks.idle_count == 1


def test_a_small_query_borrows_no_stamps() -> None:
    adjacency = random_model(1, 10_000, 5_000).adjacency()
    breadth_first(adjacency, [1], depth_max=4)
    reachable(adjacency, [2])
    assert adjacency.marks.idle_count == 0


def test_many_threads_may_ask_the_same_snapshot_at_once() -> None:
    """G22: every thread has the answers that one alone would have."""
    model = random_model(2, 400, 900)
    out = model.adjacency()
    in_ = out.reversed()
    threads = 8
    together = Barrier(threads)

    def ask(first: int) -> list[object]:
        answers: list[object] = []
        for start in range(first, 400, threads):
            answers += [
                listed(breadth_first(out, [start], types=[0, 1, 2])),
                listed(depth_first(in_, [start])),
                reachable(in_, [start], depth_max=5).tolist(),
                shortest_path(out, in_, start, (start * 7) % 400),
            ]
        return answers

    def ask_together(first: int) -> list[object]:
        together.wait()
        return ask(first)

    alone = [ask(first) for first in range(threads)]
    with sets_up_to(4), ThreadPoolExecutor(threads) as pool:
        assert list(pool.map(ask_together, range(threads))) == alone
    assert 1 <= out.marks.idle_count <= threads
