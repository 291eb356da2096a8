"""What the collector sees: every object of a chain, every run, and what must be kept (S40, S41).

The order of the reads is the argument. Objects are listed before runs: a run that registers after the runs were read
writes its first byte after the objects were listed, so nothing of it is in the list. The pointer is read before both,
and the collection counts only if the pointer is still at that version: so nothing was published, moved or restored in
between either.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, auto

from holdfast.chain.collection import read_condemned_keys
from holdfast.chain.handle import ChainHandle, SeenPointer
from holdfast.chain.history import list_move_target, require_pointer
from holdfast.chain.moves import moves_newest_first
from holdfast.chain.parts import PartReader
from holdfast.chain.pointer import MAKES_VISIBLE, Move
from holdfast.chain.runs import RunRecord, RunState, list_runs
from holdfast.chain.tags import TagBook, read_tags, tags_of
from holdfast.errors import Conflict, Damaged, InvariantViolation
from holdfast.storage.objects import ObjectInfo, Version, list_keys_of

__all__ = [
    "Fate",
    "Survey",
    "fate_of",
    "kept_moves",
    "last_published",
    "needed_by",
    "survey_chain",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """One look at a chain."""

    seen: SeenPointer
    moves: tuple[Move, ...]
    """All moves that made a snapshot visible, newest first, collected ones included."""
    objects: tuple[tuple[str, int | None], ...]
    """The key of everything where artifacts are, with its size where the store tells it for nothing."""
    manifests: tuple[ObjectInfo, ...]
    runs: tuple[tuple[RunRecord, Version], ...]
    tags: TagBook
    empty_runs: tuple[str, ...]
    """Keys of run records that a power cut left empty."""
    condemned: frozenset[str]
    """Keys that an earlier collection has condemned and that can still be restored."""

    @property
    def published(self) -> list[Move]:
        """The history: visible at some time, not collected, newest first."""
        return [move for move in self.moves if move.target_id not in self.seen.pointer.collected]


def survey_chain(handle: ChainHandle) -> Survey:
    """Look at everything, in the order that the module's head explains."""
    seen = require_pointer(handle)
    if seen.pointer.publishing == "legacy":
        raise Conflict(
            "this chain is switched to legacy-only writes: what is in use cannot be known, so nothing is collected"
        )
    objects = tuple(found for prefix in handle.layout.artifact_prefixes for found in list_keys_of(handle.store, prefix))
    manifests = tuple(
        info
        for page in handle.records.list(handle.layout.manifest_prefix)
        for info in page
        if handle.layout.parse_manifest_key(info.key) is not None
    )
    runs = tuple(list_runs(handle))
    empty_runs = tuple(
        info.key for page in handle.records.list(handle.layout.run_prefix) for info in page if info.size == 0
    )
    tags, _ = read_tags(handle)
    moves = tuple(move for move in moves_newest_first(handle, seen.pointer) if move.kind in MAKES_VISIBLE)
    pending = frozenset(
        key for collection in seen.pointer.collections for key in read_condemned_keys(handle, collection.collection)
    )
    return Survey(
        seen=seen,
        moves=moves,
        objects=objects,
        manifests=manifests,
        runs=runs,
        tags=tags,
        empty_runs=empty_runs,
        condemned=pending,
    )


class Fate(Enum):
    """What the log and the lease say about a run."""

    PUBLISHED = auto()
    LIVE = auto()
    """It may still publish: what it claims and pins is kept."""
    ABANDONED = auto()


def last_published(moves: Iterable[Move]) -> dict[str, int]:
    """Run id → the sequence of the newest move that made something of it visible."""
    found: dict[str, int] = {}
    for move in moves:
        found[move.run_id] = max(move.sequence, found.get(move.run_id, 0))
    return found


def fate_of(handle: ChainHandle, record: RunRecord, published: Mapping[str, int]) -> Fate:
    """The log (`last_published`) decides first; a record's own `committed` is for the legacy path. A lease that is
    judged wrongly is harmless: an abandoned run is fenced before anything of it is condemned."""
    if published.get(record.run_id, -1) >= record.earliest_sequence:
        return Fate.PUBLISHED
    if record.state is RunState.COMMITTED:
        return Fate.LIVE  # the log does not know it: perhaps published by the legacy path
    if record.state is RunState.WRITING and record.lease_expires_at > handle.clock.now():
        return Fate.LIVE
    return Fate.ABANDONED


def _pinned(handle: ChainHandle, survey: Survey) -> frozenset[int]:
    """Snapshots that live runs build on."""
    published = last_published(survey.moves)
    live = (record for record, _ in survey.runs if record.pins and fate_of(handle, record, published) is Fate.LIVE)
    return frozenset(pin for record in live for pin in record.pins)


def kept_moves(handle: ChainHandle, survey: Survey, retention: int) -> list[Move]:
    """The newest `retention` snapshots, the pointer's target, every tagged one, and what live runs build on."""
    pinned = _pinned(handle, survey)
    return [
        move
        for position, move in enumerate(survey.published)
        if position < retention
        or move.target_id == survey.seen.pointer.manifest_id
        or move.target_id in pinned
        or tags_of(survey.tags, move)
    ]


def needed_by(handle: ChainHandle, reader: PartReader, moves: list[Move]) -> set[str]:
    """The path of everything that kept snapshots name, by themselves or in their parts.

    One that cannot be read stops the collection: what it needs is unknown (S41).
    """
    needed: set[str] = set()
    for move in moves:
        try:
            listed = list_move_target(handle, move)
            named = reader.named_by(listed)
        except Damaged as error:
            raise InvariantViolation(
                f"nothing was collected: snapshot {handle.layout.ref_of(move.manifest_path)} is kept "
                f"but cannot be read ({error})"
            ) from error
        if listed.legacy:
            raise InvariantViolation(
                f"nothing was collected: snapshot {handle.layout.ref_of(move.manifest_path)} is in a "
                "legacy format whose files are not known; it must leave the retention window first"
            )
        for path, inside in named.items():
            if path not in needed:  # a part that another snapshot shares was looked into already
                needed.add(path)
                needed.update(inside)
    return needed
