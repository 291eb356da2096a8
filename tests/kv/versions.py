"""Snapshots whose every value says which version it belongs to, and what a torn read of them would look like."""

from __future__ import annotations

import sys
from collections.abc import Iterable

import pyarrow as pa

from holdfast.chain import Chain, Refreshed
from holdfast.kv import ConcurrentShardedReader, Key, Published, publish_arrow

KEYS = 400
SHARDS = 4
LAST = 999
"""The version after which nothing comes."""


def publish_version(chain: Chain, version: int) -> Published:
    """All keys, each with the version and with itself."""
    keys = range(KEYS)
    table = pa.table(
        {
            "id": pa.array(keys, pa.int64()),
            "version": pa.array([version] * KEYS, pa.int64()),
            "text": pa.array([f"{version}:{key}" for key in keys]),
        }
    )
    return publish_arrow(chain, table, key="id", shards=SHARDS)


def version_in(found: dict[Key, object], keys: Iterable[int]) -> int:
    """The one version that all values are of."""
    versions = set()
    for key in keys:
        row = found[key]
        assert isinstance(row, dict)
        assert row["text"] == f"{row['version']}:{key}", row
        versions.add(row["version"])
    (version,) = versions
    return int(version)


def ask_everything(reader: ConcurrentShardedReader, turn: int) -> int:
    """One look-up of each kind; the version that the last of them answered with."""
    key = turn * 7 % KEYS
    version_in({key: reader.get(key)}, [key])
    assert reader.contains(key)
    assert reader.get(KEYS + key) is None
    some = [(key + step) % KEYS for step in range(50)]
    version_in(reader.multi_get([*some, -1]), some)
    table = reader.get_arrow(pa.array(some, pa.int64()))
    (version,) = set(table.column("version").to_pylist())
    assert table.column("text").to_pylist() == [f"{version}:{each}" for each in some]
    return int(version)


def main(url: str, mode: str, cache: str) -> None:
    """Read and refresh until the last version is there; then say how many were seen."""
    seen: set[int] = set()
    swaps = 0
    with ConcurrentShardedReader.open(url, mode=mode, cache=cache) as reader:
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        turn = 0
        while LAST not in seen:
            seen.add(ask_everything(reader, turn))
            swaps += reader.refresh() is Refreshed.SWAPPED
            turn += 1
    sys.stdout.write(f"{len(seen)} {swaps}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
