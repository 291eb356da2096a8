"""OpenLineage: the runs of a workspace as standard events, the same at every time and for everybody."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pyarrow as pa
import pytest

from holdfast.catalog import payloads as p
from holdfast.catalog.announce import announce
from holdfast.catalog.column_lineage_told import sql_lineage, tell_lineage
from holdfast.catalog.compactor import Compactor
from holdfast.catalog.openlineage import event_lines, run_events
from holdfast.catalog.openlineage_names import place_name, run_uuid
from holdfast.catalog.operations import Catalog
from holdfast.catalog.payload import Payload
from holdfast.catalog.workspace import Workspace
from holdfast.errors import NotFound
from holdfast.kv import publish_arrow
from holdfast.storage.memory import MemoryStore
from holdfast.testing.clock import SeededRandomness, VirtualClock
from tests.catalog.openlineage_spec import event_problems

NOON = datetime(2026, 3, 14, 12, tzinfo=UTC)
JOBS = "holdfast://acme/prod"


def later(minutes: int) -> datetime:
    return NOON + timedelta(minutes=minutes)


def tell(workspace: Workspace, *said: Payload) -> None:
    for domain in dict.fromkeys(one.DOMAIN for one in said):
        ledger = workspace.ledger(domain)
        Compactor(workspace, domain).compact([ledger.append(one).path for one in said if domain == one.DOMAIN])


def full(root: MemoryStore | None = None) -> Workspace:
    """A pipeline of two tasks, one of which failed at first; a run that failed; a publish that no run is known of."""
    workspace = Workspace(
        root=root or MemoryStore(),
        tenant="acme",
        name="prod",
        by="t",
        clock=VirtualClock(),
        randomness=SeededRandomness(),
    )
    workspace.initialize()
    catalog = Catalog(workspace)
    catalog.create_namespace("sales")
    columns = [p.Column(name="id", type="bigint", description="who"), p.Column(name="total", type="double")]
    catalog.register_table(
        "sales", "orders", columns=columns, description="What we sold", owner="team-sales", tags={"pii": "no"}
    )
    catalog.register_table("sales", "lines", columns=columns, location="s3://bucket/raw/lines/")
    raw = workspace.dataset("raw", "kv")
    publish_arrow(raw, pa.table({"id": [1], "price": [2.0]}), key="id", shards=1, run_id="by-hand")
    prices = workspace.dataset("prices", "kv")
    publish_arrow(
        prices, pa.table({"id": [1], "price": [2.0]}), key="id", shards=1, inputs=[raw.pin()], run_id="nightly-1"
    )
    for name in ("raw", "prices"):
        announce(workspace, name)
    sql = "SELECT l.id, l.total * p.price AS total FROM sales.lines l JOIN prices p ON l.id = p.id WHERE p.price > 0"
    tell_lineage(workspace, sql_lineage(workspace, sql, "sales.orders"))
    tell(
        workspace,
        p.PipelineChanged(pipeline="nightly", description="Every night", owner="team-data"),
        p.RunStarted(run_id="nightly-1", pipeline="nightly", started_at=later(0)),
        p.TaskStarted(run_id="nightly-1", task_id="orders", started_at=later(1)),
        p.TaskFailed(run_id="nightly-1", task_id="orders", failed_at=later(2), error="out of memory"),
        p.TaskStarted(run_id="nightly-1", task_id="orders", attempt=2, started_at=later(3)),
        p.TaskFinished(run_id="nightly-1", task_id="orders", attempt=2, finished_at=later(4)),
        p.MaterializationCompleted(
            run_id="nightly-1", task_id="orders", asset="sales.orders", completed_at=later(4), row_count=7
        ),
        p.RunFinished(run_id="nightly-1", finished_at=later(5), outputs=("sales.orders", "mail")),
        p.RunStarted(run_id="nightly-2", pipeline="nightly", started_at=later(10)),
        p.RunFailed(run_id="nightly-2", failed_at=later(11), error="no space"),
        p.RunStarted(run_id="nightly-3", started_at=later(20)),
    )
    return workspace


def exported(workspace: Workspace, **which: Any) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in event_lines(run_events(workspace, **which))]


def one(events: list[dict[str, Any]], job: str, state: str, attempt: str = "1") -> dict[str, Any]:
    found = [
        event
        for event in events
        if (event["job"]["name"], event["eventType"]) == (job, state)
        and {"key": "holdfast_attempt", "value": attempt, "source": "holdfast"}
        in event["run"]["facets"]["tags"]["tags"]
    ]
    assert len(found) == 1, f"{job} {state}: {len(found)}"
    return found[0]


def short(used: dict[str, Any]) -> tuple[str, str, str]:
    """A column that was used: the end of its data set's name, its own, and how."""
    return used["name"].rpartition("/")[2], used["field"], used["transformations"][0]["subtype"]


