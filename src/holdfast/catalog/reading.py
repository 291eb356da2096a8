"""Reading a workspace's state: pointer, manifest, Parquet; only the domains and tables that are asked for (C5)."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

import pyarrow as pa

from holdfast.catalog.domain_state import DomainState
from holdfast.catalog.fold import alive
from holdfast.catalog.former import load_visible
from holdfast.catalog.workspace import Workspace
from holdfast.chain import DOMAINS, Manifest
from holdfast.errors import NotAChain, SnapshotNotFound
from holdfast.storage.capabilities import Reader

__all__ = ["commits_table", "read_state", "read_tables"]

COMMITS_MAX = 1_000
"""Of each domain."""
_COMMITS = pa.schema(
    [
        ("domain", pa.string()),
        ("manifest_id", pa.int64()),
        ("ref", pa.string()),
        ("commit_ulid", pa.string()),
        ("run_id", pa.string()),
        ("published_at", pa.timestamp("us", "UTC")),
        ("by", pa.string()),
        ("manifest_path", pa.string()),
        ("manifest_hash", pa.string()),
    ]
)


def read_state(
    workspace: Workspace, domain: str, *, ref: str | None = None, at: datetime | None = None
) -> tuple[DomainState, Manifest | None]:
    """The state of a domain: what is visible, a snapshot by its name, or what was visible at a time."""
    chain = workspace.domain(domain)
    manifest: Manifest | None = None
    if at is None and ref in {None, chain.layout.mirror_key}:  # what `current` calls it while the legacy path counts
        manifest = load_visible(chain)
    else:
        try:
            manifest = chain.load_manifest(chain.layout.ref_of(chain.find(ref=ref, at=at).manifest_path))
        except (NotAChain, SnapshotNotFound):
            if ref is not None:
                raise
            # At a time before the first snapshot nothing was known.
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


def commits_table(workspace: Workspace) -> pa.Table:
    """The newest snapshots of every domain that are still there: which, when, and by whom."""
    rows = [
        {
            "domain": domain,
            "manifest_id": found.manifest_id,
            "ref": found.ref,
            "commit_ulid": found.commit_ulid,
            "run_id": found.run_id,
            "published_at": found.published_at,
            "by": found.by,
            "manifest_path": found.manifest_path,
            "manifest_hash": found.manifest_hash,
        }
        for domain in (*DOMAINS, "orchestration")
        for found in workspace.domain(domain).list_manifests(COMMITS_MAX)
    ]
    return pa.Table.from_pylist(rows, schema=_COMMITS)
