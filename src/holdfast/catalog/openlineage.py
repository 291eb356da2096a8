"""The runs of a workspace as OpenLineage run events, for the catalogs of others (C29). Needs `holdfast[openlineage]`.

    for line in event_lines(run_events(workspace)):
        file.write(line)

A run is a START and, when it has ended, a COMPLETE or FAIL; so is each of its tasks, which name the run as their
parent. What they made and from what comes from materializations, from published snapshots with the inputs that they
pin, and from lineage. A snapshot that was published outside of any run that is known is a run of its own. The events
are a function of what the catalog knows: the same state gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

import orjson

from holdfast.catalog.openlineage_names import PRODUCER, run_uuid
from holdfast.catalog.reading import read_tables
from holdfast.catalog.workspace import Workspace
from holdfast.clock import format_time
from holdfast.errors import NotFound

if TYPE_CHECKING:
    from openlineage.client import event_v2 as ol

    from holdfast.catalog.openlineage_datasets import End, KnownDatasets

__all__ = ["event_lines", "run_events"]

_EXECUTIONS = ("run_starts", "run_ends", "task_starts", "task_ends", "materializations")
_STATES = {"finished": "COMPLETE", "failed": "FAIL"}


def event_lines(events: Iterable[ol.RunEvent]) -> Iterator[bytes]:
    """Newline-delimited JSON, fields in order of their names."""
    from openlineage.client.serde import Serde

    for event in events:
        yield orjson.dumps(Serde.to_dict(event), option=orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE)


def run_events(
    workspace: Workspace,
    *,
    since: datetime | None = None,
    run_id: str | None = None,
    at: datetime | None = None,
    namespace: str | None = None,
) -> list[ol.RunEvent]:
    """All events in the order of their times; from `since` on, of one run, or as they were known `at` a time.

    `namespace` is that of the jobs, and of tables that have no place; `holdfast://tenant/workspace` unless given.
    """
    from holdfast.catalog.openlineage_datasets import KnownDatasets

    executions = read_tables(workspace, "executions", _EXECUTIONS, at=at)
    rows = {name: executions[name].to_pylist() for name in _EXECUTIONS}
    catalog = read_tables(workspace, "catalog", ["tables", "datasets", "snapshots"], at=at)
    edges = read_tables(workspace, "lineage", ["edges"], at=at)["edges"]
    pipelines = read_tables(workspace, "orchestration", ["pipelines"], at=at)["pipelines"].to_pylist()
    known = KnownDatasets.of(workspace, catalog, edges, namespace)
    units = _units(rows, known)
    if run_id is not None:
        units = [unit for unit in units if unit.run_id == run_id]
        if not units:
            raise NotFound(f"there is no run {run_id!r}; `holdfast catalog sql` with system.runs lists them")
    described = {row["pipeline"]: row for row in pipelines}
    events = [event for unit in units for event in _told(unit, known, described)]
    earliest = "" if since is None else format_time(since)
    return sorted((event for event in events if event.eventTime >= earliest), key=_order)


@dataclass(slots=True, kw_only=True)
class _Unit:
    """A run, a task of one, or a publish that no run is known of."""

    run_id: str
    job: str
    uuid: str
    attempt: int = 1
    pipeline: str = ""
    started_at: datetime | None = None
    ended_at: datetime | None = None
    status: str = ""
    error: str = ""
    parent: _Unit | None = None
    outputs: dict[End, tuple[int | None, int | None]] = field(default_factory=dict)
    """What it made, with rows and bytes where they are known."""


def _units(rows: Mapping[str, list[dict[str, Any]]], known: KnownDatasets) -> list[_Unit]:
    """Everything that ran, each with what it made."""
    runs = _halves(rows["run_starts"], rows["run_ends"], ("run_id", "attempt"))
    tasks = _halves(rows["task_starts"], rows["task_ends"], ("run_id", "task_id", "attempt"))
    made: list[_Unit] = []
    last: dict[tuple[str, str], _Unit] = {}
    for (run_id, attempt), row in sorted(runs.items()):
        uuid = run_uuid(known.workspace, "run", run_id, str(attempt))
        pipeline = row.get("pipeline") or ""
        unit = _Unit(run_id=run_id, job=pipeline or "run", pipeline=pipeline, uuid=uuid, attempt=attempt, **_times(row))
        last[run_id, ""] = unit
        made.append(unit)
    for (run_id, task_id, attempt), row in sorted(tasks.items()):
        parent = last.get((run_id, ""))
        job = f"{parent.job if parent is not None else 'run'}.{task_id}"
        uuid = run_uuid(known.workspace, "task", run_id, task_id, str(attempt))
        unit = _Unit(run_id=run_id, job=job, uuid=uuid, attempt=attempt, parent=parent, **_times(row))
        last[run_id, task_id] = unit
        made.append(unit)
    return [*made, *_give_outputs(rows, known, last)]


def _halves(
    starts: list[dict[str, Any]], ends: list[dict[str, Any]], key: tuple[str, ...]
) -> dict[tuple[Any, ...], dict[str, Any]]:
    """The beginning and the end of the same thing, either of which may not be known yet."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in (*starts, *ends):
        found.setdefault(tuple(row[name] for name in key), {}).update(row)
    return found


