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
BLOCK_BYTES = 15_000
PAGE_BYTES = 4096
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
    published = publish_arrow(chain, table(rows), key=KEY, shards=SHARDS, value="binary")
    count = settings.pick(1000, 64)
    keys: list[Key] = pick(count, rows, KeyType.INT64, seed=3).to_pylist()
    cold = _cold(report, chain, store, f"{name}: first get of a reader", keys[: settings.pick(50, 5)])
    with ShardedReader.open(chain, mode="direct") as reader:
        _each(reader.get, pick(4 * SHARDS, rows, seed=4).to_pylist())  # now it knows the shards' directories
        store.reset()
        store.bytes = 0
        samples = _singly(reader.get, keys)
        warm = store.total / len(keys)
        _row(report, f"{name}: get, 1 thread", samples, warm, store.bytes / len(keys))
    with ShardedReader.open(chain, mode="direct") as reader:
        store.reset()
        store.bytes = 0
        seconds = timed(lambda: reader.multi_get(keys))
        _many(report, f"{name}: cold multi_get of {len(keys):,}", len(keys) / seconds, store.total / len(keys))
    with ConcurrentShardedReader.open(chain, mode="direct") as shared, ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(shared.get, pick(4 * SHARDS, rows, seed=4).to_pylist()))
        store.reset()
        seconds = timed(lambda: list(pool.map(shared.get, keys)))
        _many(report, f"{name}: get, {THREADS} threads", len(keys) / seconds, store.total / len(keys))
    seconds = asyncio.run(_gathered(chain, keys, pick(4 * SHARDS, rows, seed=4).to_pylist()))
    _many(report, f"{name}: get, asyncio, {TOGETHER} a time", len(keys) / seconds)
    shard = next(shard for shard in published.dataset.shards if shard is not None)
    _bare(report, name, partial(store.get_range, shard.path), count, shard.byte_size)
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
        Target(claim=f"{name}: requests of a later get, mean", value=warm, limit=1),
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


def _bare(report: Report, name: str, read: Callable[[int, int], bytes], count: int, size: int) -> None:
    """What the requests alone cost: one of a block's size, and pages one after the other as SQLite would read them."""
    starts = [number * 7919 * PAGE_BYTES % max(1, size - BLOCK_BYTES) for number in range(count)]
    bare = Samples(tuple(timed(partial(read, start, BLOCK_BYTES)) for start in starts))
    _row(report, f"{name}: bare request of {BLOCK_BYTES // 1000} kB", bare, 1, min(size, BLOCK_BYTES))
    pages = Samples(tuple(timed(partial(_pages, read, start, number)) for number, start in enumerate(starts)))
    _row(report, f"{name}: bare pages as for SQLite", pages, 2.5, 2.5 * PAGE_BYTES)


def _pages(read: Callable[[int, int], bytes], start: int, number: int) -> None:
    for page in range(2 + number % 2):  # 2.5 on average: what a warm SQLite file was seen to take
        read(start + page * PAGE_BYTES, PAGE_BYTES)


async def _gathered(chain: Chain, keys: Sequence[Key], first: Sequence[Key]) -> float:
    reader = await AsyncShardedReader.open(chain, mode="direct")
    async with reader:
        await asyncio.gather(*(reader.get(key) for key in first))
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


def _many(report: Report, label: str, per_second: float, requests: float | None = None) -> None:
    report.rows.append((label, rate(per_second), "", "", "" if requests is None else f"{requests:.2f}", ""))
    report.figures[f"{label} per s"] = per_second
