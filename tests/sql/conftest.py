"""Databases for the SQL tests: a SQLite file each, and one PostgreSQL server per test process with a database each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.chain.sql.database import database_at
from holdfast.chain.sql.migration import migrate
from holdfast.chain.sql.url import parse_sql_url
from holdfast.clock import SystemRandomness
from holdfast.testing.postgres import PostgresServer, start_postgres
from holdfast.testing.servers import ServerUnavailable


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """The server. SIGKILL does not lose what the system has, so it need not wait for the disk."""
    try:
        server = start_postgres(fsync=False)
    except ServerUnavailable as reason:
        pytest.skip(str(reason))
    yield server
    server.stop()


@pytest.fixture
def sqlite_url(tmp_path: Path) -> Iterator[str]:
    """An empty file with tables."""
    url = f"sqlite:///{tmp_path}/chains.db"
    migrate(url)
    yield url
    database_at(parse_sql_url(url)).close()


@pytest.fixture
def postgres_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """An empty database with tables."""
    server: PostgresServer = request.getfixturevalue("postgres")
    url = server.create_database(f"d{SystemRandomness().bits(64):016x}")
    migrate(url)
    yield url
    database_at(parse_sql_url(url)).close()


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.server)])
def database_url(request: pytest.FixtureRequest) -> str:
    """Either, with tables and nothing in them."""
    url = request.getfixturevalue("sqlite_url" if request.param == "sqlite" else "postgres_url")
    assert isinstance(url, str)
    return url


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.server)])
def bare_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Either, without tables."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path}/bare.db"
    else:
        server: PostgresServer = request.getfixturevalue("postgres")
        url = server.create_database(f"b{SystemRandomness().bits(64):016x}")
    yield url
    database_at(parse_sql_url(url)).close()


@pytest.fixture
def rows(database_url: str) -> Callable[..., list[tuple[object, ...]]]:
    """Asks the database directly, as an operator would."""
    return database_at(parse_sql_url(database_url)).rows
