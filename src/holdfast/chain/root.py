"""The root manifest of a workspace: the one stable place from which outside readers find every domain (C3).

It names each domain's pointer, or its legacy path while the domain is switched to legacy-only writes, and so changes
only when a domain appears or is switched: a commit costs nothing here. One that an older release wrote is read by the
names of today, and written by them the next time (C4).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from holdfast.chain.handle import ChainHandle
from holdfast.chain.layout import former_field, is_root_field
from holdfast.clock import format_time
from holdfast.codec import Fields, encode_record, snake_case
from holdfast.errors import AlreadyExists, Conflict, CorruptRecord, ObjectNotFound, VersionConflict
from holdfast.storage.objects import Version

__all__ = ["RootManifest", "read_root", "root_is_current", "sync_root"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RootManifest:
    """Where each domain's manifests are."""

    version: int
    updated_at: datetime
    paths: Mapping[str, str]
    """Field name (`catalog_manifest_path`) → key."""
    unknown: Mapping[str, object] = field(default_factory=dict)
    is_old: bool = False
    """An older release spelled it: it is due to be written anew."""

    def encode(self) -> bytes:
        return encode_record(
            {
                "version": self.version,
                **dict(sorted(self.paths.items())),
                "updated_at": format_time(self.updated_at),
                **self.unknown,
            }
        )

    @classmethod
    def decode(cls, data: bytes, *, key: str) -> RootManifest:
        fields = Fields.decode(data, key=key, kind=None)
        is_old = "updated_at" not in fields.rest()
        version, updated_at = fields.number("version"), fields.time("updated_at")
        paths: dict[str, str] = {}
        unknown: dict[str, object] = {}
        for name, value in fields.rest().items():
            field_name = former_field(snake_case(name))
            if not is_root_field(field_name) or not (value is None or isinstance(value, str)):
                unknown[name] = value
            elif value is not None and (field_name == name or field_name not in paths):
                paths[field_name] = value  # where a field is there by both names, today's counts
                is_old |= field_name != name
        return cls(version=version, updated_at=updated_at, paths=paths, unknown=unknown, is_old=is_old)


def read_root(handle: ChainHandle) -> tuple[RootManifest, Version] | None:
    """The root manifest of the workspace this chain is a domain of, or None."""
    key = handle.layout.root_key
    if key is None:
        return None
    try:
        stored = handle.records.get(key)
    except ObjectNotFound:
        return None
    return RootManifest.decode(stored.data, key=key), stored.version


def root_is_current(handle: ChainHandle) -> bool:
    """Whether the root names where this chain is read now."""
    if handle.layout.root_key is None or handle.layout.root_field is None:
        return True
    found = read_root(handle)
    return found is not None and found[0].paths.get(handle.layout.root_field) == _place(handle)


def sync_root(handle: ChainHandle) -> bool:
    """Make the root name this chain. True if it had to be written."""
    key, name = handle.layout.root_key, handle.layout.root_field
    if key is None or name is None:
        return False
    for attempt in range(handle.attempts_max):
        try:
            found = read_root(handle)
        except CorruptRecord:  # nobody can read what it said; each other domain's `reconcile` adds its own line again
            blank = RootManifest(version=1, updated_at=handle.clock.now(), paths={})
            found = blank, handle.records.get(key).version
        place = _place(handle)
        if found is not None and found[0].paths.get(name) == place and not found[0].is_old:
            return False
        known = None if found is None else found[0]
        root = RootManifest(
            version=1 if known is None else known.version,
            updated_at=handle.clock.now(),
            paths={**({} if known is None else known.paths), name: place},
            unknown={} if known is None else known.unknown,
        )
        try:
            if found is None:
                handle.records.put_new(key, root.encode())
            else:
                handle.records.swap(key, root.encode(), expected=found[1])
            return True
        except (AlreadyExists, VersionConflict):
            handle.back_off(attempt)
    raise Conflict(f"{key!r} kept changing for {handle.attempts_max} attempts; `reconcile` will bring it up to date")


def _place(handle: ChainHandle) -> str:
    seen = handle.read_pointer()
    legacy = seen is not None and seen.pointer.publishing == "legacy"
    return handle.layout.mirror_key if legacy and handle.layout.mirror_key is not None else handle.layout.pointer_key
