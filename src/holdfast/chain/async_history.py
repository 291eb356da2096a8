"""The read half of a chain's history for asyncio (S32): what is visible, any snapshot of the history, the newest ones.

There is nothing here that moves a pointer: rollback is an operator's action.
"""

from __future__ import annotations

from holdfast.chain.handle import ChainHandle
from holdfast.chain.history import ManifestRef, ref_from_move
from holdfast.chain.manifest import Manifest
from holdfast.chain.pointer import MAKES_VISIBLE, Move, Pointer
from holdfast.chain.serving import (
    Answer,
    Read,
    Request,
    Steps,
    drive_async,
    legacy_manifest,
    load_at,
    moves_in_steps,
    parse_pointer,
    read_record,
)
from holdfast.errors import BadInput, NotAChain, ObjectNotFound, SnapshotCollected, SnapshotNotFound
from holdfast.storage.objects import AsyncObjectReader

__all__ = ["AsyncHistory"]


class AsyncHistory:
    """Reads one chain's records on a store's async half."""

    def __init__(self, handle: ChainHandle, records: AsyncObjectReader) -> None:
        self._handle = handle
        self._records = records

    async def load_current(self) -> Manifest | None:
        """The visible manifest, or None for an empty chain."""
        return await drive_async(self._load_current(), self._answer)

    async def load_manifest(self, ref: str) -> Manifest:
        """The manifest of one snapshot of the history; one that was never visible is not there (S11)."""
        return await drive_async(self._load_manifest(self._handle.layout.path_of(ref)), self._answer)

    async def list_manifests(self, limit: int = 10) -> list[ManifestRef]:
        """The newest snapshots that were ever visible and are not collected, newest first."""
        if limit < 0:
            raise BadInput(f"limit {limit} is negative")
        return await drive_async(self._list_manifests(limit), self._answer)

    def _pointer(self) -> Steps[Pointer | None]:
        layout = self._handle.layout
        try:
            stored = yield from read_record(layout.pointer_key)
        except ObjectNotFound:
            return None
        return parse_pointer(layout, stored)

    def _load_current(self) -> Steps[Manifest | None]:
        layout = self._handle.layout
        pointer = yield from self._pointer()
        if pointer is None or pointer.publishing == "legacy":
            try:
                return (yield from legacy_manifest(layout, pointer=pointer)).manifest
            except NotAChain:
                return None
        return (yield from load_at(layout, pointer.manifest_path, pointer.manifest_hash, pointer, None)).manifest

    def _load_manifest(self, path: str) -> Steps[Manifest]:
        layout = self._handle.layout
        pointer = yield from self._pointer()
        if pointer is None:
            raise NotAChain(f"no {layout.name} chain at {self._handle.records.url!r}: no {layout.pointer_key!r}")
        following = moves_in_steps(layout, pointer)
        move: Move | None = yield from following()
        while move is not None:
            if move.kind in MAKES_VISIBLE and move.manifest_path == path:
                if move.target_id in pointer.collected:
                    raise SnapshotCollected(f"snapshot {layout.ref_of(path)} was collected; it may be restored")
                return (yield from load_at(layout, path, move.manifest_hash, pointer, None)).manifest
            move = yield from following()
        raise SnapshotNotFound(f"no snapshot {layout.ref_of(path)!r} was ever visible; `holdfast history` lists them")

    def _list_manifests(self, limit: int) -> Steps[list[ManifestRef]]:
        found: list[ManifestRef] = []
        pointer = yield from self._pointer()
        if pointer is None:
            return found
        following = moves_in_steps(self._handle.layout, pointer)
        while len(found) < limit:
            move = yield from following()
            if move is None:
                break
            if move.kind in MAKES_VISIBLE and move.target_id not in pointer.collected:
                found.append(ref_from_move(self._handle, move))
        return found

    async def _answer(self, request: Request) -> Answer:
        assert isinstance(request, Read), request
        return await self._records.get(request.key)
