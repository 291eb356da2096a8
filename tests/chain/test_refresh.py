"""Refresh: a reader that stays open goes from snapshot to snapshot, whole, and lets go of each exactly once."""

from __future__ import annotations

import asyncio
import logging
import threading
from contextlib import ExitStack
from dataclasses import dataclass, field

import pytest

from holdfast.chain import AsyncChainReader, Chain, ChainReader, Manifest, Refreshed
from holdfast.errors import CorruptRecord, ReaderStateError, StoreUnavailable
from holdfast.storage import StoredObject, Version
from holdfast.testing.clock import VirtualClock
from holdfast.testing.faulty import CountingStore, Fault, FaultyStore, InterceptedStore, Plan, pass_all
from tests.chain.publishing import ChainFactory, overwrite, publish_one

BORROWERS = 4
REFRESHES = 30


@dataclass(eq=False)
class Resource:
    """Something that must be closed exactly once, and not while it is used."""

    manifest_id: int
    closed: int = 0


@dataclass
class Shelf:
    """Makes resources and remembers them."""

    made: list[Resource] = field(default_factory=list)

    def load(self, manifest: Manifest) -> Resource:
        self.made.append(Resource(manifest.manifest_id))
        return self.made[-1]

    def close(self, resource: Resource) -> None:
        resource.closed += 1

    def reader(self, chain: Chain) -> ChainReader[Resource]:
        return ChainReader(chain.handle, load=self.load, close=self.close)

    async def async_reader(self, chain: Chain) -> AsyncChainReader[Resource]:
        return await AsyncChainReader.open(chain.handle, chain.store.as_async(), load=self.load, close=self.close)

    @property
    def closings(self) -> list[int]:
        return [resource.closed for resource in self.made]


def failing_at(key: str) -> Plan:
    """The store does not answer for one key."""
    return lambda operation: Fault.ERROR_BEFORE if operation.key == key else Fault.PASS


class StaleStore(InterceptedStore):
    """Answers for one object with what it once was, as a cache between a reader and a store might."""

    stale: StoredObject | None = None

    def get_if_changed(self, key: str, known: Version) -> StoredObject | None:
        if self.stale is not None and self.stale.key == key:
            return self.stale
        return super().get_if_changed(key, known)


def test_an_unchanged_pointer_costs_one_conditional_read_without_a_body(
    chain: Chain, chain_factory: ChainFactory
) -> None:
    """S29: the same pointer is a no-op: one conditional GET, which moves no body, and nothing is loaded again."""
    publish_one(chain)
    counting = CountingStore(chain_factory.store)
    shelf = Shelf()
    with shelf.reader(chain_factory(store=counting)) as reader:
        counting.reset()
        assert reader.refresh() is Refreshed.UNCHANGED
        assert counting.counts == {"get_if_changed": 1}
    version = chain_factory.store.get(chain.layout.pointer_key).version
    assert chain_factory.store.get_if_changed(chain.layout.pointer_key, version) is None
    assert shelf.closings == [1]


def test_an_unchanged_pointer_costs_the_async_reader_the_same(chain: Chain, chain_factory: ChainFactory) -> None:
    """S29: the async reader makes the same one request."""
    publish_one(chain)
    counting = CountingStore(chain_factory.store)
    shelf = Shelf()

    async def scenario() -> None:
        async with await shelf.async_reader(chain_factory(store=counting)) as reader:
            counting.reset()
            assert await reader.refresh() is Refreshed.UNCHANGED
            assert counting.counts == {"get_if_changed": 1}

    asyncio.run(scenario())
    assert shelf.closings == [1]


@pytest.mark.parametrize("store_kind", ["memory"])
def test_a_pointer_that_was_only_touched_loads_nothing(chain: Chain, chain_factory: ChainFactory) -> None:
    """S29: the collector's touch leaves the target where it is, so the served resource stays."""
    publish_one(chain)
    publish_one(chain)
    shelf = Shelf()
    with shelf.reader(chain) as reader:
        chain.collect(retention=1)
        assert reader.refresh() is Refreshed.UNCHANGED
        counting = CountingStore(chain_factory.store)
        assert shelf.closings == [0]
        assert counting.total == 0
    assert shelf.closings == [1]


