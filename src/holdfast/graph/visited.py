"""What a traversal has seen already, without an array as long as the graph for every query.

A small query keeps a set. One that grows borrows an array of stamps from its snapshot: a node was seen in this query if
its stamp is this query's, so that starting anew costs nothing. Threads never share stamps: each query borrows its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Final, Self

import numpy as np
import numpy.typing as npt

from holdfast.errors import BadInput

__all__ = ["UNSTAMPED", "Seen", "Stamps", "VisitedMarks"]

UNSTAMPED: Final = 0
"""What no query is ever stamped with."""

_SMALL_MAX = 2_048
"""Up to here a set is as fast as stamps, and touches no memory of the size of the graph."""
_IDLE_MAX = 8
"""How many arrays of stamps are kept between queries. More are made while more threads ask at once."""
_STAMP_MAX = 255
_NODE_SHIFT = 32
_POSITION_MASK = (1 << _NODE_SHIFT) - 1

Nodes = npt.NDArray[np.int32]
Positions = npt.NDArray[np.int64]


class Stamps:
    """One byte a node; who borrows it is alone with it."""

    __slots__ = ("current", "of_node")

    def __init__(self, node_count: int) -> None:
        self.of_node = np.zeros(node_count, dtype=np.uint8)
        self.current = UNSTAMPED

    def begin(self) -> None:
        """A stamp that no node has."""
        if self.current == _STAMP_MAX:
            self.of_node.fill(UNSTAMPED)
            self.current = UNSTAMPED
        self.current += 1


class VisitedMarks:
    """The stamps of one snapshot: borrowed by a query, given back when it ends."""

    __slots__ = ("_idle", "node_count")

    def __init__(self, node_count: int) -> None:
        if node_count < 0:
            raise BadInput(f"a graph cannot have {node_count} nodes: give 0 or more")
        self.node_count = node_count
        # Append and pop of a deque are atomic, so borrowing needs no lock.
        self._idle: deque[Stamps] = deque(maxlen=_IDLE_MAX)

    def __reduce__(self) -> tuple[type[VisitedMarks], tuple[int]]:
        return type(self), (self.node_count,)

    @property
    def idle_count(self) -> int:
        """How many arrays wait for the next query."""
        return len(self._idle)

    def borrow(self) -> Stamps:
        try:
            stamps = self._idle.pop()
        except IndexError:
            stamps = Stamps(self.node_count)
        stamps.begin()
        return stamps

    @contextmanager
    def lent(self) -> Iterator[Stamps]:
        """Stamps for as long as the block runs."""
        stamps = self.borrow()
        try:
            yield stamps
        finally:
            self.give_back(stamps)

    def give_back(self, stamps: Stamps) -> None:
        self._idle.append(stamps)


class Seen:
    """The nodes that one query has met. Use it in a `with`, so that borrowed stamps go back."""

    __slots__ = ("_marks", "_small", "_stamps")

    def __init__(self, marks: VisitedMarks) -> None:
        self._marks = marks
        self._small: set[int] = set()
        self._stamps: Stamps | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._stamps is not None:
            self._marks.give_back(self._stamps)
            self._stamps = None

    def take_new(self, nodes: Nodes) -> Positions:
        """Where in `nodes` each node that was not seen before comes first, ascending. All of them are seen from now."""
        if self._stamps is None:
            if len(self._small) + len(nodes) <= _SMALL_MAX:
                return self._take_few(nodes)
            self._stamps = self._marks.borrow()
            self._stamps.of_node[np.fromiter(self._small, dtype=np.int64, count=len(self._small))] = (
                self._stamps.current
            )
            self._small.clear()
        return self._take_many(nodes, self._stamps)

    def _take_few(self, nodes: Nodes) -> Positions:
        seen = self._small
        found = []
        for position, node in enumerate(nodes.tolist()):
            if node not in seen:
                seen.add(node)
                found.append(position)
        return np.array(found, dtype=np.int64)

    @staticmethod
    def _take_many(nodes: Nodes, stamps: Stamps) -> Positions:
        fresh = np.flatnonzero(stamps.of_node[nodes] != stamps.current)
        # Node and position in one number: sorting plain numbers is several times faster than sorting indexes.
        packed = np.sort(nodes[fresh].astype(np.int64) << _NODE_SHIFT | fresh)
        is_first = np.ones(len(packed), dtype=np.bool_)
        np.not_equal(packed[1:] >> _NODE_SHIFT, packed[:-1] >> _NODE_SHIFT, out=is_first[1:])
        firsts = packed[is_first]
        stamps.of_node[firsts >> _NODE_SHIFT] = stamps.current
        return np.sort(firsts & _POSITION_MASK)
