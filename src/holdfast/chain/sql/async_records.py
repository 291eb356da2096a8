"""The async read half of a chain's records: natively async with PostgreSQL, through a thread with SQLite."""

from __future__ import annotations

from holdfast.chain.layout import Layout
from holdfast.chain.sql.database import database_at
from holdfast.chain.sql.reading import Place, drive_async, info_steps, read_steps
from holdfast.chain.sql.url import parse_sql_url
from holdfast.errors import BadInput
from holdfast.storage.keys import check_key, check_range
from holdfast.storage.objects import ObjectInfo, StoredObject, Version

__all__ = ["AsyncSqlRecords"]


class AsyncSqlRecords:
    """Reads for asyncio. Writing, and with it rollback, is an operator's action and has no async half (S32)."""

    __slots__ = ("_database", "_place", "_url")

    def __init__(self, url: str, layout: Layout, *, chain: str | None = None) -> None:
        place = parse_sql_url(url)
        name = chain or place.chain
        if name is None:
            raise BadInput(f"{place.public} does not say which chain: add ?chain=NAME")
        self._url = place.naming(name)
        self._database = database_at(place)
        self._place = Place(chain=name, layout=layout, dialect=self._database.dialect)

    @property
    def url(self) -> str:
        return self._url

    async def get(self, key: str) -> StoredObject:
        check_key(key)
        found = await drive_async(read_steps(self._place, key), self._database.rows_async)
        assert found is not None, "without a known version there is always a body"
        return found

    async def get_if_changed(self, key: str, known: Version) -> StoredObject | None:
        check_key(key)
        return await drive_async(read_steps(self._place, key, known=known), self._database.rows_async)

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        check_range(start, length)
        return (await self.get(key)).data[start : start + length]

    async def head(self, key: str) -> ObjectInfo:
        check_key(key)
        return await drive_async(info_steps(self._place, key), self._database.rows_async)
