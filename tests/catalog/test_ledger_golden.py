"""Events that released versions wrote are read for ever, and this one still writes them byte for byte."""

from __future__ import annotations

import shutil
from itertools import islice
from pathlib import Path

import pytest

from holdfast.catalog import Event, EventDraft, Workspace, decode_event, ledger_layout
from holdfast.catalog.layout import LEDGER_DOMAINS
from holdfast.catalog.payloads import PAYLOAD_TYPES
from holdfast.catalog.positions import PositionRecord
from holdfast.storage import LocalStore, MemoryStore
from holdfast.testing.clock import VirtualClock
from tests.catalog.auditing import audit
from tests.chain.publishing import everything
from tests.golden.make import GOLDEN
from tests.golden.make_ledger import FOLDER, MOMENT, NAME, TENANT, bare, drafts, full, tell_story

VERSIONS = sorted(path.parent.name for path in GOLDEN.glob(f"v*/{FOLDER}"))
CURRENT = "v2"
TYPES = {"v1": 23, "v2": 25}
"""How many types each version has. It has each of them twice, whatever is added: types are added at the end."""


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def golden(version: str, tmp_path: Path) -> Workspace:
    """A workspace over a copy of the golden files, so that no test can change them."""
    shutil.copytree(GOLDEN / version / FOLDER, tmp_path / "copy")
    store = LocalStore(tmp_path / "copy", durable=False)
    clock = VirtualClock()
    clock.advance(86_400)
    return Workspace(root=store, tenant=TENANT, name=NAME, by="reader", clock=clock)


def events_of(workspace: Workspace) -> list[Event]:
    found = []
    for domain in LEDGER_DOMAINS:
        page = workspace.ledger_lister(domain).page()
        for event in workspace.ledger_reader(domain).read(list(page.paths)):
            assert isinstance(event, Event), event
            found.append(event)
    return found


def test_golden_events_mean_what_they_meant(golden: Workspace, version: str) -> None:
    """C12, C16: each type with every field, and with none but the required ones."""
    events = {event.idempotency_key: event for event in events_of(golden)}
    assert len(events) == 2 * TYPES[version]
    for kind in list(PAYLOAD_TYPES.values())[: TYPES[version]]:
        said = events[f"golden/{kind.TYPE}"]
        assert said.payload == full(kind)
        assert (said.occurred_at, said.trace_id, said.source) == (MOMENT, "trace-1", "golden@host:1")
        assert EventDraft(payload=bare(kind)).key in events


def test_golden_records_are_written_again_byte_for_byte(golden: Workspace) -> None:
    """C12, C14, C16: what was read is what was stored: events, claims and counters."""
    assert audit(golden.store) == []
    for domain in LEDGER_DOMAINS:
        layout = ledger_layout(domain)
        for path in golden.ledger_lister(domain).page().paths:
            data = golden.store.get(path).data
            event = decode_event(data, path=path, layout=layout)
            assert isinstance(event, Event)
            assert event.encode() == data
            assert golden.store.get(layout.claim_key(event.idempotency_key)).data == data
        counter = golden.store.get(layout.positions_key).data
        assert PositionRecord.decode(counter, key=layout.positions_key).encode() == counter


def test_what_was_told_to_a_golden_ledger_is_told_for_ever(golden: Workspace, version: str) -> None:
    """C13: each event appended again, by this release, is the one that is there; a new one goes on above."""
    before = {event.event_id for event in events_of(golden)}
    for draft in islice(drafts(), 2 * TYPES[version]):
        (receipt,) = golden.ledger(draft.payload.DOMAIN).append_many([draft])
        assert receipt.duplicate
        assert receipt.event_id in before
    fresh = golden.ledger("catalog").append(full(PAYLOAD_TYPES["namespace.created", 1]), idempotency_key="new")
    assert fresh.event_id > max(event.event_id for event in events_of(golden) if event.event_id != fresh.event_id)
    assert audit(golden.store) == []


def test_todays_ledger_is_the_golden_one(tmp_path: Path) -> None:
    """C12, C16: the same story makes the same bytes, so nothing about the format has changed unnoticed."""
    made = MemoryStore()
    tell_story(made)
    assert everything(made) == everything(LocalStore(GOLDEN / CURRENT / FOLDER, durable=False))
