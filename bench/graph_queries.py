"""A code graph: loading, reopening, asking, changing one file; beside SQLite and igraph, each in its own process."""

from __future__ import annotations

import multiprocessing
import resource
import shutil
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from bench.graph_engines import ENGINES, Engine
from bench.graph_rows import file_of, graph, of_file
from bench.harness import Settings, exponent
from bench.kv_engines import have
from bench.report import Report, Target, duration, ratio

TYPE, NAME = "FUNCTION", "sym_5_205"
PEER = {
    "load": 165.0, "reopen": 400.0, "nodes by type": 0.398, "neighbours": 1 / 1685, "by name": 0.647,
    "search, depth 4": 0.046, "tag": 1.8, "one-file commit": 0.115, "disk MB": 667.0,
}  # fmt: skip
"""What the published peer was seen to take for 1M nodes and 3M edges: seconds, megabytes."""
TIMES_BETTER = 10.0
SIZES_FULL = (100_000, 1_000_000, 5_000_000)
OTHERS_MAX = 1_000_000
"""At five million nodes SQLite takes more than ten minutes to load, and igraph more memory than there is."""
EXPONENT_MAX = 1.25
GROWING = ("load", "reopen")
FLAT = ("neighbours", "one-file commit")
FLAT_MAX = 0.35


@dataclass(frozen=True, slots=True)
class Order:
    """What a process is to measure."""

    engine: str
    nodes: int
    folder: str
    rounds: int


def run(settings: Settings) -> Report:
    names = [name for name in ENGINES if name != "igraph" or (settings.peers and have("igraph"))]
    report = Report(
        name="graph_queries",
        about="a code graph with 3 edges a node; one process each; medians",
        columns=("", *names, *(f"/ {name}" for name in names[1:]), "the peer's"),
    )
    found: dict[tuple[int, str], dict[str, float]] = {}
    sizes = (4_000, 8_000) if settings.quick else SIZES_FULL
    for nodes in sizes:
        for name in names:
            if name != "Holdfast" and nodes > OTHERS_MAX:
                continue
            folder = settings.disk / f"{name}-{nodes}"
            folder.mkdir()
            found[nodes, name] = _measured(Order(name, nodes, str(folder), settings.pick(20, 3)))
            shutil.rmtree(folder)
        _rows_of(report, nodes, names, found)
    for what in (*GROWING, *FLAT):
        growth = exponent([(nodes, found[nodes, "Holdfast"][what]) for nodes in sizes])
        report.figures[f"growth of {what}"] = growth
        if not settings.quick:
            limit = FLAT_MAX if what in FLAT else EXPONENT_MAX
            report.targets.append(Target(claim=f"growth of {what} with the graph", value=growth, limit=limit))
    report.notes += [
        "the peer: a graph server's own figures for 1M nodes and 3M edges, quoted; goal: 10 times better",
        "SQLite and igraph keep one version: a tag is a copy; igraph has no smaller write than all of it",
    ]
    return report


def _rows_of(report: Report, nodes: int, names: list[str], found: dict[tuple[int, str], dict[str, float]]) -> None:
    size = f"{nodes / 1e6:g}M"
    ours = found[nodes, "Holdfast"]
    for what, value in ours.items():
        others = [found.get((nodes, name), {}).get(what) for name in names[1:]]
        cells = [_shown(what, other) for other in (value, *others)]
        ratios = ["" if other is None else ratio(other / value) for other in others]
        quoted = PEER.get(what) if nodes == 1_000_000 else None
        report.rows.append((f"{size}: {what}", *cells, *ratios, "" if quoted is None else _shown(what, quoted)))
        report.figures[f"{size}: {what}"] = value
        report.figures |= {
            f"{size}: {what}, times {name}": other / value
            for name, other in zip(names[1:], others, strict=True)
            if other is not None
        }
        if quoted is not None:
            report.targets.append(
                Target(claim=f"{what}, times the peer", value=quoted / value, limit=TIMES_BETTER, at_least=True)
            )


def _shown(what: str, value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.0f}" if what.endswith("MB") else duration(value)


def _measured(order: Order) -> dict[str, float]:
    """In a process of its own: its memory is what it needs, and nobody's garbage is in its way."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_measure, (order,))


def _measure(order: Order) -> dict[str, float]:
    folder = Path(order.folder)
    nodes, edges = graph(order.nodes)
    engine: Engine = ENGINES[order.engine](folder)
    found = {"load": _seconds(lambda: engine.load(nodes, edges))}
    found["disk MB"] = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 1e6
    found["reopen"] = _seconds(engine.reopen)
    ids = nodes.column("semantic_id").take(pa.array(np.random.default_rng(1).integers(0, len(nodes), 2_000)))
    names: list[str] = ids.to_pylist()
    engine.by_type(TYPE)
    found["nodes by type"] = _median(lambda _: engine.by_type(TYPE), order.rounds)
    found["by name"] = _median(lambda _: engine.by_name(NAME), order.rounds)
    found["neighbours"] = _seconds(lambda: [engine.neighbors(id_) for id_ in names]) / len(names)
    found["search, depth 4"] = _seconds(lambda: [engine.search(id_) for id_ in names[:200]]) / 200
    changed = [_changed(nodes, edges, order.nodes // 2, round_) for round_ in range(order.rounds + 1)]
    file = file_of(order.nodes // 2)
    engine.replace_file(file, *changed[-1])
    found["one-file commit"] = _median(lambda round_: engine.replace_file(file, *changed[round_]), order.rounds)
    found["tag"] = _median(lambda round_: engine.tag(f"t{round_}"), min(3, order.rounds))
    found["memory MB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return found


def _changed(nodes: pa.Table, edges: pa.Table, number: int, round_: int) -> tuple[pa.Table, pa.Table]:
    """The contents of a file after somebody has typed a few lines above everything: no node keeps its line."""
    inside, starting = of_file(nodes, edges, number)
    lines = [f'{{"line": {round_ * 1000 + row}}}' for row in range(len(inside))]
    place = inside.schema.get_field_index("metadata")
    return inside.set_column(place, "metadata", pa.array(lines)), starting


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _median(work: Callable[[int], object], rounds: int) -> float:
    return statistics.median(_seconds(lambda number=number: work(number)) for number in range(rounds))  # type: ignore[misc]
