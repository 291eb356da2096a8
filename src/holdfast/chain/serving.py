"""How a reader finds what to serve, without doing any input or output itself (S26, S28, S29).

Each function is a generator that yields the requests it wants made and is sent the answers; `drive` makes them one
after the other, `drive_async` awaits them. So the sync and the async reader share every decision and differ in nothing
but the waiting.

Opening what a manifest describes is one of the requests: data that turns out to be damaged leads to the same fallback,
or the same staying with what is served, as a damaged manifest.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass, replace
from typing import TypeVar

from holdfast.chain.layout import Layout
from holdfast.chain.legacy import decode_any_manifest
from holdfast.chain.manifest import Manifest
from holdfast.chain.moves import MOVES_PER_SEGMENT, MoveSegment
from holdfast.chain.pointer import MAKES_VISIBLE, Move, Pointer
from holdfast.codec import content_hash
from holdfast.errors import (
    CorruptRecord,
    Damaged,
    HoldfastError,
    NotAChain,
    ObjectNotFound,
    ReaderStateError,
    UnsupportedFormat,
)
from holdfast.storage.objects import StoredObject, Version

__all__ = [
    "Found",
    "ListKeys",
    "Open",
    "Opened",
    "Read",
    "cold_start",
    "drive",
    "drive_async",
    "legacy_manifest",
    "load_at",
    "moves_in_steps",
    "parse_pointer",
    "read_record",
    "refreshed",
]

_log = logging.getLogger("holdfast.reader")


@dataclass(frozen=True, slots=True)
class Read:
    """Read one record; with `known`, only if it has changed."""

    key: str
    known: Version | None = None


@dataclass(frozen=True, slots=True)
class ListKeys:
    """List the keys below a folder. Fallback only: no other read path lists (S31)."""

    prefix: str


@dataclass(frozen=True, slots=True)
class Open:
    """Make of a manifest what is to be served; the answer is `Opened`. Always the last request."""

    manifest: Manifest


@dataclass(frozen=True, slots=True)
class Opened:
    """What was made of a manifest."""

    resource: object


Request = Read | ListKeys | Open
Answer = StoredObject | list[str] | Opened | None
_R = TypeVar("_R")
Steps = Generator[Request, Answer, _R]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a reader is to serve, and how it came to that."""

    manifest: Manifest
    manifest_path: str
    manifest_hash: str
    pointer: Pointer | None
    pointer_version: Version | None
    """Of the pointer, or of the legacy manifest where there is no pointer."""
    skipped: tuple[str, ...] = ()
    """Why newer snapshots were passed over; empty unless the reader fell back."""
    resource: object = None
    """What `Open` made of the manifest."""


def drive(steps: Steps[_R], answer: Callable[[Request], Answer]) -> _R:
    """Run the steps to their end, making one request after the other."""
    try:
        request = next(steps)
        while True:  # ends with the generator, whose loops are bounded
            try:
                given = answer(request)
            except HoldfastError as error:
                request = steps.throw(error)
            else:
                request = steps.send(given)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]


async def drive_async(steps: Steps[_R], answer: Callable[[Request], Awaitable[Answer]]) -> _R:
    """The same, awaiting each answer."""
    try:
        request = next(steps)
        while True:  # ends with the generator, whose loops are bounded
            try:
                given = await answer(request)
            except HoldfastError as error:
                request = steps.throw(error)
            else:
                request = steps.send(given)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]


def read_record(key: str) -> Steps[StoredObject]:
    answer = yield Read(key)
    assert isinstance(answer, StoredObject)
    return answer


