"""Reading a workspace's state: pointer, manifest, Parquet; only the domains and tables that are asked for (C5)."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

import pyarrow as pa

from holdfast.catalog.domain_state import DomainState
from holdfast.catalog.fold import alive
from holdfast.catalog.workspace import Workspace
from holdfast.chain import Manifest
from holdfast.storage.capabilities import Reader

__all__ = ["read_state", "read_tables"]


def read_state(
    workspace: Workspace, domain: str, *, ref: str | None = None, at: datetime | None = None
) -> tuple[DomainState, Manifest | None]:
    """The state of a domain: what is visible, a snapshot by its name, or what was visible at a time."""
    chain = workspace.domain(domain)
    if ref is None and at is None:
        manifest = chain.load_current()
    else:
        manifest = chain.load_manifest(chain.layout.ref_of(chain.find(ref=ref, at=at).manifest_path))
    return DomainState.of_manifest(domain, manifest), manifest


def read_tables(
    workspace: Workspace,
    domain: str,
    tables: Iterable[str] | None = None,
    *,
    ref: str | None = None,
    at: datetime | None = None,
) -> dict[str, pa.Table]:
    """Tables of a domain as they are there: folded, and without what was deleted."""
    state, _ = read_state(workspace, domain, ref=ref, at=at)
    return {name: alive(table) for name, table in state.read(Reader(workspace.store), tables).items()}
