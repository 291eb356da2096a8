"""One contract, every place: chains in memory, in files, in SQLite and in PostgreSQL."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.chain import chain_on
from holdfast.chain.sql.records import SqlRecords
from holdfast.storage import LocalStore, MemoryStore
from holdfast.testing.chain_contract import ChainContract, OpenChain


class TestChainInMemory(ChainContract):
    """S33: records and artifacts in memory."""

    @pytest.fixture
    def open_chain(self) -> OpenChain:
        return lambda layout, clock: chain_on(MemoryStore(), layout, by="contract", clock=clock)


class TestChainInFiles(ChainContract):
    """S33: records and artifacts on a file system."""

    @pytest.fixture
    def open_chain(self, tmp_path: Path) -> OpenChain:
        return lambda layout, clock: chain_on(LocalStore(tmp_path, durable=False), layout, by="contract", clock=clock)


class TestChainInSqlite(ChainContract):
    """S33: records in a SQLite file, artifacts in a store."""

    @pytest.fixture
    def open_chain(self, sqlite_url: str) -> OpenChain:
        return _opener(sqlite_url)


@pytest.mark.server
class TestChainInPostgres(ChainContract):
    """S33: records on a PostgreSQL server, artifacts in a store."""

    @pytest.fixture
    def open_chain(self, postgres_url: str) -> OpenChain:
        return _opener(postgres_url)


def _opener(url: str) -> OpenChain:
    store = MemoryStore()
    return lambda layout, clock: chain_on(
        store,
        layout,
        records=SqlRecords(f"{url}?chain=contract", layout, artifacts=store.url, clock=clock),
        by="contract",
        clock=clock,
    )
