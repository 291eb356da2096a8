"""One change to the catalog that somebody waits for, end to end; and many who wait at once.

A change is: take the lock, read what is there, append the event, fold it, publish, release. Changes that wait together
are one publish. Each client is a thread that registers one table after the other.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.harness import Samples, Settings, stopwatch, timed
from bench.report import Report, Target, duration, rate, ratio
from holdfast.catalog import Workspace
from holdfast.catalog.operations import Catalog
from holdfast.catalog.payloads import Column
from holdfast.storage import LocalStore, MemoryStore, ObjectStore, open_store
from holdfast.testing.faulty import CountingStore
from holdfast.testing.servers import ServerUnavailable, start_ministack

CLIENTS = (1, 8, 64)
GROWTH = (100, 1_000, 10_000)
COLUMNS = (Column(name="id", type="bigint"), Column(name="price", type="double"))
SPEEDUP_LEAST = 10.0
WAITED_FOR = ("file://", "s3://")
"""Where a change waits for something that others can wait for too; in memory there is only work, and one does it."""


def run(settings: Settings) -> Report:
    report = Report(
        name="catalog_changes",
        about="register a table, from the call until every reader sees it; file:// is synced, S3 is on loopback",
        columns=("", "p50", "p99", "1 client/s", *(f"{number} clients/s" for number in CLIENTS[1:]), "64 / 1"),
    )
    changes = settings.pick(200, 10)
    with TemporaryDirectory(prefix="holdfast-bench-") as folder:
        for name, store in _stores(settings, Path(folder), report):
            _measure(report, settings, name, store, changes)
    _requests(report)
    _growth(report, settings)
    return report


def _stores(settings: Settings, folder: Path, report: Report) -> Iterator[tuple[str, ObjectStore]]:
    yield "file://", LocalStore(settings.disk / "catalog")
    yield "memory disk", LocalStore(settings.memory_disk / "catalog", durable=False)
    with _s3(folder, report) as store:
        if store is not None:
            yield "s3://", store


@contextmanager
def _s3(folder: Path, report: Report) -> Iterator[ObjectStore | None]:
    try:
        server = start_ministack(folder)
    except ServerUnavailable as reason:
        report.notes.append(f"s3:// was left out: {reason}")
        yield None
        return
    before = dict(os.environ)
    try:
        os.environ.update(server.environment)
        server.create_bucket("bench")
        yield open_store("s3://bench/lake")
    finally:
        os.environ.clear()
        os.environ.update(before)
        server.stop()


def _measure(report: Report, settings: Settings, name: str, store: ObjectStore, changes: int) -> None:
    workspace = _workspace(store)
    catalog = Catalog(workspace)
    catalog.create_namespace("n")
    catalog.register_table("n", "warm", columns=COLUMNS)
    alone = Samples(tuple(timed(partial(_register, catalog, f"a{turn}")) for turn in range(changes)))
    rates = {1: changes / sum(alone.seconds)}
    for clients in CLIENTS[1:]:
        rates[clients] = _together(catalog, clients, settings.pick(max(8, 1_024 // clients), 2), f"c{clients}")
    gain = rates[CLIENTS[-1]] / rates[1]
    report.rows.append(
        (name, duration(alone.median), duration(alone.p99), *(rate(rates[one]) for one in CLIENTS), ratio(gain))
    )
    report.figures |= {f"{name} p50_s": alone.median, f"{name} p99_s": alone.p99, f"{name} gain": gain}
    report.figures |= {f"{name} {clients} clients per second": found for clients, found in rates.items()}
    if name in WAITED_FOR:
        claim = f"{name}: 64 clients beside 1"
        report.targets.append(Target(claim=claim, value=gain, limit=SPEEDUP_LEAST, at_least=True))


def _register(catalog: Catalog, table: str) -> None:
    catalog.register_table("n", table, columns=COLUMNS)


def _together(catalog: Catalog, clients: int, each: int, prefix: str) -> float:
    """Changes a second."""
    ready = threading.Barrier(clients + 1)
    errors: list[BaseException] = []

    def client(number: int) -> None:
        ready.wait()
        try:
            for turn in range(each):
                _register(catalog, f"{prefix}-{number}-{turn}")
        except BaseException as error:  # noqa: BLE001 - said below, by the thread that measures
            errors.append(error)

    threads = [threading.Thread(target=client, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    ready.wait()
    with stopwatch() as watch:
        for thread in threads:
            thread.join()
    if errors:
        raise errors[0]
    return clients * each / watch.seconds


def _requests(report: Report) -> None:
    store = CountingStore(MemoryStore())
    catalog = Catalog(_workspace(store))
    catalog.create_namespace("n")
    catalog.register_table("n", "first", columns=COLUMNS)
    store.reset()
    catalog.register_table("n", "second", columns=COLUMNS)
    which = ", ".join(f"{number} {kind}" for kind, number in store.counts.items())
    report.figures["requests of a change"] = float(store.total)
    report.notes.append(f"one change makes {store.total} requests: {which}")


def _growth(report: Report, settings: Settings) -> None:
    """What a change costs in a catalog that has many tables already."""
    sizes = [size for size in GROWTH if not settings.quick or size <= GROWTH[0]]
    found = []
    for size in sizes:
        catalog = Catalog(_workspace(LocalStore(settings.memory_disk / f"grown-{size}", durable=False)))
        catalog.create_namespace("n")
        _together(catalog, min(64, size), max(1, size // 64), "t")
        turns = settings.pick(48, 4)
        seconds = [timed(partial(_register, catalog, f"x{turn}")) for turn in range(turns)]
        median = Samples(tuple(seconds)).median
        found.append(f"{size:,}: {duration(median)}")
        report.figures[f"a change beside {size} tables median_s"] = median
    report.notes.append(f"a change beside so many tables, on the memory disk: {', '.join(found)}")


def _workspace(store: ObjectStore) -> Workspace:
    workspace = Workspace(root=store, tenant="acme", name="prod", by="bench")
    workspace.initialize()
    return workspace
