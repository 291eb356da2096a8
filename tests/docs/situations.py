"""The chains that the pages' commands are tried on: whole ones, and ones that something has happened to.

A page that shows what to do about damage says which damage, in a comment above the block:

    <!-- situation: damaged manifest -->
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from holdfast.graph.store import GraphStore
from tests.cli.graph_data import DB_AFTER, EDGES, NODES, table, write
from tests.cli.support import DataSet
from tests.golden.make_old import OLD

__all__ = ["SITUATIONS", "World"]

ORDERS = """\
id,user_id,price,at
1,7,9.50,2026-11-15T08:00:00Z
2,7,3.25,2026-11-15T09:30:00Z
3,8,0,2026-11-15T10:00:00Z
4,9,12.00,2026-11-15T11:15:00Z
5,9,8.00,2026-11-15T12:45:00Z
"""


class World:
    """A folder with a key-value data set, one that was built from it, and a workspace with a catalog domain."""

    def __init__(self, folder: Path) -> None:
        self.users = DataSet(folder / "users")
        for number in range(1, 5):
            self.commit_ulid = self.users.publish(f"nightly-{number}", rows=100 * number).commit_ulid
        self.scores = DataSet(folder / "scores")
        self.scores.publish("scores-1", inputs=(self.users.chain.pin(),))
        self.catalog = DataSet(folder / "workspace", "domain:catalog")
        for number in (1, 2):
            self.catalog.publish(f"compact-{number}")

    @property
    def current_manifest(self) -> Path:
        current = self.users.chain.current()
        assert current is not None
        return self.users.folder / current.manifest_path

    @property
    def current_artifact(self) -> Path:
        manifest = self.users.chain.load_current()
        assert manifest is not None
        return self.users.folder / manifest.artifacts[0].path


def nothing(world: World) -> None:
    """Whole chains."""
    del world


def damaged_lock(world: World) -> None:
    (world.users.folder / "locks" / "writer.lock.json").write_bytes(b"{")


def damaged_pointer(world: World) -> None:
    (world.users.folder / "_CURRENT").write_bytes(b"{")


def damaged_manifest(world: World) -> None:
    path = world.current_manifest
    path.write_bytes(path.read_bytes()[:300])


def damaged_artifact(world: World) -> None:
    path = world.current_artifact
    path.write_bytes(b"x" + path.read_bytes()[1:])


def missing_mirror(world: World) -> None:
    (world.catalog.folder / "manifests" / "catalog.manifest.json").unlink()


def abandoned_run(world: World) -> None:
    """A writer that died after it had written a file and before it published anything."""
    run = world.users.chain.begin_run("nightly-5")
    world.users.chain.store.put_new(run.artifact_key("part-0"), b"half of it\n")


def graph_files(world: World) -> None:
    """Nodes and edges in CSV files, and no graph yet."""
    folder = world.users.folder.parent
    write(folder / "nodes.csv", NODES)
    write(folder / "edges.csv", EDGES)


def code_graph(world: World) -> None:
    """A graph with two versions that hold something, of which the first is tagged."""
    store = GraphStore.create(str(world.users.folder.parent / "code"))
    store.commit(nodes=table(NODES), edges=table(EDGES), tags={"release": "first"})
    store.replace_files(["src/db.py"], nodes=table(DB_AFTER))


def old_workspace(world: World) -> None:
    """What an older release left of a workspace."""
    shutil.copytree(OLD / "named", world.users.folder.parent / "lake")


def superseded_layout(world: World) -> None:
    """A tenant's catalog from before there were workspaces."""
    shutil.copytree(OLD / "tenant", world.users.folder.parent / "lake")


def orders(world: World) -> None:
    """A day's orders in a CSV file, and no pipeline yet."""
    folder = world.users.folder.parent / "data" / "2026-11-15"
    folder.mkdir(parents=True)
    (folder / "orders.csv").write_text(ORDERS, encoding="utf-8")


SITUATIONS: dict[str | None, Callable[[World], None]] = {
    None: nothing,
    "abandoned run": abandoned_run,
    "code graph": code_graph,
    "damaged artifact": damaged_artifact,
    "damaged lock": damaged_lock,
    "damaged manifest": damaged_manifest,
    "damaged pointer": damaged_pointer,
    "graph files": graph_files,
    "missing mirror": missing_mirror,
    "old workspace": old_workspace,
    "orders": orders,
    "superseded layout": superseded_layout,
}
