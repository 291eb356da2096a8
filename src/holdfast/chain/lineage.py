"""Lineage inside the commit: which published snapshots were built from which (S35, C28)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from holdfast.chain.handle import ChainHandle
from holdfast.chain.history import ManifestRef, load_move_target, published_moves, ref_from_move
from holdfast.chain.moves import moves_newest_first
from holdfast.chain.pointer import MAKES_VISIBLE, Pointer
from holdfast.errors import Damaged, HoldfastError

__all__ = ["Downstream", "find_downstream", "undone_by"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Downstream:
    """A published snapshot that was built, directly or through others, from one that was rolled back."""

    chain: str
    snapshot: ManifestRef
    built_from: str
    """The ref of the input that connects it."""
    visible: bool
    """Whether it is what its chain's pointer names now."""


def undone_by(handle: ChainHandle, pointer: Pointer, *, target_id: int) -> set[int]:
    """The snapshots a rollback from `pointer` to `target_id` takes back: the visible one and those between."""
    undone = set()
    for move in moves_newest_first(handle, pointer):
        if move.kind in MAKES_VISIBLE and move.target_id <= target_id:
            break  # ids only grow: whatever is older stays
        if move.kind in MAKES_VISIBLE and move.target_id <= pointer.manifest_id:
            undone.add(move.target_id)
    return undone


def find_downstream(
    source: ChainHandle, ids: set[int], among: Iterable[ChainHandle]
) -> tuple[list[Downstream], list[str]]:
    """Every snapshot of `among` that pins one of `ids`, or pins a snapshot that does, however far; and what could not
    be read.

    Never raises for a neighbour: whoever takes a snapshot back must not be stopped by a chain that is damaged or away.
    """
    consumers: dict[tuple[str, int], list[Downstream]] = {}
    unread: list[str] = []
    for handle in among:
        try:
            for pinned, found in _pins_of(handle, unread):
                consumers.setdefault(pinned, []).append(found)
        except HoldfastError as error:
            unread.append(f"{handle.identity}: {error}")
    reached = {(source.identity, number) for number in ids}
    waiting = deque(sorted(reached))
    result: list[Downstream] = []
    while waiting:  # each snapshot comes in once
        for found in consumers.get(waiting.popleft(), []):
            mine = (found.chain, found.snapshot.manifest_id)
            if mine not in reached:
                reached.add(mine)
                waiting.append(mine)
                result.append(found)
    return result, unread


def _pins_of(handle: ChainHandle, unread: list[str]) -> Iterator[tuple[tuple[str, int], Downstream]]:
    """Each input of each published snapshot of a chain."""
    seen = handle.read_pointer()
    if seen is None:
        return
    for move in published_moves(handle, seen.pointer):
        try:
            manifest = load_move_target(handle, move)
        except Damaged as error:
            unread.append(f"{handle.identity}: {error}")
            continue
        for pin in manifest.inputs:
            found = Downstream(
                chain=handle.identity,
                snapshot=ref_from_move(handle, move),
                built_from=pin.ref,
                visible=move.target_id == seen.pointer.manifest_id,
            )
            yield (pin.chain, pin.manifest_id), found
