"""Every type of event and what it says (C16).

An event about a thing that lives on (a namespace, a table, a pipeline, a schedule) says all that is known of it, never
only what changed: whoever folds events keeps the one with the highest position, whatever order they came in (C19).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import ClassVar

from holdfast.catalog.orchestration_payloads import PipelineRunChanged, PipelineTaskChanged
from holdfast.catalog.payload import Payload, Record
from holdfast.errors import BadInput

__all__ = [
    "PAYLOAD_TYPES",
    "Column",
    "DatasetPublished",
    "DatasetRolledBack",
    "Edge",
    "LineageEdgesAdded",
    "LineageEdgesRemoved",
    "MaterializationCompleted",
    "NamespaceCreated",
    "NamespaceDeleted",
    "NamespaceRenamed",
    "NamespaceUpdated",
    "PipelineChanged",
    "PipelineDeleted",
    "RunFailed",
    "RunFinished",
    "RunStarted",
    "ScheduleChanged",
    "ScheduleDeleted",
    "SnapshotPin",
    "TableDropped",
    "TableRegistered",
    "TableRenamed",
    "TableUpdated",
    "TaskFailed",
    "TaskFinished",
    "TaskStarted",
]


# -- what payloads are made of ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Column(Record):
    """One column of a table. Its place in the list is its place in the table."""

    name: str
    type: str
    nullable: bool = True
    description: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge(Record):
    """`target` was made from `source`; by column where that is known, at a snapshot where that is known (C28)."""

    source: str
    target: str
    source_column: str | None = None
    target_column: str | None = None
    source_snapshot: str | None = None
    target_snapshot: str | None = None
    kind: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotPin(Record):
    """The exact snapshot of another chain that a data set was built from, as its manifest says it."""

    chain: str
    manifest_id: int
    manifest_hash: str
    ref: str


# -- namespaces and tables -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _NamespaceDescribed(Payload):
    """All that is known of a namespace."""

    DOMAIN: ClassVar[str] = "catalog"
    namespace: str
    description: str = ""
    owner: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceCreated(_NamespaceDescribed):
    TYPE: ClassVar[str] = "namespace.created"


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceUpdated(_NamespaceDescribed):
    TYPE: ClassVar[str] = "namespace.updated"


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceDeleted(Payload):
    TYPE: ClassVar[str] = "namespace.deleted"
    DOMAIN: ClassVar[str] = "catalog"
    namespace: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceRenamed(_NamespaceDescribed):
    """All that is known of a namespace, and its next name. Its tables are renamed by events of their own."""

    TYPE: ClassVar[str] = "namespace.renamed"
    new_namespace: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _TableDescribed(Payload):
    """All that is known of a table, its columns included."""

    DOMAIN: ClassVar[str] = "catalog"
    namespace: str
    table: str
    columns: tuple[Column, ...] = ()
    kind: str = "table"
    location: str = ""
    description: str = ""
    owner: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        Record.__post_init__(self)
        require_distinct(self.columns, self.TYPE)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRegistered(_TableDescribed):
    TYPE: ClassVar[str] = "table.registered"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableUpdated(_TableDescribed):
    TYPE: ClassVar[str] = "table.updated"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDropped(Payload):
    TYPE: ClassVar[str] = "table.dropped"
    DOMAIN: ClassVar[str] = "catalog"
    namespace: str
    table: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRenamed(_TableDescribed):
    """All that is known of a table, and its next name: whoever folds this need not have seen what came before."""

    TYPE: ClassVar[str] = "table.renamed"
    new_namespace: str
    new_table: str


# -- data sets -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetPublished(Payload):
    """A snapshot of a data set became visible: which, by which run, and from what it was built."""

    TYPE: ClassVar[str] = "dataset.published"
    DOMAIN: ClassVar[str] = "catalog"
    dataset: str
    kind: str
    chain: str
    manifest_id: int
    manifest_hash: str
    ref: str
    commit_ulid: str
    run_id: str
    published_at: datetime
    row_count: int = 0
    byte_size: int = 0
    inputs: tuple[SnapshotPin, ...] = ()
    columns: tuple[Column, ...] = ()
    description: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        Record.__post_init__(self)
        require_distinct(self.columns, self.TYPE)


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetRolledBack(Payload):
    """A data set's pointer left one snapshot for an older one, or went forward again."""

    TYPE: ClassVar[str] = "dataset.rolled_back"
    DOMAIN: ClassVar[str] = "catalog"
    dataset: str
    chain: str
    left_manifest_id: int
    manifest_id: int
    manifest_hash: str
    ref: str
    commit_ulid: str
    rolled_back_at: datetime
    by: str = ""
    why: str = ""