def _times(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "started_at": row.get("started_at"),
        "ended_at": row.get("ended_at"),
        "status": row.get("status") or "",
        "error": row.get("error") or "",
    }


def _give_outputs(
    rows: Mapping[str, list[dict[str, Any]]], known: KnownDatasets, last: Mapping[tuple[str, str], _Unit]
) -> list[_Unit]:
    """Hand what was made to the last attempt that made it: to a task if one said so, or else to its run.

    Snapshots whose run nobody told of come back as runs of their own, which took no time.
    """
    made: dict[str, set[str]] = {}
    outside: list[_Unit] = []

    def give(unit: _Unit, name: str, snapshot: str, rows: int | None = None, size: int | None = None) -> None:
        unit.outputs[name, snapshot] = rows, size
        made.setdefault(unit.run_id, set()).add(name)

    for row in rows["materializations"]:
        unit = last.get((row["run_id"], row["task_id"])) or last.get((row["run_id"], ""))
        if unit is not None:
            give(unit, row["asset"], row["snapshot"], row["row_count"], row["byte_size"])
    claimed = {(unit.run_id, end) for unit in last.values() for end in unit.outputs}
    for end, said in sorted(known.snapshots.items()):
        unit = last.get((said["run_id"], ""))
        if unit is None:
            outside.append(_publish(end, said, known))
        elif (said["run_id"], end) not in claimed:
            give(unit, *end)
    told = [(row["run_id"], name) for row in rows["run_ends"] for name in row["outputs"] or []]
    told += [(edge["run_id"], target) for target, edges in known.edges.items() for edge in edges]
    for run_id, name in told:
        unit = last.get((run_id, ""))
        if unit is not None and name not in made.get(run_id, set()):
            give(unit, name, "")
    return outside


def _publish(end: End, row: Mapping[str, Any], known: KnownDatasets) -> _Unit:
    uuid = run_uuid(known.workspace, "publish", end[0], row["commit_ulid"])
    at, job = row["published_at"], f"publish.{end[0]}"
    unit = _Unit(run_id=row["run_id"], job=job, uuid=uuid, started_at=at, ended_at=at, status="finished")
    unit.outputs[end] = None, None
    return unit


# -- events ----------------------------------------------------------------------------------------------------------


def _told(unit: _Unit, known: KnownDatasets, pipelines: Mapping[str, Mapping[str, Any]]) -> Iterator[ol.RunEvent]:
    """A START, and the end if it has come. Who reads them may change them: each has facets of its own."""
    from openlineage.client import event_v2 as ol

    sources = sorted({source for end in unit.outputs for source in known.sources(end)})
    for state, moment in (("START", unit.started_at), (_STATES.get(unit.status, ""), unit.ended_at)):
        if moment is None or not state:
            continue
        outputs = unit.outputs if state != "START" else {}
        yield ol.RunEvent(
            eventTime=format_time(moment),
            eventType=ol.RunState(state),
            producer=PRODUCER,
            run=ol.Run(runId=unit.uuid, facets=_run_facets(unit, state, known.namespace)),
            job=ol.Job(
                namespace=known.namespace, name=unit.job, facets=_job_facets(unit, pipelines.get(unit.pipeline, {}))
            ),
            inputs=[known.input(end) for end in sources],
            outputs=[known.output(end, rows=rows, size=size) for end, (rows, size) in sorted(outputs.items())],
        )


def _run_facets(unit: _Unit, state: str, namespace: str) -> dict[str, Any]:
    from openlineage.client.facet_v2 import error_message_run, parent_run, tags_run

    own = {"holdfast_run_id": unit.run_id, "holdfast_attempt": str(unit.attempt)}
    fields = [tags_run.TagsRunFacetFields(key=key, value=value, source="holdfast") for key, value in own.items()]
    facets: dict[str, Any] = {"tags": tags_run.TagsRunFacet(tags=fields, producer=PRODUCER)}
    if unit.parent is not None:
        facets["parent"] = parent_run.ParentRunFacet(
            run=parent_run.Run(runId=unit.parent.uuid),
            job=parent_run.Job(namespace=namespace, name=unit.parent.job),
            producer=PRODUCER,
        )
    if state == "FAIL":
        facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(
            message=unit.error, programmingLanguage="PYTHON", producer=PRODUCER
        )
    return facets


def _job_facets(unit: _Unit, pipeline: Mapping[str, Any]) -> dict[str, Any]:
    from openlineage.client.facet_v2 import documentation_job, job_type_job, ownership_job

    kind = "TASK" if unit.parent is not None else "JOB"
    facets: dict[str, Any] = {
        "jobType": job_type_job.JobTypeJobFacet(
            processingType="BATCH", integration="HOLDFAST", jobType=kind, producer=PRODUCER
        )
    }
    if pipeline.get("description"):
        facets["documentation"] = documentation_job.DocumentationJobFacet(
            description=pipeline["description"], producer=PRODUCER
        )
    if pipeline.get("owner"):
        owner = ownership_job.Owner(name=pipeline["owner"])
        facets["ownership"] = ownership_job.OwnershipJobFacet(owners=[owner], producer=PRODUCER)
    return facets


def _order(event: ol.RunEvent) -> tuple[str, bool, str, str]:
    """By time; of what happened at once, beginnings first."""
    ended = event.eventType is not None and event.eventType.value != "START"
    return event.eventTime, ended, event.job.name, event.run.runId
