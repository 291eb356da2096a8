"""`holdfast runs`."""

from __future__ import annotations

from typing import Any

import click

from holdfast.cli.catalog_call import CatalogCall, at_option, moment_or_none, workspace_and_rest
from holdfast.cli.catalog_find import rows_where
from holdfast.cli.graph_call import limit_option, shown_count
from holdfast.cli.graph_shapes import text
from holdfast.cli.output import Column, Command, Facts, Line, Part, Table, View
from holdfast.cli.values import json_value
from holdfast.cli.words import time_text, took_text
from holdfast.errors import NotFound

__all__ = ["command"]

_RUNS = (
    Column(title="run", keep="end", least=16),
    Column(title="pipeline", keep="middle", least=8),
    Column(title="state"),
    Column(title="attempt", right=True),
    Column(title="started (UTC)"),
    Column(title="took", right=True),
    Column(title="error", least=8),
)
_TASKS = (
    Column(title="data set", keep="middle", least=12),
    Column(title="kind"),
    Column(title="state"),
    Column(title="attempt", right=True),
    Column(title="rows", right=True),
    Column(title="snapshot", keep="end", least=12),
    Column(title="error", least=8),
)


@click.command(name="runs")
@click.argument("words", nargs=-1, metavar="[WORKSPACE] [RUN]")
@limit_option
@at_option
def command(words: tuple[str, ...], limit: int | None, at: str | None, as_json: bool) -> None:
    """List the runs of pipelines, the newest first; or show one, with its data sets.

    A run that stands at `running` although nobody works on it was interrupted: `holdfast run FILE --resume RUN` goes
    on with it.

    JSON: total and runs (run_id, pipeline, state, attempt, started_at, changed_at, runner, parameters, datasets, pins,
    error); or run, such a one, attempts, and tasks (task_id, kind, state, attempt, snapshot, row_count, byte_size,
    changed_at, error).

    \b
    Examples:
      holdfast runs ./lake/acme/prod
      holdfast runs ./lake/acme/prod nightly-20261115-031500-a1b2c3
      holdfast runs --json --limit 5
    """
    from holdfast.catalog.reading import read_tables

    url, rest = workspace_and_rest(words, most=1)
    moment = moment_or_none(at)
    call = CatalogCall(url, as_json=as_json)
    there = read_tables(call.workspace, "orchestration", ["pipeline_runs", "pipeline_tasks"], at=moment)
    runs = there["pipeline_runs"]
    if rest:
        attempts = rows_where(runs, run_id=rest[0]).sort_by("attempt").to_pylist()
        if not attempts:
            raise NotFound(f"there is no run {rest[0]!r}; list them: {call.again('runs')}")
        tasks = rows_where(there["pipeline_tasks"], run_id=rest[0]).sort_by([("task_id", "ascending")]).to_pylist()
        call.output.show(_one(call, attempts, tasks))
        return
    newest = _newest_attempts(runs.sort_by([("started_at", "descending"), ("attempt", "descending")]).to_pylist())
    call.output.show(_all(call, newest, limit))


def _newest_attempts(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row a run: its last attempt, which has the time of the first as its beginning."""
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        found.setdefault(row["run_id"], row)
    return list(found.values())


def _all(call: CatalogCall, rows: list[dict[str, Any]], limit: int | None) -> View:
    shown = rows[: shown_count(limit, as_json=call.as_json, total=len(rows))]
    data = call.document("runs", total=len(rows), runs=json_value([_plain(row) for row in shown]))
    if not rows:
        return View(data=data, parts=[Line("No pipeline was run here yet."), Command("begin", "holdfast pipeline new")])
    table = Table(_RUNS, [_cells(row) for row in shown], more=len(rows) - len(shown), how="--limit N shows more")
    return View(data=data, parts=[table, Line(""), Command("one of them", call.again("runs", shown[0]["run_id"]))])


def _one(call: CatalogCall, attempts: list[dict[str, Any]], tasks: list[dict[str, Any]]) -> View:
    last = attempts[-1]
    newest: dict[str, dict[str, Any]] = {}
    for task in sorted(tasks, key=lambda one: one["attempt"]):
        newest[task["task_id"]] = task
    data = call.document(
        "runs",
        run=json_value(_plain(last)),
        attempts=len(attempts),
        tasks=json_value([_plain(task) for task in newest.values()]),
    )
    facts = [
        ("run", last["run_id"]),
        ("pipeline", last["pipeline"]),
        ("state", last["state"]),
        ("attempts", str(len(attempts))),
        ("started", time_text(last["started_at"])),
        ("took", took_text((last["changed_at"] - last["started_at"]).total_seconds())),
        ("runner", last["runner"]),
        ("parameters", last["parameters"]),
        ("reads", last["pins"]),
    ]
    if last["error"]:
        facts.append(("error", last["error"]))
    cells = [
        (
            text(task["task_id"]),
            task["kind"],
            task["state"],
            str(task["attempt"]),
            "" if task["row_count"] is None else f"{task['row_count']:,}",
            task["snapshot"],
            text(task["error"]),
        )
        for task in newest.values()
    ]
    parts: list[Part] = [Facts(facts)]
    if cells:
        parts += [Line(""), Table(_TASKS, cells)]
    if last["state"] != "succeeded":
        parts += [Line(""), Command("go on with it", f"holdfast run FILE --resume {last['run_id']}")]
    return View(data=data, parts=parts)


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    return (
        row["run_id"],
        row["pipeline"],
        row["state"],
        str(row["attempt"]),
        time_text(row["started_at"]),
        took_text((row["changed_at"] - row["started_at"]).total_seconds()),
        text(row["error"]),
    )


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    hidden = {"position", "event_id", "deleted"}
    return {name: value for name, value in row.items() if name not in hidden}
