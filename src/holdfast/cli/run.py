"""`holdfast run`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import click

from holdfast.cli.catalog_call import CatalogCall, compactor_option
from holdfast.cli.graph_spark import quiet_start
from holdfast.cli.output import Column, Command, Line, Output, Part, Progress, Table, View
from holdfast.cli.pipeline_call import only_option, param_option, parameters_of, plan_json, plan_parts
from holdfast.cli.words import count, size_text, took_text
from holdfast.errors import BadInput

if TYPE_CHECKING:
    from holdfast.catalog.datasets import Notify
    from holdfast.catalog.remote_compactor import RemoteCompactor
    from holdfast.catalog.workspace import Workspace
    from holdfast.pipeline.file import PipelineFile
    from holdfast.pipeline.plan import Plan
    from holdfast.pipeline.report import RunReport, TaskReport
    from holdfast.pipeline.spec import Pipeline
    from holdfast.spark.stage import Stage

__all__ = ["command"]

_TASKS = (
    Column(title="data set", keep="middle", least=12),
    Column(title="kind"),
    Column(title="what"),
    Column(title="rows", right=True),
    Column(title="before", right=True),
    Column(title="pieces (new)", right=True),
    Column(title="bytes (new)", right=True),
    Column(title="took", right=True),
)


@click.command(name="run")
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--workspace",
    metavar="URL",
    help="Where it is published; else HOLDFAST_WORKSPACE, or `workspace` in the file or in holdfast.toml.",
)
@param_option
@only_option
@click.option("--dry-run", is_flag=True, help="Check everything and show the plan; publish and tell nothing.")
@click.option("--resume", metavar="RUN", help="Go on with a run that was interrupted, with its own parameters.")
@click.option("--run", "run_name", metavar="RUN", help="Name the run; the same name again does what is left of it.")
@click.option("--master", metavar="URL", help="The Spark to run on: local[4], spark://host:7077, yarn, k8s://…")
@click.option("--conf", "confs", multiple=True, metavar="KEY=VALUE", help="A setting of Spark for this run.")
@compactor_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")
def command(
    file: Path,
    workspace: str | None,
    params: tuple[str, ...],
    only: tuple[str, ...],
    dry_run: bool,
    resume: str | None,
    run_name: str | None,
    master: str | None,
    confs: tuple[str, ...],
    compactor: str | None,
    as_json: bool,
) -> None:
    """Run a pipeline: read its sources, ask its SQL on Spark, check and publish its data sets, tell the catalog.

    Everything is checked before anything is written. Each data set is published by itself, whole or not at all. A run
    that was interrupted goes on with --resume: what it has published is neither built nor published again.

    JSON: plan (tasks, warnings); and run, attempt, was_done, seconds, tasks (dataset, kind, state, ref, manifest_id,
    url, rows, rows_before, pieces, bytes, new_pieces, new_bytes, seconds). A dry run has only the plan.

    \b
    Examples:
      holdfast run pipeline.toml --dry-run
      holdfast run pipeline.toml --workspace ./lake/acme/prod --param day=2026-11-15
      holdfast run pipeline.toml --only users --master spark://master:7077
      holdfast run pipeline.toml --resume nightly-20261115-031500-a1b2c3
    """
    if resume is not None and run_name is not None:
        raise BadInput("--resume names the run already; leave --run out")
    if resume is not None and params:
        raise BadInput("a run goes on with the parameters that it began with; leave --param out")
    from holdfast.pipeline.file import inspect_pipeline
    from holdfast.pipeline.plan import plan as make_plan

    read = inspect_pipeline(file, parameters_of(params))
    call = CatalogCall(workspace or _workspace_of(read), as_json=as_json)
    if resume is not None:
        read = inspect_pipeline(file, _begun_with(call, resume))
    plan = make_plan(_pipeline_of(read), only=only)
    settings = {**plan.pipeline.spark, **_settings(confs)}
    if master is not None:
        settings["spark.master"] = master
    if dry_run:
        _dry_run(call, plan, settings, read)
        return
    from holdfast.pipeline.runner import run_pipeline

    remote = call.remote_compactor(compactor)
    watcher = _Watcher(call.output)
    if not as_json:
        call.output.show(View(data={}, parts=[*plan_parts(plan), Line("")]))
    with watcher:
        report = run_pipeline(
            plan,
            call.workspace,
            lambda: _stage(settings),
            run=resume or run_name,
            must_exist=resume is not None,
            notify=None if remote is None else _notify(remote, call.workspace),
            watcher=watcher,
            locate=read.locate,
        )
    call.output.show(_view(call, plan, report))


def _settings(confs: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for one in confs:
        name, mark, value = one.partition("=")
        if not mark or not name:
            raise BadInput(f"--conf {one!r}: write KEY=VALUE, as in --conf spark.sql.shuffle.partitions=8")
        found[name] = value
    return found


def _pipeline_of(read: PipelineFile) -> Pipeline:
    """BadPipeline with everything that is wrong with the file."""
    from holdfast.pipeline.plan_problem import raise_errors

    raise_errors(read.problems, what=str(read.path))
    assert read.pipeline is not None
    return read.pipeline


def _workspace_of(read: PipelineFile) -> str | None:
    """What the file says, unless the environment says it; a relative path begins where the file lies."""
    pipeline = _pipeline_of(read)
    place = pipeline.workspace
    if not place or os.environ.get("HOLDFAST_WORKSPACE"):
        return None
    return place if "://" in place else str(pipeline.folder / place)


def _notify(remote: RemoteCompactor, workspace: Workspace) -> Notify:
    """The service folds all but where runs stand: that pointer lies where its compactor may not write."""
    from holdfast.catalog.datasets import FoldHere

    here = FoldHere(workspace)
    return lambda domain, paths: here(domain, paths) if domain == "orchestration" else remote.notify(domain, paths)


def _begun_with(call: CatalogCall, run: str) -> Mapping[str, str]:
    from holdfast.errors import NotFound
    from holdfast.pipeline.journal import last_attempt

    last = last_attempt(call.workspace, run)
    if last is None:
        raise NotFound(f"there is no run {run!r}; list them: {call.again('runs')}")
    return last.parameters


def _stage(settings: Mapping[str, str]) -> Stage:
    try:
        from holdfast.spark.stage import Stage
    except ImportError as error:
        raise BadInput(f"running a pipeline needs PySpark ({error}): pip install 'holdfast[spark]'") from None
    with quiet_start():
        return Stage.local(settings)


def _dry_run(call: CatalogCall, plan: Plan, settings: Mapping[str, str], read: PipelineFile) -> None:
    from holdfast.pipeline.preparing import prepare, resolve_pins

    with _stage(settings) as stage:
        pins = resolve_pins(plan, call.workspace)
        prepared = prepare(plan, call.workspace, stage, pins, locate=read.locate)
    columns = {name: [f"{one.name} {one.type}" for one in found] for name, found in prepared.frames.items()}
    data = call.document("run", dry_run=True, plan=plan_json(plan), columns=columns)
    rows = [(name, ", ".join(found)) for name, found in columns.items()]
    parts: list[Part] = [
        *plan_parts(plan),
        Line(""),
        Table((Column(title="frame"), Column(title="columns", least=20)), rows),
        Line(""),
        Line("All of it is understood by Spark; nothing was published."),
    ]
    call.output.show(View(data=data, parts=parts))


class _Watcher:
    """Says what happens as it does: bars and lines on a terminal, nothing into a document."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._open = ExitStack()
        self._told: Progress | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def began(self, run: str, attempt: int) -> None:
        if attempt > 1:
            click.echo(f"going on with run {run}, attempt {attempt}", err=True)
        else:
            click.echo(f"run {run}", err=True)

    def waiting(self, reason: str) -> None:
        click.echo(f"waiting for a lock: {reason}", err=True)

    def task_began(self, dataset: str, kind: str) -> None:
        self._open.close()
        self._told = self._open.enter_context(self._output.progress(f"{dataset} ({kind})"))

    def progress(self, dataset: str, done: int, total: int) -> None:
        del dataset
        if self._told is not None:
            self._told(done, total)

    def task_ended(self, report: TaskReport) -> None:
        self._open.close()
        self._told = None
        click.echo(f"{report.dataset}: {report.state} {report.ref}", err=True)


