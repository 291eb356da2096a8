"""The chain under test: each of the four layouts, in memory and on a file system, and whole in the end.

A test that needs only some of them says so: `@pytest.mark.parametrize("layout_name", ["kv"])`; `store_kind` likewise.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.chain import Chain, Layout
from holdfast.storage import LocalStore, MemoryStore, ObjectStore
from holdfast.testing.clock import VirtualClock
from tests.chain.publishing import LAYOUTS, ChainFactory, verified_factory


@pytest.fixture(params=list(LAYOUTS))
def layout_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["memory", "file"])
def store_kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def layout(layout_name: str) -> Layout:
    return LAYOUTS[layout_name]


@pytest.fixture
def store(store_kind: str, tmp_path: Path) -> ObjectStore:
    """An empty store. Files are not synced to disk: no test of the kernel cuts the power."""
    return MemoryStore() if store_kind == "memory" else LocalStore(tmp_path / "store", durable=False)


@pytest.fixture
def chain_factory(layout: Layout, store: ObjectStore) -> Iterator[ChainFactory]:
    """Opens writers on one chain; ends with `verify`, unless the test calls `expect_damage`."""
    with verified_factory(layout, store) as factory:
        yield factory


@pytest.fixture
def clock(chain_factory: ChainFactory) -> VirtualClock:
    """The clock of every chain of the factory."""
    return chain_factory.clock


@pytest.fixture
def chain(chain_factory: ChainFactory) -> Chain:
    """One writer's handle on an empty chain."""
    return chain_factory()
