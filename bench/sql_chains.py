"""Chains whose records are in a database, beside the same chain on file://: what each costs where writes are synced."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

from bench.chains import LOCK_TTL_S, Writer
from bench.harness import Settings, interleave, timed
from bench.report import Report, duration
from holdfast.chain import chain_on, kv_layout
from holdfast.chain.sql import SqlRecords, migrate
from holdfast.storage.local import LocalStore
from holdfast.storage.objects import RecordStore
from holdfast.testing.postgres import start_postgres
from holdfast.testing.servers import ServerUnavailable

HISTORY = 1_000
ARTIFACTS = 1
VERBS = ("register + publish", "load current", "refresh, unchanged", "history of 100", f"history of {HISTORY:,}")


def run(settings: Settings) -> Report:
    history = settings.pick(HISTORY, 100)
    report = Report(
        name="sql_chains",
        about=f"a chain with {history:,} snapshots, fsync on; artifacts on file:// everywhere",
        columns=("", *VERBS),
    )
    with ExitStack() as stack:
        writers = {name: stack.enter_context(_writer(settings, name, None)) for name in ("file",)}
        database = f"sqlite:///{settings.disk}/chains.db"
        migrate(database)
        writers["sqlite"] = stack.enter_context(_writer(settings, "sqlite", database))
        try:
            server = start_postgres()
        except ServerUnavailable as reason:
            report.notes.append(f"postgresql was left out: {reason}")
        else:
            stack.callback(server.stop)
            url = server.create_database("bench")
            migrate(url)
            writers["postgresql, loopback"] = stack.enter_context(_writer(settings, "postgresql", url))
        for one in writers.values():
            for _ in range(history):
                one.commit()
        samples = interleave(settings.pick(100, 15), [_round(name, one) for name, one in writers.items()])
    for name in writers:
        report.rows.append((name, *(duration(samples[f"{name} {verb}"].median) for verb in VERBS)))
        report.figures |= {f"{name} {verb} median_s": samples[f"{name} {verb}"].median for verb in VERBS}
    return report


@contextmanager
def _writer(settings: Settings, name: str, database: str | None) -> Iterator[Writer]:
    store = LocalStore(settings.disk / f"{name}-artifacts")
    layout = kv_layout()
    records: RecordStore = store
    if database is not None:
        records = SqlRecords(f"{database}?chain=bench", layout, artifacts=store.url)
    chain = chain_on(store, layout, records=records, by="bench")
    with chain.lock(operation="bench", ttl_s=LOCK_TTL_S) as guard:
        yield Writer(chain, guard, ARTIFACTS)


def _round(name: str, one: Writer) -> Callable[[], dict[str, float]]:
    chain = one.chain

    def action() -> dict[str, float]:
        publish = sum(one.timed_commit())
        with chain.reader(lambda manifest: manifest) as reader:
            calls: dict[str, Callable[[], object]] = {
                "load current": chain.load_current,
                "refresh, unchanged": reader.refresh,
                "history of 100": partial(chain.list_manifests, 100),
                f"history of {HISTORY:,}": partial(chain.list_manifests, HISTORY),
            }
            found = {f"{name} {verb}": timed(call) for verb, call in calls.items()}
        return {f"{name} register + publish": publish, **found}

    return action
