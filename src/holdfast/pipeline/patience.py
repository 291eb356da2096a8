"""Waiting for a lock whose holder may be dead: its lease runs out by itself, and nobody should have to watch for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from holdfast.clock import Clock
from holdfast.errors import LockHeld

__all__ = ["patiently"]

WAIT_S = 1.0
WAITS_MAX = 75
"""More than the longest lease of a lock that a runner takes."""

_T = TypeVar("_T")


def patiently(clock: Clock, attempt: Callable[[], _T], told: Callable[[LockHeld], None]) -> _T:
    """What `attempt` gives, once a lock that it needs is free. LockHeld if its holder is alive after all that time.

    `attempt` must have done nothing where it raises LockHeld. `told` is called before the first wait.
    """
    for turn in range(WAITS_MAX):
        try:
            return attempt()
        except LockHeld as error:
            if turn == 0:
                told(error)
            clock.sleep(WAIT_S)
    return attempt()
