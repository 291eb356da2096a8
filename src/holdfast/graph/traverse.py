"""Walks over a snapshot: breadth-first, depth-first, what can be reached, the shortest path.

A walk follows the adjacency it is given: the outgoing one forwards, its `reversed()` backwards. What holds for all:

- a node is listed once, whatever cycles, edges to itself and double edges there are; starts count, at depth 0;
- a depth is the fewest edges from a start, and `depth_max` a limit on it (0: only the starts; None: no limit);
- nodes are tried in the order of the starts, then of the rows, so that the same question has the same answer always;
- the memory of a walk grows with what it finds, not with the graph, until that is thousands of nodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from holdfast.errors import BadInput
from holdfast.graph.adjacency import Adjacency, Types, TypeTable, node_indexes, type_table
from holdfast.graph.visited import UNSTAMPED, Seen, Stamps

__all__ = ["Step", "Visit", "breadth_first", "depth_first", "reachable", "shortest_path"]

NOWHERE = -1
"""The parent of a start, and the edge it was reached by."""

Nodes = npt.NDArray[np.int32]
Edges = npt.NDArray[np.int64]
_Item = TypeVar("_Item", bound=np.generic)
Starts = Sequence[int] | npt.NDArray[np.integer]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Visit:
    """The nodes of a walk in the order it came to them, with how it came to each."""

    nodes: Nodes
    depths: npt.NDArray[np.int32]
    parents: Nodes
    """The node from which each was first reached; -1 for a start."""
    edges: Edges
    """The position of the edge by which it was reached; -1 for a start."""

    def __len__(self) -> int:
        return len(self.nodes)


class Step(NamedTuple):
    """One node of a path, and the position of the edge that leads to it; -1 for the first."""

    node: int
    edge: int


class _Level(NamedTuple):
    """The nodes at one depth, in the order of their discovery."""

    nodes: Nodes
    parents: Nodes
    edges: Edges


def breadth_first(
    adjacency: Adjacency,
    starts: Starts,
    *,
    depth_max: int | None = None,
    types: Types = None,
    limit: int | None = None,
) -> Visit:
    """All nodes within reach, nearest first; with a limit, the first so many of them."""
    _check_limit("limit", limit)
    found = []
    count = 0
    with Seen(adjacency.marks) as seen:
        for level in _levels(adjacency, starts, seen, depth_max, type_table(types)):
            found.append(level)
            count += len(level.nodes)
            if limit is not None and count >= limit:
                break
    return Visit(
        nodes=_joined([level.nodes for level in found], np.int32)[:limit],
        depths=np.repeat(np.arange(len(found), dtype=np.int32), [len(level.nodes) for level in found])[:limit],
        parents=_joined([level.parents for level in found], np.int32)[:limit],
        edges=_joined([level.edges for level in found], np.int64)[:limit],
    )


def reachable(
    adjacency: Adjacency, starts: Starts, *, depth_max: int | None = None, types: Types = None
) -> npt.NDArray[np.int32]:
    """Every node within reach, the starts included, ascending; by a reversed adjacency, every node that reaches one."""
    with Seen(adjacency.marks) as seen:
        levels = [level.nodes for level in _levels(adjacency, starts, seen, depth_max, type_table(types))]
    return np.sort(_joined(levels, np.int32))


def depth_first(
    adjacency: Adjacency,
    starts: Starts,
    *,
    depth_max: int | None = None,
    types: Types = None,
    limit: int | None = None,
) -> Visit:
    """The same nodes at the same depths as breadth-first, but each branch to its end before the next (pre-order).

    What may be entered is found breadth-first beforehand. Counting depth along the branch instead would leave out what
    lies behind a node that a long branch met first, at its very end, and then the answer would depend on the order of
    the edges. So a branch may be longer than `depth_max`, but none of its nodes is farther than that from a start.
    """
    _check_limit("limit", limit)
    reached = breadth_first(adjacency, starts, depth_max=depth_max, types=types)
    count_max = len(reached) if limit is None else min(limit, len(reached))
    roots = reached.nodes[reached.depths == 0].tolist()
    with adjacency.marks.lent() as stamps:
        stamps.of_node[reached.nodes] = stamps.current
        nodes, parents, entries = _preorder(adjacency, roots, stamps, type_table(types), count_max)
    by_node = np.argsort(reached.nodes)
    return Visit(
        nodes=nodes,
        depths=reached.depths[by_node[np.searchsorted(reached.nodes, nodes, sorter=by_node)]],
        parents=parents,
        edges=np.where(entries < 0, NOWHERE, adjacency.edges[entries]) if len(adjacency.edges) else entries,
    )


def _preorder(
    adjacency: Adjacency, roots: list[int], stamps: Stamps, table: TypeTable, count_max: int
) -> tuple[Nodes, Nodes, Edges]:
    """The stamped nodes in depth-first order: each, the one it was reached from, and where in the rows its edge is.

    Python once a node and edge. Memory views give plain integers faster than numpy does, and lists of integers, unlike
    tuples on a stack, are nothing that the garbage collector has to look through again and again.
    """
    offsets, targets, waiting, stamp = (
        adjacency.offsets.data,
        adjacency.targets.data,
        stamps.of_node.data,
        stamps.current,
    )
    allowed, kinds = (None, None) if table is None else (table.data, adjacency.types.data)
    nodes: list[int] = []
    parents: list[int] = []
    entries: list[int] = []
    for root in roots:
        if len(nodes) >= count_max:
            break
        if waiting[root] != stamp:
            continue
        waiting[root] = UNSTAMPED
        nodes.append(root)
        parents.append(NOWHERE)
        entries.append(NOWHERE)
        branch, resume = [root], [offsets[root]]
        while branch and len(nodes) < count_max:
            parent = branch[-1]
            for entry in range(resume[-1], offsets[parent + 1]):
                node = targets[entry]
                if waiting[node] == stamp and (allowed is None or kinds is None or allowed[kinds[entry]]):
                    waiting[node] = UNSTAMPED
                    nodes.append(node)
                    parents.append(parent)
                    entries.append(entry)
                    resume[-1] = entry + 1
                    branch.append(node)
                    resume.append(offsets[node])
                    break
            else:
                branch.pop()
                resume.pop()
    return np.array(nodes, dtype=np.int32), np.array(parents, dtype=np.int32), np.array(entries, dtype=np.int64)


def shortest_path(
    out: Adjacency,
    in_: Adjacency,
    source: int,
    target: int,
    *,
    types: Types = None,
    depth_max: int | None = None,
) -> list[Step] | None:
    """A path of the fewest edges, the source first; None where there is none within `depth_max` edges.

    Of several it is the one that takes, at each step from the source on, the lowest edge of the row: by type, then
    target, then position. That does not depend on how the search went: it goes from both ends, each time on the side
    with fewer nodes to expand, until the two meet in the middle.
    """
    _check_limit("depth_max", depth_max)
    if out.node_count != in_.node_count or out.edge_count != in_.edge_count:
        raise BadInput("the two adjacencies are not of one graph: give an adjacency and its own reversed()")
    table = type_table(types)
    with Seen(out.marks) as seen_ahead, Seen(in_.marks) as seen_back:
        ahead = [_first(out, [source], seen_ahead).nodes]
        back = [_first(in_, [target], seen_back).nodes]
        # Before each round every path is longer than the edges searched so far. So a new node that the other side has
        # seen can only be in its last level, and every shortest path has a node in both last levels.
        while not len(meeting := np.intersect1d(ahead[-1], back[-1], assume_unique=True)):
            if depth_max is not None and len(ahead) + len(back) - 2 >= depth_max:
                return None
            if not len(ahead[-1]) or not len(back[-1]):
                return None
            if len(ahead[-1]) <= len(back[-1]):
                ahead.append(_next(out, ahead[-1], seen_ahead, table).nodes)
            else:
                back.append(_next(in_, back[-1], seen_back, table).nodes)

    # What is left of the source's side: from the middle back, only nodes from which the middle is reached in time.
    onward = [meeting]
    for level in reversed(ahead[:-1]):
        entries, _ = in_.entries(onward[-1], table)
        onward.append(np.intersect1d(in_.targets[entries], level))
    stages = [*reversed(onward), *reversed(back[:-1])]

    path = [Step(source, NOWHERE)]
    for stage in stages[1:]:
        entries, _ = out.entries(np.array([path[-1].node], dtype=np.int32), table)
        entry = int(entries[int(np.argmax(np.isin(out.targets[entries], stage)))])
        path.append(Step(out.targets.item(entry), out.edges.item(entry)))
    return path


def _levels(
    adjacency: Adjacency, starts: Starts, seen: Seen, depth_max: int | None, table: TypeTable
) -> Iterator[_Level]:
    """The nodes by depth, up to the limit. It ends by itself, since each level has only nodes never seen before."""
    _check_limit("depth_max", depth_max)
    level = _first(adjacency, starts, seen)
    depth = 0
    while len(level.nodes):
        yield level
        if depth_max is not None and depth >= depth_max:
            return
        depth += 1
        level = _next(adjacency, level.nodes, seen, table)


def _first(adjacency: Adjacency, starts: Starts, seen: Seen) -> _Level:
    nodes = node_indexes(starts, adjacency.node_count)
    nodes = nodes[seen.take_new(nodes)]
    nowhere = np.full(len(nodes), NOWHERE, dtype=np.int32)
    return _Level(nodes, nowhere, nowhere.astype(np.int64))


def _next(adjacency: Adjacency, frontier: Nodes, seen: Seen, table: TypeTable) -> _Level:
    entries, sources = adjacency.entries(frontier, table)
    nodes = adjacency.targets[entries]
    new = seen.take_new(nodes)
    return _Level(nodes[new], sources[new], adjacency.edges[entries[new]])


def _joined(parts: list[npt.NDArray[_Item]], kind: type[_Item]) -> npt.NDArray[_Item]:
    return np.concatenate(parts) if parts else np.empty(0, dtype=kind)


def _check_limit(name: str, value: int | None) -> None:
    if value is not None and value < 0:
        raise BadInput(f"{name} cannot be {value}: give 0 or more, or nothing for no limit")
