"""Damage, and clocks that jump: each has its own clear error, nothing is lost, and nothing is half-visible."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from holdfast.chain import Chain
from holdfast.errors import CorruptRecord, Damaged
from holdfast.storage import MemoryStore
from tests.chain.publishing import LAYOUTS, ChainFactory, contents, edit, everything, overwrite, publish_one

# -- damaged records ---------------------------------------------------------------------------------------------------


def lived_in(layout_name: str) -> ChainFactory:
    """A chain with every kind of record in it."""
    factory = ChainFactory(layout=LAYOUTS[layout_name])
    chain = factory()
    for turn in range(3):
        publish_one(chain, b"%d" % turn, run_id=f"r{turn}")
    for _ in range(15):
        chain.rollback()
        chain.forward()
    chain.tag(chain.find(), {"stage": "released"})
    chain.collect(retention=2)
    return factory


FACTORIES = {name: lived_in(name) for name in LAYOUTS}
PRISTINE = {name: everything(factory.store) for name, factory in FACTORIES.items()}


def restored(layout_name: str) -> ChainFactory:
    """The same chain again, in a store of its own."""
    store = MemoryStore()
    for key, data in PRISTINE[layout_name].items():
        store.put_new(key, data)
    factory = ChainFactory(layout=LAYOUTS[layout_name], store=store)
    factory.clock.set(FACTORIES[layout_name].clock.now())
    factory.expect_damage()
    return factory


def key_of(factory: ChainFactory, record: str) -> str:
    chain = factory()
    seen = chain.handle.read_pointer()
    assert seen is not None
    return {
        "pointer": chain.layout.pointer_key,
        "manifest": seen.pointer.manifest_path,
        "run": chain.layout.run_key("r2"),
        "tags": chain.layout.tags_key,
        "lock": chain.layout.lock_key,
        "moves": chain.layout.moves_key(0),
        "collection": chain.layout.collection_key(seen.pointer.collections[0].collection),
    }[record]


USES: dict[str, Callable[[Chain], object]] = {
    "pointer": lambda chain: chain.load_current(),
    "manifest": lambda chain: chain.load_current(),
    "run": lambda chain: chain.plan_collection(retention=1),
    "tags": lambda chain: chain.list_snapshots(),
    "lock": lambda chain: chain.lock(),
    "moves": lambda chain: chain.status("0" * 26),
    "collection": lambda chain: chain.pending_collections(),
}

kinds = st.sampled_from(list(USES))
names = st.sampled_from(list(LAYOUTS))


@given(names, kinds, st.floats(0, 1, exclude_max=True))
def test_a_record_cut_off_anywhere_is_damage_that_is_named_and_nothing_else(
    name: str, record: str, fraction: float
) -> None:
    """S9, S38: truncated at any length: whoever needs it gets CorruptRecord with its key, verify reports it, and no
    read, refused write or verify changes anything."""
    assume(record != "run" or fraction > 0.01)
    factory = restored(name)
    key = key_of(factory, record)
    whole = factory.store.get(key).data
    cut = int(fraction * (len(whole) - 1))  # without its final newline a record is still whole
    overwrite(factory.store, key, whole[:cut])
    before = everything(factory.store)
    with pytest.raises(CorruptRecord) as refused:
        USES[record](factory())
    assert refused.value.key == key
    assert key in str(refused.value)
    assert key in {found.key for found in factory.breaks()}
    assert everything(factory.store) == before


@given(names, kinds, st.binary(max_size=60))
def test_arbitrary_bytes_are_damage_and_never_another_error(name: str, record: str, data: bytes) -> None:
    """S9: whatever the bytes are, the error is one of ours and says that the record is damaged."""
    assume(data or record != "run")
    factory = restored(name)
    key = key_of(factory, record)
    overwrite(factory.store, key, data)
    with pytest.raises(Damaged, match="damaged"):
        USES[record](factory())
    assert key in {found.key for found in factory.breaks()}


@pytest.mark.parametrize("record", list(USES))
@pytest.mark.parametrize("name", list(LAYOUTS))
def test_every_length_of_a_record_but_the_whole_is_refused(name: str, record: str) -> None:
    """S9: not a sample: each length from nothing to all but the last character."""
    factory = restored(name)
    key = key_of(factory, record)
    whole = factory.store.get(key).data
    nothing = 1 if record == "run" else 0  # an empty run record is what a power cut leaves: it stops nobody
    for cut in range(nothing, len(whole) - 2, 1 if len(whole) < 1500 else 37):
        overwrite(factory.store, key, whole[:cut])
        with pytest.raises(CorruptRecord):
            USES[record](factory())
    overwrite(factory.store, key, whole)
    if record != "lock":
        USES[record](factory())


@pytest.mark.parametrize("store_kind", ["memory"])
def test_a_damaged_pointer_stops_every_writer_and_loses_nothing(chain_factory: ChainFactory) -> None:
    """S13: nobody starts a new chain over a pointer that cannot be read; put back, everything is there again."""
    chain = chain_factory()
    done = publish_one(chain, b"one")
    key = chain.layout.pointer_key
    whole = chain_factory.store.get(key).data
    overwrite(chain_factory.store, key, whole[: len(whole) // 2])
    before = everything(chain_factory.store)
    acts: list[Callable[[Chain], object]] = [
        lambda each: publish_one(each, b"two"),
        lambda each: each.rollback(),
        lambda each: each.collect(retention=1),
        lambda each: each.reconcile(enforce=True),
        lambda each: each.status("0" * 26, settle=True),
    ]
    for act in acts:
        with pytest.raises(CorruptRecord):
            act(chain_factory())
        assert everything(chain_factory.store) == before
    overwrite(chain_factory.store, key, whole)
    assert chain_factory().load_current() == done.manifest


@pytest.mark.parametrize("store_kind", ["memory"])
def test_a_manifest_whose_bytes_were_changed_is_refused_although_it_reads_well(chain_factory: ChainFactory) -> None:
    """S12: the pointer has the hash of the raw bytes, so a changed row count is found before anybody believes it."""
    done = publish_one(chain_factory(), b"one")
    chain_factory.expect_damage()
    edit(chain_factory.store, done.manifest_path, run_id="forged")
    with pytest.raises(CorruptRecord, match="hash"):
        chain_factory().load_current()


def test_a_damaged_lock_keeps_writers_out_until_it_is_reconciled(chain_factory: ChainFactory) -> None:
    """S22: the sequence in it is unknown, so nobody guesses; reconcile replaces it far above every token given out."""
    publish_one(chain_factory(), b"one")
    stale = chain_factory(by="stale")
    held = stale.lock()
    overwrite(chain_factory.store, stale.layout.lock_key, b"{")
    with pytest.raises(CorruptRecord):
        chain_factory().lock()
    chain_factory(by="operator").reconcile(enforce=True)
    with chain_factory(by="next").lock() as guard:
        assert guard.token > held.token
    assert contents(chain_factory()) == {"part-0": b"one"}


# -- clocks ------------------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(-(10**9), 10**9), min_size=1, max_size=6), names)
@example([-(10**9), -(10**9), 10**9], "kv")
def test_publishing_works_wherever_the_clock_jumps(jumps: list[int], name: str) -> None:
    """S18: back, far back, far forward: every publish commits, in order, and the chain is whole."""
    factory = ChainFactory(layout=LAYOUTS[name])
    paths, ulids, times = [], [], []
    for number, jump in enumerate(jumps):
        done = publish_one(factory(), b"%d" % number)
        paths.append(done.manifest_path)
        ulids.append(done.commit_ulid)
        times.append(done.manifest.published_at)
        factory.clock.advance(jump)
    assert ulids == sorted(set(ulids))
    assert times == sorted(set(times))
    assert paths == sorted(set(paths))
    assert factory.breaks() == []


@pytest.mark.parametrize("moment", [datetime(1970, 1, 1, tzinfo=UTC), datetime(9999, 12, 30, tzinfo=UTC)])
def test_a_clock_at_the_end_of_time_breaks_nothing(chain_factory: ChainFactory, moment: datetime) -> None:
    """S18: one publish with a clock far off does not keep later ones from publishing."""
    publish_one(chain_factory(), b"one")
    chain_factory.clock.set(moment)
    publish_one(chain_factory(), b"two")
    chain_factory.clock.set(datetime(2026, 3, 15, tzinfo=UTC))
    publish_one(chain_factory(), b"three")
    assert contents(chain_factory()) == {"part-0": b"three"}
