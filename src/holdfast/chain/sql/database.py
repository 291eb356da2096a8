"""What the rest of this package asks of a database, and the one object per database and process that answers.

Connections are pooled behind it and held inside one call only, never across a build. A handle that is pickled
carries its URL and finds the pool of the process it wakes up in; a forked child gets pools of its own.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from holdfast.chain.sql.dialect import Dialect, Row, Transaction
from holdfast.chain.sql.url import SqlUrl

__all__ = ["Database", "database_at"]

_T = TypeVar("_T")


class Database(Protocol):
    """One database. Safe for many threads."""

    @property
    def dialect(self) -> Dialect: ...

    def rows(self, statement: str, parameters: Sequence[object] = ()) -> list[Row]:
        """One read. Tried again once where the pooled connection turns out to be dead."""
        ...

    def write(self, work: Callable[[Transaction], _T], *, durable: bool = True) -> _T:
        """One transaction. StoreUnavailable: it may or may not have been committed. Any other error: it was not."""
        ...

    def migrate(self, work: Callable[[Transaction], _T]) -> _T:
        """One transaction that keeps other migrations out; makes the database where that is a file."""
        ...

    async def rows_async(self, statement: str, parameters: Sequence[object] = ()) -> list[Row]: ...

    def close(self) -> None:
        """Close every idle connection. The next call opens new ones."""
        ...


_lock = threading.Lock()
_open: dict[SqlUrl, Database] = {}
_inherited: list[dict[SqlUrl, Database]] = []


def database_at(url: SqlUrl) -> Database:
    """The database of this process at `url`. Nothing is connected to yet."""
    plain = SqlUrl(kind=url.kind, public=url.public, target=url.target, secrets=url.secrets, read_only=url.read_only)
    with _lock:
        found = _open.get(plain)
        if found is None:
            found = _open[plain] = _make(plain)
    return found


def _make(url: SqlUrl) -> Database:
    if url.kind == "sqlite":
        from holdfast.chain.sql.sqlite import SqliteDatabase

        return SqliteDatabase(url)
    from holdfast.chain.sql.postgres import PostgresDatabase

    return PostgresDatabase(url)


def _close_all() -> None:
    with _lock:
        databases = list(_open.values())
        _open.clear()
    for database in databases:
        database.close()


def _start_anew() -> None:
    """In a forked child: leave the parent's connections alone, closing one would end it for the parent too."""
    global _lock, _open
    _inherited.append(_open)
    _lock, _open = threading.Lock(), {}


atexit.register(_close_all)
os.register_at_fork(after_in_child=_start_anew)
