"""The ledger: an event is appended once, for ever, whatever its key, and the answer says where it is."""

from __future__ import annotations

import threading
from datetime import UTC, datetime

import orjson
import pytest

from holdfast.catalog import EVENT_BYTES_MAX, Event, EventDraft, Workspace
from holdfast.catalog.layout import LEDGER_DOMAINS
from holdfast.catalog.ledger import BATCH_MAX, Ledger
from holdfast.catalog.payloads import NamespaceDeleted, PipelineChanged, RunStarted
from holdfast.errors import BadInput, CorruptRecord, IdempotencyConflict, ScopeEscape
from holdfast.storage import MemoryStore, grant
from holdfast.testing.clock import VirtualClock
from holdfast.testing.faulty import CountingStore
from tests.catalog.auditing import keys_below, said, told
from tests.chain.publishing import overwrite

in_memory = pytest.mark.parametrize("store_kind", ["memory"])
WAIT_MAX_S = 60


def test_an_event_is_a_file_named_by_its_id_with_everything_that_was_said(
    workspace: Workspace, clock: VirtualClock
) -> None:
    """C12: the envelope, field by field, at `ledger/{domain}/{ulid}.json`."""
    occurred_at = datetime(2026, 3, 14, 9, 0, tzinfo=UTC)
    receipt = workspace.ledger("catalog", source="api@host").append(
        said("sales", "what we sell"), idempotency_key="request-7", occurred_at=occurred_at, trace_id="trace-1"
    )
    assert receipt.path == f"ledger/catalog/{receipt.event_id}.json"
    stored = orjson.loads(workspace.store.get(receipt.path).data)
    assert stored == {
        "format": "holdfast.event/1.0",
        "event_type": "namespace.created",
        "event_version": 1,
        "event_id": receipt.event_id,
        "idempotency_key": "request-7",
        "occurred_at": "2026-03-14T09:00:00.000000Z",
        "source": "api@host",
        "trace_id": "trace-1",
        "sequence_position": 1,
        "payload": {"namespace": "sales", "description": "what we sell"},
    }
    assert (receipt.position, receipt.duplicate, receipt.warning, receipt.domain) == (1, False, None, "catalog")
    (event,) = workspace.ledger_reader("catalog").read([receipt.path])
    assert isinstance(event, Event)
    assert (event.payload, event.occurred_at, event.position) == (said("sales", "what we sell"), occurred_at, 1)
    assert event.encode() == workspace.store.get(receipt.path).data


def test_the_same_key_with_the_same_content_is_one_event_for_ever(workspace: Workspace, clock: VirtualClock) -> None:
    """C13: whoever says it, however often, with whatever time, source and trace: the first answer is everybody's."""
    first = workspace.ledger("catalog", source="one").append(said("sales"), idempotency_key="k")
    clock.advance(3600)
    again = workspace.ledger("catalog", source="two").append(said("sales"), idempotency_key="k", trace_id="other")
    assert again.duplicate
    assert (again.event_id, again.path, again.position) == (first.event_id, first.path, first.position)
    assert [event["source"] for event in told(workspace.store)] == ["one"]


def test_the_same_key_with_other_content_is_refused(workspace: Workspace) -> None:
    """C13: nothing is written, and the message names the key and the event that has it."""
    ledger = workspace.ledger("catalog")
    first = ledger.append(said("sales"), idempotency_key="k")
    before = keys_below(workspace.store, "ledger")
    for other in (said("sales", "changed"), said("other"), NamespaceDeleted(namespace="sales")):
        with pytest.raises(IdempotencyConflict, match=f"'k'.*{first.event_id}.*use a new key"):
            ledger.append(other, idempotency_key="k")
    assert keys_below(workspace.store, "ledger") == before
    assert ledger.metrics.snapshot()["conflicts"] == 3


def test_without_a_key_the_content_is_the_key(workspace: Workspace) -> None:
    """C13: saying it again is the same event; saying it on purpose once more takes a key."""
    ledger = workspace.ledger("catalog")
    first, again, other = (ledger.append(said(name)) for name in ("sales", "sales", "users"))
    assert first.idempotency_key.startswith("sha256:")
    assert (again.duplicate, again.event_id) == (True, first.event_id)
    assert not other.duplicate
    assert not ledger.append(said("sales"), idempotency_key="once more").duplicate
    assert len(told(workspace.store)) == 3


