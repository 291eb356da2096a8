"""Two actors on one chain, by hand: one is stopped before each of its requests, and the other does its work there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from holdfast.chain import Chain
from holdfast.storage import ObjectStore
from holdfast.testing.faulty import InterceptedStore, Operation
from tests.chain.publishing import ChainFactory

_T = TypeVar("_T")

REQUESTS_MAX = 200
"""More than any actor here makes; a loop that does not end is a failure, not a hang."""


class HookedStore(InterceptedStore):
    """Calls `before` with each request before it is made."""

    def __init__(self, store: ObjectStore, before: Callable[[Operation], None]) -> None:
        super().__init__(store)
        self._before = before

    def _around(self, operation: Operation, effect: Callable[[], _T]) -> _T:
        self._before(operation)
        return effect()


@dataclass(kw_only=True)
class Meeting:
    """One place where the second actor comes in between. `chain` is the first actor's view of the world."""

    factory: ChainFactory
    serial: int
    met: bool = False
    intrude: Callable[[], None] = field(default=lambda: None)

    def chain(self, by: str = "first") -> Chain:
        """A chain whose requests count; before request `serial` the second actor does all of its work."""

        def before(operation: Operation) -> None:
            if operation.serial == self.serial and not self.met:
                self.met = True
                self.intrude()

        return self.factory(by=by, store=HookedStore(self.factory.store, before))


def meetings(make: Callable[[], ChainFactory]) -> Iterator[Meeting]:
    """A fresh world for each request of the first actor, until it makes no more requests than were tried."""
    for serial in range(1, REQUESTS_MAX):
        meeting = Meeting(factory=make(), serial=serial)
        yield meeting
        if not meeting.met:
            return
    raise AssertionError(f"the first actor made more than {REQUESTS_MAX} requests")
