"""A store that keeps nothing and takes notes: what reached it, and at which key.

It is how `holdfast.catalog.iam` finds out what a principal may do: by handing it this store and letting it try.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from enum import Enum

from holdfast.storage.asyncs import DirectAsyncReader
from holdfast.storage.objects import PAGE_SIZE_DEFAULT, AsyncObjectReader, ObjectInfo, StoredObject, Version

__all__ = ["Verb", "Witness"]

_VERSION = Version('"noted"')
_MOMENT = datetime(1970, 1, 1, tzinfo=UTC)


class Verb(Enum):
    """What the clouds can tell apart. None of them tells a read from a look at the metadata, so both are `READ`."""

    READ = "read"
    CREATE = "create"
    REPLACE = "replace"
    UPLOAD = "upload"
    """Create in parts. No cloud's client makes the last request of it conditional."""
    LIST = "list"
    DELETE = "delete"


class Witness:
    """An ObjectStore for one question. Every request succeeds, and is noted as (verb, key or folder)."""

    url = "memory://witness"

    def __init__(self) -> None:
        self.notes: list[tuple[Verb, str]] = []

    def put_new(self, key: str, data: bytes, *, durable: bool = True) -> Version:
        self.notes.append((Verb.CREATE, key))
        return _VERSION

    def swap(self, key: str, data: bytes, *, expected: Version, durable: bool = True) -> Version:
        self.notes.append((Verb.REPLACE, key))
        return _VERSION

    def upload(self, key: str, chunks: Iterable[bytes]) -> ObjectInfo:
        self.notes.append((Verb.UPLOAD, key))
        return _info(key)

    def get(self, key: str) -> StoredObject:
        self.notes.append((Verb.READ, key))
        return StoredObject(key=key, data=b"", version=_VERSION)

    def get_if_changed(self, key: str, known: Version) -> StoredObject | None:
        self.notes.append((Verb.READ, key))
        return None

    def get_range(self, key: str, start: int, length: int) -> bytes:
        self.notes.append((Verb.READ, key))
        return b""

    def head(self, key: str) -> ObjectInfo:
        self.notes.append((Verb.READ, key))
        return _info(key)

    def head_many(self, keys: Sequence[str]) -> list[ObjectInfo | None]:
        return [self.head(key) for key in keys]

    def list_folders(self, prefix: str) -> list[str]:
        self.notes.append((Verb.LIST, prefix))
        return []

    def delete(self, keys: Iterable[str]) -> None:
        self.notes.extend((Verb.DELETE, key) for key in keys)

    def as_async(self) -> AsyncObjectReader:
        return DirectAsyncReader(self)

    def list(
        self, prefix: str, *, after: str | None = None, page_size: int = PAGE_SIZE_DEFAULT
    ) -> Iterator[list[ObjectInfo]]:
        self.notes.append((Verb.LIST, prefix))
        return iter(())


def _info(key: str) -> ObjectInfo:
    return ObjectInfo(key=key, size=0, version=_VERSION, modified_at=_MOMENT)