# -- lineage ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _LineageEdges(Payload):
    DOMAIN: ClassVar[str] = "lineage"
    edges: tuple[Edge, ...]
    run_id: str = ""

    def __post_init__(self) -> None:
        Record.__post_init__(self)
        if not self.edges:
            raise BadInput(f"{self.TYPE} event: field 'edges' is empty; name at least one")


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageEdgesAdded(_LineageEdges):
    TYPE: ClassVar[str] = "lineage.edges_added"


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageEdgesRemoved(_LineageEdges):
    TYPE: ClassVar[str] = "lineage.edges_removed"


# -- executions ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted(Payload):
    TYPE: ClassVar[str] = "run.started"
    DOMAIN: ClassVar[str] = "executions"
    run_id: str
    started_at: datetime
    pipeline: str = ""
    trigger: str = ""
    attempt: int = 1
    parameters: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFinished(Payload):
    TYPE: ClassVar[str] = "run.finished"
    DOMAIN: ClassVar[str] = "executions"
    run_id: str
    finished_at: datetime
    attempt: int = 1
    outputs: tuple[str, ...] = ()
    counters: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFailed(Payload):
    TYPE: ClassVar[str] = "run.failed"
    DOMAIN: ClassVar[str] = "executions"
    run_id: str
    failed_at: datetime
    attempt: int = 1
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskStarted(Payload):
    TYPE: ClassVar[str] = "task.started"
    DOMAIN: ClassVar[str] = "executions"
    run_id: str
    task_id: str
    started_at: datetime
    attempt: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFinished(Payload):
    TYPE: ClassVar[str] = "task.finished"
    DOMAIN: ClassVar[str] = "executions"
    run_id: str
    task_id: str
    finished_at: datetime
    attempt: int = 1
    counters: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFailed(Payload):
    TYPE: ClassVar[str] = "task.failed"
    DOMAIN: ClassVar[str] = "executions"
    run_id: str
    task_id: str
    failed_at: datetime
    attempt: int = 1
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MaterializationCompleted(Payload):
    """A run has made a table, a data set, or a partition of one."""

    TYPE: ClassVar[str] = "materialization.completed"
    DOMAIN: ClassVar[str] = "executions"
    run_id: str
    asset: str
    completed_at: datetime
    task_id: str = ""
    partition: str = ""
    snapshot: str = ""
    row_count: int | None = None
    byte_size: int | None = None


# -- orchestration ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineChanged(Payload):
    """All that is known of a pipeline. `definition` is its file, as JSON."""

    TYPE: ClassVar[str] = "pipeline.changed"
    DOMAIN: ClassVar[str] = "orchestration"
    pipeline: str
    definition: Mapping[str, object] = field(default_factory=dict)
    description: str = ""
    owner: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineDeleted(Payload):
    TYPE: ClassVar[str] = "pipeline.deleted"
    DOMAIN: ClassVar[str] = "orchestration"
    pipeline: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleChanged(Payload):
    """All that is known of a schedule."""

    TYPE: ClassVar[str] = "schedule.changed"
    DOMAIN: ClassVar[str] = "orchestration"
    pipeline: str
    schedule: str
    cron: str
    timezone: str = "UTC"
    enabled: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleDeleted(Payload):
    TYPE: ClassVar[str] = "schedule.deleted"
    DOMAIN: ClassVar[str] = "orchestration"
    pipeline: str
    schedule: str


PAYLOAD_TYPES: Mapping[tuple[str, int], type[Payload]] = {
    (kind.TYPE, kind.VERSION): kind
    for kind in (
        NamespaceCreated,
        NamespaceUpdated,
        NamespaceDeleted,
        NamespaceRenamed,
        TableRegistered,
        TableUpdated,
        TableDropped,
        TableRenamed,
        DatasetPublished,
        DatasetRolledBack,
        LineageEdgesAdded,
        LineageEdgesRemoved,
        RunStarted,
        RunFinished,
        RunFailed,
        TaskStarted,
        TaskFinished,
        TaskFailed,
        MaterializationCompleted,
        PipelineChanged,
        PipelineDeleted,
        ScheduleChanged,
        ScheduleDeleted,
        PipelineRunChanged,
        PipelineTaskChanged,
    )
}
"""(type, version) → what such an event says. Whatever is not here is an unknown event to this release."""


def require_distinct(columns: tuple[Column, ...], event_type: str) -> None:
    """A table has a column once."""
    names = [column.name for column in columns]
    doubled = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
    if doubled:
        raise BadInput(f"{event_type} event: column {doubled[0]!r} is named twice")
