"""Renewal in the background: long work keeps its lease and stops when renewal fails (S23)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from holdfast.errors import Fenced, HoldfastError, LockLost

__all__ = ["KeepAlive"]

FAILURES_MAX = 3


class KeepAlive:
    """Calls `renew` every `every_s` seconds on a thread of its own, until it fails for good or the block ends.

    `check()` raises in the worker's thread once renewal has failed: call it between steps of long work. A store that
    does not answer is tried `FAILURES_MAX` times; a lease that was lost ends it at once.
    """

    def __init__(
        self, renew: Callable[[], None], *, every_s: float, wait: Callable[[threading.Event, float], bool] | None = None
    ) -> None:
        self._renew = renew
        self._every_s = every_s
        self._wait = wait or threading.Event.wait
        self._done = threading.Event()
        self._failed = threading.Event()
        self._failure: HoldfastError | None = None
        self._thread = threading.Thread(target=self._run, name="holdfast-keepalive", daemon=True)

    @property
    def failed(self) -> threading.Event:
        """Set once renewal has failed for good; `failure` says how."""
        return self._failed

    @property
    def failure(self) -> HoldfastError | None:
        return self._failure

    def check(self) -> None:
        """Raise LockLost once renewal has failed."""
        if self._failure is not None:
            raise LockLost(f"renewal failed ({self._failure}); stop, and start a new run") from self._failure

    def _run(self) -> None:
        failures = 0
        while not self._wait(self._done, self._every_s):  # bounded by the block: __exit__ sets the event
            try:
                self._renew()
                failures = 0
            except HoldfastError as error:
                failures += 1
                if isinstance(error, Fenced) or failures >= FAILURES_MAX:
                    self._failure = error
                    self._failed.set()
                    return

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()
