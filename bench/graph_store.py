"""What a graph's store does besides queries: commits, versions, tags, collection; and what cold questions read."""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from bench.chains import writer
from bench.graph_rows import file_of, graph
from bench.harness import Settings, exponent, timed
from bench.report import Report, Target, duration
from holdfast.chain import graph_layout
from holdfast.graph.records import Node
from holdfast.graph.store import GraphStore
from holdfast.storage.local import LocalStore
from holdfast.storage.objects import StoredObject

GOALS = {
    "commit of a manifest of 100 segments, synced": 0.010,
    "collect over 10,000 segments": 0.100,
    "list 1,000 snapshots, warm": 0.005,
    "list 1,000 snapshots, cold": 0.100,
    "find by tag, warm": 0.001,
}
SEGMENTS = 100
FLAT_MAX = 0.4


def run(settings: Settings) -> Report:
    report = Report(
        name="graph_store", about="a graph's versions, and cold questions; medians", columns=("", "", "read", "of")
    )
    found = _manifests(settings) | _versions(settings) | _collection(settings)
    for name, seconds in found.items():
        report.rows.append((name, duration(seconds), "", ""))
        report.figures[f"{name} s"] = seconds
        if name in GOALS and not settings.quick:
            report.targets.append(Target(claim=f"{name}, ms", value=seconds * 1e3, limit=GOALS[name] * 1e3))
    _growing(report, settings)
    _cold(report, settings)
    return report


def _manifests(settings: Settings) -> dict[str, float]:
    with writer(LocalStore(settings.disk / "manifests"), artifact_count=SEGMENTS, layout=graph_layout()) as one:
        commits = [sum(one.timed_commit()) for _ in range(settings.pick(40, 3))]
    shutil.rmtree(settings.disk / "manifests")
    return {"commit of a manifest of 100 segments, synced": statistics.median(commits)}


def _versions(settings: Settings) -> dict[str, float]:
    """Versions of a small graph, a tag on one in ten."""
    count = settings.pick(1_000, 20)
    folder = settings.memory_disk / "versions"
    with writer(LocalStore(folder, durable=False), artifact_count=4, layout=graph_layout()) as one:
        for number in range(count):
            one.commit()
            if number % 10 == 0:
                one.chain.tag(one.chain.find(), {"build": str(number)})
    cold = GraphStore.open(LocalStore(folder, durable=False))
    found = {f"list {count:,} snapshots, cold": timed(cold.list_snapshots)}
    found[f"list {count:,} snapshots, warm"] = _median(cold.list_snapshots)
    cold.find_snapshot("build", str(count // 20 * 10))
    found["find by tag, warm"] = _median(lambda: cold.find_snapshot("build", str(count // 20 * 10)))
    shutil.rmtree(folder)
    return found


def _collection(settings: Settings) -> dict[str, float]:
    count = settings.pick(10_000, 100)
    folder = settings.memory_disk / "collection"
    with writer(LocalStore(folder, durable=False), artifact_count=1, layout=graph_layout()) as one:
        one.commit_own_files(count)
        one.commit_own_files(1)
        seconds = timed(lambda: one.chain.collect(retention=1))
    shutil.rmtree(folder)
    return {f"collect over {count:,} segments": seconds}


def _growing(report: Report, settings: Settings) -> None:
    """One more small commit, when there are so many segments already: in proportion to the change (G19)."""
    points = []
    for count in (20, 40) if settings.quick else (100, 1_000, 4_000):
        folder = settings.memory_disk / f"growing-{count}"
        store = GraphStore.create(LocalStore(folder, durable=False))
        for number in range(count):
            store.commit(nodes=[Node(semantic_id=f"n{number}", type="T", file=f"{number % 50}.py")])
        seconds = _median(_committing(store))
        points.append((count, seconds))
        report.rows.append((f"commit one node after {count:,} commits", duration(seconds), "", ""))
        shutil.rmtree(folder)
    growth = exponent(points)
    report.figures["growth of a commit with segments"] = growth
    if not settings.quick:
        report.targets.append(Target(claim="growth of a commit with segments", value=growth, limit=FLAT_MAX))


def _committing(store: GraphStore) -> Callable[[], object]:
    numbers = iter(range(10**9))
    return lambda: store.commit(nodes=[Node(semantic_id=f"late{next(numbers)}", type="T")])


def _cold(report: Report, settings: Settings) -> None:
    """Questions to a graph that was only opened: time, and how much of it was read."""
    count = settings.pick(1_000_000, 20_000)
    nodes, edges = graph(count)
    folder = settings.disk / "cold"
    GraphStore.create(f"file://{folder}").commit(nodes=nodes, edges=edges)
    whole = sum(file.stat().st_size for file in folder.rglob("*.seg"))
    id_ = nodes.column("semantic_id")[count // 2].as_py()
    del nodes, edges
    questions: dict[str, Callable[[GraphStore], object]] = {
        "cold: one node": lambda store: store.direct().node(id_),
        "cold: outgoing edges of a node": lambda store: store.direct().view.edges_by_source(pa.array([id_])),
        "cold: incoming edges of a node": lambda store: store.direct().view.edges_by_target(pa.array([id_])),
        "cold: neighbours, both ways": lambda store: store.direct().neighbors(id_, direction="both"),
        "cold: the nodes of a file": lambda store: store.direct().nodes(file=file_of(count // 2)).table,
        "cold: by type": lambda store: store.direct().nodes(type="CLASS").table,
        "cold: all in memory": lambda store: store.snapshot(),
    }
    for name, ask in questions.items():
        counted = _Counted(folder)
        seconds = timed(lambda ask=ask, counted=counted: ask(GraphStore.open(counted)))  # type: ignore[misc]
        report.rows.append((name, duration(seconds), f"{counted.moved / 1e3:,.0f} kB", f"{whole / 1e6:.0f} MB"))
        report.figures[f"{name} s"] = seconds
        report.figures[f"{name} share"] = counted.moved / whole
    shutil.rmtree(folder)


class _Counted(LocalStore):
    """A store that knows how many bytes of segments were read."""

    __slots__ = ("moved",)

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.moved = 0

    def get_range(self, key: str, start: int, length: int) -> bytes:
        self.moved += length
        return super().get_range(key, start, length)

    def get(self, key: str) -> StoredObject:
        found = super().get(key)
        self.moved += len(found.data) if key.endswith(".seg") else 0
        return found


def _median(work: Callable[[], object], rounds: int = 9) -> float:
    return statistics.median(timed(work) for _ in range(rounds))
