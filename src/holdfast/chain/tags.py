"""Tags: key=value per snapshot, in one object beside the manifests (S36).

Manifests stay immutable and their hashes hold. Tags given at birth are inside the manifest and its move; later ones are
here, and the last value wins. Tagging and collecting meet at the pointer: the tagger writes the tag and then touches
the pointer, and the collector's swap counts only against the pointer that it read before the tags (`fence.protect`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice

from holdfast.chain.fence import protect
from holdfast.chain.handle import ChainHandle
from holdfast.chain.history import ManifestRef, published_moves, ref_from_move
from holdfast.chain.ids import format_manifest_id, parse_manifest_id
from holdfast.chain.pointer import Move, Pointer
from holdfast.codec import Fields, encode_record, format_stamp
from holdfast.errors import (
    AlreadyExists,
    BadInput,
    Conflict,
    CorruptRecord,
    ObjectNotFound,
    SnapshotCollected,
    SnapshotNotFound,
    StoreUnavailable,
    VersionConflict,
)
from holdfast.storage.objects import Version

__all__ = ["TagBook", "TaggedSnapshot", "find_snapshot", "list_snapshots", "read_tags", "tag_snapshot", "tags_of"]

TEXT_LENGTH_MAX = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class TagBook:
    """All tags given after birth. A value of None takes a tag from birth away."""

    revision: int = 0
    """+1 on every write, so that no two contents are the same bytes."""
    writer: str = ""
    """Unique to one write: tells our own from another's when the store's answer was lost."""
    snapshots: Mapping[int, Mapping[str, str | None]] = field(default_factory=dict)
    unknown: Mapping[str, object] = field(default_factory=dict)

    def encode(self) -> bytes:
        return encode_record(
            {
                "format": format_stamp("tags"),
                "revision": self.revision,
                "writer": self.writer,
                "snapshots": {
                    format_manifest_id(number): dict(tags) for number, tags in sorted(self.snapshots.items())
                },
                **self.unknown,
            }
        )

    @classmethod
    def decode(cls, data: bytes, *, key: str) -> TagBook:
        fields = Fields.decode(data, key=key, kind="tags")
        revision, writer = fields.number("revision"), fields.text("writer")
        snapshots: dict[int, Mapping[str, str | None]] = {}
        for number, tags in fields.mapping("snapshots").items():
            if not isinstance(tags, dict) or not all(
                value is None or isinstance(value, str) for value in tags.values()
            ):
                raise CorruptRecord(key, f"the tags of {number!r} should map names to text")
            try:
                snapshots[parse_manifest_id(number)] = tags
            except ValueError as error:
                raise CorruptRecord(key, str(error)) from None
        return cls(revision=revision, writer=writer, snapshots=snapshots, unknown=fields.rest())


@dataclass(frozen=True, slots=True, kw_only=True)
class TaggedSnapshot:
    """A snapshot with the tags it has now."""

    snapshot: ManifestRef
    tags: Mapping[str, str]


def read_tags(handle: ChainHandle) -> tuple[TagBook, Version | None]:
    """The tag book, with the version a swap must still find; None where nothing was tagged yet."""
    key = handle.layout.tags_key
    try:
        stored = handle.records.get(key)
    except ObjectNotFound:
        return TagBook(), None
    return TagBook.decode(stored.data, key=key), stored.version


def tags_of(book: TagBook, move: Move) -> dict[str, str]:
    """What a snapshot is tagged with now: birth tags, then later ones."""
    merged = {**move.tags, **book.snapshots.get(move.target_id, {})}
    return {name: value for name, value in merged.items() if value is not None}


def tag_snapshot(handle: ChainHandle, target: Move, tags: Mapping[str, str | None], *, by: str) -> None:
    """Merge tags into a snapshot's, last wins; a value of None removes one.

    SnapshotCollected if the collector was first.
    """
    for name, value in tags.items():
        _check(name, value)
    before = _merge(handle, target.target_id, tags)
    if all(value is None for value in tags.values()):
        return  # taking a tag away protects nothing
    try:
        protect(handle, target.target_id, by=by, why=f"tag {', '.join(sorted(tags))}")  # see the module's head
    except SnapshotCollected:
        _merge(handle, target.target_id, {name: before.get(name) for name in tags})
        raise SnapshotCollected(
            f"snapshot {handle.layout.ref_of(target.manifest_path)} was collected; restore it, then tag it"
        ) from None


def _merge(handle: ChainHandle, manifest_id: int, tags: Mapping[str, str | None]) -> Mapping[str, str | None]:
    """Write tags by compare-and-swap; return what the snapshot had before."""
    writer = handle.token()
    first: Mapping[str, str | None] | None = None
    for attempt in range(handle.attempts_max):
        book, version = read_tags(handle)
        before = book.snapshots.get(manifest_id, {})
        first = before if first is None else first  # a second look may find what we wrote ourselves
        after = TagBook(
            revision=book.revision + 1,
            writer=writer,
            snapshots={**book.snapshots, manifest_id: {**before, **tags}},
            unknown=book.unknown,
        )
        try:
            if version is None:
                handle.records.put_new(handle.layout.tags_key, after.encode())
            else:
                handle.records.swap(handle.layout.tags_key, after.encode(), expected=version)
            return first
        except (AlreadyExists, VersionConflict, StoreUnavailable):
            # Merging again is harmless: whether or not the first write landed, the result is the same.
            handle.back_off(attempt)
    raise Conflict(f"the tags kept changing for {handle.attempts_max} attempts; try again")


def _check(name: str, value: str | None) -> None:
    if not name or name != name.strip() or "=" in name or not name.isprintable() or len(name) > TEXT_LENGTH_MAX:
        raise BadInput(f"tag name {name!r}: use printable text without '=' and without spaces around it")
    if value is not None and (not value.isprintable() or len(value) > TEXT_LENGTH_MAX):
        raise BadInput(f"tag value {value!r}: use printable text of at most {TEXT_LENGTH_MAX} characters")


def list_snapshots(
    handle: ChainHandle,
    pointer: Pointer,
    *,
    key: str | None = None,
    value: str | None = None,
    limit: int | None = None,
) -> list[TaggedSnapshot]:
    """Snapshots of the history with their tags, oldest first; with `key` only those that have it (and `value`).

    `limit` takes the newest ones, and reads no more of the log than they need.
    """
    book, _ = read_tags(handle)
    matching = (
        TaggedSnapshot(snapshot=ref_from_move(handle, move), tags=tags)
        for move in published_moves(handle, pointer)
        for tags in (tags_of(book, move),)
        if key is None or (key in tags and value in (None, tags[key]))
    )
    return list(islice(matching, limit))[::-1]


def find_snapshot(handle: ChainHandle, pointer: Pointer, key: str, value: str) -> Move:
    """The newest snapshot with this tag."""
    book, _ = read_tags(handle)
    for move in published_moves(handle, pointer):
        if tags_of(book, move).get(key) == value:
            return move
    raise SnapshotNotFound(f"no snapshot is tagged {key}={value}; `holdfast tags` lists what there is")