@pytest.fixture(scope="module")
def workspace() -> Workspace:
    return full()


@pytest.fixture(scope="module")
def events(workspace: Workspace) -> list[dict[str, Any]]:
    return exported(workspace)


def test_every_event_has_the_published_form(events: list[dict[str, Any]]) -> None:
    """C29: events and facets are those of the specification; a START, and one end where it has come, for each run."""
    assert [problem for event in events for problem in event_problems(event)] == []
    states: dict[str, list[str]] = {}
    for event in events:
        states.setdefault(event["run"]["runId"], []).append(event["eventType"])
    assert sorted(states.values()) == [
        ["START"], ["START", "COMPLETE"], ["START", "COMPLETE"], ["START", "COMPLETE"], ["START", "FAIL"],
        ["START", "FAIL"],
    ]  # fmt: skip
    assert [event["eventTime"] for event in events] == sorted(event["eventTime"] for event in events)


def test_the_check_of_the_form_finds_what_is_wrong(events: list[dict[str, Any]]) -> None:
    """C29: seen failing: a missing field, a field that is none, a form that was never published."""
    whole = orjson.dumps(one(events, "nightly.orders", "COMPLETE", "2"))
    broken: list[dict[str, Any]] = [orjson.loads(whole) for _ in range(4)]
    del broken[0]["run"]["runId"]
    broken[1]["run"]["facets"]["parent"].pop("job")
    broken[2]["outputs"][0]["facets"]["columnLineage"]["extra"] = 1
    broken[3]["job"]["facets"]["jobType"]["_schemaURL"] = "https://openlineage.io/spec/facets/9-9-9/No.json#/$defs/No"
    assert [len(event_problems(event)) for event in broken] == [1, 1, 1, 1]


def test_exporting_twice_gives_the_same_bytes_and_so_does_whoever_else_asks() -> None:
    """C29: a function of the state; ids are derived from run ids."""
    root = MemoryStore()
    first = full(root)
    again = Workspace(root=root, tenant="acme", name="prod")
    lines = list(event_lines(run_events(first)))
    assert lines == list(event_lines(run_events(first))) == list(event_lines(run_events(again)))
    assert all(line.endswith(b"}\n") and line.count(b"\n") == 1 for line in lines)
    assert run_uuid(first, "run", "nightly-1", "1") == "8c98cc40-4add-5f76-bc5b-31bcd1e209f0"
    other = Workspace(root=root, tenant="acme", name="test")
    assert run_uuid(other, "run", "nightly-1", "1") != run_uuid(first, "run", "nightly-1", "1")


def test_a_run_says_what_it_made_from_which_snapshots(events: list[dict[str, Any]], workspace: Workspace) -> None:
    """C29: data sets are named by where they are, with version, schema and counts; inputs are those pinned."""
    event = one(events, "nightly", "COMPLETE")
    assert event["eventTime"] == "2026-03-14T12:05:00.000000Z"
    assert one(events, "nightly.orders", "START", "2")["outputs"] == [], "nothing is made yet"
    assert event["job"]["namespace"] == JOBS
    assert event["job"]["facets"]["documentation"]["description"] == "Every night"
    assert [owner["name"] for owner in event["job"]["facets"]["ownership"]["owners"]] == ["team-data"]
    place = place_name(f"{workspace.url.rstrip('/')}/datasets/prices")
    outputs = {(output["namespace"], output["name"]): output for output in event["outputs"]}
    assert set(outputs) == {place, (JOBS, "mail")}, "what a task made is the task's"
    assert place is not None
    prices = outputs[place]
    assert prices["facets"]["version"]["datasetVersion"] == "0"
    assert [(one["name"], one["ordinal_position"]) for one in prices["facets"]["schema"]["fields"]] == [
        ("id", 1), ("price", 2)
    ]  # fmt: skip
    assert prices["outputFacets"]["outputStatistics"]["rowCount"] == 1
    (read,) = event["inputs"]
    assert read["name"].endswith("/datasets/raw")
    assert read["facets"]["version"]["datasetVersion"] == "0"
    assert len(read["facets"]["schema"]["fields"]) == 2, "a chain of this workspace is known as its data set"


