"""What a change is checked against, and what a compaction looks at, is what a fold of everything would say."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.catalog.event_rows import rows_of
from holdfast.catalog.events import Event, UnknownEvent
from holdfast.catalog.expected import Expected
from holdfast.catalog.fold import alive, fold_onto, fold_table, rows_near
from holdfast.catalog.payloads import TableUpdated
from holdfast.catalog.tables import DELETED, EVENT_ID, POSITION, domain_tables
from tests.catalog.test_fold import SAID, event, folded, histories

TABLES = [spec for spec in domain_tables("catalog") if spec.name in {"namespaces", "tables"}]


def without_place(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    kept = [{name: value for name, value in row.items() if name not in {POSITION, EVENT_ID}} for row in rows]
    return sorted(kept, key=repr)


@settings(max_examples=150)
@given(st.lists(SAID["catalog"], max_size=10), st.integers(0, 10), st.sampled_from(["a", "b", "ü"]))
def test_changes_that_wait_together_see_what_the_ones_before_them_will_have_made(
    said: list[Any], cut: int, namespace: str
) -> None:
    """C20: the stored state with told changes on top answers as if all of it had been folded."""
    told = [event(number + 1, payload) for number, payload in enumerate(said)]
    stored = rows_of(told[:cut], domain="catalog")
    expected = Expected({spec.name: [stored[spec.name]] if spec.name in stored else [] for spec in TABLES})
    for one in told[cut:]:
        expected.tell(one.payload)
    whole = folded("catalog", [told])
    for spec in TABLES:
        rows = whole.get(spec.name, spec.schema.empty_table())
        there = [row for row in alive(rows).to_pylist() if row["namespace"] == namespace]
        found = expected.rows(spec.name, namespace=namespace)
        assert without_place(found.to_pylist()) == without_place(there)
        assert not any(found.column(DELETED).to_pylist())


@settings(max_examples=150)
@given(histories(), st.integers(0, 12))
def test_rows_near_what_is_said_tell_whether_it_changes_anything(
    history: tuple[str, list[Event | UnknownEvent]], cut: int
) -> None:
    """C19: a compaction that looks only at keys it is told of publishes exactly when a fold of everything would."""
    domain, told = history
    before, said = rows_of(told[:cut], domain=domain), rows_of(told[cut:], domain=domain)
    for spec in domain_tables(domain):
        if spec.name not in said:
            continue
        stored = [before[spec.name]] if spec.name in before else []
        delta = fold_table(spec, [said[spec.name]])
        known = fold_table(spec, stored)
        changes = not fold_table(spec, [known, delta]).equals(known)
        near = rows_near(spec, stored, delta)
        assert (not fold_table(spec, [near, delta]).equals(near)) == changes
        assert len(near) <= len(known)
        replayed = rows_near(spec, [fold_table(spec, [known, delta])], delta)
        assert fold_table(spec, [replayed, delta]).equals(replayed)


@settings(max_examples=300)
@given(st.data())
def test_deltas_on_a_base_give_what_one_fold_of_all_gives(data: st.DataObject) -> None:
    """C19, C21: in the same order, wherever the new rows belong, however few of the base's they touch."""
    (spec,) = [one for one in domain_tables("catalog") if one.name == "tables"]
    names = st.text("abü", min_size=1, max_size=3)
    keys = data.draw(st.lists(st.tuples(names, names), min_size=1, max_size=60))
    told = [event(number + 1, TableUpdated(namespace=one, table=two)) for number, (one, two) in enumerate(keys)]
    late = data.draw(st.lists(st.sampled_from(told), max_size=2))
    cut = data.draw(st.integers(max(0, len(told) - 3), len(told)))
    base = fold_table(spec, [rows_of(told[:cut], domain="catalog").get("tables", spec.schema.empty_table())])
    deltas = [rows_of([one], domain="catalog")["tables"] for one in [*told[cut:], *late]]
    assert fold_onto(spec, base, deltas).equals(fold_table(spec, [base, *deltas]))
