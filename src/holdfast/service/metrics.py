"""What the compactor has done, as numbers that only grow, for one domain."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping

__all__ = ["COUNTERS", "DomainMetrics"]

COUNTERS = {
    "events": "Events that were folded, those that changed nothing included.",
    "publishes": "Snapshots that were published.",
    "merges": "Tables whose deltas became a base.",
    "quarantined": "Events that this release does not know, which were kept aside.",
    "conflicts": "Folds that had to be repeated because somebody else was first or held the lock.",
    "failures": "Folds that failed otherwise.",
    "missing": "Notified events that are not in the ledger, which were dropped.",
    "accepted": "Notified paths that were taken.",
    "known": "Notified paths that waited already.",
    "rejected": "Notifications that found no room.",
}


class DomainMetrics:
    """Safe for many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._position = 0
        self._trouble: str | None = None

    def add(self, name: str, count: int = 1) -> None:
        if name not in COUNTERS:
            raise KeyError(name)
        with self._lock:
            self._counts[name] += count

    def folded_to(self, position: int) -> None:
        with self._lock:
            self._position = position
            self._trouble = None

    def failed(self, trouble: str) -> None:
        with self._lock:
            self._trouble = trouble

    @property
    def trouble(self) -> str | None:
        """Why the newest fold failed; None if it did not."""
        with self._lock:
            return self._trouble

    @property
    def position(self) -> int:
        """How far was folded here; 0 before the first."""
        with self._lock:
            return self._position

    def snapshot(self) -> Mapping[str, int]:
        with self._lock:
            return {name: self._counts[name] for name in COUNTERS}