def cold_start(layout: Layout, *, fallback_attempts_max: int, served: Found | None = None) -> Steps[Found]:
    """Pointer, then manifest, then what it describes. Falls back where these are damaged, never because a store is
    silent, nor because a newer release wrote them: that data is good, and this reader is to be upgraded (S9).

    What is `served` already is not opened again.
    """
    try:
        stored = yield from read_record(layout.pointer_key)
    except ObjectNotFound:
        return (yield from _opened((yield from legacy_manifest(layout, pointer=None)), served))
    try:
        pointer = parse_pointer(layout, stored)
    except CorruptRecord as error:
        return (yield from _without_pointer(layout, error, fallback_attempts_max, served))
    if pointer.publishing == "legacy":
        return (yield from _opened((yield from legacy_manifest(layout, pointer=pointer)), served))
    try:
        found = yield from load_at(layout, pointer.manifest_path, pointer.manifest_hash, pointer, stored.version)
        return (yield from _opened(found, served))
    except UnsupportedFormat:
        raise
    except Damaged as error:
        return (yield from _fall_back(layout, pointer, stored.version, error, fallback_attempts_max))


def refreshed(layout: Layout, served: Found, *, saw: Callable[[Pointer], None]) -> Steps[Found | None]:
    """What to serve next, or None if nothing changed. One conditional read when the pointer is the same (S29).

    `saw` is told the pointer before what it names is loaded: a reader that keeps what it has still knows the head
    (S30).
    """
    if served.pointer_version is None:
        return (yield from cold_start(layout, fallback_attempts_max=0, served=served))
    if served.pointer is None:
        return (yield from _legacy_refreshed(layout, served))
    try:
        stored = yield Read(layout.pointer_key, served.pointer_version)
    except ObjectNotFound:
        raise CorruptRecord(layout.pointer_key, "the pointer has disappeared") from None
    if stored is None:
        return None if served.pointer.publishing != "legacy" else (yield from _legacy_refreshed(layout, served))
    assert isinstance(stored, StoredObject)
    pointer = parse_pointer(layout, stored)
    if pointer.sequence < served.pointer.sequence:
        return None  # a stale answer: what is served never goes backwards by itself (I9)
    saw(pointer)
    if pointer.publishing == "legacy":
        return (yield from _opened((yield from legacy_manifest(layout, pointer=pointer)), served))
    if pointer.manifest_hash == served.manifest_hash and pointer.manifest_path == served.manifest_path:
        return replace(served, pointer=pointer, pointer_version=stored.version, skipped=())
    found = yield from load_at(layout, pointer.manifest_path, pointer.manifest_hash, pointer, stored.version)
    return (yield from _opened(found, served))


def _legacy_refreshed(layout: Layout, served: Found) -> Steps[Found | None]:
    """Where the legacy path is served: look there, and whether a pointer has taken over."""
    found = yield from cold_start(layout, fallback_attempts_max=0, served=served)
    return None if found.pointer_version == served.pointer_version else found


def _opened(found: Found, served: Found | None = None) -> Steps[Found]:
    """The last step: what a manifest describes, opened unless it is open already."""
    if served is not None and served.manifest_hash == found.manifest_hash:
        return replace(found, manifest=served.manifest, resource=served.resource)
    answer = yield Open(found.manifest)
    assert isinstance(answer, Opened)
    return replace(found, resource=answer.resource)


def parse_pointer(layout: Layout, stored: StoredObject) -> Pointer:
    return Pointer.decode(stored.data, key=layout.pointer_key, id_field=layout.id_field)


def load_at(
    layout: Layout, path: str, expected_hash: str | None, pointer: Pointer | None, version: Version | None
) -> Steps[Found]:
    try:
        stored = yield from read_record(path)
    except ObjectNotFound:
        raise CorruptRecord(path, "the manifest is missing") from None
    found_hash = content_hash(stored.data)
    if expected_hash and found_hash != expected_hash:  # a pointer of an older release says none
        raise CorruptRecord(path, f"its bytes hash to {found_hash}, not to {expected_hash}")
    manifest = decode_any_manifest(stored.data, key=path, names=layout.names)
    return Found(
        manifest=manifest, manifest_path=path, manifest_hash=found_hash, pointer=pointer, pointer_version=version
    )


