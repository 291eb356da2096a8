"""The tables, and how they come to be: explicitly, step by step, as often as one likes.

`holdfast_manifests`  one row per published manifest: its fields as columns, its JSON, and its raw bytes, which are
                      what is hashed
`holdfast_pointer`    append-only: one row per move of the pointer. The newest sequence is what is visible
`holdfast_records`    everything else of a chain (runs, tags, older moves, collections, locks), with a version that
                      only grows
`holdfast_chains`     which chains there are, their layouts, and where their artifacts are
`holdfast_schema`     the migrations that were made

Each migration runs once, in one transaction that keeps other migrations out. A schema that is missing or older is an
error that names the command to run; a newer one is refused, because what it means is not known here.
"""

from __future__ import annotations

from holdfast.chain.sql.dialect import POSTGRES, SQLITE, Dialect, Transaction
from holdfast.chain.sql.url import SqlUrl
from holdfast.errors import BadInput, HoldfastError, UnsupportedFormat

__all__ = [
    "MIGRATIONS",
    "SCHEMA_VERSION",
    "SchemaMissing",
    "missing_schema",
    "require_schema",
    "spell_table",
    "stored_version",
    "too_new",
]

_CHAIN_TABLES = (
    """
    CREATE TABLE holdfast_manifests (
        chain {key_type} NOT NULL,
        run_id {key_type} NOT NULL,
        name {key_type} NOT NULL,
        payload {json_type} NOT NULL,
        content_type TEXT NOT NULL,
        created_at {time_type} NOT NULL,
        manifest_id {number_type} NOT NULL,
        epoch {number_type} NOT NULL,
        fencing_token {number_type} NOT NULL,
        commit_ulid {key_type} NOT NULL,
        parent_hash TEXT,
        content_hash TEXT NOT NULL,
        data {bytes_type} NOT NULL,
        PRIMARY KEY (chain, run_id),
        UNIQUE (chain, name)
    )
    """,
    "CREATE INDEX holdfast_manifests_newest ON holdfast_manifests (chain, manifest_id)",
    """
    CREATE TABLE holdfast_pointer (
        chain {key_type} NOT NULL,
        sequence {number_type} NOT NULL,
        manifest_ref {key_type} NOT NULL,
        epoch {number_type} NOT NULL,
        kind TEXT NOT NULL,
        commit_ulid {key_type} NOT NULL,
        who TEXT NOT NULL,
        why TEXT NOT NULL,
        updated_at {time_type} NOT NULL,
        version TEXT NOT NULL,
        data {bytes_type} NOT NULL,
        PRIMARY KEY (chain, sequence)
    )
    """,
    "{version_source}",
    """
    CREATE TABLE holdfast_records (
        chain {key_type} NOT NULL,
        key {key_type} NOT NULL,
        data {bytes_type} NOT NULL,
        version {number_type} NOT NULL,
        modified_at {time_type} NOT NULL,
        PRIMARY KEY (chain, key)
    )
    """,
)
_CHAIN_REGISTRY = (
    """
    CREATE TABLE holdfast_chains (
        chain {key_type} NOT NULL PRIMARY KEY,
        layout TEXT NOT NULL,
        artifacts TEXT NOT NULL,
        created_at {time_type} NOT NULL
    )
    """,
)
MIGRATIONS = (_CHAIN_TABLES, _CHAIN_REGISTRY)
SCHEMA_VERSION = len(MIGRATIONS)

_EXISTS = {
    "sqlite": "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'holdfast_schema'",
    "postgresql": "SELECT 1 WHERE to_regclass('holdfast_schema') IS NOT NULL",
}


def require_schema(tx: Transaction, url: SqlUrl) -> None:
    """Refuse a database whose schema is not the one this release knows. Asked once per process."""
    version = stored_version(tx, _dialect(url))
    if version > SCHEMA_VERSION:
        raise too_new(url, version)
    if version < SCHEMA_VERSION:
        raise missing_schema(url, version)


class SchemaMissing(BadInput):
    """The tables are missing or older than this release. Run `holdfast sql migrate URL`."""

    version = 0

    def __reduce__(self) -> tuple[type[BadInput], tuple[str]]:
        return BadInput, (str(self),)


def missing_schema(url: SqlUrl, version: int = 0) -> HoldfastError:
    """The error for a schema that is missing or older."""
    what = "has no Holdfast tables" if version == 0 else f"has schema version {version} of {SCHEMA_VERSION}"
    error = SchemaMissing(f"{url.public} {what}; run `holdfast sql migrate {url.public}`")
    error.version = version
    return error


def too_new(url: SqlUrl, version: int) -> HoldfastError:
    """The error for a schema of a later release."""
    return UnsupportedFormat(
        f"{url.public} has schema version {version}, newer than this release knows ({SCHEMA_VERSION}); upgrade Holdfast"
    )


def stored_version(tx: Transaction, dialect: Dialect) -> int:
    """The newest migration that was made; 0 where there are no tables."""
    if not tx.rows(_EXISTS[dialect.kind]):
        return 0
    return int(tx.rows("SELECT coalesce(max(version), 0) FROM holdfast_schema")[0][0])


def _dialect(url: SqlUrl) -> Dialect:
    return SQLITE if url.kind == "sqlite" else POSTGRES


def spell_table(statement: str, dialect: Dialect) -> str:
    """A statement of a migration as one database understands it."""
    for name in ("key_type", "json_type", "bytes_type", "time_type", "number_type", "version_source"):
        statement = statement.replace("{" + name + "}", str(getattr(dialect, name)))
    return statement
