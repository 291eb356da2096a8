"""Look-ups by range requests: few requests, many at once, little memory."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from holdfast.chain import Chain, Refreshed
from holdfast.kv import Key, KeySchema, Published, ShardedReader, publish_arrow, update_arrow
from holdfast.kv.block_cache import BlockCache
from holdfast.kv.request import KeyColumns
from holdfast.kv.row_match import match_rows
from holdfast.storage import MemoryStore, ObjectStore
from holdfast.testing.faulty import CountingStore, InterceptedStore
from tests.chain.publishing import ChainFactory
from tests.kv.readers import KINDS, AnyReader, opened

ROWS = 30_000


@pytest.fixture
def store_kind() -> str:
    return "memory"


@pytest.fixture
def large(chain: Chain) -> Published:
    """Some hundred blocks in four shards."""
    keys = pa.array(range(ROWS), pa.int64())
    return publish_arrow(
        chain, pa.table({"id": keys, "v": [b"%d" % n for n in range(ROWS)]}), key="id", shards=4, value="binary"
    )


def expected(keys: list[int]) -> dict[Key, object]:
    return {key: b"%d" % key for key in keys if 0 <= key < ROWS}


class Recorder(InterceptedStore):
    """Remembers which ranges were read."""

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store)
        self.ranges: list[tuple[str, int, int]] = []

    def get_range(self, key: str, start: int, length: int) -> bytes:
        self.ranges.append((key, start, length))
        return super().get_range(key, start, length)


class Together(InterceptedStore):
    """Answers range requests only once so many have come that they must have been made in parallel."""

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store)
        self.barrier = threading.Barrier(1)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        self.barrier.wait(timeout=30)
        return super().get_range(key, start, length)


@pytest.mark.parametrize("kind", KINDS)
def test_a_cold_look_up_is_two_ranges_a_warm_one_is_one_and_a_repeated_one_none(
    chain_factory: ChainFactory, large: Published, tmp_path: Path, kind: str
) -> None:
    """K17: a page of the directory and the block; then the block; then what is remembered. Misses cost no more."""
    counting = CountingStore(chain_factory.store)
    with opened(kind, chain_factory(store=counting), mode="direct", cache=tmp_path) as reader:
        assert counting.counts == {"get": 2}, "a cold open is the pointer and the manifest"
        for shard in range(4):
            cold, warm = [key for key in range(1_000) if reader.route_key(key) == shard][:2]
            missing = next(key for key in range(ROWS, ROWS + 1_000) if reader.route_key(key) == shard)
            for key, cost in (
                (cold, {"get_range": 2}),
                (warm, {"get_range": 1}),
                (warm, {}),
                (missing, {"get_range": 1}),
            ):
                counting.reset()
                assert reader.get(key) == expected([key]).get(key)
                assert counting.counts == cost
            counting.reset()
            assert not reader.contains(missing)
            assert counting.counts == {}
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("kind", KINDS)
def test_a_large_directory_is_read_a_page_at_a_time(
    chain_factory: ChainFactory, large: Published, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K17: a directory above the limit is not fetched whole, and a cold look-up is two ranges all the same."""
    monkeypatch.setattr("holdfast.kv.direct.WHOLE_DIRECTORY_BYTES", 256)
    monkeypatch.setattr("holdfast.kv.direct.PAGE_BYTES", 128)
    counting = CountingStore(chain_factory.store)
    with opened(kind, chain_factory(store=counting), mode="direct", cache=tmp_path) as reader:
        for key in range(0, ROWS, 997):
            counting.reset()
            assert reader.get(key) == b"%d" % key
            assert counting.counts.get("get_range", 0) <= 2
        keys = list(range(-100, ROWS + 100, 7))
        assert reader.multi_get(keys) == expected(keys)


