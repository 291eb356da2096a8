"""How many requests each operation makes, beside the budget it is given. Counted, so the same on every machine."""

from __future__ import annotations

from collections.abc import Callable

from bench.chains import grow, writer
from bench.harness import Settings
from bench.report import Report, Target
from holdfast.chain import chain_on, domain_layout, kv_layout
from holdfast.storage.memory import MemoryStore
from holdfast.testing.faulty import CountingStore

ARTIFACTS = 100


def run(settings: Settings) -> Report:
    del settings
    report = Report(
        name="requests",
        about=f"requests per operation ({ARTIFACTS} artifacts), beside the budget",
        columns=("", "requests", "budget", "which"),
    )
    _count(report)
    report.notes.append("one publish in 16 also writes a segment of the log: 1 more request")
    report.targets += [
        Target(claim=f"requests of {name}", value=found, limit=report.figures[f"{name} budget"])
        for name, found in list(report.figures.items())
        if f"{name} budget" in report.figures
    ]
    return report


def _count(report: Report) -> None:
    store = CountingStore(MemoryStore())

    def count(name: str, work: Callable[[], object], budget: int | None) -> None:
        store.reset()
        work()
        which = ", ".join(f"{number} {kind}" for kind, number in store.counts.items())
        report.rows.append((name, str(store.total), "" if budget is None else str(budget), which))
        report.figures[name] = float(store.total)
        if budget is not None:
            report.figures[f"{name} budget"] = float(budget)

    with writer(store, artifact_count=ARTIFACTS, layout=kv_layout()) as one:
        grow(one, 20)
        # Run record before, the run record read, a head per artifact, manifest, pointer. The budget has one more, for
        # bookkeeping after the swap, of which nothing is left.
        count("publish (KV, lock held)", one.commit, 1 + ARTIFACTS + 1 + 1 + 1 + 1)
        chain = chain_on(store, kv_layout(), by="bench")
        count("cold open", lambda: chain.reader(lambda manifest: manifest), 2)
        reader = chain.reader(lambda manifest: manifest)
        count("refresh, unchanged", reader.refresh, 1)
        one.commit()
        count("refresh, changed", reader.refresh, 2)
        count("history of 10", lambda: chain.list_manifests(10), 1)
        count("load_current", chain.load_current, 2)
        count("tag look-up, newest", lambda: chain.list_snapshots("no", "tag")[:1], None)
        # The pointer, the visible manifest and the target's, a head per artifact, the swap.
        count("rollback", chain.rollback, None)
        count("forward", chain.forward, None)
    store = CountingStore(MemoryStore())
    with writer(store, artifact_count=ARTIFACTS, layout=domain_layout("catalog")) as one:
        grow(one, 20)
        count("publish (domain, with legacy mirror)", one.commit, 1 + ARTIFACTS + 1 + 1 + 1 + 1 + 1)
