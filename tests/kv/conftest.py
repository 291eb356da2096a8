"""A KV chain on a file system and in memory, and a small data set in it. A chain is whole in the end.

A test that needs only one kind of store says so: `@pytest.mark.parametrize("store_kind", ["memory"])`. A third kind,
"s3", is a real server, for those who ask for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from holdfast.chain import Chain, kv_layout
from holdfast.clock import SystemRandomness
from holdfast.kv import Published, publish_arrow
from holdfast.storage import LocalStore, MemoryStore, ObjectStore, open_store
from holdfast.testing.clock import VirtualClock
from holdfast.testing.servers import Server, ServerUnavailable, start_ministack
from tests.chain.publishing import ChainFactory, verified_factory

ROWS = 1_000
SHARDS = 4


@pytest.fixture(params=["memory", "file"])
def store_kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def store(store_kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> ObjectStore:
    """An empty store. Files are not synced to disk: no test here cuts the power."""
    if store_kind == "s3":
        opened: Callable[[], ObjectStore] = request.getfixturevalue("s3_store")
        return opened()
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


@pytest.fixture(scope="session")
def ministack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One S3 server per test process."""
    try:
        server = start_ministack(tmp_path_factory.mktemp("ministack"))
    except ServerUnavailable as reason:
        pytest.skip(str(reason))
    yield server
    server.stop()


@pytest.fixture
def s3_store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[], ObjectStore]:
    """Opens an empty bucket the way a user does: through the cloud's own variables."""

    def opened() -> ObjectStore:
        server: Server = request.getfixturevalue("ministack")
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        bucket = f"b{SystemRandomness().bits(80):020x}"
        server.create_bucket(bucket)
        return open_store(f"s3://{bucket}")

    return opened
