"""The legacy path: what older readers read and older writers wrote (S2, S3, S26, S27).

Where a layout has a mirror, every commit copies the visible manifest there, byte for byte. Two movers keep it right
without a lock: each takes the mirror's version first, then makes sure that the pointer still says what it is about to
copy, then swaps. Whoever moved the pointer last also finds the last version.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from holdfast.chain.handle import ChainHandle
from holdfast.chain.ids import parse_manifest_id
from holdfast.chain.manifest import ArtifactNames, Manifest
from holdfast.codec import Fields, Json, content_hash, snake_cased
from holdfast.errors import AlreadyExists, Conflict, ObjectNotFound, StoreUnavailable, VersionConflict
from holdfast.storage.objects import Version

__all__ = ["Mirror", "decode_any_manifest", "mirror_is_current", "read_mirror", "sync_mirror"]

_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mirror:
    """The manifest at the legacy path."""

    manifest: Manifest
    data: bytes
    version: Version

    @property
    def hash(self) -> str:
        return content_hash(self.data)


def decode_any_manifest(data: bytes, *, key: str, names: ArtifactNames) -> Manifest:
    """A manifest of this format, or of an older release: any JSON object without a `format` field."""
    fields = Fields.decode(data, key=key, kind=None)
    if "format" in fields.rest():
        return Manifest.from_fields(fields, names=names)
    return _legacy_manifest(fields)


def _legacy_manifest(fields: Fields) -> Manifest:
    """What an old writer left.

    Its fields are its own, so all of them stay in the payload, by the names of today (C4); the kernel needs only an id.
    """
    payload: Json = snake_cased(fields.rest())
    found = payload.get("manifest_id")
    try:
        manifest_id = found if isinstance(found, int) and found >= 0 else parse_manifest_id(str(found))
    except ValueError:
        manifest_id = 0
    epoch = payload.get("epoch")
    published_at = payload.get("published_at", payload.get("updated_at"))
    return Manifest(
        manifest_id=manifest_id,
        epoch=epoch if isinstance(epoch, int) and epoch >= 0 else 0,
        fencing_token=0,
        commit_ulid="",
        pointer_sequence=0,
        parent_hash=None,
        previous_manifest_path=None,
        published_at=_lenient_time(published_at),
        run_id="legacy",
        payload=payload,
        legacy=True,
    )


def _lenient_time(found: object) -> datetime:
    """An old writer's time: without a zone it is UTC; whatever cannot be read is long ago."""
    try:
        moment = datetime.fromisoformat(str(found))
    except ValueError:
        return _LONG_AGO
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def read_mirror(handle: ChainHandle) -> Mirror | None:
    """The manifest at the legacy path, or None where there is none or the layout has no such path."""
    key = handle.layout.mirror_key
    if key is None:
        return None
    try:
        stored = handle.records.get(key)
    except ObjectNotFound:
        return None
    manifest = decode_any_manifest(stored.data, key=key, names=handle.layout.names)
    return Mirror(manifest=manifest, data=stored.data, version=stored.version)


def mirror_is_current(handle: ChainHandle) -> bool:
    """Whether the legacy path holds exactly what the pointer names."""
    if handle.layout.mirror_key is None:
        return True
    seen, mirror = handle.read_pointer(), read_mirror(handle)
    if seen is None or seen.pointer.publishing == "legacy":
        return True
    return mirror is not None and mirror.hash == seen.pointer.manifest_hash


def write_mirror(handle: ChainHandle, data: bytes, *, known: Version | None) -> Version | None:
    """Copy what was just committed, against the mirror version known from before.

    None if somebody else wrote it since.
    """
    key = handle.layout.mirror_key
    if key is None:
        return None
    try:
        # Not durable: after a power cut `reconcile` derives it again from the pointer.
        if known is None:
            return handle.records.put_new(key, data, durable=False)
        return handle.records.swap(key, data, expected=known, durable=False)
    except (AlreadyExists, VersionConflict):
        return None


def sync_mirror(handle: ChainHandle) -> Version | None:
    """Bring the legacy path to what the pointer names, however many others are at it."""
    key = handle.layout.mirror_key
    if key is None:
        return None
    for attempt in range(handle.attempts_max):
        try:
            stored = handle.records.get(key)
            known: Version | None = stored.version
        except ObjectNotFound:
            stored, known = None, None
        seen = handle.read_pointer()  # after the mirror's version was taken: see the module's head
        if seen is None or seen.pointer.publishing == "legacy":
            return known
        if stored is not None and content_hash(stored.data) == seen.pointer.manifest_hash:
            return known
        data = handle.records.get(seen.pointer.manifest_path).data
        try:
            written = write_mirror(handle, data, known=known)
        except StoreUnavailable:
            if attempt + 1 == handle.attempts_max:
                raise
            written = None
        if written is not None:
            return written
        handle.back_off(attempt)
    raise Conflict(f"{key!r} kept changing for {handle.attempts_max} attempts; `reconcile` will bring it up to date")
