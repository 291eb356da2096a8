"""What older releases left is read where it is, by the names of today; and reading writes nothing."""

from __future__ import annotations

import orjson
import pytest

from holdfast.catalog.compactor import Compactor
from holdfast.catalog.reading import read_state
from holdfast.catalog.sql import query
from holdfast.chain import Pointer
from holdfast.chain.layout import FORMER_NAMES, domain_layout
from holdfast.chain.root import RootManifest
from holdfast.errors import CorruptRecord
from holdfast.storage import MemoryStore
from tests.catalog.test_migrate import IN_PLACE, ROWS, copy_of, names_in, rows_of, workspace_on
from tests.chain.publishing import everything, overwrite
from tests.golden.make_old import OLD, events_of


@IN_PLACE
def test_old_names_and_spellings_are_read_where_they_are(layout: str) -> None:
    """C4: state under old names and in camelCase, by manifests and by pointers, is read; reading writes nothing."""
    root = copy_of(layout)
    before, workspace = everything(root), workspace_on(root)
    assert rows_of(workspace) == ROWS
    state, _ = read_state(workspace, "catalog")
    assert (state.snapshot_version, state.watermark.position) == (3, 2)
    assert state.watermark.event_id == events_of("catalog")[1].event_id
    assert query(workspace, 'SELECT "table" FROM system.tables').to_pylist() == [{"table": "orders"}]
    assert query(workspace, "SELECT target FROM system.edges").to_pylist() == [{"target": "sales.orders"}]
    assert everything(root) == before


def test_an_old_name_is_the_domain_of_today() -> None:
    """C4: `core` and `catalog_core` are the catalog, `execution` the executions, `governance` the search."""
    workspace = workspace_on(MemoryStore())
    for old, name in FORMER_NAMES.items():
        assert workspace.domain(old).layout == workspace.domain(name).layout
    assert FORMER_NAMES == {
        "core": "catalog", "catalog_core": "catalog", "execution": "executions", "governance": "search",
    }  # fmt: skip


def test_of_two_old_names_the_newer_state_counts() -> None:
    """C4: a domain that was renamed twice left two; an older one is never taken for what is."""
    workspace = workspace_on(copy_of("named"))
    newer = orjson.loads(workspace.store.get("manifests/core.manifest.json").data) | {"snapshotVersion": 4}
    workspace.store.put_new("manifests/catalog_core.manifest.json", orjson.dumps(newer))
    assert read_state(workspace, "catalog")[0].snapshot_version == 4
    overwrite(workspace.store, "manifests/core.manifest.json", orjson.dumps(newer | {"snapshotVersion": 5}))
    assert read_state(workspace, "catalog")[0].snapshot_version == 5


def test_an_old_pointer_whose_manifest_is_missing_or_changed_is_damage() -> None:
    """C4, I3: the hash that a pointer gives is checked; what it names must be there."""
    workspace = workspace_on(copy_of("pointers"))
    key = "manifests/catalog_core/00000000000000000007.json"
    good = workspace.store.get(key).data
    overwrite(workspace.store, key, good + b" ")
    with pytest.raises(CorruptRecord, match="hash"):
        read_state(workspace, "catalog")
    workspace.store.delete([key])
    with pytest.raises(CorruptRecord, match="missing"):
        read_state(workspace, "catalog")


def test_a_root_of_an_older_release_is_read_by_the_names_of_today() -> None:
    """C4, C3: camelCase or old names, both at once, a null: today's count, and what is unknown stays."""
    root = RootManifest.decode((OLD / "named/acme/prod/manifests/root.manifest.json").read_bytes(), key="root")
    assert root.is_old
    assert root.paths == {
        "catalog_manifest_path": "manifests/core.manifest.json",
        "lineage_manifest_path": "manifests/lineage.manifest.json",
        "executions_manifest_path": "manifests/execution.manifest.json",
        "search_manifest_path": "manifests/governance.manifest.json",
    }
    assert root.unknown == {"note": "kept"}
    both = {
        "version": 1, "updated_at": "2025-01-01T00:00:00Z", "coreManifestPath": "old", "catalog_manifest_path": "new",
        "core_manifest_path": "older", "governanceManifestPath": None, "someCount": 3,
    }  # fmt: skip
    mixed = RootManifest.decode(orjson.dumps(both), key="root")
    assert (mixed.paths, mixed.unknown) == ({"catalog_manifest_path": "new"}, {"someCount": 3})
    again = RootManifest.decode(mixed.encode(), key="root")
    assert (again.paths, again.unknown, again.is_old) == (mixed.paths, mixed.unknown, False)


def test_a_bare_pointer_of_an_older_release_is_read_and_written_anew() -> None:
    """C4: without format, hash and moves; a reader follows it, and the next write swaps it for one of today."""
    root = copy_of("pointers")
    chain = workspace_on(root).domain("lineage")
    seen = chain.handle.read_pointer()
    assert seen is not None
    assert seen.pointer == chain.handle.read_pointer().pointer, "everybody tells the same"  # type: ignore[union-attr]
    assert chain.load_current() is not None
    with chain.reader(lambda manifest: manifest.payload["snapshot_version"]) as reader, reader.borrow() as served:
        assert served.resource == 3
    Compactor(workspace_on(root), "lineage").compact([])
    stored = chain.store.get(chain.layout.pointer_key).data
    now = Pointer.decode(stored, key="pointer", id_field=chain.layout.id_field)
    assert orjson.loads(stored)["format"] == "holdfast.pointer/1.0"
    assert [move.kind.value for move in now.moves] == ["adopt", "publish"]
    assert not names_in(orjson.loads(stored)) & {"manifestId", "manifestPath", "updatedAt"}
    assert chain.verify() == []


@pytest.mark.parametrize("field", ["manifestPath", "manifestId", "updatedAt"])
def test_an_old_pointer_that_lacks_what_it_must_say_is_damage(field: str) -> None:
    """C4: what cannot be understood is named, and never guessed."""
    record = orjson.loads((OLD / "pointers/acme/prod/manifests/lineage.pointer.json").read_bytes())
    del record[field]
    with pytest.raises(CorruptRecord, match=r"some/key"):
        Pointer.decode(orjson.dumps(record), key="some/key", id_field=domain_layout("lineage").id_field)


def test_a_root_that_leads_to_the_right_places_is_still_spelled_anew() -> None:
    """C4: `initialize` writes the canonical form, also where only the spelling is old."""
    workspace = workspace_on(MemoryStore())
    workspace.initialize()
    paths = workspace.read_root().paths
    old = {f"{name.removesuffix('_manifest_path')}ManifestPath": path for name, path in paths.items()}
    root = str(workspace.domain("catalog").layout.root_key)
    overwrite(workspace.store, root, orjson.dumps({"version": 1, "updatedAt": "2025-01-01T00:00:00Z", **old}))
    assert workspace.read_root().paths == paths
    assert workspace.initialize() == (root,)
    assert set(orjson.loads(workspace.store.get(root).data)) == {"version", "updated_at", *paths}
