"""Lineage: both ways, to any depth, by table, by column, by snapshot, and as of a time."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from holdfast.catalog import payloads as p
from holdfast.catalog.compactor import Compactor
from holdfast.catalog.lineage import downstream, upstream
from holdfast.catalog.payload import Payload
from holdfast.catalog.workspace import Workspace
from holdfast.errors import BadInput
from holdfast.storage.memory import MemoryStore
from holdfast.testing.clock import VirtualClock

NOW = datetime(2026, 3, 14, 10, 30, tzinfo=UTC)


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def workspace(clock: VirtualClock) -> Workspace:
    made = Workspace(root=MemoryStore(), tenant="acme", name="prod", clock=clock)
    made.initialize()
    return made


def tell(workspace: Workspace, *said: Payload) -> None:
    for domain in dict.fromkeys(one.DOMAIN for one in said):
        ledger = workspace.ledger(domain)
        paths = [ledger.append(one).path for one in said if domain == one.DOMAIN]
        Compactor(workspace, domain).compact(paths)


def edges(*pairs: str) -> p.LineageEdgesAdded:
    """`a>b` for each edge; `a.x>b.y` by column."""
    made = []
    for pair in pairs:
        (source, _, one), (target, _, other) = (side.partition(".") for side in pair.split(">"))
        made.append(p.Edge(source=source, target=target, source_column=one or None, target_column=other or None))
    return p.LineageEdgesAdded(edges=tuple(made))


def published(dataset: str, manifest_id: int, *pins: tuple[str, int]) -> p.DatasetPublished:
    inputs = tuple(p.SnapshotPin(chain=f"chain/{name}", manifest_id=n, manifest_hash="h", ref="r") for name, n in pins)
    return p.DatasetPublished(
        dataset=dataset, kind="kv", chain=f"chain/{dataset}", manifest_id=manifest_id, manifest_hash="h", ref="r",
        commit_ulid=f"u{manifest_id}", run_id="run", published_at=NOW, inputs=inputs,
    )  # fmt: skip


def found(table: object) -> list[tuple[int, str, str]]:
    return [(row["depth"], row["source"], row["target"]) for row in table.to_pylist()]  # type: ignore[attr-defined]


def test_upstream_and_downstream_to_any_depth(workspace: Workspace) -> None:
    """C28: depth 1 unless asked otherwise; cycles end; each edge once, at its nearest depth."""
    tell(workspace, edges("raw>clean", "clean>orders", "users>orders", "orders>report", "report>clean"))
    assert found(upstream(workspace, "orders")) == [(1, "clean", "orders"), (1, "users", "orders")]
    assert found(upstream(workspace, "orders", depth=2))[2:] == [(2, "raw", "clean"), (2, "report", "clean")]
    assert found(upstream(workspace, "orders", depth=None))[-1] == (3, "orders", "report")
    assert found(downstream(workspace, "raw", depth=None)) == [
        (1, "raw", "clean"), (2, "clean", "orders"), (3, "orders", "report"), (4, "report", "clean")
    ]  # fmt: skip
    assert found(downstream(workspace, "nothing")) == []
    with pytest.raises(BadInput, match="leads nowhere"):
        upstream(workspace, "orders", depth=0)


def test_by_column_where_it_is_known(workspace: Workspace) -> None:
    """C28: from one column to the columns it was made from, and no others."""
    tell(workspace, edges("raw.id>clean.id", "raw.sum>clean.total", "clean.total>orders.total", "raw>clean"))
    rows = upstream(workspace, "orders", column="total", depth=None).to_pylist()
    assert [(row["source"], row["source_column"]) for row in rows] == [("clean", "total"), ("raw", "sum")]
    assert found(downstream(workspace, "raw", column="id", depth=None)) == [(1, "raw", "clean")]


def test_published_data_sets_bring_their_lineage_themselves(workspace: Workspace) -> None:
    """C28: the exact input snapshots that a manifest pins; at a snapshot, only that one's."""
    tell(
        workspace,
        published("raw", 1),
        published("raw", 2),
        published("clean", 1, ("raw", 1)),
        published("clean", 2, ("raw", 2), ("outside", 9)),
        published("report", 5, ("clean", 2)),
    )
    rows = upstream(workspace, "report", depth=None).to_pylist()
    pinned = [(row["source"], row["source_snapshot"], row["target"], row["target_snapshot"]) for row in rows]
    assert pinned == [
        ("clean", "2", "report", "5"), ("chain/outside", "9", "clean", "2"), ("raw", "2", "clean", "2")
    ], "snapshot 1 of clean was not used"  # fmt: skip
    assert found(downstream(workspace, "raw", snapshot="1", depth=None)) == [(1, "raw", "clean")]
    assert {row["kind"] for row in rows} == {"pinned"}


def test_removed_edges_are_gone_and_were_there(workspace: Workspace, clock: VirtualClock) -> None:
    """C28: as of a time."""
    tell(workspace, edges("raw>clean"))
    clock.advance(60)
    before = clock.now()
    clock.advance(60)
    tell(workspace, p.LineageEdgesRemoved(edges=(p.Edge(source="raw", target="clean"),)))
    assert found(upstream(workspace, "clean")) == []
    assert found(upstream(workspace, "clean", at=before)) == [(1, "raw", "clean")]
