"""Where the two databases differ, in one place. Statements are written once, with `?` for a parameter.

Everything else in this package is the same text for both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any, Protocol

from holdfast.clock import format_time, parse_time

__all__ = ["POSTGRES", "SQLITE", "Dialect", "Row", "Transaction"]

Row = tuple[Any, ...]


class Transaction(Protocol):
    """An open transaction, for as long as one function runs."""

    def run(self, statement: str, parameters: Sequence[object] = ()) -> int:
        """Execute a statement; how many rows it changed."""
        ...

    def rows(self, statement: str, parameters: Sequence[object] = ()) -> list[Row]:
        """Execute a statement; the rows it returns."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One database's spelling."""

    kind: str
    key_type: str
    """Text that is compared by its bytes, so that key order is the same everywhere."""
    json_type: str
    bytes_type: str
    time_type: str
    number_type: str
    key_value: str
    """A parameter that is such text."""
    json_value: str
    number_value: str
    next_version: str
    bump_version: str | None
    """What must run before `next_version` is a new one; None where that is one and the same."""
    exclusive: str | None
    """How a migration keeps others out, where opening the transaction does not."""
    version_source: str
    """The statement that makes the source of versions, which are never given twice."""
    percent_parameters: bool

    def spell(self, statement: str) -> str:
        return _with_percent(statement) if self.percent_parameters else statement

    def time(self, moment: datetime) -> object:
        return moment if self.kind == "postgresql" else format_time(moment)

    def read_time(self, value: datetime | str) -> datetime:
        return parse_time(value) if isinstance(value, str) else value

    def write_versioned(self, tx: Transaction, statement: str, parameters: Sequence[object]) -> int | None:
        """Run an insert or update that says `{next_version}` for its version: the version, or None if no row fits."""
        text = statement.replace("{next_version}", self.next_version)
        if self.bump_version is None:
            found = tx.rows(f"{text} RETURNING version", parameters)
            return None if not found else int(found[0][0])
        # No RETURNING: SQLite has it only since 3.35, and the writers are one at a time anyway.
        tx.run(self.bump_version)
        if tx.run(text, parameters) == 0:
            return None
        return int(tx.rows(f"SELECT {self.next_version}")[0][0])


@lru_cache(maxsize=128)
def _with_percent(statement: str) -> str:
    return statement.replace("?", "%s")


SQLITE = Dialect(
    kind="sqlite",
    key_type="TEXT",
    json_type="TEXT",
    bytes_type="BLOB",
    time_type="TEXT",
    number_type="INTEGER",
    key_value="?",
    json_value="?",
    number_value="?",
    next_version="(SELECT value FROM holdfast_versions)",
    bump_version="UPDATE holdfast_versions SET value = value + 1",
    exclusive=None,
    version_source="CREATE TABLE holdfast_versions (value INTEGER NOT NULL)",
    percent_parameters=False,
)

POSTGRES = Dialect(
    kind="postgresql",
    key_type='TEXT COLLATE "C"',
    json_type="JSONB",
    bytes_type="BYTEA",
    time_type="TIMESTAMPTZ",
    number_type="BIGINT",
    key_value='CAST(? AS TEXT) COLLATE "C"',
    json_value="CAST(? AS JSONB)",
    number_value="CAST(? AS BIGINT)",
    next_version="nextval('holdfast_versions')",
    bump_version=None,
    # The number is arbitrary, and the same in every release.
    exclusive="SELECT pg_advisory_xact_lock(4801270216094728)",
    version_source="CREATE SEQUENCE holdfast_versions",
    percent_parameters=True,
)
