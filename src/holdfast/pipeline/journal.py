"""The journal of a run: who works on it, what it began with, and how each of its tasks stands (C31, C32).

1. One runner at a time: it holds the run's lock. A runner whose lock was taken over learns it before it publishes
   anything, since it asks under the lock of the data set (`admit`).
2. What a run began with is an event, claimed by run and attempt: its parameters, and the snapshots that it reads. Who
   goes on with a run reads it back by its key, whether or not anybody has folded it yet.
3. Every attempt tells its own story. What a stale runner still says is about its own attempt.

What is told goes to two domains: to `orchestration`, where a run stands, and to `executions`, what came of it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime

from holdfast.catalog import Event, EventDraft, Payload, Workspace
from holdfast.catalog import payloads as p
from holdfast.catalog.datasets import Notify
from holdfast.catalog.layout import run_lock_key
from holdfast.catalog.orchestration_payloads import PipelineRunChanged, PipelineTaskChanged
from holdfast.errors import BadInput, Conflict, HoldfastError, LockHeld, NotFound
from holdfast.fencing import KeepAlive, LockGuard, acquire_lock
from holdfast.pipeline.patience import patiently

__all__ = ["FAILED", "RUNNING", "SUCCEEDED", "Beginning", "Journal", "last_attempt", "open_journal"]

RUNNING, SUCCEEDED, FAILED = "running", "succeeded", "failed"
LOCK_TTL_S = 60.0
ATTEMPTS_MAX = 1_000
ERROR_CHARACTERS_MAX = 2_000

_log = logging.getLogger("holdfast.pipeline")


@dataclass(frozen=True, slots=True, kw_only=True)
class Beginning:
    """What a run works on, from its first attempt to its last."""

    pipeline: str
    fingerprint: str
    parameters: Mapping[str, str]
    datasets: tuple[str, ...]
    pins: Mapping[str, str]


def last_attempt(workspace: Workspace, run: str) -> PipelineRunChanged | None:
    """How the newest attempt of a run stands; None where there was none. A read or two for each attempt."""
    run_lock_key(run)
    ledger = workspace.ledger("orchestration")
    found: PipelineRunChanged | None = None
    for attempt in range(1, ATTEMPTS_MAX):
        began = _said(ledger.told(_key(run, attempt, RUNNING)))
        if began is None:
            break
        ended = (_said(ledger.told(_key(run, attempt, state))) for state in (SUCCEEDED, FAILED))
        found = next((one for one in ended if one is not None), began)
    return found


@contextmanager
def open_journal(
    workspace: Workspace, run: str, notify: Notify, *, waiting: Callable[[LockHeld], None] | None = None
) -> Iterator[Journal]:
    """Hold the lock of a run. LockHeld while another runner works on it.

    With `waiting`, which is told, the lease of a runner that was killed is waited for.
    """

    def acquire() -> LockGuard:
        return acquire_lock(
            workspace.store,
            run_lock_key(run),
            holder=workspace.by,
            operation=f"run {run}",
            ttl_s=LOCK_TTL_S,
            clock=workspace.clock,
            randomness=workspace.randomness,
        )

    guard = acquire() if waiting is None else patiently(workspace.clock, acquire, waiting)
    with guard, KeepAlive(lambda: guard.extend(LOCK_TTL_S), every_s=LOCK_TTL_S / 3):
        yield Journal(workspace, run, guard, notify, last=last_attempt(workspace, run))


class Journal:
    """What one runner tells of a run whose lock it holds."""

    def __init__(
        self,
        workspace: Workspace,
        run: str,
        guard: LockGuard,
        notify: Notify,
        *,
        last: PipelineRunChanged | None,
    ) -> None:
        self.run = run
        self.last = last
        """How the attempt before this one stands; None for a new run."""
        self.attempt = 1 if last is None else last.attempt + 1
        self._workspace = workspace
        self._guard = guard
        self._notify = notify
        self._state: PipelineRunChanged | None = None

    @property
    def run_id(self) -> str:
        """What chains call this attempt: their run ids are used once."""
        return f"{self.run}+{self.attempt}"

    @property
    def began_at(self) -> datetime:
        assert self._state is not None
        return self._state.started_at

    def require_held(self) -> None:
        """LockLost if another runner has taken over. Asks the store."""
        self._guard.extend(LOCK_TTL_S)

    # -- the run -----------------------------------------------------------------------------------------------------

    def begin(self, wanted: Beginning) -> Beginning:
        """Tell that this attempt begins. What the first one began with is what all go on with.

        Conflict if the pipeline is another one now.
        """
        if self.last is not None:
            wanted = self._unchanged(wanted, self.last)
        now = self._workspace.clock.now()
        self._state = PipelineRunChanged(
            run_id=self.run,
            pipeline=wanted.pipeline,
            state=RUNNING,
            started_at=now if self.last is None else self.last.started_at,
            changed_at=now,
            attempt=self.attempt,
            runner=self._workspace.by,
            fingerprint=wanted.fingerprint,
            parameters=wanted.parameters,
            datasets=wanted.datasets,
            pins=wanted.pins,
        )
        started = p.RunStarted(
            run_id=self.run,
            started_at=now,
            pipeline=wanted.pipeline,
            attempt=self.attempt,
            parameters=wanted.parameters,
        )
        self._tell(self._state, key=_key(self.run, self.attempt, RUNNING))
        self._tell(started, key=f"{_key(self.run, self.attempt, RUNNING)}/result")
        return wanted

    def require_unchanged(self, pipeline: str, fingerprint: str) -> None:
        """Conflict if this run began with another pipeline, or with another definition of it."""
        last = self.last
        if last is not None and (last.pipeline, last.fingerprint) != (pipeline, fingerprint):
            raise Conflict(
                f"run {self.run!r} began with another definition of {last.pipeline!r}; start a new run, or restore it"
            )

    def _unchanged(self, wanted: Beginning, last: PipelineRunChanged) -> Beginning:
        self.require_unchanged(wanted.pipeline, wanted.fingerprint)
        given = {name: value for name, value in wanted.parameters.items() if last.parameters.get(name) != value}
        if given:
            name = min(given)
            raise BadInput(
                f"run {self.run!r} began with {name}={last.parameters.get(name, '')!r}, not {given[name]!r}; "
                "start a new run for other parameters"
            )
        return replace(wanted, datasets=last.datasets, pins=last.pins)

    def succeed(self, outputs: Sequence[str], counters: Mapping[str, int]) -> None:
        now = self._end(SUCCEEDED)
        self._tell(
            p.RunFinished(
                run_id=self.run,
                finished_at=now,
                attempt=self.attempt,
                outputs=tuple(outputs),
                counters=counters,
            ),
            key=f"{_key(self.run, self.attempt, SUCCEEDED)}/result",
        )

    def fail(self, error: str) -> None:
        now = self._end(FAILED, error)
        said = p.RunFailed(run_id=self.run, failed_at=now, attempt=self.attempt, error=_short(error))
        self._tell(said, key=f"{_key(self.run, self.attempt, FAILED)}/result")

    def _end(self, state: str, error: str = "") -> datetime:
        if self._state is None:
            raise NotFound(f"run {self.run!r} was not begun; begin it first")
        now = self._workspace.clock.now()
        self._state = replace(self._state, state=state, changed_at=now, error=_short(error))
        self._tell(self._state, key=_key(self.run, self.attempt, state))
        return now

    # -- tasks -------------------------------------------------------------------------------------------------------

    def task_began(self, task: str, kind: str) -> None:
        now = self._workspace.clock.now()
        self._tell_task(task, RUNNING, now, kind=kind)
        said = p.TaskStarted(run_id=self.run, task_id=task, started_at=now, attempt=self.attempt)
        self._tell(said, key=self._task_key(task, RUNNING, "result"))

    def task_succeeded(
        self, task: str, kind: str, *, snapshot: str, row_count: int, byte_size: int, counters: Mapping[str, int]
    ) -> None:
        now = self._workspace.clock.now()
        self._tell_task(task, SUCCEEDED, now, kind=kind, snapshot=snapshot, row_count=row_count, byte_size=byte_size)
        finished = p.TaskFinished(
            run_id=self.run, task_id=task, finished_at=now, attempt=self.attempt, counters=counters
        )
        made = p.MaterializationCompleted(
            run_id=self.run,
            asset=task,
            completed_at=now,
            task_id=task,
            snapshot=snapshot,
            row_count=row_count,
            byte_size=byte_size,
        )
        drafts = [
            EventDraft(payload=finished, idempotency_key=self._task_key(task, SUCCEEDED, "result")),
            EventDraft(payload=made, idempotency_key=self._task_key(task, SUCCEEDED, "made")),
        ]
        self.tell_many(drafts)

    def task_failed(self, task: str, kind: str, error: str) -> None:
        now = self._workspace.clock.now()
        self._tell_task(task, FAILED, now, kind=kind, error=_short(error))
        said = p.TaskFailed(run_id=self.run, task_id=task, failed_at=now, attempt=self.attempt, error=_short(error))
        self._tell(said, key=self._task_key(task, FAILED, "result"))

    def _tell_task(self, task: str, state: str, now: datetime, **said: object) -> None:
        payload = PipelineTaskChanged(
            run_id=self.run,
            task_id=task,
            state=state,
            changed_at=now,
            attempt=self.attempt,
            **said,  # type: ignore[arg-type]
        )
        self._tell(payload, key=self._task_key(task, state))

    def _task_key(self, task: str, state: str, *more: str) -> str:
        return "/".join([_key(self.run, self.attempt, state), task, *more])

    # -- telling -----------------------------------------------------------------------------------------------------

    def tell_many(self, drafts: Sequence[EventDraft]) -> None:
        """Append events of one domain, and have them folded."""
        if drafts:
            domain = drafts[0].payload.DOMAIN
            receipts = self._workspace.ledger(domain).append_many(drafts)
            try:
                self._notify(domain, [receipt.path for receipt in receipts])
            except (HoldfastError, OSError) as error:  # it is told; whoever looks for missed events will fold it
                _log.warning("what was told to %s could not be folded yet: %s", domain, error)

    def _tell(self, payload: Payload, *, key: str) -> None:
        self.tell_many([EventDraft(payload=payload, idempotency_key=key)])


def _key(run: str, attempt: int, state: str) -> str:
    return f"pipeline-run/{run}/{attempt}/{state}"


def _said(event: object) -> PipelineRunChanged | None:
    if event is None:
        return None
    if isinstance(event, Event) and isinstance(event.payload, PipelineRunChanged):
        return event.payload
    raise Conflict("this run was begun by a newer release, which says it in words that this one does not know")


def _short(error: str) -> str:
    return error if len(error) <= ERROR_CHARACTERS_MAX else f"{error[: ERROR_CHARACTERS_MAX - 1]}…"
