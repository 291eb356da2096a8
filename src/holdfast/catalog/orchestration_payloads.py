"""What runs of pipelines say while they go on (C32): whole states, so that the last one told is all there is to know.

The `executions` domain keeps what began and how it ended; here is what a runner needs to go on, and people to see where
it stands. A runner tells only of its own attempt, so one that is stale cannot change what the next one says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import ClassVar

from holdfast.catalog.payload import Payload

__all__ = ["PipelineRunChanged", "PipelineTaskChanged"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineRunChanged(Payload):
    """All that is known of one attempt of a run."""

    TYPE: ClassVar[str] = "pipeline_run.changed"
    DOMAIN: ClassVar[str] = "orchestration"
    run_id: str
    pipeline: str
    state: str
    started_at: datetime
    changed_at: datetime
    attempt: int = 1
    runner: str = ""
    fingerprint: str = ""
    """Of the pipeline's definition: a run goes on only with what it began with."""
    parameters: Mapping[str, str] = field(default_factory=dict)
    datasets: tuple[str, ...] = ()
    pins: Mapping[str, str] = field(default_factory=dict)
    """Sources that are data sets, and the snapshots of them that this run reads, whatever is published meanwhile."""
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineTaskChanged(Payload):
    """All that is known of one task of an attempt: a data set that is made."""

    TYPE: ClassVar[str] = "pipeline_task.changed"
    DOMAIN: ClassVar[str] = "orchestration"
    run_id: str
    task_id: str
    state: str
    changed_at: datetime
    attempt: int = 1
    kind: str = ""
    snapshot: str = ""
    row_count: int | None = None
    byte_size: int | None = None
    error: str = ""
