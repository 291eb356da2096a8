"""A workspace on files, and its compactor on a real socket. In the end every domain of it is whole."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.catalog import Workspace
from holdfast.catalog.remote_compactor import RemoteCompactor
from holdfast.service.compactor import SERVED_DOMAINS, CompactorService
from tests.catalog.auditing import audit
from tests.service.support import local_root, serving, workspace_on


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    made = workspace_on(local_root(tmp_path / "root"))
    made.initialize()
    yield made
    assert audit(made.store) == []
    for domain in SERVED_DOMAINS:
        chain = made.domain(domain)
        assert chain.current() is None or chain.verify() == [], domain


@pytest.fixture
def service(workspace: Workspace) -> CompactorService:
    return CompactorService(workspace)


@pytest.fixture
def url(service: CompactorService) -> Iterator[str]:
    with serving(service) as address:
        yield address


@pytest.fixture
def remote(url: str) -> RemoteCompactor:
    return RemoteCompactor(url, tenant="acme", workspace="prod")
