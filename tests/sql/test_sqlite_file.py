"""A SQLite file that is damaged, locked, read-only, elsewhere or no database at all: each is said clearly."""

from __future__ import annotations

import multiprocessing
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from holdfast.chain import Chain, Committed, kv_layout, open_chain
from holdfast.chain.sql import SqlRecords, migrate
from holdfast.chain.sql import sqlite as driver
from holdfast.chain.sql.database import database_at
from holdfast.chain.sql.url import parse_sql_url
from holdfast.errors import BadInput, CorruptRecord, Damaged, StoreReadOnly, StoreUnavailable
from holdfast.testing.chain_contract import publish_one


@pytest.fixture
def chain(sqlite_url: str, tmp_path: Path) -> Chain:
    chain = open_chain(str(tmp_path / "store"), layout="kv", manifests=f"{sqlite_url}?chain=users", by="ada")
    assert isinstance(publish_one(chain, "one"), Committed)
    return chain


def path_of(url: str) -> Path:
    return Path(parse_sql_url(url).target)


def close(url: str) -> None:
    database_at(parse_sql_url(url)).close()


def test_a_file_that_is_no_database_is_damaged(tmp_path: Path) -> None:
    """S34: bytes that are not SQLite's are CorruptRecord with the file's name, for reading and for migrating."""
    (tmp_path / "x.db").write_bytes(b"not a database at all" * 100)
    url = f"sqlite:///{tmp_path}/x.db"
    with pytest.raises(CorruptRecord, match=r"x\.db"):
        SqlRecords(f"{url}?chain=x", kv_layout()).get("a/b")
    with pytest.raises(CorruptRecord, match="restore the file from a backup"):
        migrate(url)


def test_a_damaged_page_is_damage_not_an_answer(chain: Chain, sqlite_url: str) -> None:
    """S34: pages that were overwritten are reported as damage; nothing is made up."""
    for number in range(30):
        assert isinstance(publish_one(chain, str(number)), Committed)
    close(sqlite_url)
    with closing(sqlite3.connect(path_of(sqlite_url))) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    data = bytearray(path_of(sqlite_url).read_bytes())
    for start in range(4096, len(data), 4096):
        data[start : start + 64] = b"\xff" * 64
    path_of(sqlite_url).write_bytes(data)
    with pytest.raises(Damaged):
        open_chain(f"{sqlite_url}?chain=users").load_current()


def test_a_file_locked_by_another_is_unavailable(
    chain: Chain, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S34: readers go on while another writes; a second writer waits for its turn and then says who is in the way."""
    monkeypatch.setattr(driver, "BUSY_TIMEOUT_S", 0.05)
    close(sqlite_url)
    with closing(sqlite3.connect(path_of(sqlite_url), isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        current = chain.load_current()
        assert current is not None
        with pytest.raises(StoreUnavailable, match="another writer"):
            chain.handle.records.put_new("runs/x", b"")
        other.execute("ROLLBACK")
    close(sqlite_url)
    chain.handle.records.put_new("runs/x.json", b"")
    chain.handle.records.delete(["runs/x.json"])
    assert chain.verify() == []


def test_a_read_only_file_is_read_and_not_written(chain: Chain, sqlite_url: str) -> None:
    """S34: mode=ro serves readers; a write is StoreReadOnly and changes nothing."""
    reader = open_chain(f"{sqlite_url}?chain=users&mode=ro")
    assert reader.load_current() == chain.load_current()
    with pytest.raises(StoreReadOnly):
        publish_one(reader, "two")
    assert len(chain.list_manifests()) == 1
    assert reader.verify() == []


def test_a_missing_folder_and_a_missing_file_are_said_so(tmp_path: Path) -> None:
    """S34: the message names what to create; nothing is created by looking, nor by writing."""
    with pytest.raises(BadInput, match="does not exist; create it first"):
        migrate(f"sqlite:///{tmp_path}/no/such/x.db")
    with pytest.raises(BadInput, match="holdfast sql migrate"):
        SqlRecords(f"sqlite:///{tmp_path}/x.db?chain=x", kv_layout()).put_new("a/b", b"")
    with pytest.raises(BadInput, match="is a folder"):
        migrate(f"sqlite:///{tmp_path}")
    assert list(tmp_path.iterdir()) == []


def test_a_forked_child_has_connections_of_its_own(chain: Chain, sqlite_url: str) -> None:
    """S34: a child does not touch the parent's connections; both go on working."""
    inherited.append(database_at(parse_sql_url(sqlite_url)))
    context = multiprocessing.get_context("fork")
    receiving, sending = context.Pipe(duplex=False)
    child = context.Process(target=_in_child, args=(f"{sqlite_url}?chain=users", sending))
    child.start()
    assert receiving.poll(60)
    assert receiving.recv() == "committed"
    child.join(60)
    assert isinstance(publish_one(chain, "three"), Committed)
    assert [found.manifest_id for found in chain.list_manifests()] == [2, 1, 0]
    assert chain.verify() == []


inherited: list[object] = []


def _in_child(url: str, sending: object) -> None:
    outcome = publish_one(open_chain(url, by="child"), "two")
    shared = database_at(parse_sql_url(url)) is inherited[-1]
    said = "with the parent's connections" if shared else "committed" if isinstance(outcome, Committed) else "not"
    sending.send(said)  # type: ignore[attr-defined]
