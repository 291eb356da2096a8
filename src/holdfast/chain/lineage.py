"""Lineage inside the commit: which published snapshots were built from which (S35, C28)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from holdfast.chain.handle import ChainHandle
from holdfast.chain.history import ManifestRef, load_move_target, published_moves, ref_from_move
from holdfast.chain.moves import moves_newest_first
from holdfast.chain.pointer import MAKES_VISIBLE, Pointer
from holdfast.errors import Damaged

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


def find_downstream(source: ChainHandle, ids: set[int], among: Iterable[ChainHandle]) -> list[Downstream]:
    """Every snapshot of `among` that pins one of `ids`, or pins a snapshot that does, however far."""
    edges: list[tuple[tuple[str, int], Downstream]] = []
    for handle in among:
        seen = handle.read_pointer()
        if seen is None:
            continue
        for move in published_moves(handle, seen.pointer):
            try:
                manifest = load_move_target(handle, move)
            except Damaged:
                continue  # `verify` reports it; what it was built from cannot be known
            for pin in manifest.inputs:
                found = Downstream(
                    chain=handle.identity,
                    snapshot=ref_from_move(handle, move),
                    built_from=pin.ref,
                    visible=move.target_id == seen.pointer.manifest_id,
                )
                edges.append(((pin.chain, pin.manifest_id), found))
    reached = {(source.identity, number) for number in ids}
    result: dict[tuple[str, int], Downstream] = {}
    for _ in range(len(edges) + 1):  # each turn adds at least one snapshot or ends
        grown = False
        for pin_key, found in edges:
            mine = (found.chain, found.snapshot.manifest_id)
            if pin_key in reached and mine not in reached:
                reached.add(mine)
                result[mine] = found
                grown = True
        if not grown:
            break
    return list(result.values())
