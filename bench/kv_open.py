"""Opening a data set and refreshing a reader: with a download, without one, and as rows and shards become more."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa

from bench.harness import Settings, exponent, timed
from bench.kv_rows import KEY, batches, keys_of, table
from bench.places import object_store
from bench.report import Report, Target, duration
from holdfast.chain import Chain, Refreshed, open_chain
from holdfast.kv import ShardedReader, publish_arrow, update_arrow

EXPONENT_MAX = 1.25
"""Linear growth, and some room for noise."""
REPEATS = 5


def run(settings: Settings) -> Report:
    report = Report(
        name="kv_open",
        about="opening and refreshing a reader; the best of some rounds",
        columns=("", "MB", "cold open", "MB/s", "open again", "unchanged", "1 shard changed"),
    )
    rows = settings.pick(1_000_000, 2000)
    with object_store(settings.disk / "server") as bucket:
        if bucket is None:
            report.notes.append("no S3 server is installed: left out")
        else:
            for shards in (8, 64) if not settings.quick else (4,):
                _measure(
                    report, settings, f"S3, {_short(rows)} rows, {shards} shards", f"{bucket}/s{shards}", rows, shards
                )
    sizes = [2000, 4000] if settings.quick else [100_000, 1_000_000, 5_000_000]
    counts = [4, 8] if settings.quick else [8, 64, 512]
    by_rows = [(size, _file(report, settings, size, counts[0])) for size in sizes]
    by_shards = [(count, _file(report, settings, rows, count)) for count in counts]
    for what, points in (("rows", by_rows), ("shards", by_shards)):
        for verb in ("open again", "refresh, unchanged", "refresh, 1 shard changed"):
            growth = exponent([(size, found[verb]) for size, found in points])
            report.figures[f"growth of {verb} with {what}"] = growth
            if not settings.quick:  # so few rows tell nothing
                claim = f"growth of {verb} with {what}"
                report.targets.append(Target(claim=claim, value=growth, limit=EXPONENT_MAX))
    report.notes.append("file: the store's own files are mapped, so a cold open moves nothing; 0 is flat, 1 linear")
    return report


def _file(report: Report, settings: Settings, rows: int, shards: int) -> dict[str, float]:
    folder = settings.disk / f"set-{rows}-{shards}"
    label = f"file, {_short(rows)} rows, {shards} shards"
    if label in {row[0] for row in report.rows}:
        return {verb: report.figures[f"{label}: {verb} s"] for verb in _VERBS}
    found = _measure(report, settings, label, f"file://{folder}", rows, shards)
    shutil.rmtree(folder)
    return found


_VERBS = ("cold open", "open again", "refresh, unchanged", "refresh, 1 shard changed")


def _measure(report: Report, settings: Settings, label: str, url: str, rows: int, shards: int) -> dict[str, float]:
    chain = open_chain(url, layout="kv")
    source = pa.RecordBatchReader.from_batches(table(1).schema, batches(rows))
    size = publish_arrow(chain, source, key=KEY, shards=shards, value="binary").written_bytes
    cache = settings.disk / "cache"
    open_ = partial(_open_and_close, chain, cache)
    repeats = settings.pick(REPEATS, 2)
    found = {"cold open": _best(settings.pick(2, 1), open_, before=lambda: shutil.rmtree(cache, ignore_errors=True))}
    found["open again"] = _best(repeats, open_)
    with ShardedReader.open(chain, cache=cache) as reader:
        found["refresh, unchanged"] = _best(repeats * 4, reader.refresh)
        found["refresh, 1 shard changed"] = _best(repeats, partial(_advanced, reader), before=_changes(chain))
    shutil.rmtree(cache, ignore_errors=True)
    moved = "" if url.startswith("file:") else f"{size / 1e6 / found['cold open']:.0f}"
    times = [duration(found[verb]) for verb in _VERBS]
    report.rows.append((label, f"{size / 1e6:.0f}", times[0], moved, *times[1:]))
    report.figures |= {f"{label}: {verb} s": seconds for verb, seconds in found.items()}
    report.figures[f"{label}: bytes"] = float(size)
    return found


def _open_and_close(chain: Chain, cache: Path) -> None:
    ShardedReader.open(chain, cache=cache).close()


def _advanced(reader: ShardedReader) -> None:
    if reader.refresh() is not Refreshed.SWAPPED:
        raise AssertionError("there was a new snapshot, and the refresh did not see it")


def _changes(chain: Chain) -> Callable[[], object]:
    """Another value for the same one key, each time: one shard changes."""
    key = keys_of([0])
    number = 0

    def change() -> None:
        nonlocal number
        number += 1
        update_arrow(chain, upserts=pa.table([key, pa.array([b"%d" % number])], names=table(1).schema.names))

    return change


def _best(rounds: int, work: Callable[[], object], *, before: Callable[[], object] = lambda: None) -> float:
    found = []
    for _ in range(rounds):
        before()
        found.append(timed(work))
    return min(found)


def _short(rows: int) -> str:
    return f"{rows / 1e6:g}M"
