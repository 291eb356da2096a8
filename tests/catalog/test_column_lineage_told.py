"""Lineage from SQL in a workspace: schemas from the catalog, told, replaced, and asked for by column at any time."""

from __future__ import annotations

import pyarrow as pa
import pytest

from holdfast.catalog import payloads as p
from holdfast.catalog.announce import announce
from holdfast.catalog.column_lineage_told import EDGES_A_EVENT, lineage_drafts, sql_lineage, tell_lineage
from holdfast.catalog.compactor import Compactor
from holdfast.catalog.lineage import downstream, load_lineage, upstream
from holdfast.catalog.operations import Catalog
from holdfast.catalog.workspace import Workspace
from holdfast.kv import publish_arrow
from holdfast.testing.clock import VirtualClock

pytestmark = pytest.mark.parametrize("store_kind", ["memory"])
LINES = "SELECT id, price * n AS total FROM raw WHERE n > 0"
REPORT = "SELECT o.id, sum(o.total) AS total FROM sales.orders o GROUP BY o.id"


@pytest.fixture
def known(workspace: Workspace) -> Workspace:
    """A data set `raw`, and two tables made from it one after the other."""
    raw = workspace.dataset("raw", "kv")
    publish_arrow(raw, pa.table({"id": [1], "price": [2.0], "n": [3]}), key="id", shards=1)
    announce(workspace, "raw")
    catalog = Catalog(workspace)
    catalog.create_namespace("sales")
    for table in ("orders", "report"):
        columns = [p.Column(name=name, type="double") for name in ("id", "total")]
        catalog.register_table("sales", table, columns=columns)
    return workspace


def tell(workspace: Workspace, sql: str, output: str) -> None:
    assert tell_lineage(workspace, sql_lineage(workspace, sql, output)) is not None


def by_column(table: pa.Table) -> list[tuple[int, str, str, str]]:
    return [
        (
            row["depth"],
            f"{row['source']}.{row['source_column']}",
            f"{row['target']}.{row['target_column']}",
            row["kind"],
        )
        for row in table.to_pylist()
    ]


def test_columns_are_followed_both_ways_to_any_depth(known: Workspace) -> None:
    """C28: by column where SQL tells, through tables and data sets whose columns the catalog knows."""
    tell(known, LINES, "sales.orders")
    tell(known, REPORT, "sales.report")
    assert by_column(upstream(known, "sales.report", column="total", depth=None)) == [
        (1, "sales.orders.total", "sales.report.total", "aggregation"),
        (2, "raw.n", "sales.orders.total", "transformation"),
        (2, "raw.price", "sales.orders.total", "transformation"),
    ]
    assert by_column(downstream(known, "raw", column="id", depth=None)) == [
        (1, "raw.id", "sales.orders.id", "identity"), (2, "sales.orders.id", "sales.report.id", "identity")
    ]  # fmt: skip
    assert len(upstream(known, "sales.orders", columns=True)) == 3
    assert [(row["source"], row["kind"]) for row in upstream(known, "sales.orders").to_pylist()] == [("raw", "sql")]
    only = p.LineageEdgesAdded(
        edges=(p.Edge(source="x", target="sales.orders", source_column="a", target_column="id"),)
    )
    Compactor(known, "lineage").compact([known.ledger("lineage").append(only).path])
    sources = [row["source"] for row in upstream(known, "sales.orders").to_pylist()]
    assert sources == ["raw", "x"], "of tables that have no edge of their own, those of their columns are shown"


def test_columns_that_decide_about_rows_are_shown_when_asked_for(known: Workspace) -> None:
    """C28: a filter touches every column; upstream of one it is listed at its table, downstream it ends there."""
    tell(known, LINES, "sales.orders")
    tell(known, REPORT, "sales.report")
    up = by_column(upstream(known, "sales.report", column="id", depth=None, indirect=True))
    assert up == [
        (1, "sales.orders.id", "sales.report.", "group"),
        (1, "sales.orders.id", "sales.report.id", "identity"),
        (2, "raw.id", "sales.orders.id", "identity"),
        (2, "raw.n", "sales.orders.", "filter"),
    ]
    down = by_column(downstream(known, "raw", column="n", depth=None, indirect=True))
    assert down == [
        (1, "raw.n", "sales.orders.", "filter"),
        (1, "raw.n", "sales.orders.total", "transformation"),
        (2, "sales.orders.total", "sales.report.total", "aggregation"),
    ]
    assert len(upstream(known, "sales.report", columns=True, indirect=True)) == 3


