"""Servers for the storage tests: one of each per test process, started when a test first asks for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.clock import SystemRandomness
from holdfast.storage import ObjectStore, open_store
from holdfast.testing.fake_gcs import FakeGcs, start_fake_gcs
from holdfast.testing.servers import (
    Server,
    ServerUnavailable,
    start_azurite,
    start_ministack,
    start_rclone,
    start_seaweedfs,
)


def _started(start: Callable[[Path], Server], factory: pytest.TempPathFactory, name: str) -> Iterator[Server]:
    try:
        server = start(factory.mktemp(name))
    except ServerUnavailable as reason:
        pytest.skip(str(reason))
    yield server
    server.stop()


@pytest.fixture(scope="session")
def ministack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    yield from _started(start_ministack, tmp_path_factory, "ministack")


@pytest.fixture(scope="session")
def seaweedfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    yield from _started(start_seaweedfs, tmp_path_factory, "seaweedfs")


@pytest.fixture(scope="session")
def rclone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    yield from _started(start_rclone, tmp_path_factory, "rclone")


@pytest.fixture(scope="session")
def azurite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    yield from _started(start_azurite, tmp_path_factory, "azurite")


@pytest.fixture(scope="session")
def fake_gcs() -> Iterator[FakeGcs]:
    server = start_fake_gcs()
    yield server
    server.stop()


@pytest.fixture
def bucket() -> str:
    """A name that no other test uses, so that every test finds an empty bucket."""
    return f"b{SystemRandomness().bits(80):020x}"


@pytest.fixture
def open_on(monkeypatch: pytest.MonkeyPatch) -> Callable[[Server, str], ObjectStore]:
    """Opens a URL on a server the way a user does: through the cloud's own variables."""

    def opened(server: Server, url: str) -> ObjectStore:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        server.create_bucket(url.split("/")[2])
        return open_store(url)

    return opened
