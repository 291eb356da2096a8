"""The frames of a pipeline, by name, and that nobody meets a DataFrame."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from holdfast.chain import Chain, chain_on, graph_layout, kv_layout, orchestration_layout, table_layout
from holdfast.errors import BadInput, BadSql, BuildFailed
from holdfast.spark.quality import NoNulls, RowCount
from holdfast.spark.stage import Stage, StageColumn
from holdfast.storage import LocalStore


@pytest.fixture
def stage(spark: SparkSession) -> Iterator[Stage]:
    with Stage(spark) as opened:
        opened.ask("orders", "SELECT id AS order_id, id % 3 AS user_id, id * 2.5D AS amount FROM range(9)")
        yield opened


def chain_of(tmp_path: Path, kind: str) -> Chain:
    layouts = {"kv": kv_layout(), "graph": graph_layout(), "table": table_layout()}
    return chain_on(LocalStore(tmp_path / kind, durable=False), layouts[kind])


def test_a_stage_reads_asks_and_publishes_by_names(stage: Stage, tmp_path: Path) -> None:
    """C30: files and data sets in, SQL between, data sets of every kind out."""
    (tmp_path / "users.csv").write_text("user_id;name\n0;ann\n1;bob\n2;eve\n")
    stage.read_files(
        "users", format="csv", path=f"{tmp_path}/users.csv", options={"header": "true", "sep": ";"},
        schema="user_id BIGINT, name STRING",
    )  # fmt: skip
    stage.ask("totals", "SELECT name, sum(amount) AS total FROM orders JOIN users USING (user_id) GROUP BY name;")
    stage.ask("rich", "SELECT * FROM totals WHERE total > :least -- not all", args={"least": 23})
    stage.ask("people", "SELECT 'p:' || name AS semantic_id, 'PERSON' AS type FROM users")
    stage.ask("knows", "SELECT 'p:ann' AS source, 'p:bob' AS target, 'KNOWS' AS type")
    assert stage.columns("totals") == (
        StageColumn(name="name", type="string", nullable=True),
        StageColumn(name="total", type="double", nullable=True),
    )
    stage.cache("totals")

    kv, graph, table = (chain_of(tmp_path, kind) for kind in ("kv", "graph", "table"))
    assert stage.publish_kv("totals", kv, key="name", shards=2, run_id="r-1").dataset.row_count == 3
    assert stage.publish_graph("people", "knows", graph, run_id="r-1").nodes == 3
    assert stage.publish_table("rich", table, files=1, run_id="r-1").row_count == 2
    stage.uncache("totals")
    stage.uncache("totals")

    pins = [
        stage.read_dataset("a", kv),
        stage.read_dataset("b", graph, part="nodes"),
        stage.read_dataset("c", graph, part="edges", ref=graph.current().ref),  # type: ignore[union-attr]
        stage.read_dataset("d", table, ref=table.current().ref),  # type: ignore[union-attr]
    ]
    assert pins == [kv.pin(), graph.pin(), graph.pin(), table.pin()]
    assert [stage.count(name) for name in "abcd"] == [3, 3, 1, 2]
    assert kv.find(run_id="r-1").target_id == pins[0].manifest_id
    assert [one.rule for one in stage.check("a", [NoNulls(columns=("name",)), RowCount(least=4)])] == [
        RowCount(least=4)
    ]


@pytest.mark.parametrize(
    "sql, line, column, said, suggestion",
    [
        ("SELECT amout\nFROM orders", 1, 8, "there is no column `amout`", "`amount`"),
        ("SELECT amount,\n   o.usr_id FROM orders o", 2, 4, "there is no column `o`.`usr_id`", "`o`.`user_id`"),
        ("SELECT 1\n FROM ordrs", 2, 7, "there is no source or step `ordrs`", "`orders`"),
        ("SELECT 1\n FROM elsewhere", 2, 7, "there are orders", ""),
        ("SELECT amount\nFRM orders WHERE", 2, 5, "Syntax error at or near 'orders'", ""),
        ("SELECT (amount FROM orders", 1, 16, "Syntax error", ""),
        ("SELECT nofun(amount) FROM orders", 1, 8, "`nofun`", ""),
        ("SELECT amount + :least FROM orders", 0, 0, "no argument is given for :least", ""),
        ("SELECT amount,\n  array(1) + 'x' FROM orders", 2, 3, "incompatible types", ""),
        ("DROP VIEW orders", 0, 0, "this is no question", ""),
        ("CREATE TABLE t AS SELECT 1", 0, 0, "this is no question", ""),
        ("SET spark.sql.ansi.enabled = false", 0, 0, "this is no question", ""),
        ("SELECT 1; SELECT 2", 1, 11, "Syntax error", ""),
        (" ;\n", 0, 0, "there is no SQL", ""),
    ],
)
def test_sql_that_is_not_understood_says_where_and_what_may_be_meant(
    stage: Stage, capfd: pytest.CaptureFixture[str], sql: str, line: int, column: int, said: str,
    suggestion: str,
) -> None:  # fmt: skip
    """C30: line and column in the step's own SQL, one sentence, the nearest name; no stack anywhere."""
    with pytest.raises(BadSql) as told:
        stage.ask("step", sql)

    error = told.value
    assert (error.line, error.column, error.suggestion) == (line, column, suggestion)
    assert said in str(error)
    assert "\n" not in str(error)
    assert "org.apache" not in str(error)
    assert "errorClass" not in capfd.readouterr().err
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.line, again.suggestion) == (str(error), line, suggestion)
    assert stage.names == ("orders",)


