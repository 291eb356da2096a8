"""What a run tells while it goes on, and what it says in the end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from holdfast.pipeline.changed import Changed

__all__ = ["KEPT", "PUBLISHED", "Quiet", "RunReport", "TaskReport", "Watcher"]

PUBLISHED, KEPT = "published", "kept"
"""What became of a data set: a new snapshot is visible; or this run had published it before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskReport:
    """One data set."""

    dataset: str
    kind: str
    state: str
    ref: str
    manifest_id: int
    url: str
    changed: Changed | None
    """None for one that was kept."""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """A run that has succeeded."""

    run: str
    attempt: int
    pipeline: str
    tasks: tuple[TaskReport, ...]
    seconds: float
    was_done: bool = False
    """It had succeeded before, so nothing was done."""


class Watcher(Protocol):
    """Is told as things happen, from the thread that runs or from another."""

    def began(self, run: str, attempt: int) -> None: ...

    def waiting(self, reason: str) -> None: ...

    def task_began(self, dataset: str, kind: str) -> None: ...

    def progress(self, dataset: str, done: int, total: int) -> None: ...

    def task_ended(self, report: TaskReport) -> None: ...


class Quiet:
    """For whoever does not want to be told."""

    def began(self, run: str, attempt: int) -> None: ...

    def waiting(self, reason: str) -> None: ...

    def task_began(self, dataset: str, kind: str) -> None: ...

    def progress(self, dataset: str, done: int, total: int) -> None: ...

    def task_ended(self, report: TaskReport) -> None: ...