def test_a_good_publish_is_swapped_in(chain: Chain) -> None:
    """S29: after a publish, a rollback and a roll forward the reader serves what the pointer names."""
    first = publish_one(chain, b"one")
    shelf = Shelf()
    with shelf.reader(chain) as reader:
        second = publish_one(chain, b"two")
        assert reader.refresh() is Refreshed.SWAPPED
        assert reader.manifest == second.manifest
        chain.rollback()
        assert reader.refresh() is Refreshed.SWAPPED
        assert reader.manifest == first.manifest
        chain.forward()
        assert reader.refresh() is Refreshed.SWAPPED
        assert reader.status().served_id == reader.status().head_id == second.manifest.manifest_id
        assert shelf.closings == [1, 1, 1, 0]
    assert shelf.closings == [1, 1, 1, 1]


def test_a_replaced_resource_is_closed_when_its_last_borrower_is_done(chain: Chain) -> None:
    """S29: two borrowers hold the old snapshot while two more are published; it closes with the second of them."""
    publish_one(chain, b"one")
    shelf = Shelf()
    with shelf.reader(chain) as reader, ExitStack() as early, ExitStack() as late:
        first = early.enter_context(reader.borrow())
        again = late.enter_context(reader.borrow())
        for content in (b"two", b"three"):
            publish_one(chain, content)
            reader.refresh()
        assert first.resource is again.resource
        assert shelf.closings == [0, 1, 0], "the middle one had no borrower"
        early.close()
        assert shelf.closings == [0, 1, 0]
        with reader.borrow() as newest:
            assert newest.resource is shelf.made[2]
        late.close()
        assert shelf.closings == [1, 1, 0]
    assert shelf.closings == [1, 1, 1]


def test_a_closed_reader_lets_its_borrowers_finish(chain: Chain) -> None:
    """S29: close retires what is served; a borrower keeps it until it is done, and nobody new gets it."""
    publish_one(chain)
    shelf = Shelf()
    reader = shelf.reader(chain)
    with reader.borrow() as served:
        reader.close()
        reader.close()
        assert served.resource.closed == 0
        with pytest.raises(ReaderStateError, match="closed"), reader.borrow():
            pass
    assert shelf.closings == [1]


