"""Time that a test turns by hand, and randomness that repeats."""

from __future__ import annotations

import hashlib
import threading
from datetime import UTC, datetime, timedelta

__all__ = ["SeededRandomness", "VirtualClock"]

_START = datetime(2026, 3, 14, 10, 30, tzinfo=UTC)


class VirtualClock:
    """Stands still unless it is turned: by `advance`, by `set` (backwards too), or by somebody who sleeps on it."""

    def __init__(self, start: datetime = _START) -> None:
        self._now = start
        self._lock = threading.Lock()

    def now(self) -> datetime:
        with self._lock:
            return self._now

    def sleep(self, seconds: float) -> None:
        """Returns at once; the time it would have taken has passed."""
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        """Turn the clock by this much; a negative number turns it back."""
        with self._lock:
            self._now += timedelta(seconds=seconds)

    def set(self, moment: datetime) -> None:
        """Turn the clock to this time, wherever it was."""
        with self._lock:
            self._now = moment.astimezone(UTC)


class SeededRandomness:
    """Bits that look random and are the same for the same seed, on every machine and in every version of Python."""

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed
        self._count = 0
        self._lock = threading.Lock()

    def bits(self, count: int) -> int:
        with self._lock:
            self._count += 1
            number = self._count
        drawn = hashlib.shake_256(f"{self._seed}/{number}".encode()).digest((count + 7) // 8)
        return int.from_bytes(drawn) & ((1 << count) - 1)
