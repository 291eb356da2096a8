"""Making and updating the tables: explicit, as often as one likes, by as many as like."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from holdfast.chain import Committed, kv_layout, open_chain
from holdfast.chain.sql import SCHEMA_VERSION, SqlRecords, migrate, schema_status
from holdfast.chain.sql.database import database_at
from holdfast.chain.sql.url import parse_sql_url
from holdfast.errors import BadInput, StoreReadOnly, UnsupportedFormat
from holdfast.testing.chain_contract import publish_one


def test_a_database_without_tables_says_what_to_run(bare_url: str) -> None:
    """S34: nothing creates tables by itself; the error has the command in it."""
    for use in (
        lambda: SqlRecords(f"{bare_url}?chain=x", kv_layout()).get("a/b"),
        lambda: SqlRecords(f"{bare_url}?chain=x", kv_layout()).put_new("a/b", b""),
        lambda: open_chain(bare_url),
    ):
        with pytest.raises(BadInput) as caught:
            use()
        assert f"run `holdfast sql migrate {parse_sql_url(bare_url).public}`" in str(caught.value)
    assert (schema_status(bare_url).version, schema_status(bare_url).is_current) == (0, False)


def test_migrating_again_changes_nothing(bare_url: str) -> None:
    """S34: the second time there is nothing to do, and what is stored stays."""
    done = migrate(bare_url)
    assert (done.before, done.after) == (0, SCHEMA_VERSION)
    chain = open_chain("memory://migrated", layout="kv", manifests=f"{bare_url}?chain=x")
    outcome = publish_one(chain, "one")
    assert isinstance(outcome, Committed)
    again = migrate(bare_url)
    assert (again.before, again.after) == (SCHEMA_VERSION, SCHEMA_VERSION)
    assert chain.load_current() == outcome.manifest
    status = schema_status(bare_url)
    assert (status.version, status.is_current) == (SCHEMA_VERSION, True)
    assert status.chains == (("x", "kv", "memory://migrated"),)
    assert chain.verify() == []


def test_an_older_schema_is_brought_up_step_by_step(bare_url: str) -> None:
    """S34: an older version is an error until it is migrated, and keeps its records when it is."""
    assert migrate(bare_url, to=1).after == 1
    with pytest.raises(BadInput, match=f"version 1 of {SCHEMA_VERSION}; run `holdfast sql migrate"):
        SqlRecords(f"{bare_url}?chain=x", kv_layout()).get("a/b")
    assert schema_status(bare_url).version == 1
    migrated = migrate(bare_url)
    assert (migrated.before, migrated.after) == (1, SCHEMA_VERSION)
    records = SqlRecords(f"{bare_url}?chain=x", kv_layout())
    version = records.put_new("a/b", b"one")
    assert records.get("a/b").version == version
    with pytest.raises(BadInput):
        migrate(bare_url, to=SCHEMA_VERSION + 1)


def test_a_newer_schema_is_refused(bare_url: str) -> None:
    """S34, S9: what a later release meant is not known here: neither used nor migrated."""
    migrate(bare_url)
    database = database_at(parse_sql_url(bare_url))
    now = database.rows("SELECT applied_at FROM holdfast_schema LIMIT 1")[0][0]
    database.write(lambda tx: tx.run("INSERT INTO holdfast_schema (version, applied_at) VALUES (99, ?)", (now,)))
    _forget(bare_url)
    for use in (
        lambda: SqlRecords(f"{bare_url}?chain=x", kv_layout()).get("a/b"),
        lambda: migrate(bare_url),
        lambda: schema_status(bare_url),
    ):
        with pytest.raises(UnsupportedFormat, match="upgrade Holdfast"):
            use()


def test_many_may_migrate_at_once(bare_url: str) -> None:
    """S34: of many migrations at the same time one does the work; all of them end well."""
    racers = 8
    barrier = threading.Barrier(racers)
    done: list[tuple[int, int]] = []
    failures: list[BaseException] = []

    def run() -> None:
        barrier.wait(30)
        try:
            result = migrate(bare_url)
            done.append((result.before, result.after))
        except BaseException as error:  # noqa: BLE001 - shown by the assertion below
            failures.append(error)

    threads = [threading.Thread(target=run) for _ in range(racers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []
    assert sorted(done) == [(0, SCHEMA_VERSION), *[(SCHEMA_VERSION, SCHEMA_VERSION)] * (racers - 1)]


def test_tables_that_vanish_are_missing_again(database_url: str) -> None:
    """S34: a table that was dropped under a running program is the same error, not a driver's."""
    records = SqlRecords(f"{database_url}?chain=x", kv_layout())
    records.put_new("a/b", b"one")
    database_at(parse_sql_url(database_url)).write(lambda tx: tx.run("DROP TABLE holdfast_records"))
    with pytest.raises(BadInput, match="holdfast sql migrate"):
        records.get("a/b")


def test_a_read_only_url_is_not_migrated(sqlite_url: str) -> None:
    """S34: mode=ro reads and never writes."""
    with pytest.raises(StoreReadOnly):
        migrate(f"{sqlite_url}?mode=ro")


def _forget(url: str) -> None:
    """Ask again, as a new process would."""
    from holdfast.chain.sql import database

    forget: Callable[[], None] = database._close_all
    forget()
