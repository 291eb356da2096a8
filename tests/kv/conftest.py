"""A KV chain on a file system and in memory, and a small data set in it. A chain is whole in the end.

A test that needs only one kind of store says so: `@pytest.mark.parametrize("store_kind", ["memory"])`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from holdfast.chain import Chain, kv_layout
from holdfast.kv import Published, publish_arrow
from holdfast.storage import LocalStore, MemoryStore, ObjectStore
from holdfast.testing.clock import VirtualClock
from tests.chain.publishing import ChainFactory, verified_factory

ROWS = 1_000
SHARDS = 4


@pytest.fixture(params=["memory", "file"])
def store_kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def store(store_kind: str, tmp_path: Path) -> ObjectStore:
    """An empty store. Files are not synced to disk: no test here cuts the power."""
    return MemoryStore() if store_kind == "memory" else LocalStore(tmp_path / "store", durable=False)


@pytest.fixture
def chain_factory(store: ObjectStore) -> Iterator[ChainFactory]:
    """Opens handles on one chain; ends with `verify`, unless the test calls `expect_damage`."""
    with verified_factory(kv_layout(), store) as factory:
        yield factory


@pytest.fixture
def clock(chain_factory: ChainFactory) -> VirtualClock:
    """The clock of every chain of the factory."""
    return chain_factory.clock


@pytest.fixture
def chain(chain_factory: ChainFactory) -> Chain:
    """One handle on an empty chain."""
    return chain_factory()


@pytest.fixture
def table() -> pa.Table:
    """Whole numbers from 0, each with its square and its name."""
    keys = range(ROWS)
    return pa.table(
        {
            "id": pa.array(keys, pa.int64()),
            "square": pa.array([key * key for key in keys], pa.int64()),
            "name": pa.array([f"row {key}" for key in keys]),
        }
    )


@pytest.fixture
def published(chain: Chain, table: pa.Table) -> Published:
    """That table, visible."""
    return publish_arrow(chain, table, key="id", shards=SHARDS)
