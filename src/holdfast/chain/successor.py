"""The next manifest: what it must be to follow the visible one (S14), and creating it under a key of its own (S21)."""

from __future__ import annotations

from datetime import datetime, timedelta

from holdfast.chain.handle import ChainHandle, SeenPointer
from holdfast.chain.manifest import Manifest, ManifestDraft
from holdfast.chain.pointer import Pointer
from holdfast.errors import AlreadyExists, Conflict, InvariantViolation, ObjectNotFound, StoreDenied, StoreUnavailable

__all__ = ["highest_id", "succession_problems", "write_manifest"]


def succession_problems(previous: Pointer | None, manifest: Manifest) -> list[str]:
    """Why `manifest` may not follow what `previous` names (S14). Checked before the swap and again by `verify`."""
    if previous is None:
        return [] if manifest.parent_hash is None else ["the first manifest of a chain has no parent"]
    found = []
    if manifest.manifest_id <= previous.high_water_id:
        found.append(f"id {manifest.manifest_id} is not above {previous.high_water_id}, the highest ever published")
    if manifest.commit_ulid <= previous.commit_ulid:
        found.append(f"commit_ulid {manifest.commit_ulid} is not above {previous.commit_ulid}")
    if min(manifest.epoch, manifest.fencing_token) < previous.epoch:
        found.append(f"epoch {min(manifest.epoch, manifest.fencing_token)} is below {previous.epoch}")
    if manifest.parent_hash != previous.manifest_hash or manifest.previous_manifest_path != previous.manifest_path:
        found.append(f"its parent is not {previous.manifest_path!r}, which is visible")
    for name, value in previous.counters.items():
        if manifest.counters.get(name, value) < value:
            found.append(f"counter {name!r} would fall from {value} to {manifest.counters[name]}")
    return found


def write_manifest(
    handle: ChainHandle,
    draft: ManifestDraft,
    *,
    seen: SeenPointer | None,
    run_id: str,
    token: int,
    not_before: datetime,
) -> tuple[Manifest, str, bytes]:
    """Build the next manifest and create it under a new key: orphans of crashed attempts are stepped over (S21)."""
    previous = None if seen is None else seen.pointer
    manifest_id = handle.layout.first_id if previous is None else previous.high_water_id + 1
    ulid = handle.ulid(after=None if previous is None else previous.commit_ulid)
    published_at = _after(max(handle.clock.now(), not_before), previous)
    for attempt in range(handle.attempts_max):
        manifest = Manifest(
            manifest_id=manifest_id,
            epoch=token,
            fencing_token=token,
            commit_ulid=ulid,
            pointer_sequence=0 if previous is None else previous.sequence + 1,
            parent_hash=None if previous is None else previous.manifest_hash,
            previous_manifest_path=None if previous is None else previous.manifest_path,
            published_at=published_at,
            run_id=run_id,
            artifacts=draft.artifacts,
            inputs=draft.inputs,
            counters=draft.counters,
            tags=draft.tags,
            payload=draft.payload,
        )
        for problem in succession_problems(previous, manifest):
            raise InvariantViolation(f"{problem}; nothing was published")
        path = handle.layout.manifest_key(manifest_id, published_at=published_at, run_id=run_id)
        data = manifest.encode(handle.layout.names)
        try:
            handle.records.put_new(path, data)
            return manifest, path, data
        except StoreUnavailable:
            if attempt + 1 == handle.attempts_max:
                raise
            handle.back_off(attempt)  # if it landed after all, the next try finds our own bytes
        except AlreadyExists:
            if _is_ours(handle, path, data):
                return manifest, path, data
            manifest_id = _highest_taken(handle, above=manifest_id, attempt=attempt) + 1
            published_at += timedelta(microseconds=1)
    raise Conflict(f"no free manifest id was found in {handle.attempts_max} attempts above {manifest_id}")


def _is_ours(handle: ChainHandle, path: str, data: bytes) -> bool:
    try:
        return handle.records.get(path).data == data
    except (ObjectNotFound, StoreUnavailable):
        return False  # cannot tell: take the next id, and leave this one to the collector


def _highest_taken(handle: ChainHandle, *, above: int, attempt: int) -> int:
    """An id that the next one is above. Who may not list steps over orphans, a little further each time (C9)."""
    try:
        return highest_id(handle, above=above)
    except StoreDenied:
        return above + attempt


def highest_id(handle: ChainHandle, *, above: int) -> int:
    """The highest id that any manifest has, published or not. Lists, but only after an orphan was met."""
    highest = above
    for page in handle.records.list(handle.layout.manifest_prefix, after=handle.layout.manifest_id_key(above)):
        for info in page:
            parsed = handle.layout.parse_manifest_key(info.key)
            if parsed is not None and parsed.manifest_id is not None:
                highest = max(highest, parsed.manifest_id)
    return highest


def _after(now: datetime, previous: Pointer | None) -> datetime:
    """Publishing times grow even when the clock goes back, so that key order stays time order (S4)."""
    return now if previous is None else max(now, previous.updated_at + timedelta(microseconds=1))
