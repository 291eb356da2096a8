"""Building a key-value data set on Spark, beside an empty pass over the same rows and beside builds row by row."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from bench.harness import Settings
from bench.kv_processes import Usage, measured
from bench.kv_rows import KEY, VALUE, batches, table, write_parquet
from bench.report import Report, Target, duration, ratio
from holdfast.chain import open_chain
from holdfast.kv import publish_arrow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DISK_PER_ROW = 500
"""Bytes of disk that a case needs for each row: source, shuffle, and the data set itself."""
PEER_CPU_S_PER_MILLION = 42.0
"""What the peer itself was seen to need, on a busy machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    rows: int
    shards: int
    rounds: int

    def __str__(self) -> str:
        return f"{_short(self.rows)} × {self.shards}"


def run(settings: Settings) -> Report:
    report = Report(
        name="kv_build",
        about="builds on local[2] to file://; processor time of all processes, the JVM's too",
        columns=("rows × shards", "wall", "CPU", "for 1M", "rows/CPU s", "B/row", "MB", "/ empty"),
    )
    cases = [Case(rows=20_000, shards=4, rounds=1)] if settings.quick else _full_cases()
    by_row = settings.pick(500_000, 10_000)
    from bench.kv_spark import session

    with session(settings.disk) as spark:
        bench = _Bench(spark, settings.disk, report)
        bench.warm_up(settings.pick(1_000_000, 1_000))
        slow = bench.row_at_a_time(by_row, cases[0].shards)
        for case in cases:
            if shutil.disk_usage(settings.disk).free < case.rows * DISK_PER_ROW:
                report.notes.append(f"{case}: left out, the disk is too small")
                continue
            empty, ours = bench.compare(case)
            quotient = ours.cpu_s / empty.cpu_s
            times = (slow.cpu_s / by_row) / (ours.cpu_s / case.rows)
            report.figures |= {f"{case}: / empty": quotient, f"{case}: times row by row": times}
            report.targets.append(Target(claim=f"{case}: CPU / empty Spark pass", value=quotient, limit=2))
            claim = f"{case}: rows / CPU s beside Spark row by row"
            report.targets.append(Target(claim=claim, value=times, limit=20, at_least=True))
    _without_spark(report, settings, by_row)
    report.notes += [
        f"row by row: {_short(by_row)} rows to SQLite files, in the way that the peer goes; MB: the largest worker",
        f"(the peer itself was seen to take {PEER_CPU_S_PER_MILLION:g} CPU s for a million rows)",
    ]
    return report


def _full_cases() -> list[Case]:
    sizes = ((1_000_000, 4), (5_000_000, 2), (20_000_000, 1))
    return [Case(rows=rows, shards=shards, rounds=rounds) for rows, rounds in sizes for shards in (8, 64)]


