"""Cold start: what a reader serves when it opens, and what it does when something there is broken."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import pytest

from holdfast.chain import Chain, ChainReader, ReaderStatus, domain_layout
from holdfast.errors import NotAChain, ReaderStateError, StoreUnavailable, UnsupportedFormat
from holdfast.storage import ObjectStore
from holdfast.testing.clock import VirtualClock
from holdfast.testing.faulty import CountingStore, Crashed, Fault, FaultyStore, Operation
from tests.chain.publishing import ChainFactory, edit, keys_below, overwrite, publish_one, try_publish

Damage = Callable[[ObjectStore, str], None]


def _malformed(store: ObjectStore, key: str) -> None:
    overwrite(store, key, b"{ not json")


def _missing(store: ObjectStore, key: str) -> None:
    store.delete([key])


def _edited(store: ObjectStore, key: str) -> None:
    edit(store, key, run_id="somebody-else")


DAMAGES: dict[str, Damage] = {"malformed": _malformed, "missing": _missing, "hash mismatch": _edited}


def open_reader(chain: Chain, **options: int) -> ChainReader[int]:
    """A reader that serves the id of what is visible."""
    return chain.reader(lambda manifest: manifest.manifest_id, **options)


def open_async(chain: Chain, *, max_fallback_attempts: int = 3) -> ReaderStatus:
    """What the async reader says it serves, after the same cold start."""

    async def opened() -> ReaderStatus:
        reader = await chain.async_reader(
            lambda manifest: manifest.manifest_id, max_fallback_attempts=max_fallback_attempts
        )
        async with reader:
            return reader.status()

    return asyncio.run(opened())


def paths(chain: Chain, count: int) -> list[str]:
    """Publish so many snapshots; their manifests' keys, oldest first."""
    return [publish_one(chain, f"v{number}".encode()).manifest_path for number in range(count)]


def test_a_reader_resolves_the_pointer_and_serves_what_it_names(chain: Chain) -> None:
    """S26: the pointer decides: after a rollback the newest manifest is there, and the older one is served."""
    paths(chain, 3)
    chain.rollback(offset=1)
    with open_reader(chain) as reader, reader.borrow() as served:
        current = chain.load_current()
        assert current is not None
        assert served.manifest == current
        assert served.resource == current.manifest_id
    assert open_async(chain).served_id == current.manifest_id


@pytest.mark.parametrize("layout_name", ["domain", "orchestration"])
def test_where_there_is_no_pointer_the_legacy_path_is_read(chain: Chain, store: ObjectStore) -> None:
    """S26: a chain that only a legacy writer ever wrote has no pointer, and is read from the legacy path."""
    assert chain.layout.mirror_key is not None
    store.put_new(chain.layout.mirror_key, b'{"manifest_id": 41, "tables": ["users"]}')
    with open_reader(chain) as reader:
        assert reader.manifest.payload["tables"] == ["users"]
        assert reader.status().served_path == chain.layout.mirror_key
    assert open_async(chain).served_id == 41


def test_a_place_without_a_chain_says_so(chain: Chain) -> None:
    """S26: neither pointer nor legacy path: the reader says that there is no chain, and names what it looked for."""
    with pytest.raises(NotAChain, match=chain.layout.pointer_key):
        open_reader(chain)
    with pytest.raises(NotAChain, match=chain.layout.pointer_key):
        open_async(chain)


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damaged_current_manifest_falls_back_to_the_one_before(
    chain: Chain, chain_factory: ChainFactory, damage: Damage, caplog: pytest.LogCaptureFixture
) -> None:
    """S28: malformed, missing or not what was published: the one before is served, and a warning names the skipped."""
    written = paths(chain, 3)
    chain_factory.expect_damage()
    damage(chain_factory.store, written[2])
    with caplog.at_level(logging.WARNING, logger="holdfast.reader"), open_reader(chain) as reader:
        status = reader.status()
    assert status.served_path == written[1]
    assert status.fell_back
    assert status.head_id == status.served_id + 1
    assert [written[2] in skipped for skipped in status.skipped] == [True]
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert written[2] in caplog.text
    assert open_async(chain) == status


