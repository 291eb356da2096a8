"""PostgreSQL, through psycopg 3 and its pool. Imported only when a URL asks for it.

A connection is taken from the pool for one call. A read that meets a dead one is made again on a fresh one; so is a
transaction that could not even begin. A transaction that broke later may or may not have been committed: that is
StoreUnavailable, and whoever needs to know reads back (`holdfast.chain.commit.classify`).

Everything holds at READ COMMITTED, the default: what decides between two writers is a unique index, not the
isolation.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlsplit

from holdfast.chain.sql.async_connections import AsyncConnections
from holdfast.chain.sql.dialect import POSTGRES, Dialect, Row, Transaction
from holdfast.chain.sql.schema import missing_schema, require_schema
from holdfast.chain.sql.url import SqlUrl
from holdfast.errors import (
    BadInput,
    HoldfastError,
    StoreDenied,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)

try:
    import psycopg
    import psycopg_pool
except ImportError as error:
    raise BadInput("chains in PostgreSQL need psycopg: install 'holdfast[postgres]'") from error

__all__ = ["PostgresDatabase"]

CONNECTIONS_MAX = 8
CONNECT_TIMEOUT_S = 10
IDLE_MAX_S = 300.0
_KEEPALIVE: dict[str, Any] = {
    "application_name": "holdfast",
    # A server that vanished without a word is noticed within a minute.
    "keepalives_idle": 20,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 45_000,
}

_T = TypeVar("_T")
_Connection = psycopg.Connection[Row]


class _Transaction:
    __slots__ = ("_cursor",)

    def __init__(self, cursor: psycopg.Cursor[Row]) -> None:
        self._cursor = cursor

    def run(self, statement: str, parameters: Sequence[object] = ()) -> int:
        return self._cursor.execute(POSTGRES.spell(statement).encode(), parameters or None).rowcount

    def rows(self, statement: str, parameters: Sequence[object] = ()) -> list[Row]:
        return self._cursor.execute(POSTGRES.spell(statement).encode(), parameters or None).fetchall()


class _NotBegun(Exception):
    """The transaction could not even begin: nothing can have happened."""


class PostgresDatabase:
    """One database on a server, with a bounded pool of connections."""

    def __init__(self, url: SqlUrl) -> None:
        self._url = url
        given = dict(parse_qsl(urlsplit(url.target).query))
        self._timeout_s = int(given.get("connect_timeout", CONNECT_TIMEOUT_S))
        self._options = {name: value for name, value in _KEEPALIVE.items() if name not in given}
        # Not prepared on the server: a pooler in between would hand the next statement to another connection.
        self._options |= {"autocommit": True, "prepare_threshold": None, "connect_timeout": self._timeout_s}
        self._opening = threading.Lock()
        self._pool: psycopg_pool.ConnectionPool[_Connection] | None = None
        self._async_connections: AsyncConnections | None = None

    @property
    def dialect(self) -> Dialect:
        return POSTGRES

    def rows(self, statement: str, parameters: Sequence[object] = ()) -> list[Row]:
        return self._twice(lambda connection: _Transaction(connection.cursor()).rows(statement, parameters), reads=True)

    def write(self, work: Callable[[Transaction], _T], *, durable: bool = True) -> _T:
        return self._twice(lambda connection: _transact(connection, work, durable=durable), reads=False)

    def migrate(self, work: Callable[[Transaction], _T]) -> _T:
        try:
            with psycopg.connect(self._url.target, **self._options) as connection:
                return _transact(connection, work)
        except _NotBegun as error:
            raise StoreUnavailable(f"{self._url.public}: {self._url.scrub(str(error))}") from error
        except psycopg.Error as error:
            raise self._translated(error) from error

    async def rows_async(self, statement: str, parameters: Sequence[object] = ()) -> list[Row]:
        text = POSTGRES.spell(statement).encode()
        connections = self._connections_of_this_loop()
        for last in (False, True):
            try:
                async with connections.connection() as connection:
                    return await (await connection.execute(text, parameters or None)).fetchall()
            except psycopg.Error as error:
                if last or not _is_lost(error):
                    raise self._translated(error) from error
            connections.drop_idle()
        raise AssertionError("the second try returns or raises")

    def _connections_of_this_loop(self) -> AsyncConnections:
        known = self._async_connections
        if known is None or known.loop is not asyncio.get_running_loop():
            known = AsyncConnections(self._url.target, self._options, connections_max=CONNECTIONS_MAX)
            self._async_connections = known
        return known

    def close(self) -> None:
        with self._opening:
            pool, self._pool = self._pool, None
            connections, self._async_connections = self._async_connections, None
        if connections is not None:
            connections.drop_idle()
        if pool is not None:
            pool.close(timeout=1.0)

    def _twice(self, call: Callable[[_Connection], _T], *, reads: bool) -> _T:
        """Make a call on a pooled connection; once more if that was dead and nothing can have happened."""
        for last in (False, True):
            pool = self._opened()
            try:
                with pool.connection() as connection:
                    return call(connection)
            except _NotBegun as error:
                if last:
                    raise StoreUnavailable(f"{self._url.public}: {self._url.scrub(str(error))}") from error
            except psycopg.Error as error:
                lost = _is_lost(error)
                if lost:
                    _heal(pool)
                if last or not (lost and reads):
                    raise self._translated(error) from error
                continue
            _heal(pool)
        raise AssertionError("the second try returns or raises")

    def _opened(self) -> psycopg_pool.ConnectionPool[_Connection]:
        pool = self._pool
        if pool is not None:
            return pool
        with self._opening:
            if self._pool is None:
                # The pool would try again and again until it times out; asked directly, the server says what is wrong.
                try:
                    with psycopg.connect(self._url.target, **self._options) as connection:
                        require_schema(_Transaction(connection.cursor()), self._url)
                except psycopg.Error as error:
                    raise self._translated(error) from error
                self._pool = psycopg_pool.ConnectionPool(
                    self._url.target,
                    kwargs=self._options,
                    min_size=0,
                    max_size=CONNECTIONS_MAX,
                    timeout=float(self._timeout_s),
                    max_idle=IDLE_MAX_S,
                    # No longer than a caller waits: a later one finds it trying afresh instead of backing off.
                    reconnect_timeout=float(self._timeout_s),
                    open=True,
                    name="holdfast",
                )
            return self._pool

    def _translated(self, error: psycopg.Error) -> HoldfastError:
        text = f"{self._url.public}: {self._url.scrub(str(error))}"
        match error:
            case psycopg.errors.UndefinedTable() if "holdfast_" in str(error):
                return missing_schema(self._url)
            case psycopg.errors.InsufficientPrivilege() | psycopg.errors.InvalidAuthorizationSpecification():
                return StoreDenied(f"{text}; check what this user may do")
            case psycopg.errors.DiskFull():
                return StoreFull(f"{text}; free space and run again")
            case psycopg.errors.ReadOnlySqlTransaction():
                return StoreReadOnly(f"{text}; connect to the primary")
            case psycopg.OperationalError() if "authentication failed" in text or "pg_hba.conf" in text:
                return StoreDenied(f"{text}; check the user and the password")
            case psycopg.OperationalError() | psycopg.InterfaceError():
                return StoreUnavailable(text)
            case psycopg.DataError():
                return BadInput(text)
            case psycopg.ProgrammingError() if "connection" in text and error.sqlstate is None:
                return BadInput(f"{text}; check the database URL")
            case _:
                return StoreError(text)


def _is_lost(error: psycopg.Error) -> bool:
    """Whether the connection is gone rather than the statement refused. A pool that timed out has waited enough."""
    return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError) and not isinstance(
        error, psycopg_pool.PoolTimeout | psycopg_pool.PoolClosed
    )


def _heal(pool: psycopg_pool.ConnectionPool[_Connection]) -> None:
    """After a restart of the server every idle connection is dead: throw out all of them at once."""
    with contextlib.suppress(psycopg.Error):
        pool.check()


def _transact(connection: _Connection, work: Callable[[Transaction], _T], *, durable: bool = True) -> _T:
    cursor = connection.cursor()
    try:
        # In the log either way and in order; without the wait the last ones may be missing after a crash.
        cursor.execute(b"BEGIN" if durable else b"BEGIN; SET LOCAL synchronous_commit = off")
    except (psycopg.OperationalError, psycopg.InterfaceError) as error:
        raise _NotBegun(str(error)) from error
    try:
        result = work(_Transaction(cursor))
        cursor.execute(b"COMMIT")
    except Exception:
        if not connection.closed:
            cursor.execute(b"ROLLBACK")
        raise
    except BaseException:
        connection.close()  # killed in the middle: nobody will use this connection again
        raise
    return result
