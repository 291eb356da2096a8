"""Changing one row in a hundred, beside building everything again: bytes that are written, and processor time.

Clustered changes meet neighbouring keys, and with range routing few shards. Changes at random meet every shard.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bench.harness import Settings
from bench.kv_processes import Usage, measured
from bench.kv_rows import KEY, VALUE, table
from bench.report import Report, Target, duration, ratio
from holdfast.chain import open_chain
from holdfast.kv import Published, publish_arrow, update_arrow

SHARDS = 64
PART = 100
"""One row in so many changes."""


@dataclass(slots=True)
class Done:
    usage: Usage
    published: Published


def run(settings: Settings) -> Report:
    rows = settings.pick(1_000_000, 10_000)
    report = Report(
        name="kv_update",
        about=f"{rows // PART:,} of {rows:,} rows change, {SHARDS} shards, file://, no Spark",
        columns=("", "shards", "MB written", "/ rebuild", "wall", "CPU", "/ rebuild"),
    )
    source = table(rows).sort_by(KEY)
    keys = source.column(KEY).to_numpy()
    bounds = [int(keys[rows * number // SHARDS]) for number in range(1, SHARDS)]
    start = rows // 3
    clustered = source.slice(start, rows // PART)
    random = source.take(pa.array(np.sort(np.random.default_rng(5).choice(rows, rows // PART, replace=False))))
    for name, routing, changes in (
        ("by range, clustered", bounds, clustered),
        ("by range, random", bounds, random),
        ("by hash, random", None, random),
    ):
        _compare(report, settings, name, routing, source, changes)
    limit = 3 / SHARDS
    report.targets.append(
        Target(
            claim="clustered changes: bytes written / rebuild",
            value=report.figures["by range, clustered: bytes / rebuild"],
            limit=limit,
        )
    )
    return report


def _compare(
    report: Report, settings: Settings, name: str, bounds: list[int] | None, source: pa.Table, changes: pa.Table
) -> None:
    folder = settings.disk / "set"
    chain = open_chain(f"file://{folder}", layout="kv")
    build = partial(publish_arrow, chain, source, key=KEY, value="binary", shards=SHARDS, bounds=bounds)
    update = partial(update_arrow, chain, upserts=_with_other_values(changes))
    rebuilt, updated = _best(settings.pick(3, 1), build, update)
    for label, done in (("rebuild", rebuilt), ("update", updated)):
        whole = done is rebuilt
        quotients = {
            "bytes": done.published.written_bytes / rebuilt.published.written_bytes,
            "CPU": done.usage.cpu_s / rebuilt.usage.cpu_s,
        }
        report.rows.append(
            (
                f"{name}: {label}",
                str(done.published.written_shards),
                f"{done.published.written_bytes / 1e6:.1f}",
                "" if whole else ratio(quotients["bytes"]),
                duration(done.usage.wall_s),
                duration(done.usage.cpu_s),
                "" if whole else ratio(quotients["CPU"]),
            )
        )
        if not whole:
            report.figures |= {f"{name}: {what} / rebuild": found for what, found in quotients.items()}
    shutil.rmtree(folder)


def _best(rounds: int, build: Callable[[], Published], update: Callable[[], Published]) -> tuple[Done, Done]:
    """The cheapest of some rounds of each, in turns; every update is one of a fresh build."""
    found: dict[str, list[Done]] = {"build": [], "update": []}
    for _ in range(rounds):
        for name, work in (("build", build), ("update", update)):
            with measured() as usage:
                published = work()
            found[name].append(Done(usage, published))
    cheapest = {name: min(done, key=lambda each: each.usage.cpu_s) for name, done in found.items()}
    return cheapest["build"], cheapest["update"]


def _with_other_values(rows: pa.Table) -> pa.Table:
    other = pc.binary_replace_slice(rows.column(VALUE), 0, 3, b"new")
    return rows.set_column(1, rows.schema.field(VALUE), other)
