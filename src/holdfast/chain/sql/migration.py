"""Making and updating the tables, and saying what is there. Nothing else in the program creates or changes a table."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.chain.sql.database import database_at
from holdfast.chain.sql.dialect import Transaction
from holdfast.chain.sql.schema import (
    MIGRATIONS,
    SCHEMA_VERSION,
    SchemaMissing,
    spell_table,
    stored_version,
    too_new,
)
from holdfast.chain.sql.url import parse_sql_url
from holdfast.clock import Clock, SystemClock
from holdfast.errors import BadInput

__all__ = ["Migrated", "SchemaStatus", "migrate", "schema_status"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Migrated:
    """What a migration did: nothing, where both are the same."""

    url: str
    before: int
    after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaStatus:
    """What is there, and what this release needs."""

    url: str
    version: int
    """0 where there are no tables."""
    needed: int
    chains: tuple[tuple[str, str, str], ...]
    """Name, layout and artifact store of each chain."""

    @property
    def is_current(self) -> bool:
        return self.version == self.needed


def migrate(url: str, *, to: int = SCHEMA_VERSION, clock: Clock | None = None) -> Migrated:
    """Bring the database to a version. Running it again, or twice at once, changes nothing."""
    place = parse_sql_url(url)
    database = database_at(place)
    if not 1 <= to <= SCHEMA_VERSION:
        raise BadInput(f"there is no schema version {to}: this release knows 1 to {SCHEMA_VERSION}")
    now = (clock or SystemClock()).now()

    def steps(tx: Transaction) -> Migrated:
        dialect = database.dialect
        if dialect.exclusive is not None:
            tx.rows(dialect.exclusive)
        before = stored_version(tx, dialect)
        if before > SCHEMA_VERSION:
            raise too_new(place, before)
        if before == 0:
            tx.run(
                f"CREATE TABLE holdfast_schema (version {dialect.number_type} NOT NULL PRIMARY KEY, "
                f"applied_at {dialect.time_type} NOT NULL)"
            )
        for version in range(before + 1, to + 1):
            for statement in MIGRATIONS[version - 1]:
                tx.run(spell_table(statement, dialect))
            if dialect.bump_version is not None and version == 1:
                tx.run("INSERT INTO holdfast_versions (value) VALUES (0)")
            tx.run("INSERT INTO holdfast_schema (version, applied_at) VALUES (?, ?)", (version, dialect.time(now)))
        return Migrated(url=place.public, before=before, after=max(before, to))

    return database.migrate(steps)


def schema_status(url: str) -> SchemaStatus:
    """What is at `url`. Changes nothing; a database without tables is version 0."""
    place = parse_sql_url(url)
    database = database_at(place)
    try:
        found = database.rows("SELECT max(version) FROM holdfast_schema")
        chains = database.rows("SELECT chain, layout, artifacts FROM holdfast_chains ORDER BY chain")
    except SchemaMissing as error:
        return SchemaStatus(url=place.public, version=error.version, needed=SCHEMA_VERSION, chains=())
    return SchemaStatus(
        url=place.public,
        version=int(found[0][0]),
        needed=SCHEMA_VERSION,
        chains=tuple((str(name), str(layout), str(artifacts)) for name, layout, artifacts in chains),
    )
