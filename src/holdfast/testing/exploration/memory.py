"""Parsing the same bytes once: most of a schedule is a prefix of others, and parsing is pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

from holdfast.chain.manifest import Manifest
from holdfast.chain.pointer import Pointer
from holdfast.chain.runs import RunRecord

__all__ = ["remembered_parsing"]

ENTRIES_MAX = 20_000


@contextmanager
def remembered_parsing() -> Iterator[None]:
    """Within this block, pointers, manifests and run records that were parsed before are not parsed again."""
    with ExitStack() as stack:
        for kind in (Pointer, Manifest, RunRecord):
            stack.enter_context(patch.object(kind, "decode", _remembering(kind.decode)))
        yield


def _remembering(real: Callable[..., object]) -> Callable[..., object]:
    known: dict[tuple[bytes, str], object] = {}

    def decode(data: bytes, *, key: str, **options: object) -> object:
        found = known.get((data, key))
        if found is None:
            found = real(data, key=key, **options)
            if len(known) >= ENTRIES_MAX:
                known.clear()
            known[(data, key)] = found
        return found

    return decode
