"""What else rows can be looked up in: SQLite (one file a shard), LMDB, SlateDB, each used as its friends would use it.

The last two are in the extra `bench`; where one is not installed, it is left out.
"""

from __future__ import annotations

import asyncio
import importlib.util
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from bench.kv_rows import KEY, VALUE, packed
from holdfast.kv import HashRouting, KeySchema

__all__ = ["Engine", "LmdbEngine", "SlateEngine", "SqliteEngine", "have", "packed_keys"]

_MAP_BYTES = 8 << 30
_IN_LIST = 500
_LMDB_BYTES = 64 << 30
_TOGETHER = 10_000

Key = int | str


class Engine(Protocol):
    """One key, or many."""

    name: str

    def get(self, key: Key) -> bytes | None: ...

    def multi_get(self, keys: Sequence[Key]) -> dict[Key, bytes]: ...

    def close(self) -> None: ...


def have(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def packed_keys(column: pa.Array) -> list[bytes]:
    """Keys as bytes that sort like the keys, for engines that know nothing else."""
    return [packed(key) for key in column.to_pylist()]


class SqliteEngine:
    """One file a shard, a table without row ids, mapped into memory, one prepared statement: the peer's container."""

    name = "SQLite"

    def __init__(self, folder: Path, shards: int, schema: pa.Schema) -> None:
        self._files = [folder / f"shard-{number:05d}.sqlite" for number in range(shards)]
        self._key = KeySchema.from_arrow(schema, [KEY], None)
        self._routing = HashRouting(shards)
        self._kind = "INTEGER" if pa.types.is_integer(schema.field(KEY).type) else "TEXT"
        self._open: list[sqlite3.Connection] = []

    @property
    def byte_size(self) -> int:
        return sum(file.stat().st_size for file in self._files)

    def build(self, rows: pa.Table) -> None:
        """Rows sorted by key, then inserted many at a time: the fastest way there is in plain Python."""
        keys = [column.canonical(rows.column(KEY).combine_chunks()) for column in self._key.columns]
        shards = self._routing.shards_of(keys, self._key.hash_arrays(keys))
        for number, file in enumerate(self._files):
            self._build_file(file, rows.filter(pa.array(shards == number)).sort_by(KEY))

    def build_sorted(self, rows: pa.Table) -> None:
        """The only shard, from rows that are in the order of their keys."""
        (file,) = self._files
        self._build_file(file, rows)

    def _build_file(self, file: Path, rows: pa.Table) -> None:
        connection = sqlite3.connect(file)
        connection.execute("PRAGMA journal_mode = OFF")
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute(f"CREATE TABLE kv (k {self._kind} PRIMARY KEY, v BLOB) WITHOUT ROWID")
        for batch in rows.to_batches(max_chunksize=_TOGETHER):
            pairs = zip(batch.column(KEY).to_pylist(), batch.column(VALUE).to_pylist(), strict=True)
            connection.executemany("INSERT INTO kv VALUES (?, ?)", pairs)
        connection.commit()
        connection.close()

    def open(self) -> SqliteEngine:
        for file in self._files:
            connection = sqlite3.connect(f"file:{file}?mode=ro&immutable=1", uri=True, check_same_thread=False)
            connection.execute(f"PRAGMA mmap_size = {_MAP_BYTES}")
            self._open.append(connection)
        self._cursors = [connection.cursor() for connection in self._open]
        return self

    def get(self, key: Key) -> bytes | None:
        number = self._routing.shard_of(key, self._key.hash_of(key)) if len(self._files) > 1 else 0
        row = self._cursors[number].execute("SELECT v FROM kv WHERE k = ?", (key,)).fetchone()
        return None if row is None else row[0]

    def multi_get(self, keys: Sequence[Key]) -> dict[Key, bytes]:
        """The keys of a shard together, some hundred to a statement."""
        by_shard: list[list[Key]] = [[] for _ in self._files]
        hash_of, shard_of = self._key.hash_of, self._routing.shard_of
        if len(self._files) > 1:
            for key in keys:
                by_shard[shard_of(key, hash_of(key))].append(key)
        else:
            by_shard[0].extend(keys)
        found: dict[Key, bytes] = {}
        for cursor, some in zip(self._cursors, by_shard, strict=True):
            for start in range(0, len(some), _IN_LIST):
                asked = some[start : start + _IN_LIST]
                marks = ",".join("?" * len(asked))
                found.update(cursor.execute(f"SELECT k, v FROM kv WHERE k IN ({marks})", asked))
        return found

    def close(self) -> None:
        for connection in self._open:
            connection.close()


class LmdbEngine:
    """One mapped file for all rows, without shards."""

    name = "LMDB"

    def __init__(self, file: Path) -> None:
        self._file = file
        self._environment: Any = None

    @property
    def byte_size(self) -> int:
        return self._file.stat().st_blocks * 512

    def build(self, rows: pa.Table) -> None:
        self.build_sorted(rows.sort_by(KEY))

    def build_sorted(self, rows: pa.Table) -> None:
        """Rows in the order of their keys are appended, which is the fastest way there is."""
        import lmdb

        environment = lmdb.open(str(self._file), subdir=False, map_size=_LMDB_BYTES, sync=False, lock=False)
        with environment.begin(write=True) as transaction, transaction.cursor() as cursor:
            for batch in rows.to_batches(max_chunksize=_TOGETHER):
                pairs = zip(packed_keys(batch.column(KEY)), batch.column(VALUE).to_pylist(), strict=True)
                cursor.putmulti(pairs, append=True)
        environment.close()

    def open(self) -> LmdbEngine:
        import lmdb

        self._environment = lmdb.open(str(self._file), subdir=False, readonly=True, lock=False, readahead=False)
        self._transaction = self._environment.begin()
        self._get = self._transaction.get
        self._cursor = self._transaction.cursor()
        return self

    def get(self, key: Key) -> bytes | None:
        found: bytes | None = self._get(packed(key))
        return found

    def multi_get(self, keys: Sequence[Key]) -> dict[Key, bytes]:
        asked = {packed(key): key for key in keys}
        return {asked[key]: value for key, value in self._cursor.getmulti(list(asked))}

    def close(self) -> None:
        self._transaction.abort()
        self._environment.close()


class SlateEngine:
    """A database of its own on object storage; every call is asynchronous, so this one keeps an event loop."""

    name = "SlateDB"

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self._path = str(folder).lstrip("/")
        self._loop = asyncio.new_event_loop()
        self._reader: Any = None

    def build(self, rows: pa.Table) -> None:
        self._loop.run_until_complete(self._build(rows))

    async def _build(self, rows: pa.Table) -> None:
        from slatedb.uniffi import DbBuilder, ObjectStore, WriteBatch

        database = await DbBuilder(self._path, ObjectStore.resolve("file:///")).build()
        pairs = zip(packed_keys(rows.column(KEY)), rows.column(VALUE).to_pylist(), strict=True)
        for some in _chunks(pairs, _TOGETHER):
            batch = WriteBatch()
            for key, value in some:
                batch.put(key, value)
            await database.write(batch)
        await database.flush()
        await database.shutdown()

    def open(self) -> SlateEngine:
        self._loop.run_until_complete(self._open())
        return self

    async def _open(self) -> None:
        from slatedb.uniffi import DbReaderBuilder, ObjectStore

        self._reader = await DbReaderBuilder(self._path, ObjectStore.resolve("file:///")).build()

    def get(self, key: Key) -> bytes | None:
        found: bytes | None = self._loop.run_until_complete(self._reader.get(packed(key)))
        return found

    def multi_get(self, keys: Sequence[Key]) -> dict[Key, bytes]:
        return self._loop.run_until_complete(self._multi_get(keys))

    async def _multi_get(self, keys: Sequence[Key]) -> dict[Key, bytes]:
        values = await asyncio.gather(*(self._reader.get(packed(key)) for key in keys))
        return {key: value for key, value in zip(keys, values, strict=True) if value is not None}

    def close(self) -> None:
        self._loop.run_until_complete(self._reader.shutdown())
        self._loop.close()


def _chunks(pairs: Iterable[tuple[bytes, bytes]], size: int) -> Iterator[list[tuple[bytes, bytes]]]:
    iterator = iter(pairs)
    while some := list(islice(iterator, size)):
        yield some
