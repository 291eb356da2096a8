"""Questions to a large catalog: search, lineage, SQL; and how each grows with the number of tables and edges.

A catalog of 100,000 tables with ten columns each, and a lineage of a million edges: layers of tables, each built from
some of the layer before. The state is published by the same code as any other, from events that are made here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from bench.harness import Samples, Settings, exponent, stopwatch, timed
from bench.report import Report, duration
from holdfast.catalog import EventDraft, Payload, Workspace
from holdfast.catalog import payloads as p
from holdfast.catalog.compactor import Compactor, MergeLimits
from holdfast.catalog.lineage import downstream, upstream
from holdfast.catalog.search import refresh_search, search
from holdfast.catalog.sql import query
from holdfast.storage import LocalStore

SIZES = ((1_000, 10_000), (10_000, 100_000), (100_000, 1_000_000))
"""(tables, edges)."""
LAYERS = 10
TABLES_A_NAMESPACE = 100
EDGES_AN_EVENT = 1_000
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
    yield "tell and fold the tables", timed(lambda: _fold(workspace, "catalog", _tables(tables)))
    yield "tell and fold the edges", timed(lambda: _fold(workspace, "lineage", _edges(tables, edges)))
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
    for name, question in questions.items():
        question()
        yield name, Samples(tuple(timed(question) for _ in range(settings.pick(ROUNDS, 2)))).median


def _fold(workspace: Workspace, domain: str, said: Iterator[Payload]) -> None:
    """Through the ledger, as everything: in batches that a service would take."""
    ledger = workspace.ledger(domain)
    compactor = Compactor(workspace, domain, limits=MergeLimits(files_max=64, rows_max=200_000))
    batch: list[EventDraft] = []
    for payload in said:
        batch.append(EventDraft(payload=payload))
        if len(batch) == 250:
            compactor.compact([receipt.path for receipt in ledger.append_many(batch)])
            batch = []
    if batch:
        compactor.compact([receipt.path for receipt in ledger.append_many(batch)])


def _name(number: int) -> str:
    return f"n{number // TABLES_A_NAMESPACE:04}.t{number:07}"


def _tables(tables: int) -> Iterator[Payload]:
    for number in range(tables):
        namespace, _, table = _name(number).partition(".")
        word, other = WORDS[number % 10], WORDS[(number // 10) % 10]
        columns = tuple(p.Column(name=f"{WORDS[place]}_{place}", type="bigint") for place in range(10))
        description = f"{word} and {other} of region {number % 97}"
        yield p.TableUpdated(namespace=namespace, table=table, description=description, columns=columns)


def _edges(tables: int, edges: int) -> Iterator[Payload]:
    """Each table of a layer is built from some of the layer before, spread by a fixed step."""
    layer = tables // LAYERS
    a_table = edges // (tables - layer)
    batch: list[p.Edge] = []
    for number in range(layer, tables):
        first = (number // layer - 1) * layer
        for turn in range(a_table):
            source = first + (number * 31 + turn * 7_919) % layer
            batch.append(p.Edge(source=_name(source), target=_name(number)))
            if len(batch) == EDGES_AN_EVENT:
                yield p.LineageEdgesAdded(edges=tuple(batch))
                batch = []
    if batch:
        yield p.LineageEdgesAdded(edges=tuple(batch))
