"""Azure keeps the contract, against Microsoft's own emulator."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from holdfast.storage import ObjectStore
from holdfast.testing.servers import Server
from holdfast.testing.store_contract import ProcessStoreContract


@pytest.mark.server
class TestAzure(ProcessStoreContract):
    """The contract; skipped with the reason where the emulator cannot be installed."""

    racers = 24
    processes = 4
    rounds = 2

    @pytest.fixture
    def store(self, azurite: Server, open_on: Callable[[Server, str], ObjectStore], bucket: str) -> ObjectStore:
        return open_on(azurite, f"az://{bucket}/pre/fix")
