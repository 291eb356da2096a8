"""Small graphs of every kind, and the plainest possible answers to what the traversals are asked."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from unittest.mock import patch

import numpy as np
from hypothesis import strategies as st

from holdfast.graph import visited
from holdfast.graph.adjacency import Adjacency

Edge = tuple[int, int, int]
"""Source, target, type."""
Visited = list[tuple[int, int, int, int]]
"""Node, depth, parent, edge."""


@dataclass(frozen=True)
class Model:
    """A graph as a list of edges, asked without any cleverness."""

    node_count: int
    edges: Sequence[Edge]

    def adjacency(self) -> Adjacency:
        columns = np.array(self.edges, dtype=np.int64).reshape(-1, 3)
        return Adjacency.build(self.node_count, columns[:, 0], columns[:, 1], columns[:, 2].astype(np.int16))

    def backwards(self) -> Model:
        return Model(self.node_count, [(target, source, kind) for source, target, kind in self.edges])

    def row(self, node: int, types: Sequence[int] | None) -> list[tuple[int, int, int]]:
        """Type, target and position of each edge of a node, in row order."""
        return sorted(
            (kind, target, position)
            for position, (source, target, kind) in enumerate(self.edges)
            if source == node and (not types or kind in types)
        )

    def breadth_first(self, starts: Iterable[int], depth_max: int | None, types: Sequence[int] | None) -> Visited:
        found = {start: (start, 0, -1, -1) for start in starts}
        queue = deque(found)
        while queue:
            node = queue.popleft()
            depth = found[node][1]
            for _, target, position in self.row(node, types):
                if target not in found and (depth_max is None or depth < depth_max):
                    found[target] = (target, depth + 1, node, position)
                    queue.append(target)
        return list(found.values())

    def depth_first(self, starts: Iterable[int], depth_max: int | None, types: Sequence[int] | None) -> Visited:
        depths = {node: depth for node, depth, _, _ in self.breadth_first(starts, depth_max, types)}
        found: dict[int, tuple[int, int, int, int]] = {}

        def enter(node: int, parent: int, edge: int) -> None:
            found[node] = (node, depths[node], parent, edge)
            for _, target, position in self.row(node, types):
                if target in depths and target not in found:
                    enter(target, node, position)

        for start in starts:
            if start not in found:
                enter(start, -1, -1)
        return list(found.values())

    def shortest_path(
        self, source: int, target: int, depth_max: int | None, types: Sequence[int] | None
    ) -> list[tuple[int, int]] | None:
        """The first of all shortest paths, compared step by step."""
        paths: list[list[tuple[int, int]]] = [[(source, -1)]]
        for _ in range(self.node_count if depth_max is None else depth_max + 1):
            for path in paths:
                if path[-1][0] == target:
                    return path
            paths = [
                [*path, (following, position)]
                for path in paths
                for _, following, position in self.row(path[-1][0], types)
                if following not in {node for node, _ in path}
            ]
        return None

    def groups_next_to(
        self, groups_of: Sequence[int], groups: Iterable[int], types: Sequence[int] | None, *, transitive: bool
    ) -> set[int]:
        given = set(groups)
        found: set[int] = set()
        inner = given
        while True:
            new = {
                groups_of[target]
                for source, target, kind in self.edges
                if groups_of[source] in inner and groups_of[target] >= 0 and (not types or kind in types)
            } - (found | given)
            found |= new
            inner = new
            if not new or not transitive:
                return found


def random_model(seed: int, node_count: int, edge_count: int) -> Model:
    """The same for the same seed."""
    numbers = np.random.default_rng(seed)
    columns = (numbers.integers(0, end, edge_count).tolist() for end in (node_count, node_count, 4))
    return Model(node_count, list(zip(*columns, strict=True)))


@st.composite
def models(draw: st.DrawFn, *, nodes_min: int = 0, nodes_max: int = 9, edges_max: int = 30) -> Model:
    """Cycles, edges to themselves, double edges and lonely nodes come by themselves at this size.

    Lists of edges shrink well but are mostly short, and then no walk goes far; so most graphs are made from a seed.
    """
    if draw(st.sampled_from([True, True, True, False])):
        node_count = draw(st.integers(max(nodes_min, nodes_max // 2), nodes_max))
        return random_model(draw(st.integers(0, 1 << 30)), node_count, draw(st.integers(node_count, edges_max)))
    node_count = draw(st.integers(nodes_min, nodes_max))
    if not node_count:
        return Model(0, [])
    node = st.integers(0, node_count - 1)
    return Model(node_count, draw(st.lists(st.tuples(node, node, st.integers(0, 3)), max_size=edges_max)))


def some_nodes(model: Model) -> st.SearchStrategy[list[int]]:
    """In any order, the same one perhaps several times."""
    if not model.node_count:
        return st.just([])
    return st.sampled_from([0, 1, 1, 1, 2, 2, 4]).flatmap(
        lambda count: st.lists(st.integers(0, model.node_count - 1), min_size=count, max_size=count)
    )


type_filters: st.SearchStrategy[list[int] | None] = st.sampled_from(
    [None, None, [], [0], [5], [1, 3], [0, 1, 2], [2, 1, 3, 1, 5]]
)
depth_limits: st.SearchStrategy[int | None] = st.sampled_from([None, None, 0, 1, 2, 3, 4, 9])
set_sizes = st.sampled_from([0, 3, 2_048])
"""How many nodes a query keeps in a set before it borrows stamps: both ways must give the same answer."""


@contextmanager
def sets_up_to(size: int) -> Iterator[None]:
    with patch.object(visited, "_SMALL_MAX", size):
        yield