def test_pages_and_blocks_are_as_small_as_they_should_be(
    chain_factory: ChainFactory, large: Published, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K17: a look-up moves a page of the directory and one block, not the shard."""
    monkeypatch.setattr("holdfast.kv.direct.WHOLE_DIRECTORY_BYTES", 256)
    monkeypatch.setattr("holdfast.kv.direct.PAGE_BYTES", 128)
    recorder = Recorder(chain_factory.store)
    with ShardedReader.open(chain_factory(store=recorder), mode="direct") as reader:
        assert reader.get(12_345) == b"12345"
        shard = reader.shard_for_key(12_345)
    assert shard is not None
    (page_path, page_start, page_length), (block_path, _, block_length) = recorder.ranges
    assert (page_path, block_path) == (shard.path, shard.path)
    assert (page_start - shard.directory_offset) % 128 == 0
    assert 32 <= page_length <= 128
    assert block_length < shard.byte_size / shard.block_count * 3


@pytest.mark.parametrize("kind", KINDS)
def test_many_keys_take_one_round_of_pages_and_one_of_blocks(
    chain_factory: ChainFactory, large: Published, tmp_path: Path, kind: str
) -> None:
    """K17: keys of one block share a request, blocks side by side do too, and what is remembered is not asked for."""
    counting = CountingStore(chain_factory.store)
    with opened(kind, chain_factory(store=counting), mode="direct", cache=tmp_path) as reader:
        counting.reset()
        keys = list(range(ROWS))
        assert reader.multi_get(keys) == expected(keys)
        assert counting.counts["get_range"] <= 4 + 4, "four directories, then each shard's blocks in a row"
        some = [5, 5, 17, -3, 10**12]
        first = [operation.key for operation in counting.log[:4]]
        assert len(set(first)) == 4
        counting.reset()
        assert reader.multi_get(some) == expected(some)
        assert reader.get_arrow(some, missing="drop").column("id").to_pylist() == [5, 5, 17]
        assert counting.counts.get("get_range", 0) <= 3


def test_the_requests_of_a_round_are_made_in_parallel(chain_factory: ChainFactory, large: Published) -> None:
    """K17: four directories at once, then four blocks at once."""
    together = Together(chain_factory.store)
    with ShardedReader.open(chain_factory(store=together), mode="direct") as reader:
        keys = [next(key for key in range(1_000) if reader.route_key(key) == shard) for shard in range(4)]
        together.barrier = threading.Barrier(4)
        assert reader.multi_get(keys) == expected(keys)


def test_an_answer_larger_than_a_round_comes_in_several(
    chain: Chain, large: Published, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K17: memory is bounded by the round, whatever is asked for; the answer is the same."""
    monkeypatch.setattr("holdfast.kv.direct.ROUND_BYTES", 20_000)
    monkeypatch.setattr("holdfast.kv.direct.KEYS_AT_A_TIME", 7_000)
    monkeypatch.setattr("holdfast.kv.direct.MERGED_BYTES_MAX", 9_000)
    keys = np.random.default_rng(7).permutation(np.arange(-500, ROWS + 500))
    with (
        ShardedReader.open(chain, mode="direct") as direct,
        ShardedReader.open(chain, cache=tmp_path / "cache") as cached,
    ):
        for missing in ("null", "drop"):
            assert direct.get_arrow(keys, missing=missing).equals(cached.get_arrow(keys, missing=missing))
        assert direct.multi_get(keys) == expected(keys.tolist())


def test_what_is_remembered_is_bounded() -> None:
    """K17: the memory of a direct reader has a limit; what was used last stays."""
    cache = BlockCache(1_000)
    for number in range(100):
        cache.put_page("shard", number, b"x" * 100)
        assert cache.page("shard", 0) is not None, "it is used all the time"
        assert cache.used_bytes <= 1_000
    assert cache.page("shard", 99) is not None
    assert cache.page("shard", 50) is None
    cache.put_page("shard", 0, b"y" * 1_001)
    assert cache.page("shard", 0) == b"x" * 100, "what does not fit at all is not kept"
    cache.put_page("shard", 0, b"z")
    cache.forget_page("shard", 0)
    assert cache.page("shard", 0) is None
    assert cache.used_bytes == 900


@pytest.mark.parametrize("kind", KINDS)
def test_a_refresh_forgets_nothing_of_shards_that_stayed(
    chain: Chain, chain_factory: ChainFactory, large: Published, tmp_path: Path, kind: str
) -> None:
    """K17, K9: what was read of a shard holds for every snapshot that has it."""
    counting = CountingStore(chain_factory.store)

    def costs(reader: AnyReader, keys: list[int]) -> int:
        counting.reset()
        reader.multi_get(keys)
        return counting.counts.get("get_range", 0)

    with opened(kind, chain_factory(store=counting), mode="direct", cache=tmp_path) as reader:
        keys = [next(key for key in range(1_000) if reader.route_key(key) == shard) for shard in range(4)]
        assert costs(reader, keys) == 8
        update_arrow(chain, upserts=pa.table({"id": pa.array(keys[:1], pa.int64()), "v": [b"new"]}))
        counting.reset()
        assert reader.refresh() is Refreshed.SWAPPED
        assert counting.counts == {"get": 1, "get_if_changed": 1}
        assert costs(reader, keys) == 2, "the directory and the block of the one that changed"
        assert reader.multi_get(keys) == expected(keys) | {keys[0]: b"new"}


@pytest.mark.parametrize("kind", KINDS)
def test_sizes_are_checked_by_one_request_for_each_shard_if_wanted(
    chain_factory: ChainFactory, large: Published, tmp_path: Path, kind: str
) -> None:
    """K16, K17: with `check_shards`, opening is the pointer, the manifest and a look at each shard."""
    counting = CountingStore(chain_factory.store)
    with opened(kind, chain_factory(store=counting), mode="direct", cache=tmp_path, check_shards=True):
        assert counting.counts == {"get": 2, "head": 4}


class SameHash(KeySchema):
    """A schema whose every key has the same hash."""

    def hash_arrays(self, arrays: list[pa.Array]) -> npt.NDArray[np.uint64]:  # type: ignore[override]
        return np.full(len(arrays[0]), 42, np.uint64)


def test_keys_that_share_a_hash_are_told_apart() -> None:
    """K14: a hash finds candidates; the key itself decides."""
    schema = SameHash.from_arrow(pa.schema([("k", pa.string())]), ["k"], None)
    rows = [pa.array(["c", "a", "b"])]
    wanted = pa.array(["a", "x", "b", "c", "a"])
    keys = KeyColumns(schema, [wanted], np.full(5, 42, np.uint64))
    assert match_rows(rows, keys, np.arange(5)).tolist() == [1, -1, 2, 0, 1]
    assert match_rows([pa.array([], pa.string())], keys, np.arange(5)).tolist() == [-1] * 5


def test_a_reader_that_is_closed_lets_look_ups_finish(chain_factory: ChainFactory, large: Published) -> None:
    """K15: a look-up that has begun answers, even though the reader was closed meanwhile."""
    store = chain_factory.store
    assert isinstance(store, MemoryStore)
    with ShardedReader.open(chain_factory(), mode="direct") as reader:
        get, multi_get = reader.get, reader._current().snapshot.multi_get
    assert get(5) == b"5"
    assert multi_get(list(range(100))) == expected(list(range(100)))
