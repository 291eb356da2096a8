"""Records dressed as a whole store: puts the store contract and the misbehaving stores on any `RecordStore`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from holdfast.chain.sql.records import SqlRecords
from holdfast.errors import ObjectNotFound
from holdfast.storage.keys import check_key, check_prefix
from holdfast.storage.objects import PAGE_SIZE_DEFAULT, AsyncObjectReader, ObjectInfo, StoredObject, Version

__all__ = ["RecordsAsStore"]


class RecordsAsStore:
    """What records lack of a store (uploads, folders, many heads at once), made from what they have."""

    def __init__(self, records: SqlRecords) -> None:
        self._records = records

    @property
    def url(self) -> str:
        return self._records.url

    @property
    def conditional_writes_trusted(self) -> bool:
        return self._records.conditional_writes_trusted

    def put_new(self, key: str, data: bytes, *, durable: bool = True) -> Version:
        return self._records.put_new(key, data, durable=durable)

    def swap(self, key: str, data: bytes, *, expected: Version, durable: bool = True) -> Version:
        return self._records.swap(key, data, expected=expected, durable=durable)

    def upload(self, key: str, chunks: Iterable[bytes]) -> ObjectInfo:
        check_key(key)
        self._records.put_new(key, b"".join(chunks))
        return self._records.head(key)

    def get(self, key: str) -> StoredObject:
        return self._records.get(key)

    def get_if_changed(self, key: str, known: Version) -> StoredObject | None:
        return self._records.get_if_changed(key, known)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        return self._records.get_range(key, start, length)

    def head(self, key: str) -> ObjectInfo:
        return self._records.head(key)

    def head_many(self, keys: Sequence[str]) -> list[ObjectInfo | None]:
        return [self._head(key) for key in keys]

    def _head(self, key: str) -> ObjectInfo | None:
        try:
            return self._records.head(key)
        except ObjectNotFound:
            return None

    def list_folders(self, prefix: str) -> list[str]:
        folder = check_prefix(prefix)
        start = len(folder) + 1 if folder else 0
        below = [info.key[start:] for page in self._records.list(folder) for info in page]
        return sorted({rest.partition("/")[0] for rest in below if "/" in rest})

    def delete(self, keys: Iterable[str]) -> None:
        self._records.delete(keys)

    def as_async(self) -> AsyncObjectReader:
        return self._records.as_async()

    def list(
        self, prefix: str, *, after: str | None = None, page_size: int = PAGE_SIZE_DEFAULT
    ) -> Iterator[list[ObjectInfo]]:
        return self._records.list(prefix, after=after, page_size=page_size)