def legacy_manifest(layout: Layout, *, pointer: Pointer | None) -> Steps[Found]:
    if layout.mirror_key is None:
        raise NotAChain(f"no {layout.name} chain here: {layout.pointer_key!r} does not exist")
    try:
        stored = yield from read_record(layout.mirror_key)
    except ObjectNotFound:
        raise NotAChain(
            f"no {layout.name} chain here: neither {layout.pointer_key!r} nor {layout.mirror_key!r} exists"
        ) from None
    manifest = decode_any_manifest(stored.data, key=layout.mirror_key, names=layout.names)
    return Found(
        manifest=manifest,
        manifest_path=layout.mirror_key,
        manifest_hash=content_hash(stored.data),
        pointer=pointer,
        pointer_version=stored.version,
    )


def _fall_back(layout: Layout, pointer: Pointer, version: Version, first: Damaged, attempts_max: int) -> Steps[Found]:
    """What was visible when the damaged snapshot was published, then what was before that, and so on.

    A snapshot that was rolled back is never among them, whether it lies above the pointer or below.
    """
    skipped = [str(first)]
    tried = 0
    wanted: int | None = pointer.manifest_id
    moves = moves_in_steps(layout, pointer)
    while tried < attempts_max:
        try:
            move = yield from moves()
        except CorruptRecord as error:
            skipped.append(str(error))
            break
        if move is None:
            break
        if move.kind not in MAKES_VISIBLE or move.target_id != wanted:
            continue
        wanted = move.source_id
        if move.target_id == pointer.manifest_id or move.target_id in pointer.collected:
            continue
        tried += 1
        try:
            found = yield from load_at(layout, move.manifest_path, move.manifest_hash, pointer, version)
            found = yield from _opened(found)
        except Damaged as error:
            skipped.append(str(error))
            continue
        return _fell_back(found, skipped)
    raise ReaderStateError(f"no readable snapshot after {tried} fallbacks; skipped: {'; '.join(skipped)}")


def moves_in_steps(layout: Layout, pointer: Pointer) -> Callable[[], Steps[Move | None]]:
    """Like `moves.moves_newest_first`, in steps: each call is one move, None after the oldest."""
    waiting = list(pointer.moves)
    segment = pointer.moves[0].sequence // MOVES_PER_SEGMENT - 1

    def following() -> Steps[Move | None]:
        nonlocal segment, waiting
        if not waiting and segment >= 0:
            key = layout.moves_key(segment)
            try:
                stored = yield from read_record(key)
            except ObjectNotFound:
                raise CorruptRecord(key, "a segment of the move log is missing") from None
            waiting = list(MoveSegment.decode(stored.data, key=key, segment=segment).moves)
            segment -= 1
        return waiting.pop() if waiting else None

    return following


def _without_pointer(layout: Layout, first: CorruptRecord, attempts_max: int, served: Found | None) -> Steps[Found]:
    """The pointer itself is damaged: take the newest manifest that another one names as its parent.

    A manifest is built on what was visible, so its parent was; and it carries the parent's hash. The very newest has no
    such witness and cannot be told from an orphan, which is never to be served (S11).
    """
    skipped = [str(first)]
    keys = (yield ListKeys(layout.manifest_prefix)) if attempts_max > 0 else []
    assert isinstance(keys, list)
    witnessed: dict[str, str] = {}
    tried = 0
    for key in sorted((key for key in keys if layout.parse_manifest_key(key) is not None), reverse=True):
        if tried > attempts_max:
            break
        try:
            found = yield from load_at(layout, key, witnessed.get(key), None, None)
            previous, parent = found.manifest.previous_manifest_path, found.manifest.parent_hash
            if previous is not None and parent is not None:
                witnessed[previous] = parent
            if key in witnessed:
                return _fell_back((yield from _opened(found, served)), skipped)
        except Damaged as error:
            skipped.append(str(error))
            tried += 1
    raise ReaderStateError(f"no readable snapshot after {tried} fallbacks; skipped: {'; '.join(skipped)}")


def _fell_back(found: Found, skipped: list[str]) -> Found:
    _log.warning("fell back to snapshot %s; skipped: %s", found.manifest.manifest_id, "; ".join(skipped))
    return replace(found, skipped=tuple(skipped))
