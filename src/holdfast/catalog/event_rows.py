"""What each event says, as rows of the tables of its domain (C16, C19).

An event says all that is known of a thing, so a row is a whole row; and a thing that ends is a row that says so. Some
things are told in two halves, such as the beginning and the end of a run: each half is a table of its own, because
either may come first. An event that this release does not understand is a row of the quarantine, as it is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import orjson
import pyarrow as pa

from holdfast.catalog import payloads as p
from holdfast.catalog.events import Event, UnknownEvent
from holdfast.catalog.orchestration_payloads import PipelineRunChanged, PipelineTaskChanged
from holdfast.catalog.payload import Payload
from holdfast.catalog.tables import DELETED, EVENT_ID, POSITION, STATE_TABLES

__all__ = ["Rows", "Said", "rows_of", "said_by"]

Rows = Mapping[str, pa.Table]
"""By the name of the table."""
Said = tuple[str, dict[str, Any], bool]
"""A table, the columns of a row, and whether it says that something is gone."""


def rows_of(events: Iterable[Event | UnknownEvent], *, domain: str) -> dict[str, pa.Table]:
    """The rows of some events of one domain; only tables that they say something about."""
    gathered: dict[str, list[dict[str, Any]]] = {}
    for event in events:
        if isinstance(event, UnknownEvent):
            table, said = f"{domain}_quarantine", _quarantined(event)
            gathered.setdefault(table, []).append(said)
            continue
        told = {POSITION: event.position, EVENT_ID: event.event_id}
        rows: dict[tuple[object, ...], tuple[str, dict[str, Any]]] = {}
        for table, columns, deleted in said_by(event.payload):
            key = (table, *(columns[name] for name in STATE_TABLES[table].key))
            rows[key] = table, {**columns, **told, DELETED: deleted}  # the last, if one event says it twice
        for table, row in rows.values():
            gathered.setdefault(table, []).append(row)
    return {
        name: pa.Table.from_pylist(many, schema=STATE_TABLES[name].schema) for name, many in sorted(gathered.items())
    }


def said_by(payload: Payload) -> Iterator[Said]:
    """What an event says: for each row the table, its columns, and whether it says that something is gone."""
    return _SAID_BY[type(payload)](payload)


def _quarantined(event: UnknownEvent) -> dict[str, Any]:
    return {
        "path": event.path,
        "reason": event.reason,
        "event_type": event.event_type,
        "event_version": event.event_version,
        "data": event.data,
        POSITION: event.position or 0,
        EVENT_ID: event.event_id,
        DELETED: False,
    }


# -- one function for each kind of thing -----------------------------------------------------------------------------


def _namespace(said: p.NamespaceCreated | p.NamespaceUpdated) -> Iterator[Said]:
    row = {"namespace": said.namespace, "description": said.description, "owner": said.owner}
    yield "namespaces", {**row, "properties": _json(said.properties)}, False


def _namespace_deleted(said: p.NamespaceDeleted) -> Iterator[Said]:
    yield "namespaces", {"namespace": said.namespace}, True


def _namespace_renamed(said: p.NamespaceRenamed) -> Iterator[Said]:
    row = {"namespace": said.new_namespace, "description": said.description, "owner": said.owner}
    yield "namespaces", {"namespace": said.namespace}, True
    yield "namespaces", {**row, "properties": _json(said.properties)}, False


def _table(said: p.TableRegistered | p.TableUpdated) -> Iterator[Said]:
    yield "tables", _table_row(said, said.namespace, said.table), False


def _table_dropped(said: p.TableDropped) -> Iterator[Said]:
    yield "tables", {"namespace": said.namespace, "table": said.table}, True


def _table_renamed(said: p.TableRenamed) -> Iterator[Said]:
    yield "tables", {"namespace": said.namespace, "table": said.table}, True
    yield "tables", _table_row(said, said.new_namespace, said.new_table), False


def _table_row(said: p.TableRegistered | p.TableUpdated | p.TableRenamed, namespace: str, table: str) -> dict[str, Any]:
    return {
        "namespace": namespace,
        "table": table,
        "kind": said.kind,
        "location": said.location,
        "description": said.description,
        "owner": said.owner,
        "tags": _json(said.tags),
        "properties": _json(said.properties),
        "columns": _columns(said.columns),
    }


def _published(said: p.DatasetPublished) -> Iterator[Said]:
    visible = {
        "dataset": said.dataset,
        "chain": said.chain,
        "manifest_id": said.manifest_id,
        "manifest_hash": said.manifest_hash,
        "ref": said.ref,
        "commit_ulid": said.commit_ulid,
    }
    yield "datasets", {**visible, "moved_at": said.published_at, "move": "published", "why": ""}, False
    details = {
        "kind": said.kind,
        "run_id": said.run_id,
        "published_at": said.published_at,
        "row_count": said.row_count,
        "byte_size": said.byte_size,
        "description": said.description,
        "tags": _json(said.tags),
        "inputs": [
            {"chain": pin.chain, "manifest_id": pin.manifest_id, "manifest_hash": pin.manifest_hash, "ref": pin.ref}
            for pin in said.inputs
        ],
        "columns": _columns(said.columns),
    }
    yield "snapshots", visible | details, False


def _rolled_back(said: p.DatasetRolledBack) -> Iterator[Said]:
    row = {
        "dataset": said.dataset,
        "chain": said.chain,
        "manifest_id": said.manifest_id,
        "manifest_hash": said.manifest_hash,
        "ref": said.ref,
        "commit_ulid": said.commit_ulid,
        "moved_at": said.rolled_back_at,
        "move": "rolled back",
        "why": said.why,
    }
    yield "datasets", row, False


def _edges(said: p.LineageEdgesAdded | p.LineageEdgesRemoved) -> Iterator[Said]:
    for edge in said.edges:
        row = {
            "source": edge.source,
            "target": edge.target,
            "source_column": edge.source_column or "",
            "target_column": edge.target_column or "",
            "source_snapshot": edge.source_snapshot or "",
            "target_snapshot": edge.target_snapshot or "",
            "kind": edge.kind,
            "run_id": said.run_id,
        }
        yield "edges", row, isinstance(said, p.LineageEdgesRemoved)


def _run_started(said: p.RunStarted) -> Iterator[Said]:
    row = {"run_id": said.run_id, "attempt": said.attempt, "started_at": said.started_at, "pipeline": said.pipeline}
    yield "run_starts", {**row, "trigger": said.trigger, "parameters": _json(said.parameters)}, False


def _run_ended(said: p.RunFinished | p.RunFailed) -> Iterator[Said]:
    outputs = list(said.outputs) if isinstance(said, p.RunFinished) else []
    yield "run_ends", {"run_id": said.run_id, "attempt": said.attempt, "outputs": outputs, **_ended(said)}, False


def _task_started(said: p.TaskStarted) -> Iterator[Said]:
    row = {"run_id": said.run_id, "task_id": said.task_id, "attempt": said.attempt, "started_at": said.started_at}
    yield "task_starts", row, False


def _task_ended(said: p.TaskFinished | p.TaskFailed) -> Iterator[Said]:
    row = {"run_id": said.run_id, "task_id": said.task_id, "attempt": said.attempt}
    yield "task_ends", {**row, **_ended(said)}, False


def _ended(said: p.RunFinished | p.RunFailed | p.TaskFinished | p.TaskFailed) -> dict[str, Any]:
    if isinstance(said, p.RunFinished | p.TaskFinished):
        return {"status": "finished", "ended_at": said.finished_at, "error": "", "counters": _json(said.counters)}
    return {"status": "failed", "ended_at": said.failed_at, "error": said.error, "counters": _json({})}


def _materialized(said: p.MaterializationCompleted) -> Iterator[Said]:
    names = ("run_id", "asset", "partition", "task_id", "completed_at", "snapshot", "row_count", "byte_size")
    yield "materializations", {name: getattr(said, name) for name in names}, False


def _pipeline(said: p.PipelineChanged) -> Iterator[Said]:
    row = {"pipeline": said.pipeline, "description": said.description, "owner": said.owner}
    yield "pipelines", {**row, "definition": _json(said.definition)}, False


def _pipeline_deleted(said: p.PipelineDeleted) -> Iterator[Said]:
    yield "pipelines", {"pipeline": said.pipeline}, True


def _schedule(said: p.ScheduleChanged) -> Iterator[Said]:
    names = ("pipeline", "schedule", "cron", "timezone", "enabled")
    yield "schedules", {name: getattr(said, name) for name in names}, False


def _schedule_deleted(said: p.ScheduleDeleted) -> Iterator[Said]:
    yield "schedules", {"pipeline": said.pipeline, "schedule": said.schedule}, True


def _pipeline_run(said: PipelineRunChanged) -> Iterator[Said]:
    names = ("run_id", "attempt", "pipeline", "state", "started_at", "changed_at", "runner", "fingerprint", "error")
    maps = {"parameters": _json(said.parameters), "pins": _json(said.pins)}
    yield "pipeline_runs", {**{name: getattr(said, name) for name in names}, **maps, "datasets": said.datasets}, False


def _pipeline_task(said: PipelineTaskChanged) -> Iterator[Said]:
    names = ("run_id", "task_id", "attempt", "state", "changed_at", "kind", "snapshot", "row_count", "byte_size")
    yield "pipeline_tasks", {**{name: getattr(said, name) for name in names}, "error": said.error}, False


def _columns(columns: Iterable[p.Column]) -> list[dict[str, Any]]:
    return [
        {
            "name": column.name,
            "type": column.type,
            "nullable": column.nullable,
            "description": column.description,
            "tags": _json(column.tags),
        }
        for column in columns
    ]


def _json(value: Mapping[str, object]) -> str:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()


_SAID_BY: Mapping[type[Payload], Callable[[Any], Iterator[Said]]] = {
    p.NamespaceCreated: _namespace,
    p.NamespaceUpdated: _namespace,
    p.NamespaceDeleted: _namespace_deleted,
    p.NamespaceRenamed: _namespace_renamed,
    p.TableRegistered: _table,
    p.TableUpdated: _table,
    p.TableDropped: _table_dropped,
    p.TableRenamed: _table_renamed,
    p.DatasetPublished: _published,
    p.DatasetRolledBack: _rolled_back,
    p.LineageEdgesAdded: _edges,
    p.LineageEdgesRemoved: _edges,
    p.RunStarted: _run_started,
    p.RunFinished: _run_ended,
    p.RunFailed: _run_ended,
    p.TaskStarted: _task_started,
    p.TaskFinished: _task_ended,
    p.TaskFailed: _task_ended,
    p.MaterializationCompleted: _materialized,
    p.PipelineChanged: _pipeline,
    p.PipelineDeleted: _pipeline_deleted,
    p.ScheduleChanged: _schedule,
    p.ScheduleDeleted: _schedule_deleted,
    PipelineRunChanged: _pipeline_run,
    PipelineTaskChanged: _pipeline_task,
}
