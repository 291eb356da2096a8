"""What only the async side has: natively async records, a loop that goes on, and the read half of history."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pyarrow as pa
import pytest

from holdfast.chain import Chain, Manifest, Refreshed
from holdfast.errors import (
    BadInput,
    CorruptRecord,
    CorruptShard,
    NotAChain,
    ReaderStateError,
    SnapshotCollected,
    SnapshotNotFound,
)
from holdfast.kv import AsyncShardedReader, Published, publish_rows
from holdfast.storage import ObjectStore
from holdfast.testing.faulty import CountingStore, InterceptedStore
from tests.chain.publishing import ChainFactory, overwrite
from tests.kv.readers import MODES


class Peak(InterceptedStore):
    """Knows how many requests were under way at once, at most."""

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store)
        self.now = self.most = 0

    async def _around_async(self, operation, effect):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN202
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0)
        try:
            return await effect()
        finally:
            self.now -= 1


def test_the_async_half_reads_the_same_history(chain: Chain) -> None:
    """K13, S32: load_current, load_manifest and list_manifests, natively async, say what the sync ones say."""

    async def empty() -> None:
        history = chain.as_async()
        assert await history.load_current() is None
        assert await history.list_manifests() == []
        with pytest.raises(NotAChain):
            await history.load_manifest("2026-03-14T10:30:00.000000Z_run_id=run-1")

    asyncio.run(empty())
    made = [publish_rows(chain, [("k", {"v": version})], run_id=f"run-{version}") for version in range(14)]
    chain.rollback(ref=made[5].ref)

    async def scenario() -> None:
        history = chain.as_async()
        assert await history.load_current() == chain.load_current() == made[5].commit.manifest
        for limit in (0, 1, 10, 50):
            assert await history.list_manifests(limit) == chain.list_manifests(limit)
        for published in made:
            assert await history.load_manifest(published.ref) == chain.load_manifest(published.ref)
        with pytest.raises(SnapshotNotFound, match="ever visible"):
            await history.load_manifest("2026-03-14T10:30:00.000000Z_run_id=nobody")
        with pytest.raises(BadInput):
            await history.load_manifest("latest")
        assert not hasattr(history, "set_current"), "rollback is an operator's action"

    asyncio.run(scenario())
    chain.collect(retention=3)

    async def collected() -> None:
        history = chain.as_async()
        assert await history.list_manifests(50) == chain.list_manifests(50)
        with pytest.raises(SnapshotCollected):
            await history.load_manifest(made[0].ref)

    asyncio.run(collected())


@pytest.mark.parametrize("store_kind", ["memory"])
def test_the_async_half_of_history_makes_async_requests_and_no_list(
    chain: Chain, chain_factory: ChainFactory, published: Published
) -> None:
    """K13, S31: the visible manifest is two requests, the newest snapshots are one, and nothing lists storage."""
    counting = CountingStore(chain_factory.store)
    history = chain_factory(store=counting).as_async()
    asyncio.run(history.load_current())
    assert counting.counts == {"get": 2}
    counting.reset()
    asyncio.run(history.list_manifests())
    assert counting.counts == {"get": 1}


@pytest.mark.parametrize("store_kind", ["memory"])
def test_an_async_reader_of_a_chain_may_load_with_a_coroutine(chain: Chain, chain_factory: ChainFactory) -> None:
    """K16, S28, S29: what it raises counts as damage of the snapshot: fall back at cold start, keep on refresh."""
    for version in range(3):
        publish_rows(chain, [("k", {"v": version})])
    bad = {2}

    async def load(manifest: Manifest) -> int:
        await asyncio.sleep(0)
        if manifest.manifest_id in bad:
            raise CorruptShard("shard", "it is bad")
        return manifest.manifest_id

    async def scenario() -> None:
        async with await chain.async_reader(load) as reader:
            assert reader.status().fell_back
            with reader.borrow() as served:
                assert served.resource == 1
            publish_rows(chain, [("k", {"v": 3})])
            bad.add(3)
            assert await reader.refresh() is Refreshed.KEPT
            bad.clear()
            assert await reader.refresh() is Refreshed.SWAPPED
            with reader.borrow() as served:
                assert served.resource == 3
        bad.update(range(4))
        with pytest.raises(ReaderStateError, match=r"after 3 fallbacks.*it is bad"):
            await chain.async_reader(load)

    asyncio.run(scenario())


def test_a_sync_reader_falls_back_from_data_that_cannot_be_loaded(chain: Chain) -> None:
    """K16, S28: the same without asyncio; and the number of attempts counts loads."""
    for version in range(4):
        publish_rows(chain, [("k", {"v": version})])
    asked: list[int] = []

    def load(manifest: Manifest) -> int:
        asked.append(manifest.manifest_id)
        if manifest.manifest_id > 1:
            raise CorruptRecord("data", "it is bad")
        return manifest.manifest_id

    with chain.reader(load) as reader, reader.borrow() as served:
        assert served.resource == 1
        assert reader.status().fell_back
        assert len(reader.status().skipped) == 2
    assert asked == [3, 2, 1]
    with pytest.raises(ReaderStateError):
        chain.reader(load, max_fallback_attempts=1)
    with pytest.raises(ReaderStateError):
        chain.reader(load, max_fallback_attempts=0)


@pytest.mark.parametrize("store_kind", ["memory"])
def test_a_damaged_pointer_falls_back_to_data_that_can_be_loaded(
    chain: Chain, chain_factory: ChainFactory, store: ObjectStore, tmp_path: Path
) -> None:
    """K26, S28: a corrupt pointer does not stop a cold start, nor does a missing shard behind it."""
    made = [publish_rows(chain, [("k", {"v": version})]) for version in range(4)]
    chain_factory.expect_damage()
    overwrite(store, chain.layout.pointer_key, b"{")
    (shard,) = [shard for shard in made[2].dataset.shards if shard is not None]
    store.delete([shard.path])

    async def scenario() -> None:
        async with await AsyncShardedReader.open(chain, cache=tmp_path / "cache") as reader:
            assert await reader.get("k") == {"v": 1}
            health = reader.health()
            assert (health.head_id, health.fell_back) == (None, True)
            assert len(health.skipped) == 2

    asyncio.run(scenario())


@pytest.mark.parametrize("store_kind", ["memory"])
@pytest.mark.parametrize("mode", MODES)
def test_large_look_ups_of_tasks_are_answered_like_small_ones(
    chain: Chain, published: Published, table: pa.Table, tmp_path: Path, mode: str
) -> None:
    """K14: many keys at once, and many look-ups at once."""

    async def scenario() -> None:
        async with await AsyncShardedReader.open(chain, mode=mode, cache=tmp_path / "cache") as reader:
            keys = [*range(1_000), *range(10_000, 20_000)]
            assert len(await reader.multi_get(keys)) == 1_000
            assert (await reader.get_arrow(keys, missing="drop")).equals(
                table.cast((await reader.get_arrow([1])).schema)
            )
            rows = await asyncio.gather(*(reader.get(key) for key in range(1_100)))
            assert rows == [{"square": k * k, "name": f"row {k}"} if k < 1_000 else None for k in range(1_100)]

    asyncio.run(scenario())


@pytest.mark.parametrize("store_kind", ["memory"])
def test_tasks_that_want_the_same_bytes_at_once_share_one_request(
    chain: Chain, chain_factory: ChainFactory, published: Published
) -> None:
    """K17: a hundred cold look-ups of one key are two requests; one of them giving up does not hurt the others."""
    peak = Peak(chain_factory.store)

    async def scenario() -> None:
        async with await AsyncShardedReader.open(chain_factory(store=peak), mode="direct") as reader:
            tasks = [asyncio.create_task(reader.get(7)) for _ in range(100)]
            await asyncio.sleep(0)
            tasks[0].cancel()
            rows = await asyncio.gather(*tasks, return_exceptions=True)
            assert isinstance(rows[0], asyncio.CancelledError)
            assert rows[1:] == [{"square": 49, "name": "row 7"}] * 99

    asyncio.run(scenario())
    assert [operation.kind for operation in peak.log].count("get_range") == 2


@pytest.mark.parametrize("store_kind", ["memory"])
def test_requests_under_way_at_once_are_limited(chain_factory: ChainFactory, chain: Chain, tmp_path: Path) -> None:
    """K17: a thousand tasks do not become a thousand requests at once."""
    publish_rows(chain, [(key, b"v" * 2_000) for key in range(4_000)], shards=4)
    peak = Peak(chain_factory.store)

    async def scenario() -> None:
        async with await AsyncShardedReader.open(chain_factory(store=peak), mode="direct") as reader:
            await asyncio.gather(*(reader.get(key) for key in range(1_000)))

    asyncio.run(scenario())
    assert 8 <= peak.most <= 32
