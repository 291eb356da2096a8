"""Questions to a large catalog: search, lineage, SQL; and how each grows with the number of tables and edges.

A catalog of 100,000 tables with ten columns each, and a lineage of a million edges: layers of tables, each built from
some of the layer before. The state is published as by any large fold; `catalog_fold` measures how it gets there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from bench.harness import Samples, Settings, exponent, stopwatch, timed
from bench.report import Report, duration
from holdfast.catalog import Watermark, Workspace
from holdfast.catalog.domain_state import BASE, DomainState, encode_table, state_file
from holdfast.catalog.fold import fold_table
from holdfast.catalog.lineage import downstream, load_lineage, upstream
from holdfast.catalog.publishing import Rebuilt, rebuild_domain
from holdfast.catalog.search import refresh_search, search
from holdfast.catalog.sql import query
from holdfast.catalog.tables import state_table
from holdfast.chain import Run
from holdfast.storage import LocalStore

SIZES = ((1_000, 10_000), (10_000, 100_000), (100_000, 1_000_000))
"""(tables, edges)."""
LAYERS = 10
TABLES_A_NAMESPACE = 100
ROUNDS = 15
WORDS = ("orders", "users", "prices", "clicks", "stock", "returns", "visits", "refunds", "carts", "coupons")


def run(settings: Settings) -> Report:
    sizes = SIZES[: settings.pick(3, 1)]
    report = Report(
        name="catalog_questions",
        about="questions to a workspace on a memory disk, by tables and edges",
        columns=("", *(f"{tables:,} / {edges:,}" for tables, edges in sizes), "growth"),
    )
    found: dict[str, list[float]] = {}
    for tables, edges in sizes:
        for name, seconds in _measure(settings, tables, edges):
            found.setdefault(name, []).append(seconds)
            report.figures[f"{name} at {tables} tables median_s"] = seconds
    for name, times in found.items():
        points = [(tables, value) for (tables, _), value in zip(sizes, times, strict=True)]
        growth = f"n^{exponent(points):.2f}" if len(points) > 1 else ""
        report.rows.append((name, *map(duration, times), growth))
    report.notes.append("growth is the exponent between the two largest sizes; each question is asked of a new reader")
    return report


def _measure(settings: Settings, tables: int, edges: int) -> Iterator[tuple[str, float]]:
    store = LocalStore(settings.memory_disk / f"questions-{tables}", durable=False)
    workspace = Workspace(root=store, tenant="acme", name="prod", by="bench")
    workspace.initialize()
    _publish(workspace, "catalog", "tables", _tables(tables))
    _publish(workspace, "lineage", "edges", _edges(tables, edges))
    with stopwatch() as watch:
        refresh_search(workspace)
    yield "build the search index", watch.seconds
    middle = _name(tables // 2 + 7)
    questions: dict[str, Callable[[], object]] = {
        "search a word": lambda: search(workspace, "refunds"),
        "search with a typo": lambda: search(workspace, "refnuds"),
        "search a prefix": lambda: search(workspace, "coup"),
        "upstream, depth 1": lambda: upstream(workspace, middle),
        "upstream, any depth": lambda: upstream(workspace, middle, depth=None),
        "downstream, any depth": lambda: downstream(workspace, middle, depth=None),
        "SQL: count tables": lambda: query(workspace, "SELECT count(*) FROM system.tables"),
        "SQL: columns of a table": lambda: query(
            workspace, "SELECT name FROM system.columns WHERE namespace = 'n0000' AND \"table\" = 't0000007'"
        ),
    }
    graph = load_lineage(workspace)
    questions["the same from a graph that is kept"] = lambda: graph.walk(middle, "source", depth=None)
    for name, question in questions.items():
        question()
        yield name, Samples(tuple(timed(question) for _ in range(settings.pick(ROUNDS, 2)))).median


def _publish(workspace: Workspace, domain: str, table: str, rows: pa.Table) -> None:
    """The rows as the base of a table, by the code that every large fold ends with."""
    spec = state_table(table)

    def fold(run: Run, state: DomainState) -> Rebuilt:
        del state
        data, path = encode_table(rows), run.artifact_key(f"{table}.parquet")
        workspace.store.upload(path, [data])
        file = state_file(spec, BASE, path, rows, data)
        mark = Watermark(position=len(rows), event_id=rows.column("event_id")[-1].as_py())
        return Rebuilt(tables={table: (file,)}, watermark=mark, events=len(rows), quarantined=0)

    rebuild_domain(workspace, domain, fold)


def _name(number: int) -> str:
    return f"n{number // TABLES_A_NAMESPACE:04}.t{number:07}"


def _tables(tables: int) -> pa.Table:
    columns = [
        {"name": f"{WORDS[place]}_{place}", "type": "bigint", "nullable": True, "description": "", "tags": "{}"}
        for place in range(10)
    ]
    named = [_name(number).partition(".") for number in range(tables)]
    said = [f"{WORDS[number % 10]} and {WORDS[number // 10 % 10]} of region {number % 97}" for number in range(tables)]
    return _stated(
        "tables",
        namespace=[one for one, _, _ in named],
        table=[two for _, _, two in named],
        kind=["table"] * tables,
        location=[""] * tables,
        description=said,
        owner=[""] * tables,
        tags=["{}"] * tables,
        properties=["{}"] * tables,
        columns=[columns] * tables,
    )


def _edges(tables: int, edges: int) -> pa.Table:
    """Each table of a layer is built from some of the layer before, spread by a fixed step."""
    layer = tables // LAYERS
    each = edges // (tables - layer)
    targets = np.repeat(np.arange(layer, tables), each)
    turns = np.tile(np.arange(each), tables - layer)
    sources = (targets // layer - 1) * layer + (targets * 31 + turns * 7_919) % layer
    names = pa.array([_name(number) for number in range(tables)])
    empty = pa.array([""] * len(targets))
    return _stated(
        "edges",
        source=names.take(pa.array(sources)),
        target=names.take(pa.array(targets)),
        **dict.fromkeys(("source_column", "target_column", "source_snapshot", "target_snapshot"), empty),
        kind=empty,
        run_id=empty,
    )


def _stated(name: str, /, **columns: Any) -> pa.Table:
    """Rows of a state, in the order of their keys."""
    spec = state_table(name)
    count = len(next(iter(columns.values())))
    stated = {
        **columns,
        "position": np.arange(1, count + 1),
        "event_id": [f"{number:026}" for number in range(count)],
        "deleted": np.zeros(count, np.bool_),
    }
    rows = pa.table([pa.array(stated[field.name], field.type) for field in spec.schema], schema=spec.schema)
    return fold_table(spec, [rows])
