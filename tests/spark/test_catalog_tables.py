"""`system.*` as DataFrames and the search index on Spark: what they are in process, at any size and at any time."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from holdfast.catalog import Workspace
from holdfast.catalog import payloads as p
from holdfast.catalog.compactor import Compactor
from holdfast.catalog.domain_state import DomainState
from holdfast.catalog.layout import LEDGER_DOMAINS, ledger_layout
from holdfast.catalog.orchestration_payloads import PipelineRunChanged, PipelineTaskChanged
from holdfast.catalog.payload import Payload
from holdfast.catalog.search import build_here, load_search, refresh_search, search
from holdfast.catalog.search_index import build_index, merge_indexes
from holdfast.catalog.sql import query, system_names
from holdfast.catalog.tables import STATE_TABLES
from holdfast.errors import BuildFailed, NotFound
from holdfast.spark import compact_domain, read_system_table, refresh_search_index, register_system_tables
from holdfast.spark.failures import SPARK_ERRORS
from holdfast.storage import LocalStore, MemoryStore
from holdfast.testing.clock import VirtualClock
from tests.catalog.test_fold import NOW, event, ulid
from tests.golden.make import GOLDEN

PIN = p.SnapshotPin(chain="raw", manifest_id=4, manifest_hash="sha256:1", ref="r4")


def tell(workspace: Workspace, first: int, *said: Payload) -> list[str]:
    """Events with the positions from `first` on, in the ledger of their domain."""
    layout = ledger_layout(said[0].DOMAIN)
    paths = []
    for number, payload in enumerate(said):
        paths.append(layout.event_key(ulid(first + number)))
        workspace.store.put_new(paths[-1], event(first + number, payload).encode())
    return paths


def table(number: int, **given: Any) -> p.TableRegistered:
    columns = tuple(p.Column(name=f"c{place}", type="int", description=f"größe {place}") for place in range(number % 4))
    return p.TableRegistered(namespace=f"n{number % 3}", table=f"orderTable_{number}", columns=columns, **given)


def dataset(number: int, manifest_id: int) -> p.DatasetPublished:
    return p.DatasetPublished(
        dataset=f"d{number}", kind="kv", chain="c", manifest_id=manifest_id, manifest_hash="sha256:2", ref="r1",
        commit_ulid="u1", run_id="run-1", published_at=NOW, row_count=number, inputs=(PIN,) * (number % 3),
        columns=(p.Column(name="customerId", type="int"),), description=f"made {number} times",
    )  # fmt: skip


@pytest.fixture(scope="module")
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory, clock: VirtualClock) -> Iterator[Workspace]:
    """Every type of event there is, and some more; each table a base with deltas on top, and things that are gone."""
    root = LocalStore(tmp_path_factory.mktemp("tables"), durable=False)
    made = Workspace(root=root, tenant="acme", name="prod", by="tests", clock=clock)
    made.initialize()
    for domain in LEDGER_DOMAINS:
        layout, compactor = ledger_layout(domain), Compactor(made, domain)
        golden = sorted((GOLDEN / "v1").glob(f"ledger/*/*/{layout.event_prefix}/*.json"))
        paths = []
        for file in golden:
            paths.append(layout.event_key(file.stem))
            made.store.put_new(paths[-1], file.read_bytes())
        odd = layout.event_key(ulid(7))
        made.store.put_new(odd, b"{")
        compactor.compact([*paths, odd])
    clock.advance(60)
    said: dict[str, list[Payload]] = {
        "catalog": [
            *(table(number) for number in range(20)),
            *(p.TableDropped(namespace=f"n{number % 3}", table=f"orderTable_{number}") for number in range(3)),
            *(dataset(number, manifest_id) for number in range(6) for manifest_id in range(1, 3)),
            p.DatasetRolledBack(
                dataset="d3", chain="c", left_manifest_id=2, manifest_id=1, manifest_hash="h", ref="r", commit_ulid="u",
                rolled_back_at=NOW,
            ),
            table(1, description="registered again"),
        ],
        "executions": [
            *(p.RunStarted(run_id=f"r{number}", started_at=NOW, attempt=number % 2 + 1) for number in range(20)),
            *(p.RunFinished(run_id=f"r{number}", finished_at=NOW, attempt=number % 2 + 1) for number in range(5, 25)),
            *(p.TaskStarted(run_id="r", task_id=f"t{number}", started_at=NOW) for number in range(10)),
            *(p.TaskFailed(run_id="r", task_id=f"t{number}", failed_at=NOW) for number in range(5, 15)),
        ],
        "lineage": [p.LineageEdgesAdded(edges=(p.Edge(source="a", target="b"), p.Edge(source="a", target="c")))],
        "orchestration": [
            p.PipelineChanged(pipeline="nightly"),
            p.ScheduleChanged(pipeline="nightly", schedule="s", cron="0 3 * * *"),
            PipelineRunChanged(
                run_id="r", pipeline="nightly", state="running", started_at=NOW, changed_at=NOW, datasets=("a", "b")
            ),
            PipelineTaskChanged(run_id="r", task_id="a", state="running", changed_at=NOW),
        ],
    }  # fmt: skip
    for domain, many in said.items():
        paths = tell(made, 10_000, *many)
        for start in range(0, len(paths), 15):
            Compactor(made, domain).compact(paths[start : start + 15])
    yield made
    assert [problem for domain in (*LEDGER_DOMAINS, "search") for problem in made.domain(domain).verify()] == []


def plain(found: pa.Table) -> list[str]:
    """Rows in an order of their own, with times that are told alike whatever zone they are told in."""
    rows = [
        {name: value.astimezone(UTC) if isinstance(value, datetime) else value for name, value in row.items()}
        for row in found.to_pylist()
    ]
    return sorted(map(repr, rows))


def arrow(frame: DataFrame) -> pa.Table:
    return frame.toArrow()


@pytest.mark.parametrize("name", system_names())
def test_every_system_table_is_the_same_dataframe(spark: SparkSession, workspace: Workspace, name: str) -> None:
    """C26: read by the driver, or in several parts by executors, it is what SQL in process gives."""
    expected = query(workspace, f"SELECT * FROM system.{name}")
    few = read_system_table(spark, workspace, f"system.{name}")
    many = read_system_table(spark, workspace, name, driver_rows_max=0, rows_per_part=12)
    assert few.columns == many.columns == expected.column_names
    assert few.dtypes == many.dtypes
    assert plain(arrow(few)) == plain(arrow(many)) == plain(expected)
    assert len(expected)


def test_a_dataframe_stays_at_its_snapshot_and_older_ones_can_be_asked(
    spark: SparkSession, workspace: Workspace, clock: VirtualClock
) -> None:
    """C26: as of a time; views of all of them; nothing is empty because it could not be read."""
    before = clock.now()
    frame = read_system_table(spark, workspace, "edges", driver_rows_max=0)
    count = frame.count()
    clock.advance(60)
    edges = tuple(p.Edge(source=f"s{number}", target="t") for number in range(5))
    Compactor(workspace, "lineage").compact(tell(workspace, 20_000, p.LineageEdgesAdded(edges=edges)))
    assert frame.count() == count
    assert read_system_table(spark, workspace, "edges").count() == count + 5
    assert read_system_table(spark, workspace, "edges", at=before, driver_rows_max=0).count() == count
    names = register_system_tables(spark, workspace, prefix="then_", at=before)
    assert names == [f"then_{name}" for name in system_names()]
    register_system_tables(spark, workspace)
    (row,) = spark.sql(
        "SELECT (SELECT count(*) FROM system_edges) - (SELECT count(*) FROM then_edges) AS more,"
        " (SELECT count(*) FROM system_runs WHERE status = 'running') AS running"
    ).collect()
    running = query(workspace, "SELECT count(*) AS n FROM system.runs WHERE status = 'running'").to_pylist()
    assert (row.more, row.running) == (5, running[0]["n"])
    with pytest.raises(NotFound, match="use one of"):
        read_system_table(spark, workspace, "system.nothing")
    for name in names:
        spark.catalog.dropTempView(name)
        spark.catalog.dropTempView(name.replace("then_", "system_"))


def test_a_damaged_file_of_the_state_stops_the_job(spark: SparkSession, workspace: Workspace) -> None:
    """C22, C26: executors compare each file with its checksum; the search index is not built from half a catalog."""
    state = DomainState.of_manifest("catalog", workspace.domain("catalog").load_current())
    file = state.files_of("tables")[0]
    good = workspace.store.get(file.path).data
    workspace.store.delete([file.path])
    workspace.store.put_new(file.path, good[:-1] + b"x")
    try:
        with pytest.raises(SPARK_ERRORS, match="CorruptShard"):
            read_system_table(spark, workspace, "columns", driver_rows_max=0).collect()
        with pytest.raises(BuildFailed, match=r"nothing was published.*is damaged: its checksum"):
            refresh_search_index(spark, workspace)
    finally:
        workspace.store.delete([file.path])
        workspace.store.put_new(file.path, good)


# -- search -----------------------------------------------------------------------------------------------------------


QUESTIONS = ["orderTable", "order table 7", "ordertbale_7", "grosse größe", "customer", "d3", "made 4 times", "nothing"]


def test_both_builds_of_the_search_index_answer_the_same_in_the_same_order(
    spark: SparkSession, workspace: Workspace
) -> None:
    """C27: bit by bit the same three tables, whatever parts they were built in; published as the search domain's next
    snapshot, which says which catalog it was built from."""
    current = workspace.domain("catalog").current()
    assert current is not None
    expected = build_here(workspace, current.ref)
    published = refresh_search_index(spark, workspace, rows_per_part=12)
    assert published is not None
    on_spark = load_search(workspace)
    assert on_spark.built_from.manifest_id == current.manifest_id
    assert on_spark.built_from.manifest_hash == current.manifest_hash
    stored = {artifact.detail["table"]: artifact for artifact in published.manifest.artifacts}
    assert {name: artifact.row_count for name, artifact in stored.items()} == {
        name: len(rows) for name, rows in expected.by_name().items()
    }
    found = [search(workspace, text) for text in QUESTIONS]
    assert refresh_search_index(spark, workspace) is None, "the catalog has not moved"
    assert refresh_search(workspace) is None, "and both builds know it"
    Compactor(workspace, "catalog").compact(tell(workspace, 30_000, p.NamespaceCreated(namespace="more")))
    assert refresh_search(workspace) is not None
    workspace.domain("catalog").rollback()
    assert refresh_search(workspace) is not None, "the index follows the catalog back"
    here = load_search(workspace)
    assert [here.find(text) for text in QUESTIONS] == found
    assert all(found[:-1])
    for name, artifact in stored.items():
        again = workspace.domain("search").load_current()
        assert again is not None
        same = next(one for one in again.artifacts if one.detail["table"] == name)
        assert same.checksum == artifact.checksum, name


def test_indexes_of_parts_are_the_index_of_the_whole() -> None:
    """C27: documents of one name, empty parts, and nothing at all."""
    rows = [
        {"namespace": "a.b", "table": "c", "description": "second", "tags": "{}", "position": 1, "event_id": "x"},
        {"namespace": "a", "table": "b.c", "description": "first", "tags": "{}", "position": 2, "event_id": "x"},
        {"namespace": "a", "table": "d", "tags": '{"x": "first"}', "position": 3, "event_id": "x"},
    ]
    empty = {name: spec.schema.empty_table() for name, spec in STATE_TABLES.items()}
    filled = [{**row, "deleted": False} for row in rows]

    def tables(*chosen: int) -> dict[str, pa.Table]:
        picked = [filled[number] for number in chosen]
        return empty | {"tables": pa.Table.from_pylist(picked, schema=STATE_TABLES["tables"].schema)}

    whole = build_index(tables(0, 1, 2)).by_name()
    for parts in ([(0, 1, 2)], [(2,), (), (1, 0)], [(1,), (2,), (0,)]):
        merged = merge_indexes([build_index(tables(*part)) for part in parts]).by_name()
        assert {name: merged[name].to_pylist() for name in merged} == {name: whole[name].to_pylist() for name in whole}
    nothing = merge_indexes([]).by_name()
    assert {name: rows.schema for name, rows in nothing.items()} == {
        name: rows.schema for name, rows in build_index(empty).by_name().items()
    }


def test_an_index_of_an_empty_workspace_is_empty(spark: SparkSession, tmp_path: Path) -> None:
    """C27: built from no snapshot at all, and it says so."""
    made = Workspace(root=LocalStore(tmp_path, durable=False), tenant="acme", name="prod")
    made.initialize()
    assert refresh_search_index(spark, made) is not None
    assert load_search(made).built_from.manifest_id is None
    assert search(made, "anything") == []
    assert read_system_table(spark, made, "tables", driver_rows_max=-1).count() == 0
    assert not compact_domain(spark, made, "catalog").published


def test_a_small_workspace_in_memory_can_be_read(spark: SparkSession) -> None:
    """C26: what the driver reads need not be where executors are."""
    made = Workspace(root=MemoryStore(), tenant="acme", name="prod")
    made.initialize()
    Compactor(made, "catalog").compact(tell(made, 1, table(3)))
    assert read_system_table(spark, made, "columns").count() == 3
