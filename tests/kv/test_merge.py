"""A stored shard and its changes become the next version of the shard, whatever the keys, the sizes and the hashes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import pairwise
from unittest.mock import patch
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.chain import chain_on, kv_layout
from holdfast.errors import BadRows, CorruptShard
from holdfast.kv import DataSet, KeySchema, OnDuplicate, SortedRows, publish_arrow, stored_rows
from holdfast.kv import merge as merge_module
from holdfast.kv.changes import ChangeCheck, as_changes, change_schema
from holdfast.kv.merge import ShardMerge
from holdfast.kv.stored_rows import StoredRows
from holdfast.storage import MemoryStore
from holdfast.testing.faulty import CountingStore
from tests.chain.publishing import overwrite

Rows = dict[int, str | None]
"""By the key's number."""

KINDS = {
    "int64": pa.int64(),
    "uint64": pa.uint64(),
    "int8": pa.int8(),
    "text": pa.string(),
    "bytes": pa.binary(),
    "uuid": pa.uuid(),
    "date": pa.date32(),
}
KEYS = [*((kind,) for kind in KINDS), ("text", "int64"), ("uuid", "bytes", "date")]


def key_part(kind: str, number: int) -> object:
    """The how-manieth key of a kind."""
    match kind:
        case "int64":
            return number * (-1 if number % 2 else 1) * 1_000_003
        case "uint64":
            return (number * 0x1234_5678_9ABC_DEF1) % (1 << 64)
        case "int8":
            return number - 100
        case "text":
            return f"é{number}-" * (number % 5 + 1)
        case "bytes":
            return number.to_bytes(3, "big") * (number % 12 + 1)
        case "uuid":
            return UUID(int=number * 0x1234_5678 + 1)
        case _:
            return date(1970, 1, 1) + timedelta(days=number - 50)


@dataclass
class Shard:
    """One shard whose rows are known, to be merged with changes."""

    kinds: Sequence[str]
    store: MemoryStore
    dataset: DataSet

    @classmethod
    def of(cls, kinds: Sequence[str], rows: Rows) -> Shard:
        store = MemoryStore()
        chain = chain_on(store, kv_layout())
        names = [f"k{index}" for index in range(len(kinds))]
        dataset = publish_arrow(chain, batch_of(kinds, rows), key=names, shards=1).dataset
        return cls(kinds, store, dataset)

    @property
    def path(self) -> str:
        shard = self.dataset.shards[0]
        assert shard is not None
        return shard.path

    def stored(self, store: MemoryStore | CountingStore | None = None) -> StoredRows | None:
        shard = self.dataset.shards[0]
        key, schema = self.dataset.key, self.dataset.schema
        return None if shard is None else StoredRows(store or self.store, shard, schema=schema, key=key)

    def changes(self, upserts: Rows, deletes: Iterable[int], *, batch_rows: int = 7) -> Iterator[SortedRows]:
        """As a router hands them on: in the order of their hashes, in batches of any size."""
        schema, key = change_schema(self.dataset.schema, self.dataset.key), self.dataset.key
        both = pa.concat_batches(
            [
                as_changes(batch_of(self.kinds, upserts), schema, deleted=False),
                as_changes(keys(self.kinds, deletes), schema, deleted=True),
            ]
        )
        hashes = key.hash_arrays(both.columns[: len(key.columns)])
        order = np.argsort(hashes.view(np.int64), kind="stable")
        for start in range(0, len(order), batch_rows):
            some = order[start : start + batch_rows]
            yield SortedRows(both.take(pa.array(some)), hashes[some])

    def merge(self, changes: Iterable[SortedRows], rule: str = "error") -> ShardMerge:
        check = ChangeCheck(self.dataset.key, self.dataset.schema, OnDuplicate.parse(rule))
        return ShardMerge(self.stored(), check.one_per_key(changes), schema=self.dataset.schema, key=self.dataset.key)

    def read(self, rows: Iterable[SortedRows]) -> dict[tuple[object, ...], str | None]:
        """What comes out, made sure to be in order and to have each key once."""
        found: dict[tuple[object, ...], str | None] = {}
        hashes = [np.empty(0, np.int64)]
        for batch, some in rows:
            assert batch.schema.equals(self.dataset.schema)
            assert (self.dataset.key.hash_arrays(batch.columns[: len(self.kinds)]) == some).all()
            hashes.append(some.view(np.int64))
            for row in batch.to_pylist():
                key = tuple(row[f"k{index}"] for index in range(len(self.kinds)))
                assert key not in found
                found[key] = row["v"]
        order = np.concatenate(hashes)
        assert (order[1:] >= order[:-1]).all()
        return found


def keys(kinds: Sequence[str], numbers: Iterable[int]) -> pa.RecordBatch:
    columns = {}
    for index, kind in enumerate(kinds):
        parts = [key_part(kind, number) for number in numbers]
        if kind == "uuid":
            storage = pa.array([part.bytes for part in parts if isinstance(part, UUID)], pa.binary(16))
            columns[f"k{index}"] = pa.ExtensionArray.from_storage(pa.uuid(), storage)
        else:
            columns[f"k{index}"] = pa.array(parts, KINDS[kind])
    return pa.RecordBatch.from_pydict(columns)


