"""The rights that docs/sql.md says a program needs are enough, and the log of moves is out of everybody's reach."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from holdfast.chain import Committed, open_chain
from holdfast.errors import StoreDenied
from holdfast.testing.chain_contract import publish_one
from holdfast.testing.postgres import PostgresServer

pytestmark = pytest.mark.server

READER = ["GRANT SELECT ON ALL TABLES IN SCHEMA public TO {role}"]
PUBLISHER = [
    *READER,
    "GRANT INSERT ON ALL TABLES IN SCHEMA public TO {role}",
    "GRANT UPDATE ON holdfast_records TO {role}",
    "GRANT USAGE ON SEQUENCE holdfast_versions TO {role}",
]
COLLECTOR = [*PUBLISHER, "GRANT DELETE ON holdfast_manifests, holdfast_records TO {role}"]


def role(server: PostgresServer, url: str, name: str, grants: list[str]) -> str:
    """A user with these rights in this database; the URL to connect as it."""
    name = f"{name}_{url.rpartition('/')[2]}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {name} LOGIN PASSWORD '{server.password}'".encode())
        for grant in grants:
            connection.execute(grant.replace("{role}", name).encode())
    return url.replace("://holdfast:", f"://{name}:")


def test_each_program_gets_by_with_its_rights(postgres: PostgresServer, postgres_url: str, tmp_path: Path) -> None:
    """S34: readers only read, publishers append, the collector deletes manifests, and nobody can touch the log."""
    store = str(tmp_path / "users")
    urls = {
        name: role(postgres, postgres_url, name, grants) + "?chain=users"
        for name, grants in (("reader", READER), ("publisher", PUBLISHER), ("collector", COLLECTOR))
    }
    publisher = open_chain(store, layout="kv", manifests=urls["publisher"], by="publisher")
    for number in range(4):
        assert isinstance(publish_one(publisher, str(number)), Committed)
    publisher.rollback(offset=1)
    reader = open_chain(urls["reader"])
    assert reader.load_current() == publisher.load_current()
    assert reader.verify() == []
    with pytest.raises(StoreDenied):
        publish_one(reader, "no")
    collector = open_chain(urls["collector"], by="collector")
    collector.collect(retention=1)
    collector.purge(grace_s=0)
    assert len(reader.list_manifests()) == 2
    assert reader.verify() == []
    for statement in (b"DELETE FROM holdfast_pointer", b"UPDATE holdfast_pointer SET who = 'me'"):
        with (
            psycopg.connect(urls["collector"].partition("?")[0]) as connection,
            pytest.raises(psycopg.errors.InsufficientPrivilege),
        ):
            connection.execute(statement)
