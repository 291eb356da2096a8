"""A ledger slows down when the fold is behind, knows it without listing, and never shuts for good."""

from __future__ import annotations

from contextlib import suppress

import orjson
import pytest

from holdfast.catalog import EventDraft, LagWarning, Limits, Receipt, Workspace
from holdfast.catalog.payloads import Edge, LineageEdgesAdded, PipelineDeleted
from holdfast.errors import BadInput, LedgerFull, StoreUnavailable
from holdfast.storage import MemoryStore, ObjectStore
from holdfast.testing.clock import SeededRandomness, VirtualClock
from holdfast.testing.faulty import CountingStore, Crashed, Fault, FaultyStore, Operation
from tests.catalog.auditing import keys_below, publish_watermark, said, told
from tests.chain.publishing import edit, overwrite

in_memory = pytest.mark.parametrize("store_kind", ["memory"])
LIMITS = Limits(soft=3, hard=6)


def fill(workspace: Workspace, count: int, *, limits: Limits = LIMITS) -> list[Receipt]:
    ledger = workspace.ledger("catalog", limits=limits)
    start = len(told(workspace.store))
    return [ledger.append(said(f"n{start + number}")) for number in range(count)]


def test_an_append_is_accepted_then_warned_then_rejected_and_accepted_again_when_the_fold_has_moved(
    workspace: Workspace,
) -> None:
    """C25: below soft, from soft on with the lag, from hard on with a time to come back; one publish changes it."""
    receipts = fill(workspace, 6)
    assert [None if one.warning is None else one.warning.lag for one in receipts] == [None, None, None, 3, 4, 5]
    assert receipts[3].warning == LagWarning(domain="catalog", lag=3, hard=6)
    assert "3 events of the 'catalog' ledger wait" in str(receipts[3].warning)
    ledger = workspace.ledger("catalog", limits=LIMITS)
    before = keys_below(workspace.store, "ledger")
    with pytest.raises(LedgerFull, match="6 events of the 'catalog' ledger") as caught:
        ledger.append(said("late"))
    assert (caught.value.lag, caught.value.retry_after_s, caught.value.domain) == (6, 5, "catalog")
    assert keys_below(workspace.store, "ledger") == before
    publish_watermark(workspace, 2)
    assert ledger.append(said("late")).warning == LagWarning(domain="catalog", lag=4, hard=6)
    assert ledger.metrics.snapshot()["pending_lag"] == 4
    publish_watermark(workspace, 7)
    assert ledger.append(said("later")).warning is None
    counted = ledger.metrics.snapshot()
    assert (counted["rejected"], counted["warned"], counted["appended"], counted["pending_lag"]) == (1, 1, 2, 0)


def test_the_limits_are_those_that_were_promised() -> None:
    """C25: 1,000 and 10,000 events, and five seconds; further behind, further away."""
    limits = Limits()
    assert (limits.soft, limits.hard, limits.retry_after_s) == (1_000, 10_000, 5)
    assert [limits.retry_after(lag) for lag in (10_000, 19_999, 20_000, 10**9)] == [5, 5, 10, 60]


@pytest.mark.parametrize("soft, hard, retry_after_s", [(0, 5, 5), (6, 5, 5), (-1, -1, 5), (1, 1, 0)])
def test_limits_that_make_no_sense_are_refused(soft: int, hard: int, retry_after_s: int) -> None:
    """C25: soft is at least 1 and at most hard."""
    with pytest.raises(BadInput):
        Limits(soft=soft, hard=hard, retry_after_s=retry_after_s)


@in_memory
def test_every_domain_has_its_own_lag(workspace: Workspace) -> None:
    """C2, C25: a catalog that is behind rejects no lineage, and a lineage that is folded lets no catalog event in."""
    fill(workspace, 6)
    edge = LineageEdgesAdded(edges=(Edge(source="a", target="b"),))
    publish_watermark(workspace, 50, domain="lineage")
    assert workspace.ledger("lineage", limits=LIMITS).append(edge).warning is None
    with pytest.raises(LedgerFull):
        fill(workspace, 1)