def test_the_session_that_was_given_is_left_as_it_was(spark: SparkSession) -> None:
    """C30: its views and settings stay; what it calls by a name is nobody's source; its settings hold here, too."""
    given = spark.newSession()
    given.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    given.sql("SELECT 1 AS mine").createOrReplaceTempView("orders")
    given.sql("SELECT 1 AS mine").createOrReplaceTempView("private")
    before = (given.conf.getAll, [one.name for one in given.catalog.listTables()], SparkSession.getActiveSession())

    with Stage(given) as stage:
        stage.ask("orders", "SELECT current_timezone() AS zone")
        stage.ask("zones", "SELECT * FROM orders")
        stage.cache("zones")
        assert stage.columns("zones")[0].name == "zone"
        assert stage.check("zones", [RowCount(most=0)])[0].rows == 1
        with pytest.raises(BadSql, match="no source or step `private`"):
            stage.ask("other", "SELECT * FROM private")

    assert given.table("orders").columns == ["mine"]
    after = (given.conf.getAll, [one.name for one in given.catalog.listTables()], SparkSession.getActiveSession())
    assert after == before
    stage.close()
    with pytest.raises(BadInput, match="no frame 'zones'; there are none"):
        stage.count("zones")


def test_a_cached_frame_is_computed_once(spark: SparkSession, tmp_path: Path) -> None:
    """C30: several data sets read it."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("1\n2\n")
    with Stage(spark) as stage:
        stage.read_files("rows", format="csv", path=f"{tmp_path}/in", schema="id INT")
        stage.cache("rows")
        assert stage.count("rows") == 2
        (tmp_path / "in" / "a.csv").unlink()
        assert stage.count("rows") == 2
        stage.uncache("rows")
        with pytest.raises(BuildFailed, match="Spark says"):
            stage.count("rows")


def test_names_and_sources_that_cannot_be_right_are_refused(stage: Stage, tmp_path: Path) -> None:
    """C30: clear answers, and nothing is kept of what was refused."""
    with pytest.raises(BadInput, match=r"'a\.b' is no name for SQL"):
        stage.ask("a.b", "SELECT 1")
    with pytest.raises(BadInput, match="a frame 'Orders' already"):
        stage.ask("Orders", "SELECT 1")
    with pytest.raises(BadInput, match="no frame 'nothing'; there are orders"):
        stage.columns("nothing")
    with pytest.raises(BadInput, match=r"files: Spark cannot read '/nowhere/x' as csv: Path does not exist"):
        stage.read_files("files", format="csv", path="/nowhere/x")
    with pytest.raises(BadInput, match=r"files: Spark cannot read '/nowhere/x' as nonsense: .*nonsense"):
        stage.read_files("files", format="nonsense", path="/nowhere/x")
    with pytest.raises(BadInput, match="files: Spark cannot read"):
        stage.read_files("files", format="csv", path=str(tmp_path), schema="id BIGNT,")
    for kind, part in (("kv", "nodes"), ("graph", None), ("graph", "both"), ("table", "edges")):
        with pytest.raises(BadInput, match="say nodes or edges of a graph"):
            stage.read_dataset("x", chain_of(tmp_path, kind), part=part)
    assert stage.names == ("orders",)


def test_a_chain_without_rows_is_no_source(stage: Stage, tmp_path: Path) -> None:
    """C30: such as the orchestration's own."""
    from tests.chain.publishing import publish_one

    chain = chain_on(LocalStore(tmp_path / "o", durable=False), orchestration_layout())
    publish_one(chain, b"state")
    with pytest.raises(BadInput, match="a orchestration chain has no rows"):
        stage.read_dataset("x", chain)
