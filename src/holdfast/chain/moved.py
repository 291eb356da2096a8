"""What a rollback reports, and who is told that a pointer was moved.

Whoever wants to know is called after the move, and nothing they do can undo it or make it fail. What they could not do
is named among the things left to repair.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from holdfast.chain.handle import ChainHandle
from holdfast.chain.history import ManifestRef
from holdfast.chain.lineage import Downstream
from holdfast.errors import HoldfastError

__all__ = ["ANNOUNCEMENT", "RolledBack", "tell"]

ANNOUNCEMENT = "announcement"
"""What is left to repair where a move could not be told."""

_log = logging.getLogger("holdfast.chain")


@dataclass(frozen=True, slots=True, kw_only=True)
class RolledBack:
    """What a rollback did, and everything downstream that was built from what it took back (S35)."""

    left: ManifestRef
    current: ManifestRef
    downstream: tuple[Downstream, ...] = ()
    unread: tuple[str, ...] = ()
    """Neighbours that could not be read, so what they built is not known."""
    repair_pending: tuple[str, ...] = ()


def tell(told: Callable[[], None] | None, handle: ChainHandle) -> tuple[str, ...]:
    """Call whoever wants to know; what is left to repair if they could not do what they do."""
    try:
        if told is not None:
            told()
    except (HoldfastError, OSError) as error:
        _log.warning("%s has moved, but that could not be announced: %s", handle.identity, error)
        return (ANNOUNCEMENT,)
    return ()