def batch_of(kinds: Sequence[str], rows: Rows) -> pa.RecordBatch:
    return keys(kinds, rows).append_column("v", pa.array(list(rows.values()), pa.string()))


def named(kinds: Sequence[str], rows: Rows) -> dict[tuple[object, ...], str | None]:
    return {tuple(key_part(kind, number) for kind in kinds): value for number, value in rows.items()}


@st.composite
def some_rows(draw: st.DrawFn) -> Rows:
    """Rows of any number of keys; Hypothesis by itself would hardly ever make more than a block of them."""
    numbers = drawn(draw)
    values = np.random.default_rng(draw(seeds)).integers(0, 3, len(numbers)).tolist()
    return {number: ("a", "b", None)[value] for number, value in zip(numbers, values, strict=True)}


def drawn(draw: st.DrawFn) -> list[int]:
    found: list[int] = np.random.default_rng(draw(seeds)).choice(200, draw(counts), replace=False).tolist()
    return found


seeds = st.integers(min_value=0, max_value=1 << 32)
counts = st.sampled_from([0, 1, 2, 3, 10, 40, 150])


@given(
    kinds=st.sampled_from(KEYS),
    base=some_rows(),
    upserts=some_rows(),
    deletes=st.composite(drawn)(),
    batch_rows=st.integers(1, 30),
    few_hashes=st.booleans(),
    kept_bytes=st.sampled_from([0, 200, 8 << 20]),
)
def test_the_merged_rows_are_what_a_dict_would_hold(
    kinds: tuple[str, ...],
    base: Rows,
    upserts: Rows,
    deletes: list[int],
    batch_rows: int,
    few_hashes: bool,
    kept_bytes: int,
) -> None:
    """K9: upserts replace and add, deletes remove, everything else stays; also where different keys have one hash."""
    deletes = [number for number in deletes if number not in upserts]
    expected = {number: value for number, value in (base | upserts).items() if number not in deletes}
    hash_arrays = KeySchema.hash_arrays

    def colliding(self: KeySchema, arrays: Sequence[pa.Array]) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
        return hash_arrays(self, arrays) % np.uint64(3) * np.uint64(1 << 62)

    with (
        patch.object(stored_rows, "_RANGE_BYTES", 1),  # one block at a time: many small steps
        patch.object(merge_module, "_KEPT_BYTES_MAX", kept_bytes),
        patch("holdfast.kv.shard_writer.BLOCK_ROWS", 4),
        patch.object(KeySchema, "hash_arrays", colliding if few_hashes else hash_arrays),
    ):
        shard = Shard.of(kinds, base)
        merge = shard.merge(shard.changes(upserts, deletes, batch_rows=batch_rows))
        rows = merge.rows()
        if rows is None:
            assert expected == base
        else:
            assert shard.read(rows) == named(kinds, expected)
            assert expected != base
    assert merge.upserted == len(upserts)
    assert merge.inserted == len(set(upserts) - set(base))
    assert merge.deleted == len(set(deletes) & set(base))
    assert merge.absent == len(set(deletes) - set(base))


def test_a_shard_without_changes_is_not_read() -> None:
    """K9: what no change touches costs no request."""
    shard = Shard.of(["int64"], {1: "a"})
    store = CountingStore(shard.store)
    merge = ShardMerge(shard.stored(store), iter(()), schema=shard.dataset.schema, key=shard.dataset.key)
    assert merge.rows() is None
    assert store.total == 0


