"""What a published data set holds, read without Spark."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from holdfast.chain import Chain
from holdfast.kv import DataSet
from holdfast.kv.mapped_snapshot import MappedSnapshot
from holdfast.storage import LocalStore


def dataset_of(chain: Chain) -> DataSet:
    """The visible snapshot."""
    manifest = chain.load_current()
    assert manifest is not None
    return DataSet.of_manifest(manifest)


def reader_of(chain: Chain) -> MappedSnapshot:
    """Look-ups in the visible snapshot of a chain on this machine's file system."""
    dataset = dataset_of(chain)
    assert isinstance(chain.store, LocalStore)
    root = Path(chain.store.url.removeprefix("file://"))
    return MappedSnapshot(dataset, [None if shard is None else root / shard.path for shard in dataset.shards])


def table_of(chain: Chain) -> pa.Table:
    """Every row, shard by shard, as the files have them."""
    dataset = dataset_of(chain)
    tables = [pa.ipc.open_file(chain.store.get(s.path).data).read_all() for s in dataset.shards if s is not None]
    return pa.concat_tables(tables) if tables else dataset.schema.empty_table()