def test_a_task_names_its_run_and_how_each_column_was_made(events: list[dict[str, Any]]) -> None:
    """C28, C29: parent, column lineage with its kinds, documentation and ownership; the last attempt made it."""
    event = one(events, "nightly.orders", "COMPLETE", "2")
    parent = event["run"]["facets"]["parent"]
    assert parent["run"]["runId"] == one(events, "nightly", "COMPLETE")["run"]["runId"]
    assert parent["job"] == {"namespace": JOBS, "name": "nightly", "facets": {}}
    (output,) = event["outputs"]
    assert (output["namespace"], output["name"]) == (JOBS, "sales.orders")
    facets = output["facets"]
    assert facets["documentation"]["description"] == "What we sold"
    assert facets["ownership"]["owners"][0]["name"] == "team-sales"
    assert facets["tags"]["tags"][0]["key"] == "pii"
    assert facets["datasetType"]["datasetType"] == "TABLE"
    assert output["outputFacets"]["outputStatistics"]["rowCount"] == 7
    lineage = facets["columnLineage"]
    used = {column: [short(one) for one in made["inputFields"]] for column, made in lineage["fields"].items()}
    assert {column: sorted(made) for column, made in used.items()} == {
        "id": [("lines", "id", "IDENTITY")],
        "total": [("lines", "total", "TRANSFORMATION"), ("prices", "price", "TRANSFORMATION")],
    }
    rows = {(one["name"].rpartition("/")[2], one["field"]): one["transformations"] for one in lineage["dataset"]}
    assert {key: [(one["type"], one["subtype"]) for one in used] for key, used in rows.items()} == {
        ("lines", "id"): [("INDIRECT", "JOIN")],
        ("prices", "id"): [("INDIRECT", "JOIN")],
        ("prices", "price"): [("INDIRECT", "FILTER")],
    }
    assert {(read["namespace"], read["name"].rpartition("/")[2]) for read in event["inputs"]} >= {
        ("s3://bucket", "lines")
    }  # fmt: skip
    first = one(events, "nightly.orders", "FAIL")
    assert first["outputs"] == []
    assert first["run"]["facets"]["errorMessage"]["message"] == "out of memory"


def test_what_no_run_is_known_of_and_what_still_runs(events: list[dict[str, Any]]) -> None:
    """C29: a publish by hand is a run of its own; a run that has not ended has only begun."""
    event = one(events, "publish.raw", "COMPLETE")
    assert event["eventTime"] == one(events, "publish.raw", "START")["eventTime"]
    assert event["outputs"][0]["facets"]["version"]["datasetVersion"] == "0"
    assert one(events, "run", "START")["eventTime"] == "2026-03-14T12:20:00.000000Z"
    assert not any(each["job"]["name"] == "publish.prices" for each in events), "that one was made by a run"


def test_events_of_one_run_since_a_time_and_as_of_a_time(workspace: Workspace) -> None:
    """C29: as much as is asked for."""
    jobs = {event["job"]["name"] for event in exported(workspace, run_id="nightly-1")}
    assert jobs == {"nightly", "nightly.orders"}
    assert len(exported(workspace, since=later(11))) == len(
        [event for event in exported(workspace) if event["eventTime"] >= "2026-03-14T12:11"]
    )
    assert exported(workspace, at=datetime(2020, 1, 1, tzinfo=UTC)) == []
    named = exported(workspace, run_id="nightly-2", namespace="airflow-prod")
    assert {event["job"]["namespace"] for event in named} == {"airflow-prod"}
    with pytest.raises(NotFound, match="nightly-9"):
        run_events(workspace, run_id="nightly-9")


@pytest.mark.parametrize(
    "url, expected",
    [
        ("s3://bucket/lake/acme/", ("s3://bucket", "lake/acme")),
        ("s3://bucket", ("s3://bucket", "/")),
        ("gs://bucket/x", ("gs://bucket", "x")),
        ("file:///srv/lake", ("file", "/srv/lake")),
        ("/srv/lake/", ("file", "/srv/lake")),
        ("file://host/srv", ("file://host", "/srv")),
        ("abfss://box@account.dfs.core.windows.net/x", ("abfss://box@account.dfs.core.windows.net", "x")),
        ("postgresql://me:secret@db:5432/lake", ("postgresql://db:5432", "lake")),
        ("sales.orders", None),
    ],
)
def test_places_are_named_as_openlineage_names_them(url: str, expected: tuple[str, str] | None) -> None:
    """C29: the store is the namespace, the path the name; no password is part of either."""
    assert place_name(url) == expected
