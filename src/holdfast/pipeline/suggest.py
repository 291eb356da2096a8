"""What somebody may have meant: the nearest known name, or the known ones if none is near."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["did_you_mean", "nearest"]

_NEAR = 0.6
_LISTED_MAX = 8


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that looks most like it, whatever the case."""
    by_lower = {one.lower(): one for one in known}
    found = difflib.get_close_matches(name.lower(), sorted(by_lower), n=1, cutoff=_NEAR)
    return by_lower[found[0]] if found else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of a message: `did you mean 'shards'?`, or what there is."""
    names = list(known)
    near = nearest(name, names)
    if near is not None:
        return f"did you mean {near!r}?"
    if not names:
        return "there is none"
    listed = ", ".join(names[:_LISTED_MAX])
    return f"there is {listed}" + (f" and {len(names) - _LISTED_MAX} more" if len(names) > _LISTED_MAX else "")
