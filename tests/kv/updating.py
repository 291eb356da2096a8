"""What the tests of incremental publishing share: data sets on a file system, and reading one back in two ways."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from holdfast.chain import Chain, Manifest
from holdfast.kv import DataSet
from holdfast.kv.mapped_snapshot import MappedSnapshot
from holdfast.storage import LocalStore
from tests.chain.publishing import ChainFactory

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])


def local_factory(root: Path) -> ChainFactory:
    """Writers on one data set in a folder, not synced to disk."""
    return ChainFactory(store=LocalStore(root, durable=False))


def table_of(rows: Mapping[int, str | None]) -> pa.Table:
    """Pairs of id and name as a table."""
    return pa.table({"id": list(rows.keys()), "name": list(rows.values())}, SCHEMA)


def ids_of(*ids: int) -> pa.Array:
    return pa.array(ids, pa.int64())


def manifest_of(chain: Chain) -> Manifest:
    """The visible one."""
    manifest = chain.load_current()
    assert manifest is not None
    return manifest


def dataset_of(chain: Chain) -> DataSet:
    """The visible one."""
    return DataSet.of_manifest(manifest_of(chain))


def stored_rows(chain: Chain, manifest: Manifest | None = None) -> dict[int, str | None]:
    """Every row of a snapshot by id: found by reading its files from end to end, and again by looking each key up."""
    dataset = DataSet.of_manifest(manifest or manifest_of(chain))
    root = Path(chain.store.url.removeprefix("file://"))
    files = [None if shard is None else root / shard.path for shard in dataset.shards]
    read: list[tuple[int, str | None]] = []
    for file in files:
        if file is not None:
            table = pa.ipc.open_file(file.read_bytes()).read_all()
            read.extend(zip(table["id"].to_pylist(), table["name"].to_pylist(), strict=True))
    rows = dict(read)
    assert len(rows) == len(read) == dataset.row_count, "a key is there twice, or the manifest counts wrongly"
    snapshot = MappedSnapshot(dataset, files)
    looked_up = snapshot.multi_get(list(rows))
    assert looked_up == {key: {"name": name} for key, name in rows.items()}
    return rows


def paths_of(chain: Chain) -> dict[int, str]:
    """The file of each shard that has one."""
    return {shard.number: shard.path for shard in dataset_of(chain).shards if shard is not None}