@in_memory
def test_keys_are_a_domains_own_and_may_have_any_characters(workspace: Workspace) -> None:
    """C13: the same key in two ledgers is two events, and no key reaches out of its folder."""
    at = datetime(2026, 1, 1, tzinfo=UTC)
    for number, key in enumerate(("../../x", "a/b", "größe", "%2e%2e", "k" * 256)):
        catalog = workspace.ledger("catalog").append(said(f"n{number}"), idempotency_key=key)
        run = workspace.ledger("executions").append(RunStarted(run_id=f"r{number}", started_at=at), idempotency_key=key)
        assert not catalog.duplicate
        assert not run.duplicate
    assert len(keys_below(workspace.store, "ledger/claims/catalog")) == 5


@in_memory
@pytest.mark.parametrize("key", ["", "k" * 257, "a\nb", "\ud800", "sha256:" + "0" * 64])
def test_a_key_that_could_not_be_kept_is_refused(workspace: Workspace, key: str) -> None:
    """C13: and so is one that pretends to be derived from other content."""
    with pytest.raises(BadInput, match="idempotency key"):
        workspace.ledger("catalog").append(said("sales"), idempotency_key=key)
    assert told(workspace.store) == []


@in_memory
def test_the_derived_key_of_an_event_may_be_given_again(workspace: Workspace) -> None:
    """C13: whoever replays an event with the key it has finds it."""
    first = workspace.ledger("catalog").append(said("sales"))
    again = workspace.ledger("catalog").append(said("sales"), idempotency_key=first.idempotency_key)
    assert again.event_id == first.event_id


def test_a_batch_takes_its_places_at_once_and_in_order(workspace: Workspace) -> None:
    """C12, C14: one swap of the counter for all of them; duplicates are told apart one by one."""
    ledger = workspace.ledger("catalog")
    ledger.append(said("n3"))
    receipts = ledger.append_many([EventDraft(payload=said(f"n{number}")) for number in range(20)])
    assert [receipt.duplicate for receipt in receipts] == [number == 3 for number in range(20)]
    fresh = [receipt for receipt in receipts if not receipt.duplicate]
    assert [receipt.position for receipt in fresh] == [2 + number for number in range(20) if number != 3]
    assert [receipt.event_id for receipt in fresh] == sorted(receipt.event_id for receipt in fresh)
    assert ledger.metrics.snapshot()["reservations"] == 2
    assert ledger.append_many([]) == []


@in_memory
def test_a_batch_with_a_bad_event_is_turned_away_whole_and_one_with_a_conflict_tells_the_rest(
    workspace: Workspace,
) -> None:
    """C13: what could never be appended costs nothing; appending the whole batch again is always right."""
    ledger = workspace.ledger("catalog")
    at = datetime(2026, 1, 1, tzinfo=UTC)
    with pytest.raises(BadInput, match="'executions' ledger"):
        ledger.append_many([EventDraft(payload=said("a")), EventDraft(payload=RunStarted(run_id="r", started_at=at))])
    with pytest.raises(BadInput, match=str(BATCH_MAX)):
        ledger.append_many([EventDraft(payload=said("a"))] * (BATCH_MAX + 1))
    assert told(workspace.store) == []
    ledger.append(said("taken"), idempotency_key="k")
    batch = [EventDraft(payload=said("a")), EventDraft(payload=said("b"), idempotency_key="k")]
    for _ in range(2):
        with pytest.raises(IdempotencyConflict):
            ledger.append_many([*batch, EventDraft(payload=said("c"))])
    assert [event["payload"] for event in told(workspace.store)] == [
        {"namespace": name} for name in ("taken", "a", "c")
    ]


@in_memory
def test_an_oversized_event_is_refused_before_it_takes_a_place(workspace: Workspace) -> None:
    """C12: the message says how large it is and what to do; the next event is the next one."""
    ledger = workspace.ledger("orchestration")
    fits = PipelineChanged(pipeline="p", definition={"sql": "x" * (EVENT_BYTES_MAX - 2_000)})
    large = PipelineChanged(pipeline="p", definition={"sql": "x" * EVENT_BYTES_MAX})
    with pytest.raises(
        BadInput, match=rf"pipeline.changed event has 1\d{{6}} bytes, more than {EVENT_BYTES_MAX}; split"
    ):
        ledger.append(large)
    assert ledger.append(fits).position == 1


def test_an_append_costs_three_requests_and_a_duplicate_four(clock: VirtualClock) -> None:
    """C12, C14, C25: swap, claim, event; nothing is ever listed, headed or deleted."""
    root = CountingStore(MemoryStore())
    workspace = Workspace(root=root, tenant="acme", name="prod", clock=clock)
    workspace.initialize()
    ledger = workspace.ledger("catalog")
    root.reset()
    ledger.append(said("cold"))
    assert root.counts == {"get": 3, "put_new": 2, "swap": 1}  # the counter, and no pointer nor mirror yet
    root.reset()
    ledger.append(said("warm"))
    assert root.counts == {"put_new": 2, "swap": 1}
    root.reset()
    ledger.append(said("warm"))
    assert root.counts == {"get": 2, "put_new": 1, "swap": 1}


