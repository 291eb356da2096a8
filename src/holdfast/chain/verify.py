"""Verify: walk everything from the pointer to the bytes, hash by hash, and report every break (S38).

Product code: the command line offers it and every test's store fixture ends with it. It changes nothing, and it looks
at each invariant of `commit.py` by its number, so a break says which promise it breaks.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

from holdfast.chain.collection import read_collection
from holdfast.chain.handle import ChainHandle, Progress, SeenPointer, no_progress
from holdfast.chain.history import load_move_target
from holdfast.chain.legacy import decode_any_manifest, read_mirror
from holdfast.chain.manifest import Artifact, Manifest
from holdfast.chain.moves import MOVES_PER_SEGMENT, read_hashed_segment
from holdfast.chain.parts import parts_of, read_part
from holdfast.chain.pointer import MAKES_VISIBLE, Move, MoveKind, Pointer, broken_succession
from holdfast.chain.root import root_is_current
from holdfast.chain.runs import RunRecord, RunState
from holdfast.chain.tags import read_tags
from holdfast.errors import Damaged, HoldfastError, ObjectNotFound
from holdfast.fencing.lock import read_lock
from holdfast.storage.objects import RecordStore, sizes_of

__all__ = ["Break", "verify_chain"]

_CHUNK = 8 << 20
_ALGORITHMS = ("sha256", "sha512", "blake2b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Break:
    """One thing that is not as promised."""

    invariant: str
    key: str
    problem: str

    def __str__(self) -> str:
        return f"{self.invariant} {self.key}: {self.problem}"


def verify_chain(handle: ChainHandle, *, read_artifacts: bool = True, progress: Progress = no_progress) -> list[Break]:
    """Every break of the chain, or an empty list. `read_artifacts` False asks for sizes only."""
    breaks: list[Break] = []
    try:
        seen = handle.read_pointer()
    except Damaged as error:
        return [Break(invariant="I1", key=handle.layout.pointer_key, problem=str(error))]
    breaks += _check_lock(handle, seen)
    if seen is None:
        return [*breaks, *_check_lost_pointer(handle), *_check_runs(handle, ())]
    moves, log_breaks = _read_log(handle, seen.pointer)
    breaks += log_breaks
    breaks += _check_ids(seen.pointer, moves)
    manifests, manifest_breaks = _read_manifests(handle, seen.pointer, moves)
    breaks += manifest_breaks
    breaks += _check_artifacts(handle, list(manifests.values()), read_artifacts=read_artifacts, progress=progress)
    breaks += _check_runs(handle, tuple(moves))
    breaks += _check_mirror(handle, seen.pointer)
    breaks += _check_tags(handle, moves)
    breaks += _check_collections(handle, seen.pointer)
    return breaks


def _check_lost_pointer(handle: ChainHandle) -> Iterator[Break]:
    """A chain that has no pointer was never published to, or has lost it: a settled log or a parent tells (I1)."""
    settled = any(True for page in handle.records.list(handle.layout.moves_prefix) for _ in page)
    if settled or any(_has_parent(handle, key, data) for key, data in _manifests_of(handle)):
        problem = "the pointer is missing, but snapshots were published"
        yield Break(invariant="I1", key=handle.layout.pointer_key, problem=problem)


def _manifests_of(handle: ChainHandle) -> Iterator[tuple[str, bytes]]:
    for key, data in _records_below(handle.records, handle.layout.manifest_prefix):
        if handle.layout.parse_manifest_key(key) is not None:
            yield key, data


def _has_parent(handle: ChainHandle, key: str, data: bytes) -> bool:
    """Whether a manifest was built on another: then that one was visible, and there was a pointer."""
    try:
        return decode_any_manifest(data, key=key, names=handle.layout.names).parent_hash is not None
    except Damaged:
        return False


def _read_log(handle: ChainHandle, pointer: Pointer) -> tuple[list[Move], list[Break]]:
    """All moves, oldest first. Each segment must hash to what the pointer, or the segment after it, says (I2, I3).

    Walked from the pointer down, so that the one whose bytes changed is the one that is named.
    """
    breaks: list[Break] = []
    older: list[tuple[Move, ...]] = []
    expected = pointer.log_hash
    for segment in range(pointer.moves[0].sequence // MOVES_PER_SEGMENT - 1, -1, -1):
        key = handle.layout.moves_key(segment)
        try:
            found, found_hash = read_hashed_segment(handle, segment)
        except Damaged as error:
            breaks.append(Break(invariant="I2", key=key, problem=str(error)))
            expected = None
            continue
        if expected is not None and found_hash != expected:
            problem = f"its bytes hash to {found_hash}, not to {expected}, as what follows it says"
            breaks.append(Break(invariant="I3", key=key, problem=problem))
        expected = found.previous_hash
        older.append(found.moves)
    moves = [move for found in reversed(older) for move in found]
    moves += pointer.moves
    if pointer.moves[0].sequence % MOVES_PER_SEGMENT:
        problem = f"its oldest move is {pointer.moves[0].sequence}, in the middle of a segment: older ones are missing"
        breaks.append(Break(invariant="I2", key=handle.layout.pointer_key, problem=problem))
    if not breaks:
        breaks += [
            Break(invariant="I2", key=handle.layout.moves_prefix, problem=each) for each in broken_succession(moves)
        ]
    return moves, breaks


def _check_ids(pointer: Pointer, moves: list[Move]) -> Iterator[Break]:
    """An id is published once, with one content (I4), and nothing is above the high-water mark."""
    hashes: dict[int, str] = {}
    for move in moves:
        known = hashes.setdefault(move.target_id, move.manifest_hash)
        if known != move.manifest_hash:
            yield Break(
                invariant="I4", key=move.manifest_path, problem=f"id {move.target_id} was used for two contents"
            )
        if move.target_id > pointer.high_water_id:
            yield Break(
                invariant="I4", key=move.manifest_path, problem=f"id {move.target_id} is above the high-water mark"
            )
    first = [move for move in moves if move.kind in MAKES_VISIBLE]
    for earlier, later in pairwise(first):
        if later.target_id <= earlier.target_id:
            problem = f"id {later.target_id} was published after {earlier.target_id}"
            yield Break(invariant="I4", key=later.manifest_path, problem=problem)


def _read_manifests(
    handle: ChainHandle, pointer: Pointer, moves: list[Move]
) -> tuple[dict[int, Manifest], list[Break]]:
    """Every manifest of the history: there, unchanged, and what its move says (I3, I5, S14)."""
    breaks: list[Break] = []
    loaded: dict[int, Manifest] = {}
    hashes = {move.target_id: (move.manifest_hash, move.manifest_path) for move in moves}
    epoch_before = 0
    counters: dict[str, int] = {}
    for move in moves:
        epoch_floor, epoch_before = epoch_before, max(epoch_before, move.epoch)
        if move.kind not in MAKES_VISIBLE or move.target_id in pointer.collected:
            continue
        try:
            manifest = load_move_target(handle, move)
        except Damaged as error:
            invariant = "I6" if "missing" in str(error) else "I3"
            breaks.append(Break(invariant=invariant, key=move.manifest_path, problem=str(error)))
            continue
        loaded[move.target_id] = manifest
        if move.kind is not MoveKind.PUBLISH:
            continue  # adopted from the legacy path, which had no moves to agree with
        told = (manifest.manifest_id, manifest.commit_ulid, manifest.epoch, manifest.run_id, manifest.pointer_sequence)
        if told != (move.target_id, move.commit_ulid, move.epoch, move.run_id, move.sequence):
            problem = "its id, ULID, epoch, run or sequence is not what its move says"
            breaks.append(Break(invariant="I3", key=move.manifest_path, problem=problem))
        parent = None if move.source_id is None else hashes.get(move.source_id)
        if parent is None and move.source_id is not None:
            continue  # the move that led there is in a segment that cannot be read, which is reported already
        if (manifest.parent_hash, manifest.previous_manifest_path) != (parent or (None, None)):
            problem = "its parent is not the manifest that was visible before it"
            breaks.append(Break(invariant="I3", key=move.manifest_path, problem=problem))
        if manifest.fencing_token < epoch_floor:
            problem = f"its fencing token {manifest.fencing_token} is below epoch {epoch_floor}, which came before it"
            breaks.append(Break(invariant="I5", key=move.manifest_path, problem=problem))
        breaks += _check_counters(counters, manifest.counters, key=move.manifest_path)
        counters |= {name: max(value, counters.get(name, value)) for name, value in manifest.counters.items()}
    remembered = {name: pointer.counters.get(name, 0) for name in counters}
    breaks += _check_counters(counters, remembered, key=handle.layout.pointer_key)
    return loaded, breaks


def _check_counters(before: Mapping[str, int], now: Mapping[str, int], *, key: str) -> Iterator[Break]:
    """Counters that must not regress have not (S14)."""
    for name, value in now.items():
        if value < before.get(name, value):
            yield Break(invariant="S14", key=key, problem=f"counter {name!r} falls from {before[name]} to {value}")


def _check_artifacts(
    handle: ChainHandle, manifests: list[Manifest], *, read_artifacts: bool, progress: Progress
) -> Iterator[Break]:
    """Each artifact that any snapshot of the history names: there, with its size and its checksum (I6)."""
    named: dict[str, Artifact] = {}
    for manifest in manifests:
        yield from _name_all(named, manifest.artifacts)
    yield from _look_into_parts(handle, manifests, named)
    artifacts = list(named.values())
    sizes = sizes_of(handle.store, [artifact.path for artifact in artifacts])
    for done, (artifact, size) in enumerate(zip(artifacts, sizes, strict=True), start=1):
        if size is None:
            yield Break(invariant="I6", key=artifact.path, problem="the artifact is missing")
        elif size != artifact.byte_size:
            problem = f"it has {size} bytes instead of {artifact.byte_size}"
            yield Break(invariant="I6", key=artifact.path, problem=problem)
        elif read_artifacts and (found := _digest(handle, artifact)) != artifact.checksum:
            yield Break(invariant="I6", key=artifact.path, problem=f"its checksum is {found}, not {artifact.checksum}")
        progress(done, len(artifacts))


def _name_all(named: dict[str, Artifact], artifacts: Iterable[Artifact]) -> Iterator[Break]:
    """Add to what is named; whoever names it says the same of it (I3)."""
    for artifact in artifacts:
        known = named.setdefault(artifact.path, artifact)
        if (known.byte_size, known.checksum) != (artifact.byte_size, artifact.checksum):
            yield Break(invariant="I3", key=artifact.path, problem="two manifests disagree about its size or checksum")


def _look_into_parts(handle: ChainHandle, manifests: list[Manifest], named: dict[str, Artifact]) -> Iterator[Break]:
    """Add what parts list, each read once; and see that no snapshot names anything twice (I3).

    A part that cannot be read is reported here, and not once more with the other artifacts.
    """
    inside: dict[str, tuple[str, ...]] = {}
    for manifest in manifests:
        paths = [artifact.path for artifact in manifest.artifacts]
        for part in parts_of(handle.layout.names, manifest.artifacts):
            if part.path not in inside:
                try:
                    held = read_part(handle, part)
                except Damaged as error:
                    held = ()
                    named.pop(part.path, None)
                    yield Break(invariant="I6", key=part.path, problem=str(error))
                yield from _name_all(named, held)
                inside[part.path] = tuple(artifact.path for artifact in held)
            paths += inside[part.path]
        if len(set(paths)) < len(paths):
            doubled = Counter(paths).most_common(1)[0][0]
            yield Break(invariant="I3", key=doubled, problem=f"manifest {manifest.manifest_id} names it twice")


def _digest(handle: ChainHandle, artifact: Artifact) -> str:
    """The checksum of the stored bytes, in bounded memory. An algorithm we do not know never equals what is
    recorded."""
    algorithm, _, _ = artifact.checksum.partition(":")
    if algorithm not in _ALGORITHMS:
        return f"unknown algorithm {algorithm!r}"
    digest = hashlib.new(algorithm)
    try:
        for start in range(0, artifact.byte_size, _CHUNK):
            digest.update(handle.store.get_range(artifact.path, start, _CHUNK))
    except HoldfastError as error:
        return f"unreadable ({error})"
    return f"{algorithm}:{digest.hexdigest()}"


def _check_runs(handle: ChainHandle, moves: tuple[Move, ...]) -> Iterator[Break]:
    """No published run is swept while its snapshot is history; no record is unreadable (I7)."""
    published = {(move.run_id): move for move in moves if move.kind in MAKES_VISIBLE}
    for key, data in _records_below(handle.records, handle.layout.run_prefix):
        try:
            record = RunRecord.decode(data, key=key)
        except Damaged as error:
            yield Break(invariant="I7", key=key, problem=str(error))
            continue
        move = published.get(record.run_id)
        if record.state is RunState.SWEPT and move is not None and move.sequence >= record.earliest_sequence:
            yield Break(invariant="I7", key=key, problem="the run was swept, but its snapshot was published")


def _records_below(records: RecordStore, prefix: str) -> Iterator[tuple[str, bytes]]:
    for page in records.list(prefix):
        for info in page:
            try:
                yield info.key, records.get(info.key).data
            except ObjectNotFound:
                continue  # deleted by a purge meanwhile


def _check_mirror(handle: ChainHandle, pointer: Pointer) -> Iterator[Break]:
    """Root and legacy path are what the pointer says (S10, S43)."""
    if handle.layout.mirror_key is not None and pointer.publishing != "legacy":
        try:
            mirror = read_mirror(handle)
            if mirror is None or mirror.hash != pointer.manifest_hash:
                problem = "it does not hold what the pointer names; `holdfast reconcile` repairs it"
                yield Break(invariant="S10", key=handle.layout.mirror_key, problem=problem)
        except Damaged as error:
            yield Break(invariant="S10", key=handle.layout.mirror_key, problem=str(error))
    if handle.layout.root_key is not None:
        try:
            if not root_is_current(handle):
                problem = "it does not name this chain; `holdfast reconcile` repairs it"
                yield Break(invariant="C3", key=handle.layout.root_key, problem=problem)
        except Damaged as error:
            yield Break(invariant="C3", key=handle.layout.root_key, problem=str(error))


def _check_tags(handle: ChainHandle, moves: list[Move]) -> Iterator[Break]:
    try:
        book, _ = read_tags(handle)
    except Damaged as error:
        yield Break(invariant="S36", key=handle.layout.tags_key, problem=str(error))
        return
    known = {move.target_id for move in moves}
    for manifest_id in book.snapshots:
        if manifest_id not in known:
            problem = f"snapshot {manifest_id} is tagged, but was never visible"
            yield Break(invariant="S36", key=handle.layout.tags_key, problem=problem)


def _check_collections(handle: ChainHandle, pointer: Pointer) -> Iterator[Break]:
    """What can be restored must still be there, whole (S39)."""
    for pending in pointer.collections:
        try:
            record = read_collection(handle, pending.collection)
        except Damaged as error:
            yield Break(invariant="S39", key=handle.layout.collection_key(pending.collection), problem=str(error))
            continue
        if pending.purging:
            continue
        artifacts = [item for item in record.condemned if item.what == "artifact"]
        for item, info in zip(artifacts, handle.store.head_many([item.key for item in artifacts]), strict=True):
            if info is None:
                problem = f"collection {pending.collection} can no longer be restored: it is missing"
                yield Break(invariant="S39", key=item.key, problem=problem)


def _check_lock(handle: ChainHandle, seen: SeenPointer | None) -> Iterator[Break]:
    key = handle.layout.lock_key
    try:
        lock = read_lock(handle.records, key)
    except Damaged as error:
        yield Break(invariant="S22", key=key, problem=f"{error}; `holdfast reconcile` repairs it")
        return
    if lock is not None and seen is not None and lock.sequence < seen.pointer.epoch:
        problem = f"its sequence {lock.sequence} is below the pointer's epoch {seen.pointer.epoch}"
        yield Break(invariant="S22", key=key, problem=problem)
