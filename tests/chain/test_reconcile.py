"""Reconcile: finds what an interrupted writer left undone, and finishes it when told to."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast.chain import Chain, Finding, RunState
from holdfast.chain.runs import read_run, swap_run
from holdfast.errors import CorruptRecord, NotAChain
from holdfast.fencing.lock import read_lock
from holdfast.testing.clock import VirtualClock
from holdfast.testing.faulty import Crashed, Fault, FaultyStore, Operation
from tests.chain.publishing import ChainFactory, everything, overwrite, publish_one, try_publish, write_artifact
from tests.chain.test_history import leave_orphan, publish_many

LEASE_S = 3600.0
MIRRORED = pytest.mark.parametrize("layout_name", ["domain", "orchestration"])


def settle(chain: Chain, *, repaired: bool = True) -> list[Finding]:
    """Look, and see that looking wrote nothing; then repair, and see that nothing is left to find."""
    before = everything(chain.store)
    looked = chain.reconcile()
    assert everything(chain.store) == before, "a dry run writes nothing"
    assert [finding.repaired for finding in looked] == [False] * len(looked)
    done = chain.reconcile(enforce=True)
    assert [(each.what, each.key) for each in done] == [(each.what, each.key) for each in looked]
    if repaired:
        assert [finding.repaired for finding in done] == [True] * len(done)
        assert chain.reconcile() == []
    return done


def test_a_chain_that_is_in_order_has_nothing_to_reconcile(chain: Chain) -> None:
    """S43:

    published, rolled back, tagged and collected by writers that finished: nothing is found, nothing is written.
    """
    with pytest.raises(NotAChain):
        chain.reconcile()
    publish_many(chain, 3)
    chain.rollback()
    chain.tag(chain.find(), {"a": "b"})
    before = everything(chain.store)
    assert chain.reconcile(enforce=True) == []
    assert everything(chain.store) == before


@MIRRORED
@pytest.mark.parametrize("damage", ["missing", "stale", "corrupt"])
def test_a_mirror_that_is_not_current_is_brought_up_to_date(
    chain: Chain, chain_factory: ChainFactory, damage: str
) -> None:
    """S43, S20:

    missing, left at the snapshot before, or unreadable: the legacy path holds the visible manifest again.
    """
    key = chain.layout.mirror_key
    assert key is not None
    publish_one(chain)
    if damage == "stale":

        def plan(operation: Operation) -> Fault:
            return Fault.ERROR_BEFORE if operation.key == key else Fault.PASS

        outcome = try_publish(chain_factory(store=FaultyStore(chain_factory.store, plan)), b"new")
        assert getattr(outcome, "repair_pending", ()) == ("legacy mirror",)
    elif damage == "missing":
        chain.store.delete([key])
    else:
        overwrite(chain.store, key, b"{")
    (finding,) = settle(chain)
    assert (finding.what, finding.key) == ("legacy mirror is not current", key)
    current = chain.current()
    assert current is not None
    assert chain.store.get(key).data == chain.store.get(current.manifest_path).data
    publish_one(chain, b"next")


@pytest.mark.parametrize("layout_name", ["domain"])
@pytest.mark.parametrize("damage", ["missing", "other", "corrupt"])
def test_a_stale_root_is_brought_up_to_date(chain: Chain, damage: str) -> None:
    """S43: the root names this domain again, and keeps what it says of others."""
    key = chain.layout.root_key
    assert key is not None
    publish_one(chain)
    if damage == "missing":
        chain.store.delete([key])
    elif damage == "other":
        overwrite(
            chain.store,
            key,
            b'{"version": 1, "updated_at": "2026-01-01T00:00:00Z", "search_manifest_path": "x", "note": "hi"}',
        )
    else:
        overwrite(chain.store, key, b"[]")
    (finding,) = settle(chain)
    assert (finding.what, finding.key) == ("root does not name this chain", key)
    root = chain.store.get(key).data
    assert chain.layout.pointer_key.encode() in root
    assert (b'"search_manifest_path": "x"' in root) == (b'"note": "hi"' in root) == (damage == "other")


@pytest.mark.parametrize("layout_name", ["domain"])
def test_a_broken_root_does_not_make_a_commit_an_error(chain: Chain) -> None:
    """S20, S43, I8: the root is unreadable when a domain first appears: its snapshot is visible all the same."""
    assert chain.layout.root_key is not None
    chain.store.put_new(chain.layout.root_key, b"[]")
    publish_one(chain)
    assert chain.current() is not None
    chain.reconcile(enforce=True)
    assert chain.reconcile() == []


def test_interrupted_bookkeeping_is_finished(chain: Chain, chain_factory: ChainFactory) -> None:
    """S43, S20: the writer died right after the pointer moved: nothing is left to do but the mirror, where there is
    one."""
    publish_one(chain)
    pointer = chain.layout.pointer_key
    plan = lambda operation: (  # noqa: E731
        Fault.CRASH_AFTER if operation.kind == "swap" and operation.key == pointer else Fault.PASS
    )
    with pytest.raises(Crashed):
        try_publish(chain_factory(store=FaultyStore(chain_factory.store, plan)), b"new", run_id="interrupted")
    found = {finding.key for finding in settle(chain)}
    assert found == ({chain.layout.mirror_key} if chain.layout.mirror_key else set())
    assert chain.list_manifests(1)[0].run_id == "interrupted"


def test_a_sweep_of_a_run_that_was_published_after_all_is_taken_back(chain: Chain) -> None:
    """S43, I7: a record that says swept over a snapshot that was visible is found, and corrected."""
    publish_one(chain, run_id="published")
    found = read_run(chain.handle, "published")
    assert found is not None
    swap_run(chain.handle, replace(found[0], state=RunState.SWEPT, revision=found[0].revision + 1), expected=found[1])
    assert [one.invariant for one in chain.verify()] == ["I7"]
    assert {finding.key for finding in settle(chain)} == {chain.layout.run_key("published")}
    corrected = read_run(chain.handle, "published")
    assert corrected is not None
    assert corrected[0].state is RunState.COMMITTED


def test_an_abandoned_run_is_swept(chain: Chain, clock: VirtualClock) -> None:
    """S43: past its lease it is declared abandoned, once; its files wait for the collector, which takes them."""
    publish_one(chain)
    write_artifact(chain, chain.begin_run("abandoned", lease_s=LEASE_S), "garbage", b"garbage")
    chain.begin_run("live", lease_s=10 * LEASE_S)
    assert chain.reconcile() == []
    clock.advance(LEASE_S + 1)
    done = settle(chain, repaired=False)
    swept = [finding for finding in done if finding.repaired]
    assert [finding.key for finding in swept] == [chain.layout.run_key("abandoned")]
    assert "gc collect" in swept[0].advice
    record = read_run(chain.handle, "abandoned")
    assert record is not None
    assert record[0].state is RunState.SWEPT
    left = chain.reconcile()
    assert all("gc collect" in finding.advice and not finding.repaired for finding in left)
    chain.collect(retention=1)
    assert chain.reconcile() == []


def test_orphan_manifests_are_named_and_left_to_the_collector(chain: Chain, chain_factory: ChainFactory) -> None:
    """S43:

    an orphan is reported with its key; reconcile never deletes, and after the collection it is not found again.
    """
    publish_many(chain, 2)
    orphan = leave_orphan(chain_factory, "crashed")
    chain_factory.clock.advance(2 * LEASE_S)
    done = settle(chain, repaired=False)
    assert orphan in {finding.key for finding in done if finding.what == "orphan manifest that no snapshot names"}
    assert orphan in everything(chain.store)
    chain.collect(retention=2)
    assert chain.reconcile() == []


def test_a_corrupt_lock_is_replaced_with_a_higher_sequence(chain: Chain) -> None:
    """S43, S22: a lock nobody can read would keep every writer out; the one that replaces it is above every token there
    was."""
    publish_many(chain, 2)
    old = read_lock(chain.handle.records, chain.layout.lock_key)
    assert old is not None
    overwrite(chain.store, chain.layout.lock_key, b"{")
    with pytest.raises(CorruptRecord):
        chain.lock()
    (finding,) = settle(chain)
    assert finding.key == chain.layout.lock_key
    new = read_lock(chain.handle.records, chain.layout.lock_key)
    assert new is not None
    assert new.sequence > old.sequence
    with chain.lock() as guard:
        assert guard.token.sequence > new.sequence
    assert publish_one(chain).manifest.epoch > new.sequence


@MIRRORED
def test_everything_at_once(chain: Chain, chain_factory: ChainFactory, clock: VirtualClock) -> None:
    """S43: a corrupt lock, a mirror that was not written, an abandoned run and an orphan are found and settled
    together."""
    publish_one(chain)
    leave_orphan(chain_factory, "crashed")
    chain.begin_run("abandoned", lease_s=LEASE_S)
    pointer = chain.layout.pointer_key
    plan = lambda operation: (  # noqa: E731
        Fault.CRASH_AFTER if operation.kind == "swap" and operation.key == pointer else Fault.PASS
    )
    with pytest.raises(Crashed):
        try_publish(chain_factory(store=FaultyStore(chain_factory.store, plan)), b"new", run_id="interrupted")
    overwrite(chain.store, chain.layout.lock_key, b"")
    clock.advance(2 * LEASE_S)
    assert len(settle(chain, repaired=False)) >= 4
    chain.collect(retention=2)
    assert chain.reconcile() == []
