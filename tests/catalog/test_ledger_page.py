"""docs/catalog-ledger.md says what is stored: every type, every field, every limit, and its examples are readable."""

from __future__ import annotations

from dataclasses import MISSING, fields
from pathlib import Path

import orjson
import pytest

from holdfast.catalog import EVENT_BYTES_MAX, PAYLOAD_TYPES, Event, Limits, decode_event, ledger_layout
from holdfast.catalog.events import IDEMPOTENCY_KEY_CHARACTERS_MAX
from holdfast.catalog.ledger_read import PAGE_SIZE_MAX
from holdfast.catalog.metrics import LedgerMetrics
from holdfast.catalog.payload import NAME_CHARACTERS_MAX, TEXT_CHARACTERS_MAX, Record
from holdfast.catalog.payloads import Column, Edge, SnapshotPin
from holdfast.catalog.positions import RECENT_MAX, RECOVERY_GAP, PositionRecord
from tests.docs.pages import blocks
from tests.golden.make_ledger import full

PAGE = Path(__file__).resolve().parents[2] / "docs" / "catalog-ledger.md"


@pytest.fixture(scope="module")
def page() -> str:
    return PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", PAYLOAD_TYPES.values(), ids=lambda kind: kind.TYPE)
def test_every_type_has_its_row_with_its_domain_and_all_of_its_fields(page: str, kind: type[Record]) -> None:
    """C16: required ones in bold, the others plain."""
    (row,) = [line for line in page.splitlines() if line.startswith("| `") and f"`{kind.TYPE}`" in line.split("|")[1]]  # type: ignore[attr-defined]
    assert row.split("|")[2].strip() == kind.DOMAIN  # type: ignore[attr-defined]
    said = [word.split(" ")[0] for word in row.split("|")[3].strip().split(", ")]
    bare = set(full(kind).to_json())  # type: ignore[arg-type]
    assert {word.strip("*`") for word in said} == bare
    required = {one.name for one in fields(kind) if one.default is MISSING and one.default_factory is MISSING}
    assert {word.strip("*`") for word in said if word.startswith("**")} == required


def test_the_page_has_every_field_of_what_is_stored(page: str) -> None:
    """C12, C14: the envelope, the counter, and what payloads are made of."""
    payload = full(next(iter(PAYLOAD_TYPES.values())))
    event = Event(
        event_id="0" * 26,
        position=1,
        idempotency_key="k",
        occurred_at=full(PAYLOAD_TYPES["run.started", 1]).started_at,  # type: ignore[attr-defined]
        source="s",
        trace_id="t",
        payload=payload,
    )
    counter = PositionRecord(next=1, last_id=None, written=0, recent=(), revision=0, token="t")
    names = {*event.to_json(), *orjson.loads(counter.encode()), *LedgerMetrics().snapshot()}
    names |= {one.name for kind in (Column, Edge, SnapshotPin) for one in fields(kind)} - {"unknown"}
    assert sorted(name for name in names if f"`{name}`" not in page) == []


def test_the_examples_of_the_page_can_be_read() -> None:
    """C12, C14: an event, and a counter."""
    event, counter = blocks(PAGE, "json")
    data = event.text.encode()
    layout = ledger_layout("catalog")
    path = layout.event_key(orjson.loads(data)["event_id"])
    assert isinstance(decode_event(data, path=path, layout=layout), Event)
    record = PositionRecord.decode(counter.text.encode(), key=layout.positions_key)
    assert record.recent[-1] == (record.next - 1, record.last_id)


def test_the_limits_on_the_page_are_those_of_the_code(page: str) -> None:
    """C12, C25: in the digits that the page uses."""
    limits = Limits()
    for number in (
        EVENT_BYTES_MAX,
        IDEMPOTENCY_KEY_CHARACTERS_MAX,
        NAME_CHARACTERS_MAX,
        TEXT_CHARACTERS_MAX,
        RECOVERY_GAP,
        PAGE_SIZE_MAX,
        RECENT_MAX,
        limits.soft,
        limits.hard,
        limits.retry_after_s,
    ):
        assert f"{number:,}" in page
