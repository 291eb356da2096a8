"""The invariants I1-I10, checked against the truth after every effect on the store.

The watcher keeps its own record of what happened: every pointer ever written, every snapshot ever visible, every key
ever deleted. It shares no code with the commit, collect and purge paths that it judges, beyond parsing records.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from holdfast.chain.layout import Layout
from holdfast.chain.manifest import Manifest
from holdfast.chain.parts import decode_part, parts_of
from holdfast.chain.pointer import MAKES_VISIBLE, Move, Pointer
from holdfast.codec import content_hash
from holdfast.errors import Damaged
from holdfast.testing.exploration.world import Watcher

__all__ = ["InvariantWatcher", "Violation"]


class Violation(AssertionError):
    """An invariant was broken. `invariant` is its number."""

    def __init__(self, invariant: str, problem: str) -> None:
        super().__init__(f"{invariant}: {problem}")
        self.invariant = invariant


@dataclass
class Truth:
    """What really happened, whatever anybody believes."""

    log: list[Move] = field(default_factory=list)
    pointer: Pointer | None = None
    pointer_bytes: set[bytes] = field(default_factory=set)
    visible: dict[int, tuple[str, str]] = field(default_factory=dict)
    """Id → (path, hash) of every snapshot that was ever visible."""
    paths: dict[str, int] = field(default_factory=dict)
    artifacts: dict[int, frozenset[str]] = field(default_factory=dict)
    deleted: set[str] = field(default_factory=set)

    def copy(self) -> Truth:
        return Truth(
            log=list(self.log),
            pointer=self.pointer,
            pointer_bytes=set(self.pointer_bytes),
            visible=dict(self.visible),
            paths=dict(self.paths),
            artifacts=dict(self.artifacts),
            deleted=set(self.deleted),
        )


class InvariantWatcher(Watcher):
    """Raises `Violation` in the very step that breaks something."""

    def __init__(
        self, layout: Layout, objects: Mapping[str, tuple[bytes, int]], truth: Truth, collectors: frozenset[str]
    ) -> None:
        self._layout = layout
        self._objects = objects
        self._collectors = collectors
        self.truth = truth

    def wrote(self, actor: str, key: str, before: bytes | None, after: bytes) -> None:
        if key == self._layout.pointer_key:
            self._pointer_moved(actor, before, after)
        elif before is not None and before != after and self._layout.parse_manifest_key(key) is not None:
            raise Violation("I3", f"{actor} changed manifest {key}")
        elif before is not None and key in self.truth.paths:
            raise Violation("I3", f"{actor} rewrote visible manifest {key}")

    def deleted(self, actor: str, key: str, before: bytes | None) -> None:
        if actor not in self._collectors:
            raise Violation("I10", f"{actor} deleted {key}, and is no collector")
        if before is None:
            return
        self.truth.deleted.add(key)
        for manifest_id in self._available():
            if key == self.truth.visible[manifest_id][0] or key in self.truth.artifacts[manifest_id]:
                raise Violation("I6", f"{actor} deleted {key}, which snapshot {manifest_id} needs")

    def _decode(self, actor: str, data: bytes) -> Pointer:
        try:
            return Pointer.decode(data, key=self._layout.pointer_key, id_field=self._layout.id_field)
        except Damaged as error:
            raise Violation(
                "I5" if "epoch" in str(error) else "I2", f"{actor} wrote a pointer that contradicts itself: {error}"
            ) from None

    def _available(self) -> list[int]:
        """Snapshots that are history: visible at some time, and not collected."""
        pointer = self.truth.pointer
        return [] if pointer is None else [number for number in self.truth.visible if number not in pointer.collected]

    def _pointer_moved(self, actor: str, before: bytes | None, after: bytes) -> None:
        truth = self.truth
        if after in truth.pointer_bytes:
            raise Violation("I2", f"{actor} wrote pointer bytes that were there before")
        truth.pointer_bytes.add(after)
        pointer = self._decode(actor, after)
        old, move = truth.pointer, pointer.last_move
        if old is not None:
            if before is None:
                raise Violation("I1", f"{actor} created a pointer where there had been one")
            if pointer.sequence != old.sequence + 1:
                raise Violation(
                    "I1", f"{actor} replaced pointer {old.sequence} by {pointer.sequence}: not what it had read"
                )
            if move.commit_ulid <= old.commit_ulid:
                raise Violation("I4", f"{actor} wrote a ULID that is not greater")
            if pointer.epoch < old.epoch:
                raise Violation("I5", f"{actor} took the epoch from {old.epoch} to {pointer.epoch}")
            if pointer.high_water_id < old.high_water_id:
                raise Violation("I4", f"{actor} took the high-water id down to {pointer.high_water_id}")
            if move.source_id != old.manifest_id:
                raise Violation("I1", f"{actor} moved from {move.source_id}, but the pointer was at {old.manifest_id}")
        truth.log.append(move)
        truth.pointer = pointer
        if move.kind in MAKES_VISIBLE:
            self._published(actor, move, old)
        elif move.target_id not in truth.visible:
            raise Violation("I4", f"{actor} pointed to {move.target_id}, which was never published")
        if move.target_id in pointer.collected:
            raise Violation("I6", f"{actor} pointed to {move.target_id}, which was collected")
        self._whole(actor, move.target_id)
        if old is not None:
            for number in [
                number for number in truth.visible if number in old.collected and number not in pointer.collected
            ]:
                self._whole(actor, number)

    def _published(self, actor: str, move: Move, old: Pointer | None) -> None:
        truth = self.truth
        if move.target_id in truth.visible:
            raise Violation("I4", f"{actor} published id {move.target_id} a second time")
        if old is not None and move.target_id <= old.high_water_id:
            raise Violation("I4", f"{actor} published id {move.target_id}, not above {old.high_water_id}")
        if move.manifest_path in truth.deleted:  # a purge that was paused may still be about to delete it once more
            raise Violation("I4", f"{actor} published {move.manifest_path}, which was used and deleted before")
        stored = self._objects.get(move.manifest_path)
        if stored is None:
            raise Violation("I6", f"{actor} published {move.manifest_path}, which does not exist")
        manifest = Manifest.decode(stored[0], key=move.manifest_path, names=self._layout.names)
        if old is not None and manifest.parent_hash != old.manifest_hash:
            raise Violation("I3", f"{actor} published {move.target_id} with another parent than what was visible")
        if any(earlier.run_id == move.run_id for earlier in truth.log[:-1] if earlier.kind in MAKES_VISIBLE):
            raise Violation("I4", f"{actor} published run {move.run_id} a second time")
        named = self._named_by(manifest)
        gone = [path for path in named if path in truth.deleted]
        if gone:
            raise Violation("I7", f"{actor} published run {move.run_id}, of which {gone[0]} was collected")
        truth.visible[move.target_id] = (move.manifest_path, move.manifest_hash)
        truth.paths[move.manifest_path] = move.target_id
        truth.artifacts[move.target_id] = frozenset(named)

    def _named_by(self, manifest: Manifest) -> list[str]:
        """Every file of a snapshot, those that its parts list included. That a part is there is asked elsewhere."""
        paths = [artifact.path for artifact in manifest.artifacts]
        for part in parts_of(self._layout.names, manifest.artifacts):
            stored = self._objects.get(part.path)
            if stored is not None:
                paths += [held.path for held in decode_part(stored[0], key=part.path, names=self._layout.names)]
        return paths

    def _whole(self, actor: str, manifest_id: int) -> None:
        path, expected = self.truth.visible[manifest_id]
        stored = self._objects.get(path)
        if stored is None or content_hash(stored[0]) != expected:
            raise Violation("I6", f"{actor} made snapshot {manifest_id} visible, whose manifest is not there as it was")
        for artifact in self.truth.artifacts[manifest_id]:
            if artifact not in self._objects:
                raise Violation("I6", f"{actor} made snapshot {manifest_id} visible, but {artifact} is missing")


def truth_of(layout: Layout, objects: Mapping[str, tuple[bytes, int]], pointers: list[bytes]) -> Truth:
    """The truth about a world that was prepared by publishing: replayed from the pointers it wrote."""
    watcher = InvariantWatcher(layout, objects, Truth(), frozenset())
    before: bytes | None = None
    for data in pointers:
        watcher.wrote("setup", layout.pointer_key, before, data)
        before = data
    return watcher.truth
