"""A chain's records in a SQL database: the `RecordStore` that the kernel works on, over the tables of `schema.py`.

The pointer, the manifests and everything else live in tables of their own. Publishing is one transaction: `put_new`
of a manifest only stages it, here in memory, and the pointer's write inserts both. So a database has no orphan
manifests, a run is published at most once, and a writer that dies in between leaves nothing. What the kernel sees is
what a store shows it: its own manifest after writing it, everybody else's after they were published.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator

from holdfast.chain.layout import Layout
from holdfast.chain.sql.async_records import AsyncSqlRecords
from holdfast.chain.sql.chains import check_chain, register_chain
from holdfast.chain.sql.database import Database, database_at
from holdfast.chain.sql.dialect import Transaction
from holdfast.chain.sql.listing import list_pages
from holdfast.chain.sql.moving import move_pointer_row, parse_move
from holdfast.chain.sql.reading import (
    Kind,
    Place,
    drive,
    info_steps,
    kind_of,
    manifest_version,
    read_steps,
    record_number,
    record_version,
)
from holdfast.chain.sql.url import parse_sql_url
from holdfast.clock import Clock, SystemClock
from holdfast.codec import content_hash
from holdfast.errors import AlreadyExists, BadInput, Conflict, InvariantViolation, ObjectNotFound, VersionConflict
from holdfast.storage.keys import check_key, check_page_size, check_prefix, check_range
from holdfast.storage.objects import PAGE_SIZE_DEFAULT, AsyncObjectReader, ObjectInfo, StoredObject, Version

__all__ = ["SqlRecords"]

STAGED_MAX = 8
"""Manifests that are waiting for their pointer. One is enough for one publisher; threads may share this object."""

_DELETE_BATCH = 500


class SqlRecords:
    """The records of one chain in one database. Safe for many threads; pickles as its URL, without what is staged."""

    conditional_writes_trusted = True
    """The conditions are those of the database: there is nothing to probe."""

    def __init__(
        self, url: str, layout: Layout, *, chain: str | None = None, artifacts: str = "", clock: Clock | None = None
    ) -> None:
        place = parse_sql_url(url)
        name = chain or place.chain
        if name is None:
            raise BadInput(f"{place.public} does not say which chain: add ?chain=NAME")
        self._given = url
        self._layout = layout
        self._artifacts = artifacts
        self._clock = clock or SystemClock()
        self._url = place.naming(name)
        self._database: Database = database_at(place)
        self._place = Place(chain=name, layout=layout, dialect=self._database.dialect)
        self._lock = threading.Lock()
        self._staged: dict[str, bytes] = {}
        self._registered = False

    @property
    def url(self) -> str:
        """The URL that opens these records again, without user and password."""
        return self._url

    def __repr__(self) -> str:
        return f"SqlRecords({self._url!r}, {self._layout.name!r})"

    @property
    def layout(self) -> Layout:
        return self._layout

    def __reduce__(self) -> tuple[Callable[..., SqlRecords], tuple[str, Layout, str, str]]:
        return _reopened, (self._given, self._layout, self._place.chain, self._artifacts)

    # -- reading -----------------------------------------------------------------------------------------------------

    def get(self, key: str) -> StoredObject:
        check_key(key)
        self._register(writing=False)
        try:
            found = drive(read_steps(self._place, key), self._database.rows)
        except ObjectNotFound:
            staged = self._staged.get(key)  # only where the database has nothing: what is published always wins
            if staged is None:
                raise
            return StoredObject(key=key, data=staged, version=manifest_version(content_hash(staged)))
        assert found is not None, "without a known version there is always a body"
        return found

    def get_if_changed(self, key: str, known: Version) -> StoredObject | None:
        check_key(key)
        return drive(read_steps(self._place, key, known=known), self._database.rows)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        check_range(start, length)
        return self.get(key).data[start : start + length]

    def head(self, key: str) -> ObjectInfo:
        check_key(key)
        return drive(info_steps(self._place, key), self._database.rows)

    def as_async(self) -> AsyncObjectReader:
        return AsyncSqlRecords(self._given, self._layout, chain=self._place.chain)

    # -- writing -----------------------------------------------------------------------------------------------------

    def put_new(self, key: str, data: bytes, *, durable: bool = True) -> Version:
        check_key(key)
        self._register(writing=True)
        match kind_of(self._layout, key):
            case Kind.POINTER:
                return self._move(data, expected=None)
            case Kind.MANIFEST:
                return self._stage(key, data)
            case Kind.RECORD:
                return self._create(key, data, durable=durable)

    def swap(self, key: str, data: bytes, *, expected: Version, durable: bool = True) -> Version:
        check_key(key)
        self._register(writing=True)
        match kind_of(self._layout, key):
            case Kind.POINTER:
                return self._move(data, expected=expected)
            case Kind.MANIFEST:
                return self._refuse_change(key, expected)
            case Kind.RECORD:
                return self._replace(key, data, expected, durable=durable)

    def delete(self, keys: Iterable[str]) -> None:
        """Delete records and manifests; a missing one is no error. Pointer rows are never deleted."""
        names: dict[Kind, list[str]] = {Kind.MANIFEST: [], Kind.RECORD: []}
        for key in keys:
            kind = kind_of(self._layout, check_key(key))
            if kind is Kind.POINTER:
                raise InvariantViolation("the pointer's rows are never deleted; nothing was")
            names[kind].append(key)
        with self._lock:
            for key in names[Kind.MANIFEST]:
                self._staged.pop(key, None)
        for kind, table, column in (
            (Kind.MANIFEST, "holdfast_manifests", "name"),
            (Kind.RECORD, "holdfast_records", "key"),
        ):
            for start in range(0, len(names[kind]), _DELETE_BATCH):
                self._delete_batch(table, column, names[kind][start : start + _DELETE_BATCH])

    # -- inside ------------------------------------------------------------------------------------------------------

    def _register(self, *, writing: bool) -> None:
        """See that the name means this chain, once; write it down before the first record."""
        if self._registered:
            return
        self._registered = check_chain(self._database, self._place, artifacts=self._artifacts)
        if writing and not self._registered:
            register_chain(self._database, self._place, artifacts=self._artifacts, now=self._clock.now())
            self._registered = check_chain(self._database, self._place, artifacts=self._artifacts)

    def _stage(self, key: str, data: bytes) -> Version:
        """Keep a manifest until the pointer is written. Its name must be free, here and in the database."""
        rows = self._database.rows(
            "SELECT 1 FROM holdfast_manifests WHERE chain = ? AND name = ?", (self._place.chain, key)
        )
        with self._lock:
            if rows or key in self._staged:
                raise AlreadyExists(key)
            while len(self._staged) >= STAGED_MAX:
                del self._staged[next(iter(self._staged))]  # the oldest: its publisher has given up long ago
            self._staged[key] = bytes(data)
        return manifest_version(content_hash(data))

    def _move(self, data: bytes, *, expected: Version | None) -> Version:
        pointer = parse_move(self._place, data)
        path = pointer.manifest_path
        staged = self._staged.get(path)
        try:
            version = self._database.write(
                lambda tx: move_pointer_row(tx, self._place, pointer, data, expected=expected, staged=staged)
            )
        except Conflict:
            self._drop(path)  # it lost, and can never win: the version it names is gone
            raise
        self._drop(path)
        return version

    def _drop(self, path: str) -> None:
        with self._lock:
            self._staged.pop(path, None)

    def _create(self, key: str, data: bytes, *, durable: bool) -> Version:
        dialect = self._place.dialect
        row = (self._place.chain, key, data, dialect.time(self._clock.now()))

        def insert(tx: Transaction) -> int | None:
            return dialect.write_versioned(
                tx,
                "INSERT INTO holdfast_records (chain, key, data, modified_at, version) "
                "VALUES (?, ?, ?, ?, {next_version}) ON CONFLICT DO NOTHING",
                row,
            )

        number = self._database.write(insert, durable=durable)
        if number is None:
            raise AlreadyExists(key)
        return record_version(number)

    def _replace(self, key: str, data: bytes, expected: Version, *, durable: bool) -> Version:
        dialect = self._place.dialect
        known = record_number(expected)
        if known is None:
            raise VersionConflict(key)
        row = (data, dialect.time(self._clock.now()), self._place.chain, key, known)

        def update(tx: Transaction) -> int | None:
            return dialect.write_versioned(
                tx,
                "UPDATE holdfast_records SET data = ?, modified_at = ?, version = {next_version} "
                "WHERE chain = ? AND key = ? AND version = ?",
                row,
            )

        number = self._database.write(update, durable=durable)
        if number is None:
            raise VersionConflict(key)
        return record_version(number)

    def _refuse_change(self, key: str, expected: Version) -> Version:
        try:
            version = self.get(key).version
        except ObjectNotFound:
            raise VersionConflict(key) from None
        if version != expected:
            raise VersionConflict(key)
        raise InvariantViolation(f"manifest {key!r} is never modified in place; publish another")

    def _delete_batch(self, table: str, column: str, keys: list[str]) -> None:
        marks = ", ".join("?" * len(keys))
        self._database.write(
            lambda tx: tx.run(
                f"DELETE FROM {table} WHERE chain = ? AND {column} IN ({marks})", (self._place.chain, *keys)
            )
        )

    # -- listing, last because its name hides the builtin from the annotations above -----------------------------------

    def list(
        self, prefix: str, *, after: str | None = None, page_size: int = PAGE_SIZE_DEFAULT
    ) -> Iterator[list[ObjectInfo]]:
        check_page_size(page_size)
        return list_pages(self._database, self._place, check_prefix(prefix), after=after, page_size=page_size)


def _reopened(url: str, layout: Layout, chain: str, artifacts: str) -> SqlRecords:
    """What a pickle becomes: connected again when it is first used."""
    return SqlRecords(url, layout, chain=chain, artifacts=artifacts)
