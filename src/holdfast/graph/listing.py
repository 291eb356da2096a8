"""The versions of a graph with their tags, kept between questions: asked again, two conditional reads (G11)."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.chain import Chain, ManifestRef, TaggedSnapshot
from holdfast.errors import ObjectNotFound, SnapshotNotFound
from holdfast.storage.objects import Version

__all__ = ["Versions"]


@dataclass(frozen=True, slots=True)
class _Listed:
    seen: tuple[Version | None, Version | None]
    """The pointer and the tags, as they were when this was made."""
    snapshots: list[TaggedSnapshot]
    newest: dict[tuple[str, str], ManifestRef]
    """The newest version with each tag."""


class Versions:
    """All versions that were ever visible and are not collected, the oldest first."""

    def __init__(self, chain: Chain) -> None:
        self._chain = chain
        self._listed: _Listed | None = None

    def list(self, key: str | None = None, value: str | None = None) -> list[TaggedSnapshot]:
        """Only those that have the tag, and the value, if given."""
        found = self._current().snapshots
        if key is None:
            return list(found)
        return [one for one in found if key in one.tags and value in (None, one.tags[key])]

    def find(self, key: str, value: str) -> ManifestRef:
        """The newest that is tagged key=value."""
        found = self._current().newest.get((key, value))
        if found is None:
            raise SnapshotNotFound(f"no snapshot is tagged {key}={value}; `holdfast tags` lists what there is")
        return found

    def _current(self) -> _Listed:
        if self._listed is None or not self._is_unchanged(self._listed):
            # What is newer than these versions makes the next question ask again.
            seen = tuple(self._version(key) for key in self._keys())
            snapshots = self._chain.list_snapshots()
            newest = {(key, value): one.snapshot for one in snapshots for key, value in one.tags.items()}
            self._listed = _Listed((seen[0], seen[1]), snapshots, newest)
        return self._listed

    def _keys(self) -> tuple[str, str]:
        return self._chain.layout.pointer_key, self._chain.layout.tags_key

    def _is_unchanged(self, listed: _Listed) -> bool:
        return all(
            self._version(key) is None if known is None else self._still_at(key, known)
            for key, known in zip(self._keys(), listed.seen, strict=True)
        )

    def _still_at(self, key: str, known: Version) -> bool:
        try:
            return self._chain.handle.records.get_if_changed(key, known) is None
        except ObjectNotFound:
            return False

    def _version(self, key: str) -> Version | None:
        try:
            return self._chain.handle.records.get(key).version
        except ObjectNotFound:
            return None
