"""Running a pipeline: read, ask, check, publish, tell; and going on with a run that was interrupted (C30, C31, C32).

1. The run's lock is taken. A run that has succeeded is done; one that was begun goes on with what it began with.
2. Sources are opened and every statement is understood by Spark, before anything is written or told.
3. Each data set is checked and published. Under the lock of the data set, and before anything of it is written, two
   things are asked: whether this runner still has the run, and whether the run has published this data set before.
   Since the lock of the data set keeps others out until the commit, which itself is refused once that lock is lost, a
   run publishes a data set once, whoever was killed, paused or started twice.
4. What was made is told to the catalog: tables, lineage, tasks, runs. The search index follows.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from holdfast.catalog import Workspace
from holdfast.catalog.datasets import FoldHere, Notify, open_dataset
from holdfast.catalog.openlineage import run_events
from holdfast.catalog.openlineage_emit import emitter_from_environment
from holdfast.catalog.payloads import Column
from holdfast.catalog.search import refresh_search
from holdfast.chain import Chain, InputPin, Manifest, Move
from holdfast.chain.history import load_move_target
from holdfast.errors import HoldfastError, NotFound
from holdfast.pipeline.changed import changed_between
from holdfast.pipeline.checks import frames_read_twice, require_checks
from holdfast.pipeline.file_build import argument_text
from holdfast.pipeline.journal import SUCCEEDED, Beginning, Journal, last_attempt, open_journal
from holdfast.pipeline.making import Making, make
from holdfast.pipeline.patience import patiently
from holdfast.pipeline.plan import Plan, kind_of
from holdfast.pipeline.plan import plan as make_plan
from holdfast.pipeline.plan_problem import Problem
from holdfast.pipeline.preparing import Prepared, prepare, resolve_pins
from holdfast.pipeline.published import published_by
from holdfast.pipeline.report import KEPT, PUBLISHED, Quiet, RunReport, TaskReport, Watcher
from holdfast.pipeline.spec import DataSet, GraphDataset
from holdfast.pipeline.told_catalog import lineage_drafts, table_drafts

if TYPE_CHECKING:
    from holdfast.spark.stage import Stage

__all__ = ["new_run", "run_pipeline"]

_log = logging.getLogger("holdfast.pipeline")


def new_run(plan: Plan, workspace: Workspace) -> str:
    """A name for a run that has none."""
    return f"{plan.pipeline.name}-{workspace.clock.now():%Y%m%d-%H%M%S}-{workspace.randomness.bits(24):06x}"


def run_pipeline(
    plan: Plan,
    workspace: Workspace,
    open_stage: Callable[[], Stage],
    *,
    run: str | None = None,
    must_exist: bool = False,
    notify: Notify | None = None,
    watcher: Watcher | None = None,
    locate: Callable[[Problem], Problem] = lambda problem: problem,
) -> RunReport:
    """Run a plan, or go on with a run of it. `open_stage` starts Spark, and is called once there is something to do.

    The same `run` again does what is left of it, if anything: of those data sets that it began with, whatever the plan
    is of now. With `must_exist` it must have been begun before.
    `locate` puts a file and a line to what Spark finds wrong, where the pipeline is of a file.
    """
    name = run or new_run(plan, workspace)
    if must_exist and last_attempt(workspace, name) is None:
        raise NotFound(f"there is no run {name!r} in {workspace.url}; `holdfast runs` lists them")
    folding = notify or FoldHere(workspace)
    told = watcher or Quiet()
    with open_journal(workspace, name, folding, waiting=lambda held: told.waiting(str(held))) as journal:
        if journal.last is not None:
            journal.require_unchanged(plan.pipeline.name, plan.fingerprint)
            plan = make_plan(plan.pipeline, only=journal.last.datasets)
        runner = _Runner(plan, workspace, journal, folding, told, locate)
        if journal.last is not None and journal.last.state == SUCCEEDED:
            return runner.was_done()
        try:
            return runner.run(open_stage)
        finally:
            if notify is None and runner.has_begun:  # whoever folds elsewhere does this there
                _follow(workspace, name)


def _follow(workspace: Workspace, run: str) -> None:
    """What follows a run, whatever became of it: the search index, and whoever listens to OpenLineage."""
    try:
        refresh_search(workspace)
    except HoldfastError as error:
        _log.warning("the search index could not be refreshed: %s; run `holdfast catalog search` later", error)
    with emitter_from_environment() as emitter:
        emitter.emit(lambda: run_events(workspace, run_id=run))


class _AlreadyPublished(Exception):
    """Raised under the lock of a data set that this run has published before."""

    def __init__(self, move: Move) -> None:
        super().__init__(move.commit_ulid)
        self.move = move


@dataclass
class _Runner:
    plan: Plan
    workspace: Workspace
    journal: Journal
    notify: Notify
    watcher: Watcher
    locate: Callable[[Problem], Problem]
    has_begun: bool = False

    def run(self, open_stage: Callable[[], Stage]) -> RunReport:
        began = self.workspace.clock.now()
        last = self.journal.last
        pins = resolve_pins(self.plan, self.workspace) if last is None else dict(last.pins)
        with open_stage() as stage:
            prepared = prepare(self.plan, self.workspace, stage, pins, locate=self.locate)
            self.journal.begin(self._beginning(pins))
            self.has_begun = True
            self.watcher.began(self.journal.run, self.journal.attempt)
            for frame in frames_read_twice(self.plan.datasets):
                stage.cache(frame)
            try:
                tasks = tuple(self._task(dataset, stage, prepared) for dataset in self.plan.datasets)
            except BaseException as error:
                self._failed(error)
                raise
        rows = sum(task.changed.after.rows for task in tasks if task.changed is not None)
        self.journal.succeed([task.dataset for task in tasks], {"datasets": len(tasks), "rows": rows})
        seconds = (self.workspace.clock.now() - began).total_seconds()
        return self._report(tasks, seconds)

    def was_done(self) -> RunReport:
        last = self.journal.last
        assert last is not None
        tasks = []
        for dataset in self.plan.datasets:
            chain = self.workspace.dataset(dataset.name, kind_of(dataset))
            move = published_by(chain, self.journal.run, since=last.started_at)
            if move is not None:
                tasks.append(_kept(dataset, chain, move))
        return replace(self._report(tuple(tasks), 0.0), attempt=last.attempt, was_done=True)

    def _report(self, tasks: tuple[TaskReport, ...], seconds: float) -> RunReport:
        return RunReport(
            run=self.journal.run,
            attempt=self.journal.attempt,
            pipeline=self.plan.pipeline.name,
            tasks=tasks,
            seconds=seconds,
        )

    def _beginning(self, pins: Mapping[str, str]) -> Beginning:
        pipeline = self.plan.pipeline
        return Beginning(
            pipeline=pipeline.name,
            fingerprint=self.plan.fingerprint,
            parameters={name: argument_text(value) for name, value in pipeline.parameters.items()},
            datasets=tuple(dataset.name for dataset in self.plan.datasets),
            pins=pins,
        )

    def _failed(self, error: BaseException) -> None:
        """Tell it, if it can be told: the error that is on its way up matters more."""
        said = str(error) if isinstance(error, HoldfastError) else f"{type(error).__name__}: {error}".rstrip(": ")
        try:
            self.journal.fail(said)
        except (HoldfastError, OSError) as also:
            _log.warning("that the run failed could not be told: %s", also)

    # -- one data set ------------------------------------------------------------------------------------------------

    def _task(self, dataset: DataSet, stage: Stage, prepared: Prepared) -> TaskReport:
        kind = kind_of(dataset)
        began = self.workspace.clock.now()
        chain = open_dataset(self.workspace, dataset.name, kind, notify=self.notify)
        done = published_by(chain, self.journal.run, since=self.journal.began_at)
        if done is not None:
            return self._keep(dataset, chain, done, prepared)
        self.watcher.task_began(dataset.name, kind)
        self.journal.task_began(dataset.name, kind)
        try:
            before = chain.load_current()
            require_checks(stage, dataset, before)
            making = Making(
                run_id=self.journal.run_id,
                inputs=self._inputs(dataset, prepared),
                why=f"run {self.journal.run} of {self.plan.pipeline.name}",
                tags=dataset.tags,
                admit=lambda: self._admit(chain),
                progress=lambda done, total: self.watcher.progress(dataset.name, done, total),
            )
            patiently(
                self.workspace.clock,
                lambda: make(stage, dataset, chain, making),
                lambda held: self.watcher.waiting(str(held)),
            )
        except _AlreadyPublished as found:
            return self._keep(dataset, chain, found.move, prepared)
        except (HoldfastError, OSError) as error:
            self.journal.task_failed(dataset.name, kind, str(error))
            raise
        move = published_by(chain, self.journal.run, since=self.journal.began_at)
        assert move is not None
        manifest = load_move_target(chain.handle, move)
        report = TaskReport(
            dataset=dataset.name,
            kind=kind,
            state=PUBLISHED,
            ref=chain.layout.ref_of(move.manifest_path),
            manifest_id=move.target_id,
            url=chain.store.url,
            changed=changed_between(before, manifest),
            seconds=(self.workspace.clock.now() - began).total_seconds(),
        )
        self._tell(dataset, chain, move, manifest, prepared)
        self.watcher.task_ended(report)
        return report

    def _admit(self, chain: Chain) -> None:
        """Asked under the data set's lock: see the head of this module."""
        self.journal.require_held()
        done = published_by(chain, self.journal.run, since=self.journal.began_at)
        if done is not None:
            raise _AlreadyPublished(done)

    def _keep(self, dataset: DataSet, chain: Chain, move: Move, prepared: Prepared) -> TaskReport:
        """What an earlier attempt published, and may have died before it could tell."""
        manifest = load_move_target(chain.handle, move)
        self._tell(dataset, chain, move, manifest, prepared)
        report = _kept(dataset, chain, move)
        self.watcher.task_ended(report)
        return report

    def _inputs(self, dataset: DataSet, prepared: Prepared) -> Sequence[InputPin]:
        return [pin for name, pin in prepared.pins.items() if name in self.plan.needs[dataset.name]]

    def _tell(
        self,
        dataset: DataSet,
        chain: Chain,
        move: Move,
        manifest: Manifest,
        prepared: Prepared,
    ) -> None:
        changed = changed_between(None, manifest)
        key = f"pipeline-run/{self.journal.run}/{dataset.name}"
        needed = self.plan.needs[dataset.name]
        steps = {step.name: step.sql for step in self.plan.steps if step.name in needed}
        frames = (dataset.nodes, dataset.edges) if isinstance(dataset, GraphDataset) else (dataset.rows,)
        columns: list[Column] = []
        for frame in frames:
            known = {column.name for column in columns}
            columns += [column for column in prepared.columns(frame) if column.name not in known]
        self.journal.tell_many(
            table_drafts(
                self.workspace,
                self.plan.pipeline,
                dataset,
                kind=kind_of(dataset),
                location=chain.store.url,
                columns=columns,
                key=key,
            )
        )
        edges = [
            draft
            for frame in dict.fromkeys(frames)
            for draft in lineage_drafts(
                frame,
                dataset.name,
                steps=steps,
                sources={name: source for name, source in prepared.named.items() if name in needed},
                snapshot=str(move.target_id),
                run=self.journal.run,
                key=key,
            )
        ]
        self.journal.tell_many(edges)
        self.journal.task_succeeded(
            dataset.name,
            kind_of(dataset),
            snapshot=chain.layout.ref_of(move.manifest_path),
            row_count=changed.after.rows,
            byte_size=changed.after.bytes,
            counters={"rows": changed.after.rows, "pieces": changed.after.pieces},
        )


def _kept(dataset: DataSet, chain: Chain, move: Move) -> TaskReport:
    return TaskReport(
        dataset=dataset.name,
        kind=kind_of(dataset),
        state=KEPT,
        ref=chain.layout.ref_of(move.manifest_path),
        manifest_id=move.target_id,
        url=chain.store.url,
        changed=None,
    )