def _view(call: CatalogCall, plan: Plan, report: RunReport) -> View:
    data = call.document(
        "run",
        plan=plan_json(plan),
        run=report.run,
        attempt=report.attempt,
        was_done=report.was_done,
        seconds=report.seconds,
        tasks=[_task_json(task) for task in report.tasks],
    )
    if report.was_done:
        parts: list[Part] = [Line(f"Run {report.run} had succeeded before; nothing was done.", style="bold")]
    else:
        number = sum(task.changed is not None for task in report.tasks)
        parts = [
            Line(
                f"Run {report.run} published {count(number, 'data set')} in {took_text(report.seconds)}.",
                style="bold",
            ),
            Table(_TASKS, [_cells(task) for task in report.tasks]),
        ]
    parts.append(Line(""))
    for task in report.tasks[:1]:
        parts += [
            Command("look at it", call.again("catalog show", task.dataset)),
            Command("its history", f"holdfast history {task.url}"),
            Command("take it back", f"holdfast rollback {task.url}"),
        ]
    parts.append(Command("runs", call.again("runs")))
    return View(data=data, parts=parts)


def _task_json(task: TaskReport) -> dict[str, Any]:
    changed = task.changed
    before = None if changed is None else changed.before
    return {
        "dataset": task.dataset,
        "kind": task.kind,
        "state": task.state,
        "ref": task.ref,
        "manifest_id": task.manifest_id,
        "url": task.url,
        "rows": None if changed is None else changed.after.rows,
        "rows_before": None if before is None else before.rows,
        "pieces": None if changed is None else changed.after.pieces,
        "bytes": None if changed is None else changed.after.bytes,
        "new_pieces": None if changed is None else changed.new_pieces,
        "new_bytes": None if changed is None else changed.new_bytes,
        "seconds": task.seconds,
    }


def _cells(task: TaskReport) -> tuple[str, ...]:
    changed = task.changed
    if changed is None:
        return (task.dataset, task.kind, task.state, "", "", "", "", "")
    return (
        task.dataset,
        task.kind,
        task.state,
        f"{changed.after.rows:,}",
        "" if changed.before is None else f"{changed.before.rows:,}",
        f"{changed.after.pieces:,} ({changed.new_pieces:,})",
        f"{size_text(changed.after.bytes)} ({size_text(changed.new_bytes)})",
        took_text(task.seconds),
    )
