"""SQL over a workspace: what is there, as tables; questions only, within limits."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from holdfast.catalog import payloads as p
from holdfast.catalog.compactor import Compactor
from holdfast.catalog.operations import Catalog
from holdfast.catalog.payload import Payload
from holdfast.catalog.sql import QueryLimits, query, system_names, system_table
from holdfast.catalog.workspace import Workspace
from holdfast.errors import BadInput, HoldfastError, LimitReached, NotFound
from holdfast.storage.memory import MemoryStore
from holdfast.testing.clock import VirtualClock
from holdfast.testing.faulty import CountingStore

NOW = datetime(2026, 3, 14, 10, 30, tzinfo=UTC)


def tell(workspace: Workspace, *said: Payload) -> None:
    for domain in dict.fromkeys(one.DOMAIN for one in said):
        ledger = workspace.ledger(domain)
        paths = [ledger.append(one).path for one in said if domain == one.DOMAIN]
        Compactor(workspace, domain).compact(paths)


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def workspace(clock: VirtualClock) -> Workspace:
    made = Workspace(root=CountingStore(MemoryStore()), tenant="acme", name="prod", clock=clock)
    made.initialize()
    catalog = Catalog(made)
    catalog.create_namespace("sales")
    catalog.register_table(
        "sales", "orders", columns=[p.Column(name="id", type="bigint"), p.Column(name="total", type="double")]
    )
    catalog.register_table("sales", "returns", columns=[p.Column(name="id", type="bigint")])
    catalog.register_table("sales", "empty")
    pin = p.SnapshotPin(chain="raw", manifest_id=4, manifest_hash="sha256:1", ref="r4")
    published = p.DatasetPublished(
        dataset="orders", kind="kv", chain="c", manifest_id=1, manifest_hash="sha256:2", ref="r1", commit_ulid="u1",
        run_id="run-1", published_at=NOW, row_count=10, byte_size=100, inputs=(pin,),
    )  # fmt: skip
    tell(
        made,
        published,
        p.RunStarted(run_id="run-1", started_at=NOW, pipeline="nightly"),
        p.RunFinished(run_id="run-1", finished_at=NOW),
        p.RunStarted(run_id="run-2", started_at=NOW),
        p.TaskStarted(run_id="run-1", task_id="t", started_at=NOW),
        p.TaskFailed(run_id="run-1", task_id="t", failed_at=NOW, error="no"),
        p.LineageEdgesAdded(edges=(p.Edge(source="raw", target="orders"),), run_id="run-1"),
        p.PipelineChanged(pipeline="nightly"),
    )
    return made


def test_every_system_table_can_be_asked(workspace: Workspace) -> None:
    """C26: namespaces, tables, columns, commits, snapshots, edges, runs, tasks, data sets; the same as Arrow."""
    for name in system_names():
        assert query(workspace, f"SELECT * FROM system.{name}").num_rows == len(system_table(workspace, name))
    rows = query(workspace, 'SELECT "table", count(*) AS n FROM system.columns GROUP BY 1 ORDER BY 1').to_pylist()
    assert rows == [{"table": "orders", "n": 2}, {"table": "returns", "n": 1}]
    assert query(workspace, "SELECT name FROM system.columns WHERE ordinal = 2").to_pylist() == [{"name": "total"}]
    runs = query(workspace, "SELECT run_id, status, pipeline FROM system.runs ORDER BY 1").to_pylist()
    assert runs == [
        {"run_id": "run-1", "status": "finished", "pipeline": "nightly"},
        {"run_id": "run-2", "status": "running", "pipeline": ""},
    ]
    found = query(
        workspace,
        "SELECT d.dataset, d.row_count, i.chain, i.manifest_id FROM system.datasets d "
        "JOIN system.inputs i ON i.dataset = d.dataset AND i.built_manifest_id = d.manifest_id",
    )
    assert found.to_pylist() == [{"dataset": "orders", "row_count": 10, "chain": "raw", "manifest_id": 4}]
    assert query(workspace, "SELECT error FROM system.tasks").to_pylist() == [{"error": "no"}]
    domains = query(workspace, "SELECT DISTINCT domain FROM system.commits ORDER BY 1").to_pylist()
    assert [row["domain"] for row in domains] == ["catalog", "executions", "lineage", "orchestration"]


def test_a_question_may_use_with_and_subqueries_and_names_without_the_schema(workspace: Workspace) -> None:
    """C26: any SELECT that DuckDB has."""
    asked = 'WITH big AS (SELECT * FROM tables WHERE column_count > 1) SELECT big."table" FROM big'
    assert query(workspace, asked).to_pylist() == [{"table": "orders"}]
    both = 'SELECT "table" FROM system.tables UNION SELECT namespace FROM SYSTEM.Namespaces ORDER BY 1'
    assert [row["table"] for row in query(workspace, both).to_pylist()] == ["empty", "orders", "returns", "sales"]


def test_only_the_domains_that_are_named_are_read(workspace: Workspace) -> None:
    """C5: a question to lineage reads nothing of the catalog."""
    counting = workspace.root
    assert isinstance(counting, CountingStore)
    counting.reset()
    query(workspace, "SELECT count(*) FROM system.edges")
    read = [operation.key for operation in counting.log]
    assert read
    assert all("lineage" in key for key in read)


def test_as_of_a_time_is_what_was_visible_then(workspace: Workspace, clock: VirtualClock) -> None:
    """C26: time travel on the state itself."""
    clock.advance(60)
    before = clock.now()
    clock.advance(60)
    Catalog(workspace).drop_table("sales", "orders")
    asked = "SELECT count(*) AS n FROM system.tables"
    assert query(workspace, asked).to_pylist() == [{"n": 2}]
    assert query(workspace, asked, at=before).to_pylist() == [{"n": 3}]


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM system.tables",
        "INSERT INTO system.tables SELECT * FROM system.tables",
        "UPDATE system.tables SET owner = 'me'",
        "CREATE TABLE x AS SELECT 1",
        "DROP TABLE system.tables",
        "SELECT 1; SELECT 2",
        "",
        "COPY (SELECT 1) TO 'x.csv'",
        "ATTACH 'x.db'",
        "SET memory_limit = '1TB'",
        "PRAGMA database_list",
        "INSTALL httpfs",
        "CALL pragma_version()",
        "WITH d AS (DELETE FROM system.tables RETURNING *) SELECT * FROM d",
        "SELECT * INTO y FROM system.tables",
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM glob('*')",
        "SELECT * FROM 'x.parquet'",
        "SELECT * FROM information_schema.tables",
        "SELECT * FROM duckdb_settings()",
        "SELECT * FROM system.secrets",
        "SELECT * FROM other.system.tables",
        "SELECT nothing FROM system.tables",
        "SELEC 1",
    ],
)
def test_whatever_is_no_question_is_refused(workspace: Workspace, statement: str) -> None:
    """C26: read-only; nothing outside of `system` is there, and each gets a line that says so."""
    with pytest.raises((BadInput, NotFound)) as caught:
        query(workspace, statement)
    assert "\n" not in str(caught.value)


def test_answers_are_limited_in_rows_bytes_and_time(workspace: Workspace) -> None:
    """C26: limits on rows, bytes and time."""
    with pytest.raises(LimitReached, match="LIMIT"):
        query(workspace, "SELECT repeat('x', 1000) FROM system.columns", limits=QueryLimits(bytes=100))
    many = "SELECT a.name FROM system.columns a, system.columns b, system.columns c"
    with pytest.raises(LimitReached, match="LIMIT"):
        query(workspace, many, limits=QueryLimits(rows=10))
    assert query(workspace, f"{many} LIMIT 10", limits=QueryLimits(rows=10)).num_rows == 10
    endless = "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) SELECT count(*) FROM t"
    with pytest.raises(LimitReached, match="longer than"):
        query(workspace, endless, limits=QueryLimits(seconds=0.2))


def test_wrong_names_say_what_there_is(workspace: Workspace) -> None:
    """C26: an error that helps."""
    asks: list[Callable[[], object]] = [
        lambda: system_table(workspace, "nope"),
        lambda: query(workspace, "SELECT * FROM system.nope"),
    ]
    for ask in asks:
        with pytest.raises(HoldfastError, match=r"tables"):
            ask()