def test_threads_that_say_the_same_say_it_once(workspace: Workspace) -> None:
    """C13, C14: eight threads of two processes' worth of ledgers, all with the same keys."""
    ledgers = [workspace.ledger("catalog", source=f"w{number}") for number in range(2)]
    barrier = threading.Barrier(8)
    found: list[list[tuple[str, int, bool]]] = []

    def work(number: int) -> None:
        barrier.wait(WAIT_MAX_S)
        receipts = [ledgers[number % 2].append(said(f"n{turn}"), idempotency_key=f"k{turn}") for turn in range(5)]
        found.append([(receipt.event_id, receipt.position, receipt.duplicate) for receipt in receipts])

    threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_MAX_S)
    assert len(found) == 8
    for turn in range(5):
        assert len({(mine[turn][0], mine[turn][1]) for mine in found}) == 1
        assert [mine[turn][2] for mine in found].count(False) == 1
    assert len(told(workspace.store)) == 5


@in_memory
def test_a_claim_that_was_changed_is_damage_and_not_another_event(workspace: Workspace) -> None:
    """C13: a claim that is not one, that is another key's, or that its event does not agree with."""
    ledger = workspace.ledger("catalog")
    receipt = ledger.append(said("sales"), idempotency_key="k")
    (claim,) = keys_below(workspace.store, "ledger/claims/catalog")
    good = workspace.store.get(claim).data
    for damage, reason in (
        (b"{", "not JSON"),
        (good.replace(b'"k"', b'"j"'), "claim of the key 'j'"),
        (good.replace(receipt.event_id.encode(), b"../../../x"), "not a ULID"),
        (good.replace(b"tests@host:1", b"tests@host:2"), "one of them was changed"),
    ):
        overwrite(workspace.store, claim, damage)
        with pytest.raises(CorruptRecord, match=reason):
            ledger.append(said("sales"), idempotency_key="k")
    overwrite(workspace.store, claim, good)
    assert ledger.append(said("sales"), idempotency_key="k").duplicate


@in_memory
def test_a_claim_of_an_event_that_is_not_known_here_still_tells_same_from_other(workspace: Workspace) -> None:
    """C13, C16: an older release retries what a newer one has told: the content decides, whatever its type means."""
    ledger = workspace.ledger("catalog")
    receipt = ledger.append(said("sales"), idempotency_key="k")
    (claim,) = keys_below(workspace.store, "ledger/claims/catalog")
    newer = workspace.store.get(claim).data.replace(b'"event_version": 1', b'"event_version": 9')
    newer = newer.replace(b"holdfast.event/1.0", b"holdfast.event/1.7")
    for key in (claim, receipt.path):
        overwrite(workspace.store, key, newer)
    with pytest.raises(IdempotencyConflict):
        ledger.append(said("sales"), idempotency_key="k")


@in_memory
def test_a_ledger_works_with_the_rights_of_the_api_and_of_a_pipeline_and_reaches_nothing_else(
    workspace: Workspace,
) -> None:
    """C7, C8: below `ledger/` and `locks/` and nowhere else, on the store and at run time."""
    before = set(keys_below(workspace.store, ""))
    for principal in ("api", "pipeline"):
        rights = grant(workspace.store, principal)
        ledger = Ledger("catalog", ledger=rights.ledger, lock=rights.lock, read=rights.read, source=principal)
        assert not ledger.append(said(principal)).duplicate
        with pytest.raises(AttributeError):
            ledger.put_state("state/x", b"")  # type: ignore[attr-defined]
        with pytest.raises(ScopeEscape):
            rights.ledger.put_event("manifests/x", b"")
    new = set(keys_below(workspace.store, "")) - before
    assert {key.split("/")[0] for key in new} == {"ledger"}


@in_memory
@pytest.mark.parametrize("domain", ["search", "core", "", "../catalog", "claims"])
def test_a_domain_without_a_ledger_is_refused(workspace: Workspace, domain: str) -> None:
    """C2: the search index is built again, and told nothing."""
    for opened in (workspace.ledger, workspace.ledger_reader, workspace.ledger_lister):
        with pytest.raises(BadInput, match=", ".join(LEDGER_DOMAINS)):
            opened(domain)


@in_memory
def test_the_source_of_events_is_a_name(workspace: Workspace) -> None:
    """C12: an empty one, or one with a line break, is refused when the ledger is opened."""
    for source in ("a\nb", "x" * 2_000):
        with pytest.raises(BadInput, match="source"):
            workspace.ledger("catalog", source=source)