@pytest.mark.parametrize("what", ["manifest", "pointer"])
def test_a_bad_publish_keeps_what_is_served(
    chain: Chain, chain_factory: ChainFactory, clock: VirtualClock, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    """S29, S30: a malformed manifest or pointer keeps the served state with a warning, and the status says so."""
    first = publish_one(chain, b"one")
    shelf = Shelf()
    with shelf.reader(chain) as reader:
        clock.advance(3600)
        second = publish_one(chain, b"two")
        chain_factory.expect_damage()
        key = second.manifest_path if what == "manifest" else chain.layout.pointer_key
        overwrite(chain_factory.store, key, b"{")
        clock.advance(30)
        with caplog.at_level(logging.WARNING, logger="holdfast.reader"):
            assert reader.refresh() is Refreshed.KEPT
        assert key in caplog.text
        status = reader.status()
        assert reader.manifest == first.manifest
        assert status.served_id == first.manifest.manifest_id
        assert not status.fell_back
        assert [key in skipped for skipped in status.skipped] == [True]
        if what == "manifest":
            assert status.head_id == second.manifest.manifest_id
            assert status.staleness_s == pytest.approx(30, abs=0.01)
        assert shelf.closings == [0]


def test_a_bad_publish_is_left_behind_by_the_next_good_one(chain: Chain, chain_factory: ChainFactory) -> None:
    """S29: once a good snapshot is visible again, by a publish or by a rollback, the reader serves it."""
    publish_one(chain, b"one")
    with Shelf().reader(chain) as reader:
        chain_factory.expect_damage()
        overwrite(chain_factory.store, publish_one(chain, b"two").manifest_path, b"{")
        assert reader.refresh() is Refreshed.KEPT
        chain.set_current(chain.list_manifests()[1].ref)
        assert reader.refresh() is Refreshed.UNCHANGED
        assert reader.status().skipped == ()
        assert reader.status().staleness_s == 0
        third = publish_one(chain, b"three")
        assert reader.refresh() is Refreshed.SWAPPED
        assert reader.manifest == third.manifest


@pytest.mark.parametrize("layout_name", ["kv"])
def test_a_resource_that_cannot_be_made_keeps_the_old_one(chain: Chain) -> None:
    """S29: the manifest is good but what it names is damaged: the old state is kept, open, and the head is named."""
    publish_one(chain, b"one")
    shelf = Shelf()

    def load(manifest: Manifest) -> Resource:
        if manifest.manifest_id == 1:
            raise CorruptRecord("shard", "its footer is gone")
        return shelf.load(manifest)

    with ChainReader(chain.handle, load=load, close=shelf.close) as reader:
        publish_one(chain, b"two")
        assert reader.refresh() is Refreshed.KEPT
        assert (reader.status().served_id, reader.status().head_id) == (0, 1)
        publish_one(chain, b"three")
        assert reader.refresh() is Refreshed.SWAPPED
    assert shelf.closings == [1, 1]


@pytest.mark.parametrize("layout_name", ["kv", "domain"])
def test_a_store_that_does_not_answer_is_not_a_refresh(chain: Chain, chain_factory: ChainFactory) -> None:
    """S28, S29: a transport error is raised, what is served stays, and the next refresh goes on from there."""
    publish_one(chain, b"one")
    faulty = FaultyStore(chain_factory.store)
    with Shelf().reader(chain_factory(store=faulty)) as reader:
        second = publish_one(chain, b"two")
        for key in (chain.layout.pointer_key, second.manifest_path):
            faulty.plan = failing_at(key)
            with pytest.raises(StoreUnavailable):
                reader.refresh()
            assert reader.status().served_id == second.manifest.manifest_id - 1
        faulty.plan = pass_all
        assert reader.refresh() is Refreshed.SWAPPED


@pytest.mark.parametrize("store_kind", ["memory"])
def test_a_stale_answer_never_takes_a_reader_backwards(chain: Chain, chain_factory: ChainFactory) -> None:
    """S29, I9: the store answers with an older pointer than was seen before: what is served stays."""
    publish_one(chain, b"one")
    old = chain_factory.store.get(chain.layout.pointer_key)
    second = publish_one(chain, b"two")
    stale = StaleStore(chain_factory.store)
    with Shelf().reader(chain_factory(store=stale)) as reader:
        assert reader.manifest == second.manifest
        stale.stale = old
        assert reader.refresh() is Refreshed.UNCHANGED
        assert reader.manifest == second.manifest
        assert reader.status().head_id == second.manifest.manifest_id
        stale.stale = None
        chain.rollback()
        assert reader.refresh() is Refreshed.SWAPPED, "a rollback is newer than what it takes back"


def test_the_async_reader_makes_the_same_decisions(chain: Chain, chain_factory: ChainFactory) -> None:
    """S29, S32: swapped, unchanged, kept with the old one open, and closed exactly once: the async reader too."""
    first = publish_one(chain, b"one")
    shelf = Shelf()

    async def scenario() -> None:
        async with await shelf.async_reader(chain) as reader:
            with reader.borrow() as served:
                second = publish_one(chain, b"two")
                assert await reader.refresh() is Refreshed.SWAPPED
                assert served.manifest == first.manifest
                assert shelf.closings == [0, 0]
            assert shelf.closings == [1, 0]
            assert await reader.refresh() is Refreshed.UNCHANGED
            chain_factory.expect_damage()
            overwrite(chain_factory.store, publish_one(chain, b"three").manifest_path, b"{")
            assert await reader.refresh() is Refreshed.KEPT
            assert reader.manifest == second.manifest
            assert reader.status().head_id == second.manifest.manifest_id + 1

    asyncio.run(scenario())
    assert shelf.closings == [1, 1]
    assert not hasattr(AsyncChainReader, "rollback"), "rollback is an operator's action"


@pytest.mark.parametrize("layout_name", ["kv"])
@pytest.mark.parametrize("store_kind", ["memory"])
def test_threads_never_see_half_a_snapshot(chain: Chain) -> None:
    """S29, I9: threads borrow while refreshes happen: manifest and resource always belong together, what is borrowed is
    open, ids never go back, and every resource is closed exactly once."""
    publish_one(chain)
    shelf = Shelf()
    reader = shelf.reader(chain)
    stop = threading.Event()
    problems: list[str] = []
    borrowed = [0] * BORROWERS

    def borrow(position: int) -> None:
        newest = -1
        while not stop.is_set():
            with reader.borrow() as served:
                if served.resource.manifest_id != served.manifest.manifest_id:
                    problems.append("torn")
                if served.manifest.manifest_id < newest:
                    problems.append(f"went back from {newest} to {served.manifest.manifest_id}")
                newest = served.manifest.manifest_id
                if served.resource.closed:
                    problems.append("closed while it was borrowed")
            borrowed[position] += 1

    threads = [threading.Thread(target=borrow, args=(position,)) for position in range(BORROWERS)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(REFRESHES):
            publish_one(chain)
            assert reader.refresh() is Refreshed.SWAPPED
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    reader.close()
    assert problems == []
    assert min(borrowed) > 0
    assert shelf.closings == [1] * (REFRESHES + 1)
