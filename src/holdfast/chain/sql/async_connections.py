"""The PostgreSQL connections of one event loop: a few that wait to be used again, and nothing in the background.

A pool with tasks of its own must be closed by somebody before its loop ends, and a reader that is merely dropped closes
nothing. These connections are closed when the pool is, or goes out of use, whatever became of the loop.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import psycopg

__all__ = ["AsyncConnections"]

Connection = psycopg.AsyncConnection[tuple[Any, ...]]


class AsyncConnections:
    """At most `connections_max` at once; more callers wait."""

    def __init__(self, target: str, options: Mapping[str, Any], *, connections_max: int) -> None:
        self.loop = asyncio.get_running_loop()
        self._target = target
        self._options = dict(options)
        self._places = asyncio.Semaphore(connections_max)
        self._idle: list[Connection] = []
        weakref.finalize(self, _finish, self._idle)

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """One connection, given back afterwards unless it broke."""
        async with self._places:
            if self._idle:
                used = self._idle.pop()
            else:
                used = await psycopg.AsyncConnection.connect(self._target, **self._options)
            try:
                yield used
            except BaseException:
                # Broken, or cancelled in the middle of an answer: nobody should be handed the rest of it.
                used.pgconn.finish()
                raise
            self._idle.append(used)

    def drop_idle(self) -> None:
        """After a restart of the server every one that waits is dead. Closing needs no loop, so this needs none."""
        _finish(self._idle)


def _finish(idle: list[Connection]) -> None:
    while idle:
        connection = idle.pop()  # held by name: it must not be gone before it is closed
        connection.pgconn.finish()
