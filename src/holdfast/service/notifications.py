"""What was notified and is not folded yet, of one domain: in order, each path once, and no more than there is room for.

A cursor stands between paths: it may be written once everything that was notified before it is folded. It takes no
room, because neighbouring cursors are one: the higher.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.errors import BadInput, StoreError

__all__ = ["Batch", "Notifications", "Offered", "QueueFull"]


class QueueFull(StoreError):
    """Too much waits to be folded; nothing of the notification was taken. Wait `retry_after_s`, then notify again."""

    def __init__(self, domain: str, waiting: int, retry_after_s: int) -> None:
        super().__init__(
            f"{waiting} events of {domain!r} wait to be folded, too many for more; notify again in {retry_after_s} s"
        )
        self.retry_after_s = retry_after_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Offered:
    """What became of a notification."""

    accepted: int
    known: int
    """Paths that waited already."""
    waiting: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Some paths in the order they came, and the cursor that may be written once they are folded."""

    paths: tuple[str, ...]
    cursor: str | None = None


@dataclass(frozen=True, slots=True)
class _Mark:
    cursor: str


class Notifications:
    """Any number of threads may offer; one takes."""

    def __init__(self, domain: str, *, capacity: int, retry_after_s: int = 1) -> None:
        if capacity < 1:
            raise BadInput(f"a queue needs room for at least 1 notification, not {capacity}")
        self.capacity = capacity
        self._domain = domain
        self._retry_after_s = retry_after_s
        self._lock = threading.Lock()
        self._items: deque[str | _Mark] = deque()
        self._known: set[str] = set()
        """Every path that waits or is in hand."""

    def __len__(self) -> int:
        """Paths that wait or are in hand."""
        return len(self._known)

    def offer(self, paths: Sequence[str], cursor: str | None = None) -> Offered:
        """Take all of it, or raise QueueFull and take nothing."""
        with self._lock:
            fresh = [path for path in dict.fromkeys(paths) if path not in self._known]
            if fresh and len(self._known) + len(fresh) > self.capacity:
                raise QueueFull(self._domain, len(self._known), self._retry_after_s)
            self._items.extend(fresh)
            self._known.update(fresh)
            if cursor is not None:
                last = self._items[-1] if self._items else None
                if isinstance(last, _Mark):
                    self._items[-1] = _Mark(max(last.cursor, cursor))
                else:
                    self._items.append(_Mark(cursor))
            return Offered(accepted=len(fresh), known=len(set(paths)) - len(fresh), waiting=len(self._known))

    def take(self, paths_max: int) -> Batch | None:
        """The next ones, which are in hand from now on; None if nothing waits."""
        with self._lock:
            paths: list[str] = []
            cursor: str | None = None
            while self._items:
                item = self._items[0]
                if isinstance(item, _Mark):
                    cursor = max(cursor or "", item.cursor)
                elif len(paths) < paths_max:
                    paths.append(item)
                else:
                    break
                self._items.popleft()
            return Batch(paths=tuple(paths), cursor=cursor) if paths or cursor is not None else None

    def settle(self, batch: Batch) -> None:
        """It is folded, and its cursor written."""
        with self._lock:
            self._known.difference_update(batch.paths)

    def put_back(self, batch: Batch, *, gone: Sequence[str] = ()) -> None:
        """It is not: it comes first again, without those that are gone."""
        with self._lock:
            self._known.difference_update(gone)
            if batch.cursor is not None:
                self._items.appendleft(_Mark(batch.cursor))
            self._items.extendleft(path for path in reversed(batch.paths) if path not in set(gone))

    def is_empty(self) -> bool:
        """Nothing waits, though something may be in hand."""
        with self._lock:
            return not self._items
