"""What every operation on a chain is given:

where its records and artifacts are, and the injected time and randomness.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from holdfast.chain.ids import next_ulid
from holdfast.chain.layout import Layout
from holdfast.chain.pointer import Pointer
from holdfast.clock import Clock, Randomness, SystemClock, SystemRandomness
from holdfast.codec import content_hash
from holdfast.errors import CorruptRecord, ObjectNotFound
from holdfast.storage.objects import ObjectStore, RecordStore, Version

__all__ = ["ChainHandle", "Progress", "SeenPointer", "no_progress"]

Progress = Callable[[int, int], None]
"""(done, total): told while long work goes on."""


def no_progress(done: int, total: int) -> None:
    """For whoever does not want to be told."""
    del done, total


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenPointer:
    """A pointer as it was read, with the version a swap must still find."""

    pointer: Pointer
    version: Version


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainHandle:
    """A chain and its surroundings. Pickles, so that executors can be given one."""

    layout: Layout
    store: ObjectStore
    """Where artifacts are."""
    records: RecordStore
    """Where manifests, pointer and bookkeeping are: the same store, or a SQL database."""
    clock: Clock = field(default_factory=SystemClock)
    randomness: Randomness = field(default_factory=SystemRandomness)
    attempts_max: int = 8
    backoff_s: float = 0.02

    @property
    def identity(self) -> str:
        """What permits, input pins and messages call this chain."""
        return f"{self.records.url}#{self.layout.name}"

    def read_pointer(self) -> SeenPointer | None:
        """The pointer now, or None where the chain has none. A pointer that cannot be read is CorruptRecord."""
        try:
            stored = self.records.get(self.layout.pointer_key)
        except ObjectNotFound:
            return None
        seen = self.parse_pointer(stored.data, stored.version)
        return seen if seen.pointer.manifest_hash else self._with_hash(seen)

    def _with_hash(self, seen: SeenPointer) -> SeenPointer:
        """A pointer of an older release has no hash: then it is that of the bytes that are there now (C4)."""
        path = seen.pointer.manifest_path
        try:
            found = content_hash(self.records.get(path).data)
        except ObjectNotFound:
            raise CorruptRecord(path, "the manifest is missing") from None
        (move,) = seen.pointer.moves
        moves = (replace(move, manifest_hash=found),)
        return replace(seen, pointer=replace(seen.pointer, manifest_hash=found, moves=moves))

    def parse_pointer(self, data: bytes, version: Version) -> SeenPointer:
        pointer = Pointer.decode(data, key=self.layout.pointer_key, id_field=self.layout.id_field)
        return SeenPointer(pointer=pointer, version=version)

    def ulid(self, *, after: str | None) -> str:
        return next_ulid(self.clock, self.randomness, after=after)

    def token(self) -> str:
        """Unique text, by which a writer knows its own writes again."""
        return f"{self.randomness.bits(96):024x}"

    def back_off(self, attempt: int) -> None:
        """Wait before attempt + 1: exponential, with full jitter (S19)."""
        ceiling = self.backoff_s * (1 << min(attempt, 6))
        self.clock.sleep(ceiling * (1 + self.randomness.bits(10)) / 1024)
