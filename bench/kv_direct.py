"""Look-ups by range requests, nothing kept on this machine: how many, how fast, how many bytes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from bench.harness import Samples, Settings, stopwatch, timed
from bench.kv_rows import KEY, KeyType, pick, table
from bench.places import object_store
from bench.report import Report, Target, duration, rate
from holdfast.chain import Chain, chain_on, kv_layout
from holdfast.kv import AsyncShardedReader, ConcurrentShardedReader, ShardedReader, publish_arrow
from holdfast.storage.objects import ObjectStore
from holdfast.storage.url import open_store
from holdfast.testing.faulty import CountingStore

SHARDS = 8
THREADS = 16
TOGETHER = 64
PEER_PER_S = 153.0
"""Look-ups a second of the peer's range reads of SQLite files, as seen on a busy machine."""

Key = int | str


class MeteredStore(CountingStore):
    """Also counts the bytes that range requests of one thread bring."""

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store)
        self.bytes = 0
        self._metering = threading.Lock()

    def get_range(self, key: str, start: int, length: int) -> bytes:
        found = super().get_range(key, start, length)
        with self._metering:
            self.bytes += len(found)
        return found


def run(settings: Settings) -> Report:
    report = Report(
        name="kv_direct",
        about=f"look-ups a second by range requests, {SHARDS} shards, int64 keys",
        columns=("", "get", "p50", "p99", "requests / get", "kB / get"),
    )
    rows = settings.pick(1_000_000, 5000)
    with object_store(settings.disk / "server") as bucket:
        if bucket is None:
            report.notes.append("no S3 server is installed: left out")
        else:
            _measure(report, settings, f"S3 server, {rows / 1e6:g}M rows", f"{bucket}/set", rows)
    _measure(report, settings, f"file, {rows / 1e6:g}M rows", f"file://{settings.disk / 'set'}", rows)
    report.notes.append(f"the peer's range reads of SQLite files: {PEER_PER_S:g} look-ups a second, as seen")
    return report


def _measure(report: Report, settings: Settings, name: str, url: str, rows: int) -> None:
    store = MeteredStore(open_store(url))
    chain = chain_on(store, kv_layout(), by="bench")
    publish_arrow(chain, table(rows), key=KEY, shards=SHARDS, value="binary")
    count = settings.pick(2000, 64)
    keys: list[Key] = pick(count, rows, KeyType.INT64, seed=3).to_pylist()
    cold = _cold(report, chain, store, f"{name}: first get of a reader", keys[: settings.pick(50, 5)])
    with ShardedReader.open(chain, mode="direct") as reader:
        _each(reader.get, pick(count, rows, seed=4).to_pylist())  # the reader has looked around
        store.reset()
        store.bytes = 0
        samples = _singly(reader.get, keys)
        warm = store.total / len(keys)
        _row(report, f"{name}: get, 1 thread", samples, warm, store.bytes / len(keys))
        with stopwatch() as watch:
            reader.multi_get(keys)
        _many(report, f"{name}: multi_get of {len(keys):,}", len(keys) / watch.seconds)
    with ConcurrentShardedReader.open(chain, mode="direct") as shared, ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(shared.get, keys[:THREADS]))
        seconds = timed(lambda: list(pool.map(shared.get, keys)))
        _many(report, f"{name}: get, {THREADS} threads", len(keys) / seconds)
    seconds = asyncio.run(_gathered(chain, keys))
    _many(report, f"{name}: get, asyncio, {TOGETHER} at once", len(keys) / seconds)
    if name.startswith("S3"):
        best = max(found for key, found in report.figures.items() if key.startswith(name) and key.endswith("per s"))
        report.targets += [
            Target(
                claim=f"{name}: get, 1 thread, times the peer's own figure",
                value=report.figures[f"{name}: get, 1 thread per s"] / PEER_PER_S,
                limit=10,
                at_least=True,
            ),
            Target(claim=f"{name}: the fastest way, times the same", value=best / PEER_PER_S, limit=10, at_least=True),
        ]
    report.targets += [
        Target(claim=f"{name}: requests of a reader's first get", value=cold, limit=2),
        Target(claim=f"{name}: requests of a later get, mean", value=warm, limit=2),
    ]


def _cold(report: Report, chain: Chain, store: MeteredStore, label: str, keys: Sequence[Key]) -> float:
    """The first look-up of fresh readers; opening them is not part of it."""
    seconds, requests = [], 0
    store.bytes = 0
    moved = 0
    for key in keys:
        with ShardedReader.open(chain, mode="direct") as reader:
            store.reset()
            before = store.bytes
            seconds.append(timed(partial(reader.get, key)))
            requests += store.total
            moved += store.bytes - before
    _row(report, label, Samples(tuple(seconds)), requests / len(keys), moved / len(keys))
    return requests / len(keys)


async def _gathered(chain: Chain, keys: Sequence[Key]) -> float:
    reader = await AsyncShardedReader.open(chain, mode="direct")
    async with reader:
        await asyncio.gather(*(reader.get(key) for key in keys[:TOGETHER]))
        with stopwatch() as watch:
            for start in range(0, len(keys), TOGETHER):
                await asyncio.gather(*(reader.get(key) for key in keys[start : start + TOGETHER]))
    return watch.seconds


def _each(call: Callable[[Key], object], keys: Sequence[Key]) -> None:
    for key in keys:
        call(key)


def _singly(get: Callable[[Key], object], keys: Sequence[Key]) -> Samples:
    return Samples(tuple(timed(partial(get, key)) for key in keys))


def _row(report: Report, label: str, samples: Samples, requests: float, moved: float) -> None:
    per_second = len(samples.seconds) / sum(samples.seconds)
    cells = (duration(samples.median), duration(samples.p99), f"{requests:.2f}", f"{moved / 1e3:.1f}")
    report.rows.append((label, rate(per_second), *cells))
    report.figures |= {
        f"{label} per s": per_second,
        f"{label} p50 s": samples.median,
        f"{label} p99 s": samples.p99,
        f"{label} requests": requests,
        f"{label} bytes": moved,
    }


def _many(report: Report, label: str, per_second: float) -> None:
    report.rows.append((label, rate(per_second), "", "", "", ""))
    report.figures[f"{label} per s"] = per_second
