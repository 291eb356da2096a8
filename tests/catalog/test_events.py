"""Events say what they say: checked when they are made, kept whole when they are read, and never lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.catalog import (
    EVENT_BYTES_MAX,
    PAYLOAD_TYPES,
    Event,
    EventDraft,
    Payload,
    UnknownEvent,
    decode_event,
    ledger_layout,
    payload_from_json,
)
from holdfast.catalog.events import content_of
from holdfast.catalog.payloads import (
    Column,
    DatasetPublished,
    Edge,
    LineageEdgesAdded,
    LineageEdgesRemoved,
    NamespaceCreated,
    NamespaceUpdated,
    PipelineChanged,
    RunFinished,
    RunStarted,
    ScheduleChanged,
    TableRegistered,
    TableUpdated,
)
from holdfast.errors import BadInput
from tests.golden.make_ledger import bare, full

EVENT_ID = "01M7H5KDBQ66BPT6R44QXBJQVC"
AT = datetime(2026, 3, 14, 9, 26, 53, 589793, tzinfo=UTC)
COLUMN = Column(name="id", type="int64")
ODD: Any = "of another type"
KINDS = list(PAYLOAD_TYPES.values())
every_type = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.TYPE)


def event_of(payload: Payload) -> Event:
    return Event(
        event_id=EVENT_ID, position=7, idempotency_key="k", occurred_at=AT, source="tests", payload=payload, unknown={}
    )


def path_of(payload: Payload) -> str:
    return ledger_layout(payload.DOMAIN).event_key(EVENT_ID)


def decoded(data: bytes, *, domain: str = "catalog") -> Event | UnknownEvent:
    layout = ledger_layout(domain)
    return decode_event(data, path=layout.event_key(EVENT_ID), layout=layout)


def test_every_type_that_was_promised_is_there() -> None:
    """C16: by name, each in the ledger of its domain."""
    found: dict[str, set[str]] = {}
    for kind in KINDS:
        found.setdefault(kind.DOMAIN, set()).add(kind.TYPE)
    assert found == {
        "catalog": {
            *(f"namespace.{what}" for what in ("created", "updated", "deleted", "renamed")),
            *(f"table.{what}" for what in ("registered", "updated", "dropped", "renamed")),
            *(f"dataset.{what}" for what in ("published", "rolled_back")),
        },
        "lineage": {"lineage.edges_added", "lineage.edges_removed"},
        "executions": {
            *(f"{who}.{what}" for who in ("run", "task") for what in ("started", "finished", "failed")),
            "materialization.completed",
        },
        "orchestration": {
            "pipeline.changed",
            "pipeline.deleted",
            "schedule.changed",
            "schedule.deleted",
            "pipeline_run.changed",
            "pipeline_task.changed",
        },
    }


@every_type
def test_an_event_of_every_type_comes_back_as_it_was(kind: type[Payload]) -> None:
    """C12, C16: with every field and with none but the required."""
    for payload in (full(kind), bare(kind)):
        event = event_of(payload)
        assert decode_event(event.encode(), path=path_of(payload), layout=ledger_layout(kind.DOMAIN)) == event
        assert payload_from_json(kind.TYPE, kind.VERSION, orjson.loads(orjson.dumps(payload.to_json()))) == payload


@every_type
def test_fields_of_a_newer_release_are_kept_everywhere(kind: type[Payload]) -> None:
    """C16: in the envelope, in the payload, and in what the payload is made of."""
    json = orjson.loads(event_of(full(kind)).encode())
    json["priority"] = {"level": 3}
    json["payload"]["classification"] = ["secret"]
    for value in json["payload"].values():
        if isinstance(value, list) and isinstance(value[0], dict):
            value[0]["collation"] = "de"
    event = decode_event(orjson.dumps(json), path=path_of(full(kind)), layout=ledger_layout(kind.DOMAIN))
    assert isinstance(event, Event)
    assert event.unknown == {"priority": {"level": 3}}
    assert orjson.loads(event.encode()) == json
    assert event.content != event_of(full(kind)).content


@every_type
def test_a_field_at_its_default_is_not_written_so_that_adding_one_changes_no_key(kind: type[Payload]) -> None:
    """C13, C16: what an older release said of a thing has the key that this one would derive."""
    payload = bare(kind)
    required = {one.name for one in fields(kind) if one.name != "unknown" and _is_required(one)}
    assert set(payload.to_json()) == required
    spelled_out = {**full(kind).to_json(), **payload.to_json(), **_defaults(kind)}
    assert kind.from_json(spelled_out).to_json() == payload.to_json()


def _is_required(one: Any) -> bool:
    return "MISSING" in repr(one.default) and "MISSING" in repr(one.default_factory)


def _defaults(kind: type[Payload]) -> dict[str, object]:
    """Every default, as somebody would say it who says everything."""
    made = bare(kind)
    said: dict[str, object] = {}
    for one in fields(kind):
        if one.name != "unknown" and not _is_required(one):
            value = getattr(made, one.name)
            said[one.name] = list(value) if isinstance(value, tuple) else value
    return said


@every_type
@pytest.mark.parametrize("wrong", [17, "", None, [], True, {"a": 1}, "x\x00y", "\ud800", -1, 2**63, 1.5])
def test_a_required_field_that_is_wrong_is_named(kind: type[Payload], wrong: object) -> None:
    """C16: one line with the type of event, the field, and what is wrong with it."""
    good = full(kind).to_json()
    for one in fields(kind):
        if one.name == "unknown" or not _is_required(one) or (isinstance(good[one.name], int) and wrong == 17):
            continue
        with pytest.raises(BadInput, match=rf"^{kind.TYPE} event: field '{one.name}' [^\n]+$"):
            kind.from_json({**good, one.name: wrong})


@pytest.mark.parametrize(
    "make, reason",
    [
        (lambda: NamespaceCreated(namespace=""), "'namespace' is empty"),
        (lambda: NamespaceCreated(namespace="a\nb"), "'namespace' has a control character"),
        (lambda: NamespaceCreated(namespace="a" * 1_025), "has 1025 characters, more than 1024"),
        (lambda: NamespaceCreated(namespace="a", description="d" * 65_537), "'description' has 65537 characters"),
        (lambda: NamespaceCreated(namespace="a", properties={"": "x"}), "'properties' is empty"),
        (lambda: NamespaceCreated(namespace="a", properties=ODD), "'properties' should be an object, found str"),
        (lambda: NamespaceCreated(namespace="a", unknown={"owner": "x"}), "'owner' is a known one"),
        (lambda: NamespaceCreated(namespace="a", unknown={"x": object()}), "cannot be written as JSON"),
        (lambda: TableRegistered(namespace="a", table="t", columns=(ODD,)), "'columns' should hold Column records"),
        (lambda: TableRegistered(namespace="a", table="t", columns=(COLUMN, COLUMN)), "column 'id' is named twice"),
        (lambda: DatasetPublished.from_json({}), "dataset.published event: field 'dataset' is missing"),
        (lambda: LineageEdgesAdded(edges=()), "'edges' is empty; name at least one"),
        (
            lambda: LineageEdgesRemoved.from_json({"edges": [{"source": "a"}]}),
            "bad member: edge: field 'target' is mis",
        ),
        (lambda: RunStarted(run_id="r", started_at=datetime(2026, 1, 1)), "should be a time with a zone"),  # noqa: DTZ001
        (lambda: RunStarted.from_json({"run_id": "r", "started_at": "noon"}), "'started_at' Invalid isoformat"),
        (lambda: RunFinished(run_id="r", finished_at=AT, counters={"x": -1}), "is -1, and should be between 0"),
        (lambda: ScheduleChanged(pipeline="p", schedule="s", cron="* *", enabled=ODD), "should be true or false"),
        (lambda: PipelineChanged(pipeline="p", definition={"x": {1: 2}}), "cannot be written as JSON"),
        (lambda: PipelineChanged(pipeline="p", definition={"at": AT}), "cannot be written as JSON"),
        (lambda: payload_from_json("table.eaten", 1, {}), "'table.eaten' is not known to this release"),
        (lambda: payload_from_json("table.dropped", 2, {}), "version 2 of 'table.dropped' is not known.*reads 1"),
        (lambda: payload_from_json("table.dropped", 1, []), "should be an object, found list"),
    ],
)
def test_malformed_events_are_refused_in_one_line(make: Callable[[], object], reason: str) -> None:
    """C16: whoever makes one is told which field is wrong, and how."""
    with pytest.raises(BadInput, match=reason) as caught:
        make()
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"event_id": "x"},
        {"position": 0},
        {"idempotency_key": ""},
        {"source": ""},
    ],
)
def test_an_envelope_is_checked_too(changes: dict[str, Any]) -> None:
    """C12: an id is a ULID, a position begins at 1, and names are names."""
    with pytest.raises(BadInput):
        replace(event_of(NamespaceCreated(namespace="a")), **changes)


def test_times_are_said_in_utc_whatever_zone_they_came_in() -> None:
    """C12, C13: one moment is one content."""
    east = AT.astimezone(timezone(timedelta(hours=5)))
    first, second = (RunStarted(run_id="r", started_at=moment) for moment in (AT, east))
    assert first == second
    assert second.started_at.tzinfo is UTC
    assert EventDraft(payload=first).key == EventDraft(payload=second).key


def test_the_content_is_what_is_said_and_nothing_of_the_telling() -> None:
    """C13: id, position, time, source, trace and key are not part of it; type, version and payload are."""
    payload = NamespaceCreated(namespace="a", properties={"x": "1", "y": "2"})
    event = event_of(payload)
    told_otherwise = replace(
        event, event_id="7" + EVENT_ID[1:], position=9, occurred_at=AT + timedelta(1), source="x", trace_id="t"
    )
    assert told_otherwise.content == event.content
    assert (
        replace(event, payload=NamespaceCreated(namespace="a", properties={"y": "2", "x": "1"})).content
        == event.content
    )
    others = [
        NamespaceUpdated(namespace="a", properties={"x": "1", "y": "2"}),
        NamespaceCreated(namespace="b", properties={"x": "1", "y": "2"}),
        NamespaceCreated(namespace="a", properties={"x": "1"}),
    ]
    assert len({event.content, *(event_of(other).content for other in others)}) == 4
    assert content_of("a", 1, {}) != content_of("a", 2, {})
    table = TableRegistered(namespace="a", table="t", columns=(COLUMN,))
    assert event_of(table).content != event_of(TableUpdated(namespace="a", table="t", columns=(COLUMN,))).content


@pytest.mark.parametrize(
    "damage, reason",
    [
        (lambda json: {**json, "event_type": "namespace.foretold"}, "event type 'namespace.foretold' is not known"),
        (lambda json: {**json, "event_version": 2}, "version 2 of 'namespace.created' is not known"),
        (lambda json: {**json, "format": "holdfast.event/2.0"}, "newer than this release reads"),
        (lambda json: {**json, "format": "holdfast.lock/1.0"}, "is not holdfast.event"),
        (lambda json: {**json, "event_id": "7" + EVENT_ID[1:]}, "it says that its id is 7"),
        (lambda json: {**json, "sequence_position": 0}, "position 0 is below 1"),
        (lambda json: {**json, "sequence_position": "7"}, "'sequence_position' should be a whole number"),
        (lambda json: {**json, "payload": {}}, "field 'namespace' is missing"),
        (lambda json: {**json, "payload": [1]}, "'payload' should be an object"),
        (lambda json: {**json, "occurred_at": "yesterday"}, "field 'occurred_at'"),
        (lambda json: {**json, "source": None}, "'source' should be text, found nothing"),
        (lambda json: {"event_type": "namespace.created"}, "'format' should be text"),
        (lambda json: [json], "not a JSON object"),
        (
            lambda json: {**json, "event_type": "pipeline.deleted", "payload": {"pipeline": "p"}},
            "'pipeline.deleted' belongs to the 'orchestration' ledger",
        ),
    ],
)
def test_what_this_release_does_not_understand_is_unknown_and_kept(
    damage: Callable[[dict[str, Any]], object], reason: str
) -> None:
    """C16: with its reason, its bytes, and as much of its envelope as can be read."""
    good = orjson.loads(event_of(NamespaceCreated(namespace="a")).encode())
    data = orjson.dumps(damage(good))
    unknown = decoded(data)
    assert isinstance(unknown, UnknownEvent)
    assert reason in unknown.reason
    assert len(unknown.reason.splitlines()) == 1
    assert (unknown.data, unknown.event_id) == (data, EVENT_ID)


def test_an_unknown_event_says_its_type_version_and_place_where_they_can_be_read() -> None:
    """C16: a fold can quarantine it in order."""
    json = {**orjson.loads(event_of(NamespaceCreated(namespace="a")).encode()), "event_version": 9}
    unknown = decoded(orjson.dumps(json))
    assert isinstance(unknown, UnknownEvent)
    assert (unknown.event_type, unknown.event_version, unknown.position) == ("namespace.created", 9, 7)
    nothing = decoded(b"\xff\x00")
    assert isinstance(nothing, UnknownEvent)
    assert (nothing.event_type, nothing.event_version, nothing.position) == (None, None, None)


def test_an_event_that_is_too_large_is_unknown_without_being_parsed() -> None:
    """C12, C16: whatever it is, it is not one that the ledger has written."""
    event = replace(event_of(NamespaceCreated(namespace="a")), unknown={"x": "y" * EVENT_BYTES_MAX})
    with pytest.raises(BadInput, match="split it"):
        event.encode()
    unknown = decoded(orjson.dumps(event.to_json()))
    assert isinstance(unknown, UnknownEvent)
    assert unknown.reason == f"it has more than {EVENT_BYTES_MAX} bytes"


def test_a_path_that_is_no_event_is_the_callers_mistake() -> None:
    """C12: bytes never raise, a wrong path does."""
    with pytest.raises(BadInput, match="no event of the 'catalog' ledger"):
        decode_event(b"{}", path="ledger/catalog/x.json", layout=ledger_layout("catalog"))


json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(data=st.binary(max_size=200))
def test_no_bytes_make_reading_fail(data: bytes) -> None:
    """C16: whatever lies in the ledger."""
    assert isinstance(decoded(data), UnknownEvent)


@given(
    kind=st.sampled_from(KINDS),
    name=st.sampled_from(sorted(event_of(NamespaceCreated(namespace="a")).to_json())),
    field=st.none() | st.text(max_size=8),
    value=json_values,
)
def test_no_value_of_a_field_makes_reading_fail_and_what_is_read_is_written_again(
    kind: type[Payload], name: str, field: str | None, value: Any
) -> None:
    """C12, C16: any field of any type replaced by anything: an event that reads back the same, or an unknown one."""
    payload = full(kind)
    json = orjson.loads(event_of(payload).encode())
    if field is not None and name == "payload":
        names = sorted(json["payload"])
        json["payload"][names[len(field) % len(names)]] = value
    else:
        json[name] = value
    try:
        data = orjson.dumps(json)
    except orjson.JSONEncodeError:  # a lone surrogate, which no JSON file holds
        return
    event = decoded(data, domain=kind.DOMAIN)
    if isinstance(event, Event):
        assert decoded(event.encode(), domain=kind.DOMAIN) == event
    else:
        assert event.data == data


@given(definition=st.dictionaries(st.text(min_size=1, max_size=5), json_values, max_size=4))
def test_a_definition_has_one_content_before_and_after_it_was_stored(definition: dict[str, Any]) -> None:
    """C13: what is compared with a claim is what was claimed."""
    try:
        payload = PipelineChanged(pipeline="p", definition=definition)
    except BadInput:
        return
    event = event_of(payload)
    read = decoded(event.encode(), domain="orchestration")
    assert isinstance(read, Event)
    assert read.content == event.content


def test_an_edge_may_name_columns_and_snapshots_or_none() -> None:
    """C16: what is not known is not said."""
    edge = Edge(source="a", target="b")
    assert edge.to_json() == {"source": "a", "target": "b"}
    assert Edge.from_json({"source": "a", "target": "b", "source_column": None}) == edge