class RangeLog(CountingStore):
    """Remembers which bytes were asked for."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store)
        self.ranges: list[tuple[int, int]] = []

    def get_range(self, key: str, start: int, length: int) -> bytes:
        self.ranges.append((start, start + length))
        return super().get_range(key, start, length)


def test_a_shard_is_read_once_by_ranges_of_a_few_megabytes_if_its_first_change_counts() -> None:
    """K9: each byte of the rows is fetched once, and never the file as a whole."""
    shard = Shard.of(["int64"], dict.fromkeys(range(8_000), "x" * 2_000))
    store = RangeLog(shard.store)
    check = ChangeCheck(shard.dataset.key, shard.dataset.schema, OnDuplicate())
    changes = check.one_per_key(shard.changes({7: "new"}, [8]))
    merge = ShardMerge(shard.stored(store), changes, schema=shard.dataset.schema, key=shard.dataset.key)
    rows = merge.rows()
    assert rows is not None
    assert len(shard.read(rows)) == 7_999
    assert set(store.counts) == {"get_range"}
    in_order = sorted(store.ranges)
    assert all(end <= start for (_, end), (start, _) in pairwise(in_order))
    assert max(end - start for start, end in in_order) <= 4 << 20
    assert len(in_order) <= 10


def test_rows_are_found_before_the_first_difference_even_if_changes_to_them_come_to_nothing() -> None:
    """K9: upserts of rows that are there already come before the one that counts."""
    base: Rows = dict.fromkeys(range(3_000), "same")
    with patch.object(stored_rows, "_RANGE_BYTES", 4_096), patch.object(merge_module, "_KEPT_BYTES_MAX", 10_000):
        shard = Shard.of(["int64"], base)
        key = shard.dataset.key
        hashes = key.hash_arrays([keys(["int64"], base)["k0"]]).view(np.int64)
        last = int(np.argmax(hashes))
        rows = shard.merge(shard.changes(base | {last: "new"}, [])).rows()
        assert rows is not None
        assert shard.read(rows) == named(["int64"], base | {last: "new"})


def test_a_damaged_block_ends_a_merge() -> None:
    """K18: rows of a block that is not what was written never get into the next version of a shard."""
    shard = Shard.of(["int64"], {number: f"value {number}" for number in range(2_000)})
    data = bytearray(shard.store.get(shard.path).data)
    data[data.index(b"value 1234")] ^= 1
    overwrite(shard.store, shard.path, bytes(data))
    with pytest.raises(CorruptShard, match=r"block .* fails its checksum"):
        list(shard.merge(shard.changes({5: "new"}, [])).rows() or ())


def test_a_damaged_directory_ends_a_merge() -> None:
    """K18: an entry that was changed is not believed."""
    shard = Shard.of(["int64"], dict.fromkeys(range(2_000), "value"))
    found = shard.dataset.shards[0]
    assert found is not None
    data = bytearray(shard.store.get(shard.path).data)
    data[found.directory_offset + 3] ^= 1
    overwrite(shard.store, shard.path, bytes(data))
    with pytest.raises(CorruptShard, match="directory entry 0 fails its checksum"):
        list(shard.merge(shard.changes(dict.fromkeys(range(2_000), "new"), [])).rows() or ())


def test_a_missing_file_ends_a_merge() -> None:
    """K18: a shard that the manifest names and the store has not is damage, not an empty shard."""
    shard = Shard.of(["int64"], {1: "a"})
    shard.store.delete([shard.path])
    with pytest.raises(CorruptShard, match="its file is missing"):
        shard.merge(shard.changes({1: "b"}, [])).rows()


def test_rows_out_of_order_are_not_merged() -> None:
    """K18: were the hashes of the stored rows not what they were when it was built, rows would be lost silently."""
    shard = Shard.of(["int64"], dict.fromkeys(range(1_000), "a"))
    hash_arrays = KeySchema.hash_arrays
    with (
        patch.object(KeySchema, "hash_arrays", lambda self, arrays: ~hash_arrays(self, arrays)),
        pytest.raises(CorruptShard, match="not in the order of their hashes"),
    ):
        list(shard.merge(shard.changes({1: "b"}, [])).rows() or ())


# -- one change per key ----------------------------------------------------------------------------------------------


def doubled(shard: Shard, *pairs: tuple[int, str], batch_rows: int = 2) -> Iterator[SortedRows]:
    """Upserts that may have a key twice, in the order given."""
    schema, key = change_schema(shard.dataset.schema, shard.dataset.key), shard.dataset.key
    rows = keys(shard.kinds, [number for number, _ in pairs])
    upserts = rows.append_column("v", pa.array([value for _, value in pairs], pa.string()))
    batch = as_changes(upserts, schema, deleted=False)
    hashes = key.hash_arrays(batch.columns[: len(key.columns)])
    order = np.argsort(hashes.view(np.int64), kind="stable")
    for start in range(0, len(order), batch_rows):
        some = order[start : start + batch_rows]
        yield SortedRows(batch.take(pa.array(some)), hashes[some])


@pytest.mark.parametrize("batch_rows", [1, 2, 100])
def test_a_key_that_is_upserted_twice_is_refused_wherever_batches_end(batch_rows: int) -> None:
    """K2: duplicates among upserts are counted with samples, also across batches."""
    shard = Shard.of(["int64"], {1: "a"})
    pairs = [(1, "b"), (2, "c"), (1, "d"), (3, "e"), (3, "f"), (3, "g")]
    check = ChangeCheck(shard.dataset.key, shard.dataset.schema, OnDuplicate())
    with pytest.raises(BadRows, match="3 with a key that another row has"):
        list(check.one_per_key(doubled(shard, *pairs, batch_rows=batch_rows)))
    assert check.report.duplicate_count == 3
    assert set(check.report.duplicate_samples) == {repr(key_part("int64", 1)), repr(key_part("int64", 3))}


@pytest.mark.parametrize("batch_rows", [1, 2, 100])
def test_the_last_upsert_of_a_key_counts_if_that_is_the_rule(batch_rows: int) -> None:
    """K2: on_duplicate=last."""
    shard = Shard.of(["int64"], {1: "a"})
    pairs = [(1, "b"), (2, "c"), (1, "d"), (3, "e"), (3, "f"), (3, "g")]
    check = ChangeCheck(shard.dataset.key, shard.dataset.schema, OnDuplicate.parse("last"))
    changes = list(check.one_per_key(doubled(shard, *pairs, batch_rows=batch_rows)))
    found = {row["k0"]: row["v"] for batch, _ in changes for row in batch.to_pylist()}
    assert found == {key_part("int64", 1): "d", key_part("int64", 2): "c", key_part("int64", 3): "g"}
    assert check.dropped == 3
