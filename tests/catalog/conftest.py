"""A workspace in memory, on a file system and on a real S3 server, whose ledgers are whole in the end.

A test that needs only some of them says so: `@pytest.mark.parametrize("store_kind", ["memory"])`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.catalog import Workspace
from holdfast.clock import SystemRandomness
from holdfast.storage import LocalStore, MemoryStore, ObjectStore, open_store
from holdfast.testing.clock import SeededRandomness, VirtualClock
from holdfast.testing.servers import Server, ServerUnavailable, start_ministack
from tests.catalog.auditing import audit

KINDS = ["memory", "file", pytest.param("s3", marks=pytest.mark.server)]


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    try:
        server = start_ministack(tmp_path_factory.mktemp("ministack"))
    except ServerUnavailable as reason:
        pytest.skip(str(reason))
    yield server
    server.stop()


@pytest.fixture(params=KINDS)
def store_kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def root(
    store_kind: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> ObjectStore:
    """An empty store. Files are not synced to disk: no test here cuts the power."""
    if store_kind == "memory":
        return MemoryStore()
    if store_kind == "file":
        return LocalStore(tmp_path / "root", durable=False)
    server: Server = request.getfixturevalue("s3_server")
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    bucket = f"b{SystemRandomness().bits(80):020x}"
    server.create_bucket(bucket)
    return open_store(f"s3://{bucket}/lake")


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def workspace(root: ObjectStore, clock: VirtualClock) -> Iterator[Workspace]:
    """An initialized workspace. The rules of its ledgers are looked at on the stored bytes in the end."""
    made = Workspace(
        root=root, tenant="acme", name="prod", by="tests@host:1", clock=clock, randomness=SeededRandomness()
    )
    made.initialize()
    yield made
    assert audit(made.store) == []
