"""The lasting verdict on a commit whose answer was lost (S17)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from holdfast.chain.fence import touch
from holdfast.chain.handle import ChainHandle
from holdfast.chain.history import require_pointer
from holdfast.chain.ids import ULID_LAST, is_ulid
from holdfast.chain.moves import find_ulid, moves_newest_first
from holdfast.chain.pointer import Move, MoveKind
from holdfast.errors import BadInput

__all__ = ["Verdict", "VerdictKind", "status"]


class VerdictKind(StrEnum):
    COMMITTED = "committed"
    SUPERSEDED = "superseded"
    NEVER_PUBLISHED = "never published"
    OPEN = "open"
    """It may still land. Ask again, or settle it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """`move` is the commit itself if it is committed, and who took its place if it was superseded."""

    kind: VerdictKind
    commit_ulid: str
    move: Move | None = None


def status(handle: ChainHandle, commit_ulid: str, *, settle: bool = False) -> Verdict:
    """What became of a commit. Every answer but OPEN is for good: ULIDs only grow, so one that was passed can never
    land.

    `settle` touches the pointer when the answer is open, so that it cannot land any more, and answers again.
    """
    if not is_ulid(commit_ulid) or commit_ulid == ULID_LAST:  # nothing could follow the last one: it is never given out
        raise BadInput(f"{commit_ulid!r} is not a commit ULID (26 characters, as a publish reports it)")
    seen = require_pointer(handle)
    if seen.pointer.commit_ulid < commit_ulid:
        if not settle:
            return Verdict(kind=VerdictKind.OPEN, commit_ulid=commit_ulid)
        seen = touch(handle, by="status", why=f"settle {commit_ulid}", above_ulid=commit_ulid)
    move = find_ulid(handle, seen.pointer, commit_ulid)
    if move is not None:
        return Verdict(kind=VerdictKind.COMMITTED, commit_ulid=commit_ulid, move=move)
    later = None
    for candidate in moves_newest_first(handle, seen.pointer):
        if candidate.commit_ulid < commit_ulid:
            break
        if candidate.kind is MoveKind.PUBLISH:
            later = candidate  # ends as the first publish after the commit: the one that took its place
    kind = VerdictKind.NEVER_PUBLISHED if later is None else VerdictKind.SUPERSEDED
    return Verdict(kind=kind, commit_ulid=commit_ulid, move=later)