@pytest.mark.parametrize("layout_name", ["kv", "domain"])
def test_three_earlier_manifests_are_tried_and_no_more(chain: Chain, chain_factory: ChainFactory) -> None:
    """S28: by default the third one before the current may still be served; a fourth is never tried."""
    written = paths(chain, 6)
    chain_factory.expect_damage()
    for path in written[3:]:
        _malformed(chain_factory.store, path)
    with open_reader(chain) as reader:
        assert reader.status().served_path == written[2]
        assert len(reader.status().skipped) == 3
    _malformed(chain_factory.store, written[2])
    with pytest.raises(ReaderStateError) as refusal:
        open_reader(chain)
    assert all(path in str(refusal.value) for path in written[2:])
    assert written[1] not in str(refusal.value)
    with pytest.raises(ReaderStateError):
        open_async(chain)
    assert open_async(chain, max_fallback_attempts=4).served_path == written[1]


@pytest.mark.parametrize("store_kind", ["memory"])
def test_no_fallback_attempts_means_no_fallback(chain: Chain, chain_factory: ChainFactory) -> None:
    """S28: with 0 attempts a damaged manifest is an error at once, although a good one is there."""
    written = paths(chain, 2)
    chain_factory.expect_damage()
    _malformed(chain_factory.store, written[1])
    counting = CountingStore(chain_factory.store)
    with pytest.raises(ReaderStateError, match="after 0 fallbacks"):
        open_reader(chain_factory(store=counting), max_fallback_attempts=0)
    assert counting.counts == {"get": 2}
    with pytest.raises(ReaderStateError):
        open_async(chain, max_fallback_attempts=0)


@pytest.mark.parametrize("store_kind", ["memory"])
def test_when_all_are_bad_the_reader_refuses_to_serve(chain: Chain, chain_factory: ChainFactory) -> None:
    """S28: a chain with nothing readable is `ReaderStateError`, with every one that was tried."""
    written = paths(chain, 3)
    chain_factory.expect_damage()
    for path in written:
        _missing(chain_factory.store, path)
    with pytest.raises(ReaderStateError) as refusal:
        open_reader(chain)
    assert all(path in str(refusal.value) for path in written)


@pytest.mark.parametrize("layout_name", ["kv"])
@pytest.mark.parametrize("store_kind", ["memory"])
@pytest.mark.parametrize("request_number", [1, 2])
def test_a_store_that_does_not_answer_never_causes_a_fallback(
    chain: Chain, chain_factory: ChainFactory, request_number: int
) -> None:
    """S28: a transport error on the pointer or the manifest is reported as it is; nothing older is looked for."""
    paths(chain, 3)

    def plan(operation: Operation) -> Fault:
        return Fault.ERROR_BEFORE if operation.serial == request_number else Fault.PASS

    for opener in (open_reader, open_async):
        faulty = FaultyStore(chain_factory.store, plan)
        with pytest.raises(StoreUnavailable):
            opener(chain_factory(store=faulty))
        assert len(faulty.log) == request_number


@pytest.mark.parametrize("layout_name", ["kv", "domain"])
def test_a_store_that_fails_during_a_fallback_ends_it(chain: Chain, chain_factory: ChainFactory) -> None:
    """S28: the transport fails while an earlier manifest is tried: an error, not a still older snapshot."""
    written = paths(chain, 3)
    chain_factory.expect_damage()
    _malformed(chain_factory.store, written[2])
    plan = lambda operation: Fault.ERROR_BEFORE if operation.key == written[1] else Fault.PASS  # noqa: E731
    with pytest.raises(StoreUnavailable):
        open_reader(chain_factory(store=FaultyStore(chain_factory.store, plan)))


