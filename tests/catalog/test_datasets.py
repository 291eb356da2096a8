"""Data sets that announce themselves as they move, and moves that nothing about an announcement can hurt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest

from holdfast.catalog.announce import tell_moves
from holdfast.catalog.compactor import Compactor
from holdfast.catalog.datasets import announcing, open_dataset
from holdfast.catalog.layout import parse_dataset_url
from holdfast.catalog.lineage import downstream
from holdfast.catalog.sql import query
from holdfast.catalog.workspace import Workspace, open_workspace
from holdfast.chain import Chain, open_chain
from holdfast.errors import NotAChain, StoreUnavailable
from holdfast.graph import GraphStore, Node
from holdfast.kv import publish_arrow
from holdfast.storage.memory import MemoryStore
from holdfast.testing.clock import SeededRandomness, VirtualClock

VISIBLE = "SELECT dataset, kind, manifest_id, row_count, move FROM system.datasets ORDER BY dataset"


@dataclass
class Told:
    """Stands where a compactor would, and only listens."""

    paths: list[str] = field(default_factory=list)
    error: Exception | None = None

    def __call__(self, domain: str, paths: Sequence[str]) -> None:
        assert domain == "catalog"
        if self.error is not None:
            raise self.error
        self.paths += paths


@pytest.fixture
def workspace() -> Workspace:
    made = Workspace(
        root=MemoryStore(), tenant="acme", name="prod", by="tests", clock=VirtualClock(), randomness=SeededRandomness()
    )
    made.initialize()
    return made


def publish(chain: Chain, rows: int, *inputs: Chain) -> tuple[str, ...]:
    table = pa.table({"id": range(rows), "label": [f"n{number}" for number in range(rows)]})
    pins = [one.pin() for one in inputs]
    return publish_arrow(chain, table, key="id", shards=2, inputs=pins).commit.repair_pending


def test_key_value_data_sets_announce_publishes_and_rollbacks_with_what_they_were_built_from(
    workspace: Workspace,
) -> None:
    """C16, C28: nobody has to remember to tell the catalog: data set, run, inputs and columns are there at once."""
    raw, clean = open_dataset(workspace, "raw", "kv"), open_dataset(workspace, "clean", "kv")
    assert publish(raw, 5) == ()
    assert publish(clean, 4, raw) == ()
    assert publish(clean, 3, raw) == ()
    assert query(workspace, VISIBLE).to_pylist() == [
        {"dataset": "clean", "kind": "kv", "manifest_id": 1, "row_count": 3, "move": "published"},
        {"dataset": "raw", "kind": "kv", "manifest_id": 0, "row_count": 5, "move": "published"},
    ]
    assert [edge["target"] for edge in downstream(workspace, "raw").to_pylist()] == ["clean", "clean"]
    assert clean.rollback(why="too few").repair_pending == ()
    assert clean.forward().repair_pending == ()
    clean.rollback(why="still too few")
    found = query(workspace, "SELECT manifest_id, why FROM system.datasets WHERE dataset = 'clean'").to_pylist()
    assert found == [{"manifest_id": 0, "why": "still too few"}]


def test_graphs_announce_their_versions(workspace: Workspace) -> None:
    """C16, C28: a graph that is opened in its workspace is no different."""
    graph = GraphStore.create(open_dataset(workspace, "code", "graph"))
    graph.commit(nodes=[Node(semantic_id="a", type="T"), Node(semantic_id="b", type="T")])
    assert query(workspace, VISIBLE).to_pylist() == [
        {"dataset": "code", "kind": "graph", "manifest_id": 2, "row_count": 2, "move": "published"}
    ]
    with pytest.raises(NotAChain, match="opened as a kv chain"):
        GraphStore.open(open_dataset(workspace, "rows", "kv"))


def test_a_chain_that_is_known_by_its_url_announces_itself_if_it_lies_in_a_workspace(tmp_path: Path) -> None:
    """C16: where a data set lies says whose it is; a folder that was never initialized has nobody to tell."""
    root = f"file://{tmp_path}/lake"
    chain = announcing(open_chain(f"{root}/acme/prod/datasets/users", layout="kv"))
    assert publish(chain, 2) == ()
    workspace = open_workspace(root, tenant="acme", workspace="prod")
    workspace.initialize()
    assert query(workspace, VISIBLE).to_pylist() == []
    assert publish(chain, 3) == ()
    snapshots = "SELECT row_count FROM system.dataset_snapshots ORDER BY row_count"
    assert query(workspace, snapshots).column("row_count").to_pylist() == [2, 3]
    elsewhere = announcing(open_chain(f"file://{tmp_path}/elsewhere", layout="kv"))
    assert publish(elsewhere, 1) == ()


@pytest.mark.parametrize("error", [StoreUnavailable("no answer"), OSError("no disk")])
def test_a_move_stands_when_it_cannot_be_told_and_the_next_tells_both(workspace: Workspace, error: Exception) -> None:
    """C16: an announcement is left to repair, never the reason that a publish or a rollback fails."""
    told = Told(error=error)
    chain = open_dataset(workspace, "users", "kv", notify=told)
    assert publish(chain, 2) == ("announcement",)
    publish(chain, 3)
    assert chain.rollback().repair_pending == ("announcement",)
    current = chain.current()
    assert current is not None
    assert current.manifest_id == 0
    told.error = None
    assert chain.forward().repair_pending == ()
    assert len(told.paths) == 4
    Compactor(workspace, "catalog").compact(told.paths)
    assert query(workspace, VISIBLE).column("manifest_id").to_pylist() == [1]


def test_who_comes_after_a_writer_that_died_tells_what_it_left(workspace: Workspace) -> None:
    """C13, C16: untold moves are told; and the last that was told is folded again, for it may never have been."""
    silent = workspace.dataset("users", "kv")
    for rows in (1, 2, 3):
        publish(silent, rows)
    tell_moves(workspace, "users")  # and dies before anything is folded
    publish(silent, 4)
    told = Told()
    chain = open_dataset(workspace, "users", "kv", notify=told)
    publish(chain, 5)
    assert len(told.paths) == 3, "the last that was told, the one that was not, and this one"
    publish(chain, 6)
    assert len(told.paths) == 4
    assert len(set(told.paths)) == 4


def test_moves_that_change_nothing_visible_are_not_told(workspace: Workspace) -> None:
    told = Told()
    chain = open_dataset(workspace, "users", "kv", notify=told)
    publish(chain, 1)
    chain.tag(chain.find(), {"stage": "prod"})
    publish(chain, 2)
    assert len(told.paths) == 2


def test_a_folder_of_a_workspace_is_told_by_its_url() -> None:
    """C1: the last five segments say it, whatever store it is on."""
    expected = ("s3://bucket/lake", "acme", "prod", "users")
    assert parse_dataset_url("s3://bucket/lake/acme/prod/datasets/users") == expected
    assert parse_dataset_url("file:///acme/prod/datasets/users") is None
    for other in ("s3://acme/prod/datasets/users", "s3://b/x/acme/prod/state/users", "s3://b/x/Acme/prod/datasets/u"):
        assert parse_dataset_url(other) is None
