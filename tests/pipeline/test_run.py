"""Pipelines on a real Spark: what they publish, check, tell and pin; and what is left when their driver is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from holdfast.catalog import Workspace, open_workspace
from holdfast.catalog.lineage import downstream, upstream
from holdfast.catalog.search import search
from holdfast.catalog.sql import query
from holdfast.clock import SystemClock
from holdfast.errors import BadPipeline, ChecksFailed
from holdfast.graph import GraphStore
from holdfast.kv import ShardedReader
from holdfast.pipeline import DatasetSource, KvDataset, Pipeline, Step
from holdfast.pipeline.file import inspect_pipeline, read_pipeline
from holdfast.pipeline.plan import plan
from holdfast.pipeline.report import RunReport
from holdfast.pipeline.runner import run_pipeline
from holdfast.spark.stage import Stage
from holdfast.table import open_table
from tests.cli.support import Program

ROOT = Path(__file__).resolve().parents[2]
FILE = '''name = "nightly"
description = "What people bought"
owner = "sales"

[parameters]
least = 0

[sources.orders]
format = "csv"
path = "orders.csv"
schema = "id BIGINT, user_id BIGINT, price DOUBLE"
options = { header = "true" }

[steps.totals]
sql = """
SELECT user_id, sum(price) AS total
FROM orders
WHERE price >= :least
GROUP BY user_id
"""

[steps.things]
sql = """
SELECT DISTINCT concat('user:', user_id) AS semantic_id, 'USER' AS type FROM orders
UNION ALL SELECT concat('order:', id), 'ORDER' FROM orders"""

[steps.bought]
sql = "SELECT concat('user:', user_id) AS source, concat('order:', id) AS target, 'BOUGHT' AS type FROM orders"

[datasets.all_orders]
kind = "table"
from = "orders"

[datasets.user_totals]
kind = "kv"
from = "totals"
key = "user_id"
shards = 2
description = "What each user has paid"
checks = [
  { not_null = ["user_id", "total"] },
  { unique = ["user_id"] },
  { range = { column = "total", min = 0, max = 1000 } },
  { rows = { min = 1 } },
  { change = { fewer = 0.5 } },
]

[datasets.purchases]
kind = "graph"
nodes = "things"
edges = "bought"
edge_checks = [ { rows = { min = 2 } } ]
'''
GOOD = "id,user_id,price\n1,1,10\n2,1,5\n3,2,7\n4,3,1\n"


class Later(SystemClock):
    """Two hours on: nobody has to wait for the leases of the dead."""

    def now(self) -> datetime:
        return super().now() + timedelta(hours=2)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "nightly.toml").write_text(FILE, encoding="utf-8")
    (tmp_path / "orders.csv").write_text(GOOD, encoding="utf-8")
    return tmp_path


@pytest.fixture
def workspace(place: Path) -> Workspace:
    made = open_workspace(f"file://{place}/lake", tenant="acme", workspace="prod", by="tests")
    made.initialize()
    return made


def start(workspace: Workspace, spark: SparkSession, place: Path, run: str, **given: str) -> RunReport:
    read = read_pipeline(place / "nightly.toml", given)
    return run_pipeline(plan(read), workspace, lambda: Stage(spark), run=run)


def sums(workspace: Workspace) -> dict[int, float]:
    with ShardedReader.open(workspace.dataset("user_totals", "kv")) as reader:
        found = reader.get_arrow([1, 2, 3, 4])
        rows = found.to_pylist()
    return {row["user_id"]: row["total"] for row in rows if row["total"] is not None}


def test_a_run_publishes_each_data_set_and_tells_the_catalog_everything(
    workspace: Workspace, spark: SparkSession, place: Path
) -> None:
    """C30, C32: tables, columns, lineage by column, runs, tasks, search; and downstream pins the very snapshot."""
    report = start(workspace, spark, place, "r1")
    assert [(task.dataset, task.kind, task.state) for task in report.tasks] == [
        ("all_orders", "table", "published"), ("user_totals", "kv", "published"), ("purchases", "graph", "published"),
    ]  # fmt: skip
    assert sums(workspace) == {1: 15.0, 2: 7.0, 3: 1.0}
    assert open_table(workspace.dataset("all_orders", "table")).row_count == 4
    graph = GraphStore.open(workspace.dataset("purchases", "graph")).snapshot()
    assert len(graph.neighbors("user:1")) == 2
    tables = query(workspace, 'SELECT namespace, "table", kind, owner FROM system.tables ORDER BY 2').to_pylist()
    assert [(one["namespace"], one["table"], one["kind"], one["owner"]) for one in tables] == [
        ("nightly", "all_orders", "table", "sales"), ("nightly", "purchases", "graph", "sales"),
        ("nightly", "user_totals", "kv", "sales"),
    ]  # fmt: skip
    (edge,) = upstream(workspace, "user_totals", column="total").to_pylist()
    assert (edge["source"], edge["source_column"], edge["kind"]) == (f"{place}/orders.csv", "price", "aggregation")
    assert [hit.name for hit in search(workspace, "paid")] == ["nightly.user_totals"]
    runs = query(workspace, "SELECT run_id, state, attempt FROM system.pipeline_runs").to_pylist()
    assert runs == [{"run_id": "r1", "state": "succeeded", "attempt": 1}]
    states = query(workspace, "SELECT DISTINCT state FROM system.pipeline_tasks").to_pylist()
    assert states == [{"state": "succeeded"}]

    report_of = Pipeline(
        name="report",
        sources=(DatasetSource(name="totals", dataset="user_totals"),),
        steps=(Step(name="rich", sql="SELECT user_id, total FROM totals WHERE total > 5"),),
        datasets=(KvDataset(name="rich_users", rows="rich", key=("user_id",), shards=1),),
    )
    run_pipeline(plan(report_of), workspace, lambda: Stage(spark), run="r2")
    manifest = workspace.dataset("rich_users").load_current()
    assert manifest is not None
    (pin,) = manifest.inputs
    assert (pin.ref, pin.manifest_id) == (report.tasks[1].ref, 0)
    made = downstream(workspace, "user_totals").to_pylist()
    assert {(one["target"], one["source_snapshot"]) for one in made} == {("rich_users", "0")}
    undone = workspace.dataset("user_totals").handle
    assert undone.identity == pin.chain


def test_rows_that_break_a_rule_are_named_and_nothing_of_them_is_published(
    workspace: Workspace, spark: SparkSession, place: Path
) -> None:
    """C30: every rule that does not hold, with rows; what was visible still is, and the same run can go on."""
    start(workspace, spark, place, "r1")
    (place / "orders.csv").write_text("id,user_id,price\n1,1,-10\n2,,5\n", encoding="utf-8")
    with pytest.raises(ChecksFailed) as failed:
        start(workspace, spark, place, "r2", least="-100")
    said = str(failed.value)
    assert "1 rows have no user_id or total: (user_id=None, total=5.0)" in said
    assert "1 rows have a total outside of 0 to 1000: (user_id=1, total=-10.0)" in said
    assert sums(workspace) == {1: 15.0, 2: 7.0, 3: 1.0}
    state = query(workspace, "SELECT state, error FROM system.pipeline_runs WHERE run_id = 'r2'").to_pylist()
    assert state[0]["state"] == "failed"
    assert "was not published" in state[0]["error"]
    (place / "orders.csv").write_text("id,user_id,price\n1,1,3\n", encoding="utf-8")
    with pytest.raises(ChecksFailed, match="there are 1 rows after 3, and at most 50% fewer are allowed"):
        start(workspace, spark, place, "r2", least="-100")
    (place / "orders.csv").write_text(GOOD.replace("10", "30"), encoding="utf-8")
    report = start(workspace, spark, place, "r2", least="-100")
    assert [task.state for task in report.tasks] == ["kept", "published", "published"]
    assert report.tasks[1].changed is not None
    assert report.tasks[1].changed.before is not None
    assert (report.tasks[1].changed.before.rows, report.tasks[1].changed.after.rows) == (3, 3)
    assert sums(workspace) == {1: 35.0, 2: 7.0, 3: 1.0}


def test_what_spark_does_not_understand_is_said_with_file_and_line_before_anything_is_done(
    workspace: Workspace, spark: SparkSession, place: Path
) -> None:
    """C30: unknown columns in SQL, keys and checks, all at once; no run was begun."""
    hidden = (
        '[steps.all]\nsql = "SELECT * FROM orders"\n[datasets.all_orders]\nkind = "kv"\nfrom = "all"\nkey = "ident"'
    )
    text = FILE.replace("SELECT user_id, sum(price)", "SELECT user_id, sum(prize)").replace(
        '[datasets.all_orders]\nkind = "table"\nfrom = "orders"', f"{hidden}\nshards = 1"
    )
    file = place / "nightly.toml"
    file.write_text(text, encoding="utf-8")
    read = inspect_pipeline(file)
    assert read.pipeline is not None
    with pytest.raises(BadPipeline) as failed:
        run_pipeline(plan(read.pipeline), workspace, lambda: Stage(spark), run="r1", locate=read.locate)
    line = text.splitlines().index("SELECT user_id, sum(prize) AS total") + 1
    assert any(one.startswith(f"{file}:{line}: ") and "price" in one for one in failed.value.problems)
    key = text.splitlines().index('key = "ident"') + 1
    assert any(one.startswith(f"{file}:{key}: ") and "'ident'" in one for one in failed.value.problems)
    assert query(workspace, "SELECT * FROM system.pipeline_runs").num_rows == 0
    assert workspace.dataset_names() == []


@pytest.mark.parametrize(
    "moment, left", [("progress all_orders", 3), ("ended all_orders", 2)]
)  # fmt: skip
def test_a_driver_killed_at_any_moment_is_gone_on_with(
    workspace: Workspace, spark: SparkSession, place: Path, moment: str, left: int
) -> None:
    """C31: kill -9 during a build, and between two data sets: nothing is published twice."""
    command = [sys.executable, "-m", "tests.pipeline.killed_run", str(place / "nightly.toml"), f"file://{place}/lake"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
    died = subprocess.run(
        [*command, moment], cwd=ROOT, env=environment, capture_output=True, timeout=300, check=False
    )  # fmt: skip
    assert died.returncode == -signal.SIGKILL, died.stderr.decode()[-2_000:]
    later = Workspace(root=workspace.root, tenant="acme", name="prod", by="later", clock=Later())
    report = start(later, spark, place, "r1")
    assert report.attempt == 2
    states = [task.state for task in report.tasks]
    assert states.count("published") == left
    for name in ("all_orders", "user_totals"):
        chain = workspace.dataset(name)
        assert len(chain.list_manifests()) == 1
        assert chain.verify() == []
    graph = workspace.dataset("purchases")
    assert [one.manifest_id for one in graph.list_manifests()] == [2, 1], "an empty graph comes first"
    assert sums(workspace) == {1: 15.0, 2: 7.0, 3: 1.0}
    tasks = query(workspace, "SELECT DISTINCT task_id FROM system.pipeline_tasks WHERE state = 'succeeded'")
    assert tasks.num_rows == 3


def test_a_run_and_its_runs_on_the_command_line(
    workspace: Workspace, spark: SparkSession, place: Path, holdfast: Program
) -> None:
    """C30, C31, C32: a dry run tells nothing; a run that failed is shown with its error, and gone on with."""
    del spark  # the program uses the one that runs
    file, where = str(place / "nightly.toml"), str(place / "lake/acme/prod")
    dry = holdfast("run", file, "--workspace", where, "--dry-run", "--json")
    assert dry.data["columns"]["totals"] == ["user_id bigint", "total double"]
    assert workspace.dataset_names() == []
    assert "No pipeline was run here yet." in holdfast("runs", where).out
    (place / "orders.csv").write_text("id,user_id,price\n1,1,3\n", encoding="utf-8")
    words = ["run", file, "--workspace", where]
    failed = holdfast(*words, "--run", "r1", "--only", "purchases", "--param", "least=1", code=2)
    assert "there are 1 edges, not 2 or more" in failed.err
    shown = holdfast("runs", where, "r1").out
    assert "there are 1 edges" in shown
    assert "holdfast run FILE --resume r1" in shown
    (place / "orders.csv").write_text(GOOD, encoding="utf-8")
    for more, code, says in (
        (["--resume", "r1", "--param", "least=2"], 2, "leave --param out"),
        (["--resume", "r9"], 3, "there is no run 'r9'"),
        (["--resume", "r1", "--run", "r2"], 2, "leave --run out"),
        (["--conf", "x"], 2, "write KEY=VALUE"),
        (["--param", "leest=1"], 2, "least"),
    ):
        assert says in holdfast(*words, *more, code=code).err
    done = holdfast(*words, "--only", "purchases", "--resume", "r1", "--json").data
    assert (done["run"], done["attempt"], done["was_done"]) == ("r1", 2, False)
    assert [(task["dataset"], task["rows"]) for task in done["tasks"]] == [("purchases", 11)]
    again = holdfast(*words, "--only", "purchases", "--run", "r1", "--param", "least=1")
    assert "had succeeded before; nothing was done" in again.out
    listed = holdfast("runs", where, "--json").data
    assert [(run["run_id"], run["state"], run["attempt"]) for run in listed["runs"]] == [("r1", "succeeded", 2)]
    assert '"least":"1"' in listed["runs"][0]["parameters"]
