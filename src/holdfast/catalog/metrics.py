"""What a ledger has done, as numbers that only grow, and how far the fold is behind."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping

__all__ = ["LedgerMetrics"]

_COUNTERS = ("appended", "duplicates", "finished", "conflicts", "warned", "rejected", "reservations")


class LedgerMetrics:
    """The counters of one ledger in one process. Safe for many threads.

    `appended` events are new; `duplicates` were told before; `finished` are those of them whose first teller had died
    half-way; `conflicts` used a key for other content. `warned` and `rejected` met a fold that is behind.
    `reservations` are writes of the counter: far fewer than events under load.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._lag = 0

    def add(self, name: str, count: int = 1) -> None:
        if name not in _COUNTERS:
            raise KeyError(name)
        with self._lock:
            self._counts[name] += count

    def saw_lag(self, lag: int) -> None:
        with self._lock:
            self._lag = lag

    def snapshot(self) -> Mapping[str, int]:
        """Every counter, and `pending_lag` as it was last seen."""
        with self._lock:
            return {**{name: self._counts[name] for name in _COUNTERS}, "pending_lag": self._lag}
