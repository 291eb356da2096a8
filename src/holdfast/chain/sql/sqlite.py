"""SQLite, embedded: the standard library's driver, a write-ahead log, and writers one at a time.

`BEGIN IMMEDIATE` takes the write lock before anything is read, so a transaction that looks and then writes cannot be
overtaken in between, and never fails half-way because another was faster.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from holdfast.chain.sql.dialect import SQLITE, Dialect, Row, Transaction
from holdfast.chain.sql.schema import missing_schema, require_schema
from holdfast.chain.sql.url import SqlUrl
from holdfast.clock import Clock, SystemClock
from holdfast.errors import (
    BadInput,
    CorruptRecord,
    HoldfastError,
    StoreDenied,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)

__all__ = ["SqliteDatabase"]

CONNECTIONS_MAX = 8
BUSY_TIMEOUT_S = 30.0
_SWITCH_ATTEMPTS_MAX = 100
_SWITCH_PAUSE_S = 0.05

_T = TypeVar("_T")


class _Transaction:
    __slots__ = ("_connection",)

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def run(self, statement: str, parameters: Sequence[object] = ()) -> int:
        return self._connection.execute(statement, tuple(parameters)).rowcount

    def rows(self, statement: str, parameters: Sequence[object] = ()) -> list[Row]:
        return self._connection.execute(statement, tuple(parameters)).fetchall()


class SqliteDatabase:
    """One file. Connections are few, and each is used by one thread at a time."""

    def __init__(self, url: SqlUrl, *, clock: Clock | None = None) -> None:
        self._url = url
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._idle: list[sqlite3.Connection] = []
        self._slots = threading.BoundedSemaphore(CONNECTIONS_MAX)
        self._checked = False

    @property
    def dialect(self) -> Dialect:
        return SQLITE

    def rows(self, statement: str, parameters: Sequence[object] = ()) -> list[Row]:
        with self._connection() as connection:
            return connection.execute(statement, tuple(parameters)).fetchall()

    def write(self, work: Callable[[Transaction], _T], *, durable: bool = True) -> _T:
        with self._connection() as connection:
            # In the log either way and in order; without the sync the last ones may be missing after a power cut.
            connection.execute("PRAGMA synchronous = FULL" if durable else "PRAGMA synchronous = NORMAL")
            return _transact(connection, work)

    def migrate(self, work: Callable[[Transaction], _T]) -> _T:
        if self._url.read_only:
            raise StoreReadOnly(f"{self._url.public} was opened with mode=ro; migrate it without")
        with self._connection(create=True) as connection:
            self._use_write_ahead_log(connection)
            done = _transact(connection, work)
        self._checked = False
        return done

    async def rows_async(self, statement: str, parameters: Sequence[object] = ()) -> list[Row]:
        # There is no server to wait for; a thread keeps the loop free while the file is read.
        return await asyncio.to_thread(self.rows, statement, parameters)

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    @contextmanager
    def _connection(self, *, create: bool = False) -> Iterator[sqlite3.Connection]:
        """A connection for one call. One that saw an error of the database is closed, not kept."""
        if not self._slots.acquire(timeout=BUSY_TIMEOUT_S):
            raise StoreUnavailable(f"all {CONNECTIONS_MAX} connections to {self._url.public} are busy; try again")
        connection: sqlite3.Connection | None = None
        sound = False
        try:
            with self._lock:
                connection = self._idle.pop() if self._idle else None
            if connection is None:
                connection = self._connect(create=create)
            if not self._checked and not create:
                require_schema(_Transaction(connection), self._url)
                self._checked = True
            yield connection
            sound = True
        except sqlite3.Error as error:
            raise self._translated(error) from error
        except HoldfastError:
            sound = True  # our own refusal: the transaction was rolled back, the connection is as good as before
            raise
        finally:
            if connection is not None:
                self._put_back(connection, keep=sound)
            self._slots.release()

    def _put_back(self, connection: sqlite3.Connection, *, keep: bool) -> None:
        if keep and not connection.in_transaction:
            with self._lock:
                self._idle.append(connection)
        else:
            connection.close()

    def _connect(self, *, create: bool) -> sqlite3.Connection:
        path = Path(self._url.target)
        if not path.parent.is_dir():
            raise BadInput(f"{self._url.public}: the folder {str(path.parent)!r} does not exist; create it first")
        if not create and not path.exists():
            raise missing_schema(self._url)
        if path.is_dir():
            raise BadInput(f"{self._url.public} is a folder; name a file in it")
        mode = "ro" if self._url.read_only else "rwc" if create else "rw"
        return sqlite3.connect(
            f"{path.as_uri()}?mode={mode}",
            uri=True,
            timeout=BUSY_TIMEOUT_S,
            isolation_level=None,
            check_same_thread=False,
        )

    def _use_write_ahead_log(self, connection: sqlite3.Connection) -> None:
        """Kept in the file, so once is enough. SQLite does not wait for others here, so this does."""
        for attempt in range(_SWITCH_ATTEMPTS_MAX):
            try:
                connection.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                if _code(error) not in _BUSY or attempt + 1 == _SWITCH_ATTEMPTS_MAX:
                    raise
                self._clock.sleep(_SWITCH_PAUSE_S)

    def _translated(self, error: sqlite3.Error) -> HoldfastError:
        text = f"{self._url.public}: {self._url.scrub(str(error))}"
        if "no such table: holdfast" in str(error):
            self._checked = False
            return missing_schema(self._url)
        code = _code(error)
        if code in _BUSY:
            return StoreUnavailable(f"{text}: another writer has held it for {BUSY_TIMEOUT_S:.0f} s; try again")
        if code == sqlite3.SQLITE_READONLY:
            return StoreReadOnly(f"{text}; open a file that can be written, or read only")
        if code in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}:
            return CorruptRecord(self._url.public, f"{error}; restore the file from a backup")
        if code == sqlite3.SQLITE_FULL:
            return StoreFull(f"{text}; free space and run again")
        if code in {sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH} or (
            code == sqlite3.SQLITE_CANTOPEN and not os.access(self._url.target, os.R_OK)
        ):
            return StoreDenied(f"{text}; check the permissions of the file and of its folder")
        if isinstance(error, sqlite3.OperationalError):
            return StoreUnavailable(text)
        return StoreError(text)


_BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})


def _code(error: sqlite3.Error) -> int:
    """The primary result code; the driver has none where the fault was its own."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def _transact(connection: sqlite3.Connection, work: Callable[[Transaction], _T]) -> _T:
    connection.execute("BEGIN IMMEDIATE")
    try:
        result = work(_Transaction(connection))
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return result