@pytest.mark.parametrize("layout_name", ["kv", "graph"])
def test_a_rolled_back_snapshot_is_never_fallen_back_to(chain: Chain, chain_factory: ChainFactory) -> None:
    """S28: the pointer was rolled back from 2 to 1, and 1 is damaged: 0 is served, never what was taken back."""
    written = paths(chain, 3)
    chain.rollback()
    chain_factory.expect_damage()
    _malformed(chain_factory.store, written[1])
    with open_reader(chain) as reader:
        assert reader.status().served_path == written[0]
    _malformed(chain_factory.store, written[0])
    with pytest.raises(ReaderStateError):
        open_reader(chain)


@pytest.mark.parametrize("layout_name", ["kv"])
@pytest.mark.parametrize("store_kind", ["memory"])
def test_one_that_was_rolled_back_before_the_visible_one_was_published_is_passed_over(
    chain: Chain, chain_factory: ChainFactory
) -> None:
    """S28: what was visible when the damaged one was published comes next, not what had been taken back."""
    written = paths(chain, 2)
    chain.rollback(why="bad")
    newest = paths(chain, 1)[0]
    chain_factory.expect_damage()
    _malformed(chain_factory.store, newest)
    with open_reader(chain) as reader:
        assert reader.status().served_path == written[0]
    assert open_async(chain).served_path == written[0]


@pytest.mark.parametrize("layout_name", ["kv"])
@pytest.mark.parametrize("store_kind", ["memory"])
def test_a_collected_snapshot_is_never_fallen_back_to(chain: Chain, chain_factory: ChainFactory) -> None:
    """S28, I6: what was collected may be gone tomorrow, so it is not served even where it is the only one left."""
    written = paths(chain, 3)
    chain.collect(retention=1)
    chain_factory.expect_damage()
    _malformed(chain_factory.store, written[2])
    with pytest.raises(ReaderStateError, match="after 0 fallbacks"):
        open_reader(chain)


@pytest.mark.parametrize("layout_name", ["kv"])
@pytest.mark.parametrize("store_kind", ["memory"])
def test_a_fallback_reaches_into_older_segments_of_the_log(chain: Chain, chain_factory: ChainFactory) -> None:
    """S28: the snapshot before the damaged one may be so old that its move is no longer in the pointer."""
    written = paths(chain, 2)
    for _ in range(20):
        chain.rollback()
        chain.forward()
    seen = chain.handle.read_pointer()
    assert seen is not None
    assert seen.pointer.moves[0].sequence >= 16
    chain_factory.expect_damage()
    _malformed(chain_factory.store, written[1])
    with open_reader(chain) as reader:
        assert reader.status().served_path == written[0]
    _missing(chain_factory.store, chain.layout.moves_key(0))
    with pytest.raises(ReaderStateError, match=chain.layout.moves_key(0)):
        open_reader(chain)


def test_a_corrupt_pointer_falls_back_to_the_newest_committed_manifest(
    chain: Chain, chain_factory: ChainFactory, caplog: pytest.LogCaptureFixture
) -> None:
    """S11, S28: without a readable pointer the newest committed snapshot is served, and never an orphan above it."""
    written = paths(chain, 2)
    pointer_key = chain.layout.pointer_key
    plan = lambda operation: (  # noqa: E731
        Fault.CRASH_BEFORE if operation.kind == "swap" and operation.key == pointer_key else Fault.PASS
    )
    with pytest.raises(Crashed):
        try_publish(chain_factory(store=FaultyStore(chain_factory.store, plan)), b"orphan")
    manifests = [
        key
        for key in keys_below(chain_factory.store, chain.layout.manifest_prefix)
        if chain.layout.parse_manifest_key(key)
    ]
    assert len(manifests) == 3
    assert max(manifests) not in written
    chain_factory.expect_damage()
    overwrite(chain_factory.store, pointer_key, b"")
    with caplog.at_level(logging.WARNING, logger="holdfast.reader"), open_reader(chain) as reader:
        status = reader.status()
    assert status.served_path == written[1]
    assert status.head_id is None
    assert status.fell_back
    assert pointer_key in caplog.text
    assert open_async(chain) == status
    with pytest.raises(ReaderStateError):
        open_reader(chain, max_fallback_attempts=0)


