"""The graph seen from afar: groups of nodes instead of nodes, such as "files that depend on a file".

A group points to another if any of its nodes has an edge to any of the other's.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from holdfast.errors import BadInput
from holdfast.graph.adjacency import Adjacency, Types, type_table
from holdfast.graph.visited import Seen, VisitedMarks

__all__ = ["Grouping", "quotient"]

Groups = npt.NDArray[np.int32]


class Grouping:
    """Which group each node is in, and which nodes each group has. Made once a snapshot."""

    __slots__ = ("_nodes", "_offsets", "group_count", "marks", "of_node")

    def __init__(self, group_of_node: npt.NDArray[np.integer]) -> None:
        """Groups are numbers from 0; a node of group -1 is in none."""
        if group_of_node.ndim != 1 or group_of_node.dtype.kind not in "iu":
            raise BadInput(f"groups must be a plain array of whole numbers, one a node, not {group_of_node.dtype}")
        if len(group_of_node) and (group_of_node.min() < -1 or group_of_node.max() >= np.iinfo(np.int32).max):
            raise BadInput(f"a group is a number from 0, or -1 for none; found {group_of_node.min()} as the lowest")
        self.of_node: Groups = group_of_node.astype(np.int32)
        self.group_count = int(self.of_node.max()) + 1 if len(self.of_node) else 0
        # Group and node in one number sort several times faster than nodes by their group would.
        packed = (self.of_node.astype(np.int64) << 32) | np.arange(len(self.of_node), dtype=np.int64)
        packed = np.sort(packed[self.of_node >= 0])
        self._nodes: npt.NDArray[np.int32] = (packed & ((1 << 32) - 1)).astype(np.int32)
        self._offsets: npt.NDArray[np.int64] = np.searchsorted(
            packed >> 32, np.arange(self.group_count + 1, dtype=np.int64)
        )
        self.marks = VisitedMarks(self.group_count)

    def nodes_of(self, groups: Sequence[int] | npt.NDArray[np.integer]) -> npt.NDArray[np.int32]:
        """The nodes of some groups, group by group, ascending in each. A group without nodes has none."""
        wanted = np.asarray(groups)
        if not wanted.size:
            return np.empty(0, dtype=np.int32)
        if wanted.dtype.kind not in "iu" or wanted.ndim != 1 or wanted.min() < 0:
            raise BadInput("groups are a list of numbers from 0: give their codes")
        wanted = wanted[wanted < self.group_count]
        starts = self._offsets[wanted]
        counts = self._offsets[wanted + np.int64(1)] - starts
        ends = np.cumsum(counts)
        entries: npt.NDArray[np.int64] = np.repeat(starts - ends + counts, counts)
        entries += np.arange(len(entries), dtype=np.int64)
        return self._nodes[entries]


def quotient(
    adjacency: Adjacency,
    grouping: Grouping,
    groups: Sequence[int] | npt.NDArray[np.integer],
    *,
    types: Types = None,
    transitive: bool = False,
) -> Groups:
    """The groups next to the given ones, ascending, without these.

    By a reversed adjacency: the groups that have an edge into the given ones (who depends on them); by the outgoing
    one: the groups they point to (what they depend on). `transitive` goes on from group to group until nothing is new.
    """
    if len(grouping.of_node) != adjacency.node_count:
        raise BadInput(
            f"groups for {len(grouping.of_node)} nodes do not fit a graph of {adjacency.node_count}: give one a node"
        )
    table = type_table(types)
    found: list[Groups] = []
    frontier = grouping.nodes_of(groups)
    with Seen(grouping.marks) as seen:
        given = np.asarray(groups, dtype=np.int64)
        seen.take_new(given[given < grouping.group_count].astype(np.int32))
        while len(frontier):
            entries, _ = adjacency.entries(frontier, table)
            near = grouping.of_node[adjacency.targets[entries]]
            near = near[near >= 0]
            new = near[seen.take_new(near)]
            if not len(new):
                break
            found.append(new)
            frontier = grouping.nodes_of(new) if transitive else new[:0]
    return np.sort(np.concatenate(found)) if found else np.empty(0, dtype=np.int32)
