"""Whether a run has published a data set before: asked of the data set, which cannot be wrong about it (C31)."""

from __future__ import annotations

from datetime import datetime, timedelta

from holdfast.chain import Chain, Move
from holdfast.chain.moves import moves_newest_first
from holdfast.chain.pointer import MAKES_VISIBLE

__all__ = ["published_by"]

CLOCKS_DIFFER_MAX = timedelta(hours=24)
"""How far the clock that wrote a move may be behind the one that began the run."""


def published_by(chain: Chain, run: str, *, since: datetime) -> Move | None:
    """The move that any attempt of a run made visible here; None if none did. `since` is when the run began.

    It may have been rolled back since: that is not undone by going on with the run.
    """
    seen = chain.handle.read_pointer()
    if seen is None:
        return None
    for move in moves_newest_first(chain.handle, seen.pointer):
        if move.at < since - CLOCKS_DIFFER_MAX:
            return None
        if move.kind in MAKES_VISIBLE and move.run_id.partition("+")[0] == run:
            return move
    return None
