"""The tables that a domain's state is made of (C2, C19).

Every row is the newest thing that was said about its key, and remembers where: the position and the id of the event.
What was deleted stays as a row that says so, or a late replay would bring it back. So a table only ever grows newer,
whatever order events come in.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import pyarrow as pa

from holdfast.errors import BadInput

__all__ = ["DELETED", "EVENT_ID", "POSITION", "STATE_TABLES", "TableSpec", "domain_tables", "state_table"]

POSITION, EVENT_ID, DELETED = "position", "event_id", "deleted"

_TEXT = pa.string()
_NUMBER = pa.int64()
_TIME = pa.timestamp("us", "UTC")
_JSON = pa.string()
"""Mappings are kept as JSON: their names are the user's."""
_COLUMNS = pa.list_(
    pa.struct([("name", _TEXT), ("type", _TEXT), ("nullable", pa.bool_()), ("description", _TEXT), ("tags", _JSON)])
)
_PINS = pa.list_(pa.struct([("chain", _TEXT), ("manifest_id", _NUMBER), ("manifest_hash", _TEXT), ("ref", _TEXT)]))


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSpec:
    """One table of a domain."""

    name: str
    domain: str
    key: tuple[str, ...]
    """What tells one row from another: texts and numbers that are never null."""
    columns: tuple[tuple[str, pa.DataType], ...]
    """All columns of the table, the key first; then come those that every table has."""

    @property
    def schema(self) -> pa.Schema:
        return _schema(self)


@cache
def _schema(spec: TableSpec) -> pa.Schema:
    return pa.schema(
        [
            *(pa.field(name, kind, nullable=name not in spec.key) for name, kind in spec.columns),
            pa.field(POSITION, _NUMBER, nullable=False),
            pa.field(EVENT_ID, _TEXT, nullable=False),
            pa.field(DELETED, pa.bool_(), nullable=False),
        ]
    )


def _spec(domain: str, name: str, key: dict[str, pa.DataType], values: dict[str, pa.DataType]) -> TableSpec:
    return TableSpec(name=name, domain=domain, key=tuple(key), columns=(*key.items(), *values.items()))


_DESCRIBED = {"description": _TEXT, "owner": _TEXT}
_ENDED = {"status": _TEXT, "ended_at": _TIME, "error": _TEXT, "counters": _JSON}

STATE_TABLES = {
    spec.name: spec
    for spec in (
        _spec("catalog", "namespaces", {"namespace": _TEXT}, {**_DESCRIBED, "properties": _JSON}),
        _spec(
            "catalog",
            "tables",
            {"namespace": _TEXT, "table": _TEXT},
            {"kind": _TEXT, "location": _TEXT, **_DESCRIBED, "tags": _JSON, "properties": _JSON, "columns": _COLUMNS},
        ),
        _spec(
            "catalog",
            "datasets",
            {"dataset": _TEXT},
            {"chain": _TEXT, "manifest_id": _NUMBER, "manifest_hash": _TEXT, "ref": _TEXT, "commit_ulid": _TEXT,
             "moved_at": _TIME, "move": _TEXT, "why": _TEXT},
        ),
        _spec(
            "catalog",
            "snapshots",
            {"dataset": _TEXT, "manifest_id": _NUMBER},
            {"kind": _TEXT, "chain": _TEXT, "manifest_hash": _TEXT, "ref": _TEXT, "commit_ulid": _TEXT,
             "run_id": _TEXT, "published_at": _TIME, "row_count": _NUMBER, "byte_size": _NUMBER,
             "description": _TEXT, "tags": _JSON, "inputs": _PINS, "columns": _COLUMNS},
        ),
        _spec(
            "lineage",
            "edges",
            {"source": _TEXT, "target": _TEXT, "source_column": _TEXT, "target_column": _TEXT,
             "source_snapshot": _TEXT, "target_snapshot": _TEXT},
            {"kind": _TEXT, "run_id": _TEXT},
        ),
        _spec(
            "executions",
            "run_starts",
            {"run_id": _TEXT, "attempt": _NUMBER},
            {"started_at": _TIME, "pipeline": _TEXT, "trigger": _TEXT, "parameters": _JSON},
        ),
        _spec(
            "executions", "run_ends", {"run_id": _TEXT, "attempt": _NUMBER}, {**_ENDED, "outputs": pa.list_(_TEXT)}
        ),
        _spec(
            "executions",
            "task_starts",
            {"run_id": _TEXT, "task_id": _TEXT, "attempt": _NUMBER},
            {"started_at": _TIME},
        ),
        _spec("executions", "task_ends", {"run_id": _TEXT, "task_id": _TEXT, "attempt": _NUMBER}, _ENDED),
        _spec(
            "executions",
            "materializations",
            {"run_id": _TEXT, "asset": _TEXT, "partition": _TEXT},
            {"task_id": _TEXT, "completed_at": _TIME, "snapshot": _TEXT, "row_count": _NUMBER, "byte_size": _NUMBER},
        ),
        _spec("orchestration", "pipelines", {"pipeline": _TEXT}, {**_DESCRIBED, "definition": _JSON}),
        _spec(
            "orchestration",
            "schedules",
            {"pipeline": _TEXT, "schedule": _TEXT},
            {"cron": _TEXT, "timezone": _TEXT, "enabled": pa.bool_()},
        ),
        _spec(
            "orchestration",
            "pipeline_runs",
            {"run_id": _TEXT, "attempt": _NUMBER},
            {"pipeline": _TEXT, "state": _TEXT, "started_at": _TIME, "changed_at": _TIME, "runner": _TEXT,
             "fingerprint": _TEXT, "parameters": _JSON, "datasets": pa.list_(_TEXT), "pins": _JSON, "error": _TEXT},
        ),
        _spec(
            "orchestration",
            "pipeline_tasks",
            {"run_id": _TEXT, "task_id": _TEXT, "attempt": _NUMBER},
            {"state": _TEXT, "changed_at": _TIME, "kind": _TEXT, "snapshot": _TEXT, "row_count": _NUMBER,
             "byte_size": _NUMBER, "error": _TEXT},
        ),
        *(
            _spec(
                domain,
                f"{domain}_quarantine",
                {"path": _TEXT},
                {"reason": _TEXT, "event_type": _TEXT, "event_version": _NUMBER, "data": pa.binary()},
            )
            for domain in ("catalog", "lineage", "executions", "orchestration")
        ),
    )
}  # fmt: skip


def domain_tables(domain: str) -> tuple[TableSpec, ...]:
    """The tables of a domain, in order."""
    return tuple(spec for spec in STATE_TABLES.values() if spec.domain == domain)


def state_table(name: str) -> TableSpec:
    if name not in STATE_TABLES:
        raise BadInput(f"{name!r} is no table of a domain's state; use one of {', '.join(STATE_TABLES)}")
    return STATE_TABLES[name]