@in_memory
def test_the_orchestration_ledger_looks_at_its_own_chain(workspace: Workspace) -> None:
    """C25: its manifests are elsewhere, its watermark is the same field."""
    ledger = workspace.ledger("orchestration", limits=Limits(soft=1, hard=1))
    ledger.append(PipelineDeleted(pipeline="a"))
    with pytest.raises(LedgerFull):
        ledger.append(PipelineDeleted(pipeline="b"))
    publish_watermark(workspace, 1, domain="orchestration")
    assert ledger.append(PipelineDeleted(pipeline="b")).position == 2


def test_nothing_is_listed_and_an_unchanged_watermark_costs_one_conditional_request(clock: VirtualClock) -> None:
    """C25: at most once a second below the limits, and with every append beyond."""
    root = CountingStore(MemoryStore())
    workspace = Workspace(root=root, tenant="acme", name="prod", clock=clock)
    workspace.initialize()
    publish_watermark(workspace, 0)
    ledger = workspace.ledger("catalog", limits=LIMITS)
    ledger.append(said("a"))
    root.reset()
    ledger.append(said("b"))
    assert root.counts == {"put_new": 2, "swap": 1}
    clock.advance(1.5)
    root.reset()
    ledger.append(said("c"))
    assert root.counts == {"get_if_changed": 1, "put_new": 2, "swap": 1}
    for name in ("d", "e", "f"):
        root.reset()
        ledger.append(said(name))
        assert root.counts == {"get_if_changed": 1, "put_new": 2, "swap": 1}
    root.reset()
    with pytest.raises(LedgerFull):
        ledger.append(said("g"))
    assert root.counts == {"get_if_changed": 1}


@in_memory
def test_a_writer_knows_what_others_have_written(workspace: Workspace) -> None:
    """C25: processes that append one event each, and never come back to say so, count all the same."""
    for number in range(6):
        workspace.ledger("catalog", limits=LIMITS).append(said(f"n{number}"))
    with pytest.raises(LedgerFull):
        workspace.ledger("catalog", limits=LIMITS).append(said("late"))


@in_memory
def test_places_that_were_never_used_reject_nobody(root: ObjectStore, workspace: Workspace) -> None:
    """C25: duplicates, dead writers and a ledger that cannot be written leave positions unused; they are no lag."""
    receipts = fill(workspace, 2)
    for _ in range(20):
        assert workspace.ledger("catalog", limits=LIMITS).append(said("n0")).duplicate

    def dies(operation: Operation) -> Fault:
        return Fault.CRASH_BEFORE if operation.kind == "put_new" else Fault.PASS

    def denied(operation: Operation) -> Fault:
        return Fault.ERROR_BEFORE if operation.kind == "put_new" else Fault.PASS

    for plan in (dies, denied):
        for seed in range(20):
            faulty = Workspace(
                root=FaultyStore(root, plan),
                tenant="acme",
                name="prod",
                clock=VirtualClock(),
                randomness=SeededRandomness(1_000 + seed),
            )
            with suppress(Crashed, StoreUnavailable):
                faulty.ledger("catalog", limits=LIMITS).append(said("never"))
    publish_watermark(workspace, 2, receipts[1].event_id)
    after = workspace.ledger("catalog", limits=LIMITS).append(said("after"))
    assert after.warning is None
    assert after.position == 2 + 60 + 1


@in_memory
def test_what_writers_have_reported_is_known_behind_any_number_of_unused_places(workspace: Workspace) -> None:
    """C25: the record remembers a written position, not only the newest places."""
    ledger = workspace.ledger("catalog", limits=LIMITS)
    for name in ("a", "b", "c", "d", "e", "e"):
        ledger.append(said(name))
    for _ in range(20):
        workspace.ledger("catalog", limits=LIMITS)._counter.take()
    warning = workspace.ledger("catalog", limits=LIMITS).append(said("late")).warning
    assert warning is not None
    assert warning.lag == 5


