"""An update that fails changes nothing, one that meets another writer says so, and its base stays whole meanwhile."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from holdfast.chain import Chain
from holdfast.errors import Conflict, CorruptShard, Fenced, HoldfastError, LockHeld, StoreUnavailable
from holdfast.kv import publish_arrow, update_arrow
from holdfast.testing.clock import VirtualClock
from holdfast.testing.faulty import Crashed, Fault, FaultyStore, Operation, Plan
from tests.chain.interleaving import HookedStore
from tests.chain.publishing import ChainFactory, keys_below, overwrite
from tests.kv.updating import ids_of, manifest_of, paths_of, stored_rows, table_of

pytestmark = pytest.mark.parametrize("store_kind", ["file"])

BASE: dict[int, str | None] = {number: f"row {number}" for number in range(40)}
UPSERTS: dict[int, str | None] = {3: "three", 17: "seventeen", 99: "new"}
DELETES = [4, 18]
UPDATED = {key: name for key, name in (BASE | UPSERTS).items() if key not in DELETES}


@pytest.fixture(autouse=True)
def base(chain: Chain) -> None:
    publish_arrow(chain, table_of(BASE), key="id", bounds=[10, 20, 30])


def update(chain: Chain) -> None:
    update_arrow(chain, upserts=table_of(UPSERTS), deletes=ids_of(*DELETES))


def once(when: Callable[[Operation], bool], act: Callable[[], None]) -> Callable[[Operation], None]:
    """Something that happens once, right before the first request that fits."""
    done: list[Operation] = []

    def before(operation: Operation) -> None:
        if not done and when(operation):
            done.append(operation)
            act()

    return before


def reads_base(operation: Operation) -> bool:
    return operation.kind == "get_range"


def writes_shard(operation: Operation) -> bool:
    return operation.kind == "upload"


# -- others ----------------------------------------------------------------------------------------------------------


def test_a_second_writer_waits_for_the_first(chain_factory: ChainFactory) -> None:
    """K9: while an update holds the lock, another is told so at once."""
    met: list[str] = []

    def intrude() -> None:
        with pytest.raises(LockHeld):
            update(chain_factory(by="second"))
        met.append("held")

    update(chain_factory(store=HookedStore(chain_factory.store, once(writes_shard, intrude))))
    assert met == ["held"]
    assert stored_rows(chain_factory()) == UPDATED


def test_a_snapshot_published_just_before_the_update_begins_is_not_taken_back(chain_factory: ChainFactory) -> None:
    """K9: somebody publishes after an update has read its base and before it has the lock; that is not undone."""

    def intrude() -> None:
        update_arrow(chain_factory(by="second"), upserts=table_of({0: "theirs"}))

    # The first thing that an update reads is its base; the lock comes after.
    store = HookedStore(chain_factory.store, once(lambda operation: "lock" in operation.key, intrude))
    with pytest.raises(Conflict, match="update again"):
        update(chain_factory(store=store))
    assert stored_rows(chain_factory()) == BASE | {0: "theirs"}
    update(chain_factory())
    assert stored_rows(chain_factory()) == UPDATED | {0: "theirs"}


@pytest.mark.parametrize("moment", [reads_base, writes_shard])
def test_a_rollback_during_an_update_is_a_conflict(
    chain_factory: ChainFactory, chain: Chain, moment: Callable[[Operation], bool]
) -> None:
    """K9: a rollback needs no lock. What it made visible stays, and nothing of the update is."""
    update_arrow(chain, upserts=table_of({0: "second"}))
    store = HookedStore(chain_factory.store, once(moment, lambda: void(chain_factory(by="operator").rollback())))
    with pytest.raises(Conflict, match="another writer published first"):
        update(chain_factory(store=store))
    assert stored_rows(chain_factory()) == BASE


@pytest.mark.parametrize("moment", [reads_base, writes_shard])
def test_a_writer_that_took_over_an_expired_lock_wins(
    chain_factory: ChainFactory, clock: VirtualClock, moment: Callable[[Operation], bool]
) -> None:
    """K9, S15: an update that slept too long is fenced; what the other published stays."""

    def intrude() -> None:
        clock.advance(600)
        publish_arrow(chain_factory(by="second"), table_of({1: "all that is left"}), key="id", shards=1)

    with pytest.raises((Conflict, Fenced)):
        update(chain_factory(store=HookedStore(chain_factory.store, once(moment, intrude))))
    assert stored_rows(chain_factory()) == {1: "all that is left"}


def void(_result: object) -> None:
    return None


# -- the collector ---------------------------------------------------------------------------------------------------


def collect_all(factory: ChainFactory) -> None:
    collector = factory(by="collector")
    collector.collect(retention=1)
    collector.purge(grace_s=0)


@pytest.mark.parametrize("moment", [reads_base, writes_shard])
def test_a_collector_in_the_middle_of_an_update_leaves_it_alone(
    chain_factory: ChainFactory, moment: Callable[[Operation], bool]
) -> None:
    """K9: nothing that an update needs or has written is collected, and it is published as if nobody had come by."""
    intrude = once(moment, lambda: collect_all(chain_factory))
    update(chain_factory(store=HookedStore(chain_factory.store, intrude)))
    assert stored_rows(chain_factory()) == UPDATED


@pytest.mark.parametrize("moment", [reads_base, writes_shard])
def test_the_base_is_kept_while_an_update_reads_it_even_if_it_is_no_longer_visible(
    chain_factory: ChainFactory, clock: VirtualClock, moment: Callable[[Operation], bool]
) -> None:
    """K9: others publish past the base and collect it; the update ends in a conflict, not in a missing file."""
    chain = chain_factory()
    base_files = set(paths_of(chain).values())
    seen: list[set[str]] = []

    def intrude() -> None:
        clock.advance(90)  # past the lock, not past the lease of the run
        other = chain_factory(by="second")
        for name in ("x", "y", "z"):
            publish_arrow(other, table_of({1: name}), key="id", shards=1)
        collect_all(chain_factory)
        seen.append(set(keys_below(chain_factory.store, "shards")))

    with pytest.raises((Conflict, Fenced)):
        update(chain_factory(store=HookedStore(chain_factory.store, once(moment, intrude))))
    assert base_files <= seen[0]
    assert stored_rows(chain_factory()) == {1: "z"}
    collect_all(chain_factory)
    assert not base_files & set(keys_below(chain_factory.store, "shards"))


# -- faults ----------------------------------------------------------------------------------------------------------


def strike(fault: Fault, **where: object) -> Plan:
    """A fault at one request: the how-manieth of a kind, or overall."""

    def plan(operation: Operation) -> Fault:
        return fault if all(getattr(operation, name) == value for name, value in where.items()) else Fault.PASS

    return plan


@pytest.mark.parametrize("fault", [Fault.ERROR_BEFORE, Fault.ERROR_AFTER, Fault.CRASH_BEFORE, Fault.CRASH_AFTER])
@pytest.mark.parametrize("kind", ["upload", "get_range"])
def test_an_update_that_fails_while_it_reads_or_writes_shards_publishes_nothing(
    chain_factory: ChainFactory, fault: Fault, kind: str
) -> None:
    """K7, K9: whichever of its requests it was; the next update works, and the collector takes what was left."""
    before = manifest_of(chain_factory())
    failed = 0
    for number in range(1, 20):
        store = FaultyStore(chain_factory.store, strike(fault, kind=kind, number=number))
        try:
            update(chain_factory(store=store))
            break
        except (StoreUnavailable, Crashed):
            failed += 1
        chain_factory.clock.advance(7_200)  # a crashed writer's lock and lease run out
        assert manifest_of(chain_factory()) == before
        assert chain_factory.breaks() == []
    assert failed == {"upload": 3, "get_range": 6}[kind]
    assert stored_rows(chain_factory()) == UPDATED
    collect_all(chain_factory)
    assert set(keys_below(chain_factory.store, "shards")) == set(paths_of(chain_factory()).values())


@pytest.mark.parametrize("fault", [Fault.ERROR_BEFORE, Fault.ERROR_AFTER, Fault.ECHO, Fault.CRASH_AFTER])
def test_whatever_request_fails_readers_see_the_base_or_the_update(chain_factory: ChainFactory, fault: Fault) -> None:
    """K7, K9: one fault at every request in turn; all or nothing, and `verify` finds nothing."""
    serial = 0
    outcomes = set()
    while serial < 200:
        serial += 1
        store = FaultyStore(chain_factory.store, strike(fault, serial=serial))
        before = stored_rows(chain_factory())
        changes: dict[int, str | None] = {5: f"attempt {serial}", 25: f"attempt {serial}"}
        error: BaseException | None = None
        try:
            update_arrow(chain_factory(store=store, attempts_max=2), upserts=table_of(changes))
        except (HoldfastError, Crashed) as caught:
            error = caught
        found = stored_rows(chain_factory())
        assert found in (before, before | changes)
        if error is None:
            assert found == before | changes
        outcomes.add((found == before, error is None))
        chain_factory.clock.advance(7_200)
        if len(store.log) < serial:
            break
    else:
        raise AssertionError("an update made more than 200 requests")
    assert outcomes >= {(True, False), (False, True)}


def test_a_damaged_base_is_not_carried_on(chain_factory: ChainFactory) -> None:
    """K18, K9: the update names the damaged shard, and publishes nothing."""
    chain_factory.expect_damage()
    chain = chain_factory()
    path = paths_of(chain)[0]
    data = bytearray(chain.store.get(path).data)
    data[data.index(b"row 7")] ^= 1
    overwrite(chain.store, path, bytes(data))
    before = manifest_of(chain)
    with pytest.raises(CorruptShard, match="fails its checksum") as caught:
        update(chain)
    assert path in str(caught.value)
    assert manifest_of(chain) == before


def test_a_damaged_shard_that_no_change_touches_does_not_stop_an_update(chain_factory: ChainFactory) -> None:
    """K9: it is not read; `verify` is who finds it."""
    chain_factory.expect_damage()
    chain = chain_factory()
    path = paths_of(chain)[3]
    data = bytearray(chain.store.get(path).data)
    data[data.index(b"row 35")] ^= 1
    overwrite(chain.store, path, bytes(data))
    published = update_arrow(chain, upserts=table_of({1: "one"}))
    assert published.written_shards == 1
    assert [found.key for found in chain.verify()] == [path]