class _Bench:
    def __init__(self, spark: SparkSession, disk: Path, report: Report) -> None:
        self._spark = spark
        self._disk = disk
        self._report = report
        self._rows = 0

    def warm_up(self, rows: int) -> None:
        """The JVM compiles while it runs: what is measured first would pay for all."""
        source = self._source(rows)
        for _ in range(3):
            self._empty(source, 8)
            self._build(source, 8)

    def row_at_a_time(self, rows: int, shards: int) -> Usage:
        from bench.kv_spark import row_at_a_time

        source = self._source(rows)
        folder = self._disk / "by-row"
        usage = _best(1, lambda: row_at_a_time(source, shards, folder))
        _row(self._report, f"{_short(rows)} × {shards}: Spark, row by row", usage, rows, folder)
        shutil.rmtree(folder)
        return usage

    def compare(self, case: Case) -> tuple[Usage, Usage]:
        source = self._source(case.rows)
        empties, builds = [], []
        for _ in range(case.rounds):  # in turns, so that noise meets both
            empties.append(_best(1, lambda: self._empty(source, case.shards)))
            folder = self._disk / "set"
            shutil.rmtree(folder, ignore_errors=True)
            builds.append(_best(1, lambda: self._build(source, case.shards, keep=True)))
        empty, ours = (min(found, key=lambda usage: usage.cpu_s) for found in (empties, builds))
        empty = replace(empty, worker_bytes=max(each.worker_bytes for each in empties))
        ours = replace(ours, worker_bytes=max(each.worker_bytes for each in builds))
        _row(self._report, f"{case}: empty Spark pass", empty, case.rows, None)
        _row(self._report, f"{case}: Holdfast on Spark", ours, case.rows, self._disk / "set", empty)
        shutil.rmtree(self._disk / "set")
        return empty, ours

    def _empty(self, source: DataFrame, shards: int) -> None:
        from bench.kv_spark import empty_pass

        empty_pass(source, shards)

    def _build(self, source: DataFrame, shards: int, *, keep: bool = False) -> None:
        from holdfast.spark import publish_kv

        folder = self._disk / "set"
        publish_kv(source, f"file://{folder}", key=KEY, shards=shards, value="binary")
        if not keep:
            shutil.rmtree(folder)

    def _source(self, rows: int) -> DataFrame:
        """Parquet files with so many rows; those of another size make room."""
        folder = self._disk / f"source-{rows}"
        if rows != self._rows:
            shutil.rmtree(self._disk / f"source-{self._rows}", ignore_errors=True)
            write_parquet(folder, rows)
            self._rows = rows
        return self._spark.read.parquet(str(folder)).select(KEY, VALUE)


def _without_spark(report: Report, settings: Settings, rows: int) -> None:
    """The same without Spark: from Arrow data, and row by row in plain Python."""
    from bench.kv_spark import insert_sharded

    shards, folder, by_row = 8, settings.disk / "arrow", settings.disk / "python"
    source = table(rows)
    arrow = _best(
        settings.pick(3, 1),
        lambda: publish_arrow(
            open_chain(f"file://{folder}", layout="kv"), source, key=KEY, shards=shards, value="binary"
        ),
        before=lambda: shutil.rmtree(folder, ignore_errors=True),
    )
    plain = _best(1, lambda: insert_sharded(by_row, shards, batches(rows)))
    _row(report, f"{_short(rows)} × {shards}: Python, row by row", plain, rows, by_row)
    _row(report, f"{_short(rows)} × {shards}: Holdfast, no Spark", arrow, rows, folder)
    report.figures["no Spark: times row by row"] = plain.cpu_s / arrow.cpu_s


def _best(rounds: int, work: Callable[[], object], *, before: Callable[[], object] = lambda: None) -> Usage:
    """The round that took the least processor time."""
    found = []
    for _ in range(rounds):
        before()
        with measured() as usage:
            work()
        found.append(usage)
    return min(found, key=lambda usage: usage.cpu_s)


def _row(report: Report, name: str, usage: Usage, rows: int, folder: Path | None, empty: Usage | None = None) -> None:
    per_million = usage.cpu_s / rows * 1e6
    size = 0 if folder is None else sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    cells = (
        name,
        duration(usage.wall_s),
        duration(usage.cpu_s),
        duration(per_million),
        f"{rows / usage.cpu_s:,.0f}",
        f"{size / rows:.0f}" if size else "",
        f"{usage.worker_bytes / 1e6:.0f}",
        "" if empty is None else ratio(usage.cpu_s / empty.cpu_s),
    )
    report.rows.append(cells)
    report.figures |= {
        f"{name}: wall s": usage.wall_s,
        f"{name}: CPU s": usage.cpu_s,
        f"{name}: rows per s": rows / usage.wall_s,
        f"{name}: rows per CPU s": rows / usage.cpu_s,
        f"{name}: bytes": float(size),
        f"{name}: worker bytes": float(usage.worker_bytes),
    }


def _short(rows: int) -> str:
    return f"{rows / 1e6:g}M" if rows >= 1_000_000 else f"{rows / 1e3:g}k"
