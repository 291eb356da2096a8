"""Folding a long ledger: events a second and memory, in this process and on Spark (C19).

Events are of the executions ledger: what comes by the million. They are made from their paths by a store that costs
nothing, so that the fold is measured and not a disk; `files` has the smallest size read from a file system as well.
Each way runs in a process of its own, so that its memory is its own.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Self

import orjson

from bench.harness import Settings, stopwatch
from bench.report import Report, rate
from holdfast.catalog import Workspace
from holdfast.catalog.bulk import compact_in_bulk
from holdfast.catalog.compactor import Compaction, Compactor
from holdfast.catalog.layout import ledger_layout
from holdfast.storage import LocalStore

__all__ = ["LedgerOfNothing", "run"]

_DOMAIN = "executions"
_LAYOUT = ledger_layout(_DOMAIN)
_TIME = "2026-03-14T10:30:00.000000Z"
_PAGE = 1_000
_WAYS = ("page by page", "in bulk", "spark")
_PAGE_BY_PAGE_MAX = 100_000
"""Each page folds all of the state again: beyond this it only takes long."""


def event_bytes(number: int) -> bytes:
    """The events of runs with ten tasks each: beginnings, ends, and what they made."""
    run, place = divmod(number, 32)
    common = {"run_id": f"run-{run:09d}"}
    task = {**common, "task_id": f"task-{place // 3}"}
    said: tuple[str, dict[str, object]]
    if place == 0:
        said = "run.started", {**common, "started_at": _TIME, "pipeline": "nightly", "parameters": {"day": "14"}}
    elif place == 31:
        said = "run.finished", {**common, "finished_at": _TIME, "outputs": ["a", "b"], "counters": {"rows": run}}
    elif place % 3 == 0:
        said = "task.started", {**task, "started_at": _TIME}
    elif place % 3 == 1:
        said = "task.finished", {**task, "finished_at": _TIME, "counters": {"rows": number}}
    else:
        asset = {**common, "asset": f"asset-{place}", "completed_at": _TIME, "partition": "2026-03-14"}
        said = "materialization.completed", {**asset, "row_count": number, "byte_size": number * 100}
    return orjson.dumps(
        {
            "format": "holdfast.event/1.0",
            "event_type": said[0],
            "event_version": 1,
            "event_id": f"{number:026d}",
            "idempotency_key": f"key-{number}",
            "occurred_at": _TIME,
            "source": "bench",
            "sequence_position": number + 1,
            "payload": said[1],
        }
    )


class LedgerOfNothing(LocalStore):
    """Files as they are, and events that are made when they are read. Pickles: executors have it too."""

    __slots__ = ("_place",)

    def __init__(self, place: Path) -> None:
        super().__init__(place, durable=False)
        self._place = place

    def __reduce__(self) -> tuple[type[Self], tuple[Path]]:  # type: ignore[override]
        return type(self), (self._place,)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        if f"/{_LAYOUT.event_prefix}/" not in key:
            return super().get_range(key, start, length)
        return event_bytes(int(key[-31:-5]))[start : start + length]


def paths_of(count: int) -> Iterable[str]:
    return (_LAYOUT.event_key(f"{number:026d}") for number in range(count))


def workspace_at(folder: Path, *, files: bool) -> Workspace:
    root = LocalStore(folder, durable=False) if files else LedgerOfNothing(folder)
    made = Workspace(root=root, tenant="acme", name="prod", by="bench")
    made.initialize()
    return made


def fold_once(way: str, folder: Path, count: int, *, files: bool) -> dict[str, float]:
    """One way, in this process: seconds, and the most memory of this process and, on Spark, of its workers."""
    workspace = workspace_at(folder / "lake", files=files)
    if files:
        for number in range(count):
            workspace.store.put_new(_LAYOUT.event_key(f"{number:026d}"), event_bytes(number))
    below = {"java": 0.0, "python": 0.0, "cpu": 0.0}
    if way == "spark":
        from bench.kv_spark import session
        from holdfast.spark import compact_domain

        with session(folder) as spark:
            # The JVM and the Python workers are warm when it counts: a cluster has been up before.
            other = workspace_at(folder / "other", files=False)
            compact_domain(spark, other, _DOMAIN, paths_of(1_000))
            before = time.process_time() + _below(os.getpid())["cpu"]
            with stopwatch() as watch:
                done = compact_domain(spark, workspace, _DOMAIN, paths_of(count))
            below = _below(os.getpid())
            cpu = time.process_time() + below["cpu"] - before
    else:
        before = time.process_time()
        with stopwatch() as watch:
            done = _here(way, workspace, count)
        cpu = time.process_time() - before
    if not done.published or done.watermark.position != count:
        raise AssertionError(f"{way} folded {done}")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"seconds": watch.seconds, "cpu": cpu, "memory": peak, "worker": below["python"], "java": below["java"]}


def _here(way: str, workspace: Workspace, count: int) -> Compaction:
    if way == "in bulk":
        return compact_in_bulk(workspace, _DOMAIN, paths_of(count))
    compactor, paths = Compactor(workspace, _DOMAIN), list(paths_of(count))
    done = [compactor.compact(paths[start : start + _PAGE]) for start in range(0, count, _PAGE)]
    return done[-1]


def _below(process: int) -> dict[str, float]:
    """Of the processes below one: processor seconds, and the most memory that the JVM and a Python worker ever had."""
    found = {"java": 0.0, "python": 0.0, "cpu": 0.0}
    parents: dict[int, tuple[int, str, float, float]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            lines = (folder / "status").read_text().splitlines()
            ticks = sum(map(int, (folder / "stat").read_text().rpartition(")")[2].split()[11:15]))
        except OSError:
            continue  # it has ended meanwhile
        said = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
        memory = float(said.get("VmHWM", "0 kB").split()[0]) * 1024
        parents[int(folder.name)] = (int(said["PPid"]), said["Name"], memory, ticks / os.sysconf("SC_CLK_TCK"))
    for pid, (parent, name, memory, cpu) in parents.items():
        above = parent
        while above in parents and above != process:
            above = parents[above][0]
        if above == process and pid != process:
            kind = "java" if name.startswith("java") else "python"
            found[kind] = max(found[kind], memory)
            found["cpu"] += cpu
    return found


def run(settings: Settings) -> Report:
    report = Report(
        name="catalog_fold",
        about="events of a long ledger folded into a domain's state, and published",
        columns=("events", "way", "events/s", "seconds", "CPU s", "driver MB", "worker MB", "JVM MB"),
    )
    sizes = [2_000] if settings.quick else [10_000, 100_000, 1_000_000]
    rounds = [(size, way, False) for size in sizes for way in _WAYS if way != _WAYS[0] or size <= _PAGE_BY_PAGE_MAX]
    rounds += [(sizes[0], "in bulk", True), (sizes[0], "spark", True)]
    for size, way, files in rounds:
        found = _apart(way, settings.disk / f"{way}-{size}-{files}".replace(" ", "-"), size, files)
        label = f"{size:,}{' (files)' if files else ''}"
        megabytes = [f"{found[name] / 1e6:,.0f}" for name in ("memory", "worker", "java")]
        report.rows.append(
            (label, way, rate(size / found["seconds"]), f"{found['seconds']:.2f}", f"{found['cpu']:.1f}", *megabytes)
        )
        report.figures[f"{label} {way} events_per_s"] = size / found["seconds"]
        report.figures |= {f"{label} {way} {name}": found[name] for name in ("cpu", "memory", "worker", "java")}
    report.notes.append(
        "Spark: local[2], warm; memory is the most that a process ever had, of workers the largest of two"
    )
    return report


def _apart(way: str, folder: Path, count: int, files: bool) -> dict[str, float]:
    """In a process of its own."""
    words = [sys.executable, "-m", "bench.catalog_fold", way, str(folder), str(count), "files" if files else "nothing"]
    folder.mkdir(parents=True)
    done = subprocess.run(words, check=True, capture_output=True, cwd=Path(__file__).resolve().parent.parent)
    found: dict[str, float] = orjson.loads(done.stdout.splitlines()[-1])
    return found


if __name__ == "__main__":
    _, chosen, place, many, source = sys.argv
    # By its own name: what executors are sent must be found there under the name of the module, not of the program.
    from bench.catalog_fold import fold_once as measured

    print(orjson.dumps(measured(chosen, Path(place), int(many), files=source == "files")).decode())
