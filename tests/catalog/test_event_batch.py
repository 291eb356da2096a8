"""Events that are read many at once say what they say one by one, whatever is wrong with some of them."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.catalog import payloads as p
from holdfast.catalog.event_batch import batch_of
from holdfast.catalog.event_columns import PLAIN_TYPES
from holdfast.catalog.event_rows import rows_of
from holdfast.catalog.events import UnknownEvent, decode_event
from holdfast.catalog.fold import fold
from holdfast.catalog.layout import ledger_layout
from holdfast.catalog.payload import NAME_CHARACTERS_MAX, TEXT_CHARACTERS_MAX, Payload
from holdfast.errors import BadInput
from tests.catalog.test_fold import NOW, SAID, event, ulid

DOMAINS = ("executions", "lineage", "catalog")
ODD: list[Any] = [
    None, "", "x\n", "x\x7f", "x\x85", "x\t", "ü", -1, 0, True, 1.5, 2**63, [], [""], ["a", 1], {}, {"": "1"}, {"x": 1},
    {"x": "1"}, {"x": True}, {"x": -1}, {"x": "\x00"}, "2026-02-30T00:00:00.000000Z", "2026-02-03T00:00:00Z",
    "2026-02-03T00:00:00.000000", "0000-02-03T00:00:00.000000Z", "2026-02-03T24:00:00.000000Z",
    "2026-02-03T23:59:60.000000Z", [{"source": "a", "target": "b", "kind": "\x00"}], [{"source": "a"}],
    [{"source": "a", "target": "b", "source_column": ""}], [{"source": "a", "target": "b", "more": 1}],
    "n" * NAME_CHARACTERS_MAX, "n" * (NAME_CHARACTERS_MAX + 1), "n" * (TEXT_CHARACTERS_MAX + 1),
]  # fmt: skip
FIELDS = [
    "format", "event_type", "event_version", "event_id", "idempotency_key", "occurred_at", "source", "trace_id",
    "sequence_position", "payload", "newer", "run_id", "task_id", "attempt", "started_at", "finished_at", "failed_at",
    "completed_at", "pipeline", "trigger", "parameters", "outputs", "counters", "error", "asset", "partition",
    "row_count", "edges",
]  # fmt: skip
CHANGES = st.tuples(st.integers(0, 39), st.sampled_from(FIELDS), st.integers(0, len(ODD) - 1))


def stored(domain: str, said: list[Payload], changes: list[tuple[int, str, int]]) -> list[tuple[str, bytes]]:
    """Forty events and more of what is said, some of them with an odd value in the envelope or the payload."""
    many = [event(number + 1, said[number % len(said)]).to_json() for number in range(40)]
    for number, name, odd in changes:
        record = many[number]
        inner = record["payload"]
        target = inner if name not in record and name != "newer" and isinstance(inner, dict) else record
        target[name] = ODD[odd]
    layout = ledger_layout(domain)
    return [(layout.event_key(ulid(number + 1)), orjson.dumps(one)) for number, one in enumerate(many)]


def compare(domain: str, many: list[tuple[str, bytes]]) -> None:
    layout = ledger_layout(domain)
    one_by_one = [decode_event(data, path=path, layout=layout) for path, data in many]
    expected = fold({}, rows_of(one_by_one, domain=domain))
    found = batch_of(many, domain=domain)
    assert set(found.rows) == set(expected)
    for name, table in expected.items():
        assert found.rows[name].to_pylist() == table.to_pylist()
        assert found.rows[name].schema.equals(table.schema)
    assert found.quarantined == sum(isinstance(one, UnknownEvent) for one in one_by_one)
    highest = max((one.position or 0, one.event_id) for one in one_by_one)
    assert (found.watermark.position, found.watermark.event_id) == highest
    assert found.events == len(many)


@settings(max_examples=200)
@given(st.data())
def test_many_at_once_say_what_they_say_one_by_one(data: st.DataObject) -> None:
    """C19, C16: rows, quarantine and watermark, with odd values in any field of some of them."""
    domain = data.draw(st.sampled_from(DOMAINS))
    said = data.draw(st.lists(SAID[domain], min_size=1, max_size=6))
    compare(domain, stored(domain, said, data.draw(st.lists(CHANGES, max_size=6))))


@pytest.mark.parametrize("name", FIELDS)
def test_every_odd_value_in_every_field_is_seen(name: str) -> None:
    """C16: what one event alone would be quarantined for, it is among many."""
    said: list[Payload] = [
        p.RunStarted(run_id="r", started_at=NOW),
        p.RunFinished(run_id="r", finished_at=NOW),
    ]
    for odd in range(len(ODD)):
        compare("executions", stored("executions", said, [(20, name, odd), (21, name, odd)]))


def test_what_is_no_json_too_large_or_elsewhere_is_kept_apart() -> None:
    """C16, C11: quarantined with its reason; a path of another ledger is refused."""
    many = stored("executions", [p.RunFailed(run_id="r", failed_at=NOW)], [])
    for number, data in enumerate((b"", b"[]", b"{", b"\xff", b'{"event_type": []}', many[0][1] + b" " * (1 << 20))):
        many[number] = (many[number][0], data)
    compare("executions", many)
    with pytest.raises(BadInput, match="no event of"):
        batch_of([("ledger/lineage/" + ulid(1) + ".json", b"{}")], domain="executions")


def test_the_types_that_come_by_the_million_are_read_by_columns() -> None:
    """C19: all of the executions and the lineage ledger."""
    assert {kind.DOMAIN for kind in PLAIN_TYPES.values()} == {"executions", "lineage"}
    assert len(PLAIN_TYPES) == 9


def test_a_position_that_no_column_holds_stops_nobody() -> None:
    """C16: quarantined, never fatal."""
    (path, data), *rest = stored("executions", [p.RunFailed(run_id="r", failed_at=NOW)], [])
    record = orjson.loads(data)
    for odd in (2**63, 2**64 - 1):
        for name in ("sequence_position", "event_version"):
            found = batch_of([(path, orjson.dumps(record | {name: odd})), *rest], domain="executions")
            assert found.quarantined == 1