@pytest.mark.parametrize("store_kind", ["memory"])
def test_a_manifest_of_a_newer_release_is_refused_and_not_skipped(chain: Chain, chain_factory: ChainFactory) -> None:
    """S9, S28: nothing is wrong with what a newer release wrote: the reader asks for an upgrade and stays."""
    paths(chain, 2)
    chain_factory.expect_damage()
    edit(chain_factory.store, chain.layout.pointer_key, format="holdfast.pointer/2.0")
    with pytest.raises(UnsupportedFormat, match="upgrade"):
        open_reader(chain)


def test_a_reader_says_what_it_serves(chain: Chain, clock: VirtualClock, chain_factory: ChainFactory) -> None:
    """S30: served and head manifest, staleness and whether it fell back, without any request."""
    paths(chain, 2)
    counting = CountingStore(chain_factory.store)
    with open_reader(chain_factory(store=counting)) as reader:
        counting.reset()
        status = reader.status()
        current = chain.current()
        assert current is not None
        assert (status.served_id, status.served_path) == (current.manifest_id, current.manifest_path)
        assert (status.head_id, status.fell_back, status.skipped, status.staleness_s) == (
            current.manifest_id,
            False,
            (),
            0,
        )
        assert status.served_published_at == current.published_at
        clock.advance(60)
        assert reader.status().staleness_s == 0, "what is visible is served, however old it is"
        assert counting.total == 0


def test_a_reader_that_fell_back_says_how_stale_it_is(
    chain: Chain, clock: VirtualClock, chain_factory: ChainFactory
) -> None:
    """S30: staleness counts from when the head was published that cannot be served."""
    written = paths(chain, 2)
    chain_factory.expect_damage()
    _malformed(chain_factory.store, written[1])
    clock.advance(90)
    with open_reader(chain) as reader:
        assert reader.status().fell_back
        assert reader.status().staleness_s == pytest.approx(90, abs=0.01)
    chain.status("7" * 26, settle=True)
    with open_reader(chain) as reader:
        assert reader.status().staleness_s == pytest.approx(90, abs=0.01), "a touch of the pointer publishes nothing"


@pytest.mark.parametrize("store_kind", ["memory"])
def test_no_read_path_lists(chain: Chain, chain_factory: ChainFactory) -> None:
    """S31: opening, refreshing, falling back to a known manifest, loading by ref, and history list nothing at all."""
    written = paths(chain, 4)
    counting = CountingStore(chain_factory.store)
    reading = chain_factory(store=counting)
    with open_reader(reading) as reader:
        publish_one(chain)
        reader.refresh()
    reading.load_current()
    reading.load_manifest(chain.layout.ref_of(written[1]))
    reading.current()
    reading.list_manifests()
    reading.list_snapshots()
    reading.find(offset=2)
    reading.diff(reading.find(offset=1), reading.find())
    chain_factory.expect_damage()
    _malformed(chain_factory.store, publish_one(chain).manifest_path)
    open_reader(reading).close()
    assert {kind for kind in counting.counts if kind.startswith("list")} == set()
    assert "get" in counting.counts


def test_two_domains_are_read_apart(chain_factory: ChainFactory) -> None:
    """S2, S26: a reader of one domain never sees another's snapshots, although both live in one place."""
    for domain in ("catalog", "lineage"):
        publish_one(chain_factory(layout=domain_layout(domain)), domain.encode(), run_id=f"{domain}-run")
    for domain in ("catalog", "lineage"):
        with open_reader(chain_factory(layout=domain_layout(domain))) as reader:
            assert reader.manifest.run_id == f"{domain}-run"
