"""The fencing token: the sequence number of the lock under which a writer works.

Only the lock module can make one (S24): the constructor asks for a seal that nobody else holds. A token does not
pickle, so it cannot reach an executor; executors return receipts and only the driver publishes.
"""

from __future__ import annotations

from functools import total_ordering
from typing import NoReturn

__all__ = ["FencingToken"]


class TokenSeal:
    """Held by the lock module. Not exported by the package."""

    __slots__ = ()


@total_ordering
class FencingToken:
    """Greater tokens were given out later. Compare them; never make one."""

    __slots__ = ("_sequence",)

    def __init__(self, sequence: int, *, seal: TokenSeal) -> None:
        if type(seal) is not TokenSeal:
            raise TypeError("a FencingToken comes from acquiring a lock: use holdfast.fencing.acquire_lock")
        self._sequence = sequence

    @property
    def sequence(self) -> int:
        return self._sequence

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FencingToken) and self._sequence == other._sequence

    def __lt__(self, other: FencingToken) -> bool:
        return self._sequence < other._sequence

    def __hash__(self) -> int:
        return hash(self._sequence)

    def __repr__(self) -> str:
        return f"FencingToken({self._sequence})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a FencingToken does not travel between processes: publish where the lock is held")
