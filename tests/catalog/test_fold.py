"""The fold: one state from any order of events, with duplicates, replays and events that nobody understands."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.catalog import payloads as p
from holdfast.catalog.event_rows import rows_of
from holdfast.catalog.events import Event, UnknownEvent, decode_event
from holdfast.catalog.fold import alive, fold
from holdfast.catalog.layout import LEDGER_DOMAINS, ledger_layout
from holdfast.catalog.payload import Payload
from holdfast.catalog.payloads import PAYLOAD_TYPES
from holdfast.catalog.tables import STATE_TABLES
from holdfast.errors import BadInput
from tests.golden.make import GOLDEN

NOW = datetime(2026, 3, 14, 10, 30, tzinfo=UTC)
NAMES = st.sampled_from(["a", "b", "ü"])
TIMES = st.datetimes(datetime(2026, 1, 1), datetime(2026, 12, 31), timezones=st.just(UTC))  # noqa: DTZ001 - zoned here
MAPS = st.dictionaries(st.sampled_from(["x", "y"]), st.sampled_from(["1", "2"]), max_size=2)
COLUMNS = st.lists(
    st.builds(p.Column, name=st.sampled_from(["id", "v", "w"]), type=st.sampled_from(["int", "text"]), tags=MAPS),
    max_size=3, unique_by=lambda column: column.name,
).map(tuple)  # fmt: skip
EDGES = st.lists(
    st.builds(p.Edge, source=NAMES, target=NAMES, source_column=st.none() | NAMES, target_snapshot=st.none() | NAMES),
    min_size=1, max_size=3,
).map(tuple)  # fmt: skip
ATTEMPTS = st.integers(1, 2)

SAID: dict[str, st.SearchStrategy[Payload]] = {
    "catalog": st.one_of(
        st.builds(p.NamespaceCreated, namespace=NAMES, description=NAMES, properties=MAPS),
        st.builds(p.NamespaceUpdated, namespace=NAMES, owner=NAMES),
        st.builds(p.NamespaceDeleted, namespace=NAMES),
        st.builds(p.NamespaceRenamed, namespace=NAMES, new_namespace=NAMES),
        st.builds(p.TableRegistered, namespace=NAMES, table=NAMES, columns=COLUMNS, tags=MAPS),
        st.builds(p.TableUpdated, namespace=NAMES, table=NAMES, columns=COLUMNS, location=NAMES),
        st.builds(p.TableDropped, namespace=NAMES, table=NAMES),
        st.builds(p.TableRenamed, namespace=NAMES, table=NAMES, new_namespace=NAMES, new_table=NAMES, columns=COLUMNS),
        st.builds(
            p.DatasetPublished, dataset=NAMES, kind=st.just("kv"), chain=NAMES, manifest_id=st.integers(1, 3),
            manifest_hash=NAMES, ref=NAMES, commit_ulid=NAMES, run_id=NAMES, published_at=TIMES, columns=COLUMNS,
        ),
        st.builds(
            p.DatasetRolledBack, dataset=NAMES, chain=NAMES, left_manifest_id=st.just(2), manifest_id=st.just(1),
            manifest_hash=NAMES, ref=NAMES, commit_ulid=NAMES, rolled_back_at=TIMES,
        ),
    ),
    "lineage": st.one_of(st.builds(p.LineageEdgesAdded, edges=EDGES), st.builds(p.LineageEdgesRemoved, edges=EDGES)),
    "executions": st.one_of(
        st.builds(p.RunStarted, run_id=NAMES, started_at=TIMES, attempt=ATTEMPTS, parameters=MAPS),
        st.builds(p.RunFinished, run_id=NAMES, finished_at=TIMES, attempt=ATTEMPTS, outputs=st.just(("a", "b"))),
        st.builds(p.RunFailed, run_id=NAMES, failed_at=TIMES, attempt=ATTEMPTS, error=NAMES),
        st.builds(p.TaskStarted, run_id=NAMES, task_id=NAMES, started_at=TIMES),
        st.builds(p.TaskFinished, run_id=NAMES, task_id=NAMES, finished_at=TIMES),
        st.builds(p.TaskFailed, run_id=NAMES, task_id=NAMES, failed_at=TIMES),
        st.builds(p.MaterializationCompleted, run_id=NAMES, asset=NAMES, completed_at=TIMES, partition=NAMES),
    ),
    "orchestration": st.one_of(
        st.builds(p.PipelineChanged, pipeline=NAMES, definition=MAPS),
        st.builds(p.PipelineDeleted, pipeline=NAMES),
        st.builds(p.ScheduleChanged, pipeline=NAMES, schedule=NAMES, cron=NAMES),
        st.builds(p.ScheduleDeleted, pipeline=NAMES, schedule=NAMES),
    ),
}  # fmt: skip


def ulid(number: int) -> str:
    return f"{number:026}"


def event(position: int, payload: Payload) -> Event:
    return Event(
        event_id=ulid(position), position=position, idempotency_key=f"k{position}", occurred_at=NOW, source="test",
        payload=payload,
    )  # fmt: skip


def not_understood(position: int) -> UnknownEvent:
    path = f"ledger/catalog/{ulid(position)}.json"
    return UnknownEvent(path=path, reason="from the future", data=b"{}", event_id=ulid(position), position=position)


@st.composite
def histories(draw: st.DrawFn) -> tuple[str, list[Event | UnknownEvent]]:
    """A domain and what happened there, in the order of positions."""
    domain = draw(st.sampled_from(sorted(SAID)))
    said = draw(st.lists(SAID[domain], min_size=1, max_size=12))
    told: list[Event | UnknownEvent] = [event(number + 1, payload) for number, payload in enumerate(said)]
    if domain == "catalog":
        told += [not_understood(len(told) + 1)] if draw(st.booleans()) else []
    return domain, told


def folded(domain: str, batches: Sequence[Sequence[Event | UnknownEvent]]) -> dict[str, pa.Table]:
    """Batch after batch onto the state."""
    state: dict[str, pa.Table] = {}
    for batch in batches:
        state = fold(state, rows_of(batch, domain=domain))
    return state


def plain(state: dict[str, pa.Table]) -> dict[str, list[dict[str, Any]]]:
    return {name: table.to_pylist() for name, table in state.items() if len(table)}


@settings(max_examples=150)
@given(histories(), st.data())
def test_any_order_any_batches_any_repetition_give_one_state(
    history: tuple[str, list[Event | UnknownEvent]], data: st.DataObject
) -> None:
    """C19: shuffled, doubled, cut into batches and replayed at the end, the state is that of one batch in order."""
    domain, told = history
    expected = plain(folded(domain, [told]))
    again = data.draw(st.permutations([*told, *data.draw(st.lists(st.sampled_from(told), max_size=4))]))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(again)), max_size=3)))
    batches = [again[start:end] for start, end in zip([0, *cuts], [*cuts, len(again)], strict=True)]
    assert plain(folded(domain, batches)) == expected
    late = data.draw(st.lists(st.sampled_from(told), max_size=3))
    assert plain(folded(domain, [told, late])) == expected, "a late replay changes nothing"


@settings(max_examples=100)
@given(histories(), st.integers(0, 12))
def test_states_can_be_folded_together(history: tuple[str, list[Event | UnknownEvent]], cut: int) -> None:
    """C19, C21: a base and a delta that were folded apart are, together, what one fold of all events is."""
    domain, told = history
    base, delta = folded(domain, [told[:cut]]), folded(domain, [told[cut:]])
    assert plain(fold(base, delta)) == plain(fold(delta, base)) == plain(folded(domain, [told]))


@settings(max_examples=100)
@given(histories())
def test_the_state_is_what_a_dictionary_says(history: tuple[str, list[Event | UnknownEvent]]) -> None:
    """C19: events applied one after the other to a dictionary, in the plainest way."""
    domain, told = history
    model: dict[str, dict[tuple[Any, ...], dict[str, Any]]] = {}
    for one in told:
        for name, table in rows_of([one], domain=domain).items():
            for row in table.to_pylist():
                model.setdefault(name, {})[tuple(row[key] for key in STATE_TABLES[name].key)] = row
    found = folded(domain, [told])
    assert plain(found) == {name: [rows[key] for key in sorted(rows)] for name, rows in model.items()}


def test_every_type_of_event_says_something_and_every_table_is_spoken_of() -> None:
    """C16: no event is forgotten by the fold; shown by the golden ledger, which has one of each type."""
    spoken, types = set(), set()
    for domain in LEDGER_DOMAINS:
        layout = ledger_layout(domain)
        for file in sorted(GOLDEN.glob(f"v*/ledger/*/*/{layout.event_prefix}/*.json")):
            one = decode_event(file.read_bytes(), path=layout.event_key(file.stem), layout=layout)
            said = rows_of([one], domain=domain)
            assert said, file.name
            spoken |= set(said)
            types |= {(one.event_type, one.event_version)}
    assert types >= set(PAYLOAD_TYPES)
    assert spoken >= {name for name in STATE_TABLES if not name.endswith("_quarantine")}


def test_what_was_deleted_is_gone_and_a_replay_does_not_bring_it_back() -> None:
    """C19: rows keep their position, also those that say that something is gone."""
    told = [
        event(1, p.TableRegistered(namespace="n", table="t", columns=(p.Column(name="id", type="int"),))),
        event(2, p.TableRenamed(namespace="n", table="t", new_namespace="n", new_table="u", description="moved")),
        event(3, p.TableDropped(namespace="n", table="u")),
        event(4, p.TableRegistered(namespace="n", table="u", description="another")),
    ]
    tables = [alive(folded("catalog", [told[:count]])["tables"]).to_pylist() for count in range(1, 5)]
    assert [[row["table"] for row in rows] for rows in tables] == [["t"], ["u"], [], ["u"]]
    assert tables[0][0]["columns"] == [{"name": "id", "type": "int", "nullable": True, "description": "", "tags": "{}"}]
    assert (tables[1][0]["description"], tables[3][0]["description"]) == ("moved", "another")
    replayed = fold(folded("catalog", [told[:3]]), rows_of(told[:2], domain="catalog"))
    assert alive(replayed["tables"]).num_rows == 0


def test_an_event_that_is_not_understood_is_kept_with_its_reason() -> None:
    """C16: quarantined, never lost, never fatal."""
    state = folded("catalog", [[not_understood(7)], [not_understood(7)]])
    (row,) = state["catalog_quarantine"].to_pylist()
    assert (row["reason"], row["data"], row["position"]) == ("from the future", b"{}", 7)


def test_rows_of_another_shape_are_refused() -> None:
    """C22: a state that is not one is never folded into something smaller."""
    with pytest.raises(BadInput, match="other columns"):
        fold({"namespaces": pa.table({"namespace": ["a"]})})
    with pytest.raises(BadInput, match="no table of a domain"):
        fold({"nonsense": pa.table({"a": [1]})})