def test_a_new_statement_replaces_what_the_old_one_said_and_nothing_else(known: Workspace, clock: VirtualClock) -> None:
    """C28: at a time before, the old lineage is still there; what others reported stays."""
    reported = p.LineageEdgesAdded(edges=(p.Edge(source="elsewhere", target="sales.orders", kind="copied"),))
    Compactor(known, "lineage").compact([known.ledger("lineage").append(reported).path])
    tell(known, LINES, "sales.orders")
    clock.advance(60)
    before = clock.now()
    clock.advance(60)
    tell(known, "SELECT id, price AS total FROM raw", "sales.orders")
    now = by_column(upstream(known, "sales.orders", columns=True, indirect=True))
    assert {(source, kind) for _, source, _, kind in now} == {("raw.price", "identity"), ("raw.id", "identity")}
    assert len(upstream(known, "sales.orders", columns=True, indirect=True, at=before)) == 4
    sources = {row["source"] for row in upstream(known, "sales.orders").to_pylist()}
    assert sources == {"raw", "elsewhere"}
    for sql, number in (("SELECT 1 AS id", 0), (LINES, 4), ("SELECT 1 AS id", 0), (LINES, 4)):
        tell(known, sql, "sales.orders")
        assert len(upstream(known, "sales.orders", columns=True, indirect=True)) == number, "taken out, told again"


def test_telling_what_is_known_says_nothing_and_a_key_makes_repeating_safe(known: Workspace) -> None:
    """C13, C28: the same lineage again is no event; the same call again is the same events."""
    found = sql_lineage(known, LINES, "sales.orders")
    first = lineage_drafts(known, found, run_id="r", key="run/r")
    again = lineage_drafts(known, found, run_id="r", key="run/r")
    assert [draft.key for draft in first] == [draft.key for draft in again]
    assert tell_lineage(known, found, run_id="r", key="run/r") is not None
    assert tell_lineage(known, found, run_id="r", key="run/r") is None
    assert tell_lineage(known, found, run_id="s") is not None, "another run made it"
    assert {row["run_id"] for row in upstream(known, "sales.orders").to_pylist()} == {"s"}


def test_lineage_of_many_columns_is_told_in_parts(known: Workspace) -> None:
    """C12, C28: an event has a largest size."""
    items = ", ".join(f"id AS c{place}" for place in range(EDGES_A_EVENT + 10))
    found = sql_lineage(known, f"SELECT {items} FROM raw", "wide")
    assert len(lineage_drafts(known, found)) == 2
    tell_lineage(known, found)
    assert len(downstream(known, "raw", column="id")) == EDGES_A_EVENT + 10


def test_a_dotted_name_is_a_column_only_where_no_thing_is_called_so(known: Workspace) -> None:
    """C28: `namespace.table.column`."""
    tell(known, LINES, "sales.orders")
    graph = load_lineage(known)
    assert graph.split("sales.orders.total") == ("sales.orders", "total")
    assert graph.split("raw.n") == ("raw", "n")
    assert graph.split("sales.orders") == ("sales.orders", None)
    assert graph.split("nothing.here") == ("nothing.here", None)
    named = p.LineageEdgesAdded(edges=(p.Edge(source="raw.n", target="sales.orders"),))
    Compactor(known, "lineage").compact([known.ledger("lineage").append(named).path])
    assert load_lineage(known).split("raw.n") == ("raw.n", None)


def test_only_the_visible_snapshot_says_which_columns_a_data_set_has(known: Workspace) -> None:
    """C28: star means what is there now."""
    raw = known.dataset("raw")
    publish_arrow(raw, pa.table({"id": [1], "other": [2.0]}), key="id", shards=1)
    announce(known, "raw")
    assert sql_lineage(known, "SELECT * FROM raw", "x").columns == ("id", "other")
    raw.rollback(why="the columns went missing")
    announce(known, "raw")
    assert sql_lineage(known, "SELECT * FROM RAW", "x").columns == ("id", "price", "n")