@in_memory
def test_a_batch_is_let_in_or_turned_away_together(workspace: Workspace) -> None:
    """C25: at the limit nothing of it is written; the metrics count each event."""
    fill(workspace, 6)
    ledger = workspace.ledger("catalog", limits=LIMITS)
    with pytest.raises(LedgerFull):
        ledger.append_many([EventDraft(payload=said(f"b{number}")) for number in range(5)])
    assert len(told(workspace.store)) == 6
    assert ledger.metrics.snapshot()["rejected"] == 5


@in_memory
def test_a_rolled_back_domain_counts_what_it_has_to_fold_again(workspace: Workspace, clock: VirtualClock) -> None:
    """C25: the visible manifest decides, whichever that is."""
    receipts = fill(workspace, 6)
    publish_watermark(workspace, 1)
    publish_watermark(workspace, 6, receipts[5].event_id)
    ledger = workspace.ledger("catalog", limits=LIMITS)
    assert ledger.append(said("a")).warning is None
    workspace.domain("catalog").rollback()
    clock.advance(2)
    with pytest.raises(LedgerFull):
        ledger.append(said("b"))


@in_memory
def test_a_legacy_manifest_says_how_far_an_old_release_has_folded(workspace: Workspace) -> None:
    """C25: where there is no pointer yet, what is visible is at the legacy path."""
    fill(workspace, 6)
    mirror = workspace.domain("catalog").layout.mirror_key
    assert mirror is not None
    workspace.store.put_new(mirror, b'{"manifest_id": 3, "position_watermark": 5}')
    assert fill(workspace, 1)[0].warning is None
    workspace.store.delete([mirror])


@in_memory
def test_a_domain_that_is_switched_to_the_legacy_path_says_there_how_far_it_is_folded(workspace: Workspace) -> None:
    """C25: and by its pointer again, once that is switched back."""
    fill(workspace, 6)
    publish_watermark(workspace, 1)
    ledger = workspace.ledger("catalog", limits=LIMITS)
    warning = ledger.append(said("a")).warning
    assert warning is not None
    assert warning.lag >= 4  # the last event of a writer that has gone may be missing
    workspace.domain("catalog").switch_publishing("legacy", why="an old reader")
    publish_watermark(workspace, 6)
    pointer = orjson.loads(workspace.store.get("manifests/catalog.pointer.json").data)
    assert pointer["publishing"] == "legacy"
    fresh = workspace.ledger("catalog", limits=LIMITS)
    assert fresh.append(said("b")).warning is None
    workspace.domain("catalog").switch_publishing("pointer", why="done")
    publish_watermark(workspace, 8)
    assert workspace.ledger("catalog", limits=LIMITS).append(said("c")).warning is None
    assert ledger.append(said("d")).warning is None


@in_memory
@pytest.mark.parametrize("damage", ["pointer", "manifest", "missing manifest", "field", "event id"])
def test_a_watermark_that_cannot_be_read_has_not_moved(workspace: Workspace, damage: str) -> None:
    """C25: a damaged domain stops nobody below the limit, and lets nobody in beyond it."""
    publish_watermark(workspace, 0)
    ledger = workspace.ledger("catalog", limits=LIMITS)
    ledger.append(said("a"))
    chain = workspace.domain("catalog")
    publish_watermark(workspace, 1)
    current = chain.current()
    assert current is not None
    if damage == "pointer":
        overwrite(workspace.store, chain.layout.pointer_key, b"{")
    elif damage == "manifest":
        overwrite(workspace.store, current.manifest_path, b"{")
    elif damage == "missing manifest":
        workspace.store.delete([current.manifest_path])
    else:
        edit(
            workspace.store,
            current.manifest_path,
            **{"position_watermark" if damage == "field" else "watermark_event_id": "x"},
        )
    for limits, name in ((LIMITS, "b"), (LIMITS, "c"), (LIMITS, "d")):
        workspace.ledger("catalog", limits=limits).append(said(name))
    fill(workspace, 2)
    with pytest.raises(LedgerFull):
        fill(workspace, 1)
