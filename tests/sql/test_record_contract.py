"""The records of a chain keep the store contract: races, versions, listing, pickling, and the async half."""

from __future__ import annotations

import pytest

from holdfast.chain.layout import kv_layout
from holdfast.chain.sql.records import SqlRecords
from holdfast.storage.objects import ObjectStore
from holdfast.testing.records import RecordsAsStore
from holdfast.testing.store_contract import ProcessStoreContract


class TestRecordsInSqlite(ProcessStoreContract):
    """The contract, the races between processes included, in a file."""

    @pytest.fixture
    def store(self, sqlite_url: str) -> ObjectStore:
        return RecordsAsStore(SqlRecords(f"{sqlite_url}?chain=contract", kv_layout()))


@pytest.mark.server
class TestRecordsInPostgres(ProcessStoreContract):
    """The contract, the races between processes included, on a server."""

    @pytest.fixture
    def store(self, postgres_url: str) -> ObjectStore:
        return RecordsAsStore(SqlRecords(f"{postgres_url}?chain=contract", kv_layout()))
