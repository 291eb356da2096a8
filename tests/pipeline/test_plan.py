"""The plan: everything after what it reads, only what is needed, and a fingerprint of what it says."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import BadInput, BadPipeline
from holdfast.graph.records import canonical_edges, canonical_nodes
from holdfast.kv.routing import SHARDS_MAX
from holdfast.pipeline import (
    Check,
    DataSet,
    DatasetSource,
    FileSource,
    GraphDataset,
    KvDataset,
    NotNull,
    Pipeline,
    Range,
    RowChange,
    Step,
    TableDataset,
    Unique,
)
from holdfast.pipeline.file_fields import DATASET_NAME
from holdfast.pipeline.plan import Plan, plan
from holdfast.pipeline.plan_check import EDGE_COLUMNS_NEEDED, NODE_COLUMNS_NEEDED, check_pipeline, cycles
from holdfast.pipeline.plan_sql import BadSql, read_sql
from holdfast.pipeline.suggest import did_you_mean, nearest

SHOP = Pipeline(
    name="shop",
    sources=(FileSource(name="orders", path="o"), DatasetSource(name="users", dataset="users")),
    steps=(
        Step(name="report", sql="SELECT * FROM paid JOIN Users USING (id)"),
        Step(name="paid", sql="WITH users AS (SELECT * FROM orders) SELECT id, price FROM users"),
        Step(name="one", sql="SELECT 1 AS a"),
    ),
    datasets=(
        TableDataset(name="report", rows="report"),
        KvDataset(name="paid", rows="PAID", key=("id",), shards=2),
        TableDataset(name="one", rows="one"),
    ),
)


def order(made: Plan) -> list[str]:
    return [one.id for one in made.tasks]


def test_what_a_step_reads_is_found_from_its_sql() -> None:
    """C30: dependencies come from the SQL, in any case; a name made by WITH is no table."""
    made = plan(SHOP)
    assert {one.id: (one.reads, one.level) for one in made.tasks} == {
        "source:orders": ((), 0),
        "source:users": ((), 0),
        "step:one": ((), 0),
        "step:paid": (("orders",), 1),
        "dataset:one": (("one",), 1),
        "step:report": (("paid", "users"), 2),
        "dataset:paid": (("paid",), 2),
        "dataset:report": (("report",), 3),
    }
    assert order(made) == [
        "source:orders", "source:users", "step:one", "step:paid", "dataset:one", "step:report", "dataset:paid",
        "dataset:report",
    ]  # fmt: skip
    assert [[one.name for one in level] for level in made.levels][1:3] == [["paid", "one"], ["report", "paid"]]
    assert made.needs == {
        "report": ("orders", "users", "paid", "report"), "paid": ("orders", "paid"), "one": ("one",),
    }  # fmt: skip
    assert [one.name for one in made.steps] == ["one", "paid", "report"]


def test_a_plan_of_some_data_sets_has_only_what_they_need() -> None:
    """C30: the rest is left out; each keeps its fingerprint."""
    made = plan(SHOP, only=["paid"])
    assert order(made) == ["source:orders", "step:paid", "dataset:paid"]
    assert dict(made.fingerprints) == {"paid": plan(SHOP).fingerprints["paid"]}
    assert made.fingerprint == plan(SHOP).fingerprint
    with pytest.raises(BadInput, match="no data set 'pad': did you mean 'paid'"):
        plan(SHOP, only=["pad"])


# -- fingerprints ------------------------------------------------------------------------------------------------------


def with_dataset(number: int, **changes: object) -> Pipeline:
    changed = replace(SHOP.datasets[number], **changes)  # type: ignore[arg-type]
    return replace(SHOP, datasets=(*SHOP.datasets[:number], changed, *SHOP.datasets[number + 1 :]))


def test_words_and_order_do_not_change_a_fingerprint() -> None:
    """C30: descriptions, owners, the folder and the order in the file say nothing about what is made."""
    same = [
        replace(SHOP, description="x", owner="y", workspace="z", parameters={"unused": 1}),
        replace(SHOP, sources=SHOP.sources[::-1], steps=SHOP.steps[::-1], datasets=SHOP.datasets[::-1]),
        replace(SHOP, steps=tuple(replace(one, description="x") for one in SHOP.steps)),
        with_dataset(0, description="x", owner="y"),
    ]
    for one in same:
        assert plan(one).fingerprint == plan(SHOP).fingerprint
        assert plan(one).fingerprints == plan(SHOP).fingerprints


def test_what_is_made_differently_has_another_fingerprint() -> None:
    """C30: SQL, values, sources, settings, keys, checks and tags all count, and for each data set only its own."""
    step = replace(SHOP.steps[1], sql="SELECT id, price AS p FROM orders")
    asks = replace(SHOP.steps[1], sql="SELECT id, price FROM orders WHERE id = :a")
    asked = replace(SHOP, steps=(SHOP.steps[0], asks, SHOP.steps[2]))
    changed = [
        replace(SHOP, name="other"),
        replace(SHOP, namespace="other"),
        replace(SHOP, spark={"spark.sql.ansi.enabled": "false"}),
        replace(SHOP, sources=(FileSource(name="orders", path="p"), SHOP.sources[1])),
        replace(SHOP, sources=(SHOP.sources[0], DatasetSource(name="users", dataset="users", version=1))),
        replace(SHOP, steps=(SHOP.steps[0], step, SHOP.steps[2])),
        replace(asked, parameters={"a": 1}),
        replace(asked, parameters={"a": 2}),
        replace(asked, parameters={"a": "1"}),
        with_dataset(1, shards=3),
        with_dataset(1, key=("price",)),
        with_dataset(1, tags={"owner": "x"}),
        with_dataset(1, checks=(NotNull(columns=("id",)),)),
        with_dataset(1, checks=(Unique(columns=("id",)),)),
        with_dataset(2, files=1),
    ]
    prints = [plan(one).fingerprint for one in [SHOP, *changed]]
    assert len(set(prints)) == len(prints)
    before, after = plan(SHOP).fingerprints, plan(changed[5]).fingerprints
    assert {name for name in before if before[name] != after[name]} == {"paid", "report"}


# -- what does not fit -------------------------------------------------------------------------------------------------


def problems(*datasets: DataSet, steps: tuple[Step, ...] = (), **more: object) -> list[str]:
    sources = (FileSource(name="orders", path="o"),)
    made = Pipeline(name="p", sources=sources, steps=steps, datasets=datasets, **more)  # type: ignore[arg-type]
    return [str(one) for one in check_pipeline(made)]


def test_a_pipeline_in_python_is_checked_as_one_in_a_file_with_names_for_lines() -> None:
    """C30: the same problems, said by the names of things."""
    kv = KvDataset(name="kv", rows="ordrs", key=(), shards=0)
    table = TableDataset(name="Table", rows="orders", files="4")  # type: ignore[arg-type]
    assert problems(kv, table, steps=(Step(name="orders", sql="SELECT\n1 +"),)) == [
        "datasets.kv.key: 'key' has an empty name, or none: name at least one column",
        "datasets.kv.shards: 'shards' is 0: it may be from 1 to 100,000",
        f"datasets.Table: the name 'Table' cannot be used: use {DATASET_NAME.form}",
        "datasets.Table.files: 'files' should be a whole number, not the text '4'",
        "steps.orders: 'orders' is also the name of a source: to SQL they are the same, rename one",
        "steps.orders.sql line 2: this SQL cannot be read: required keyword: 'expression' missing at '+'",
        "datasets.kv.from: there is no source or step 'ordrs': did you mean 'orders'?",
    ]
    with pytest.raises(BadPipeline, match=r"pipeline 'p' has 1 problem: datasets: .*add a data set"):
        plan(Pipeline(name="p"))
    twice = TableDataset(name="t", rows="orders")
    assert problems(twice, twice) == ["datasets.t: data set 't' is there twice: rename one"]


def test_numbers_at_their_ends_are_good() -> None:
    """C30: the largest number of shards is allowed, and so is a check that allows no row to be left."""
    for shards in (1, SHARDS_MAX):
        ends = RowChange(fewer=1, more=0)
        assert problems(KvDataset(name="kv", rows="orders", key=("a",), shards=shards, checks=(ends,))) == []


def test_a_suggestion_does_not_mind_the_case() -> None:
    assert nearest("SHARD", ["key", "shards"]) == "shards"
    assert did_you_mean("x", []) == "there is none"
    assert did_you_mean("x", map(str, range(10))) == "there is 0, 1, 2, 3, 4, 5, 6, 7 and 2 more"


def test_columns_that_sql_does_not_give_are_found_and_hidden_ones_are_not_guessed() -> None:
    """C30: keys and checks of columns that are not there; behind a star or a function nobody knows."""
    columns = Step(name="s", sql="SELECT id, price AS Total FROM orders")
    hidden = Step(name="h", sql="SELECT *, 1 AS b FROM orders UNION ALL SELECT explode(m) AS (k, v) FROM orders")
    checks: tuple[Check, ...] = (Range(column="TOTAL", least=1),)
    good = KvDataset(name="good", rows="s", key=("ID",), shards=1, on_duplicate="max(total)", checks=checks)
    star = KvDataset(name="star", rows="h", key=("anything",), shards=1)
    assert problems(good, star, steps=(columns, hidden)) == []
    bad = KvDataset(name="bad", rows="s", key=("i",), shards=1)
    assert problems(bad, steps=(columns,)) == [
        "datasets.bad.key: the key is 'i', which step 's' does not give: did you mean 'id'?"
    ]


def test_a_graph_needs_the_columns_that_graphs_need() -> None:
    """C30: what the check asks for is what the graph itself refuses to be without."""
    import pyarrow as pa

    for needed, make in ((NODE_COLUMNS_NEEDED, canonical_nodes), (EDGE_COLUMNS_NEEDED, canonical_edges)):
        make(pa.table({name: ["a"] for name in needed}))
        for missing in needed:
            with pytest.raises(BadInput, match=missing):
                make(pa.table({name: ["a"] for name in needed if name != missing}))
    step = Step(name="s", sql="SELECT semantic_id, source, target FROM orders")
    assert [one.partition(":")[0] for one in problems(GraphDataset(name="g", nodes="s", edges="s"), steps=(step,))] == [
        "datasets.g.nodes", "datasets.g.edges",
    ]  # fmt: skip


@pytest.mark.parametrize("select", ["*", "o.*", "count(*)", "1 + 1", "explode(m) AS (k, v)", "id, o.*"])
def test_columns_that_have_no_name_of_their_own_hide_all(select: str) -> None:
    """C30: nobody is told that a column is missing which may be there."""
    assert read_sql(f"SELECT {select} FROM orders AS o").columns is None
    assert read_sql(f"SELECT id, 1 AS b FROM (SELECT {select} FROM orders AS o)").columns == ("id", "b")


@pytest.mark.parametrize(
    "sql, reads",
    [
        ("SELECT * FROM a, b JOIN a AS c ON true", ["a", "b"]),
        ("SELECT * FROM (SELECT * FROM a WHERE x IN (SELECT y FROM b))", ["a", "b"]),
        ("WITH a AS (SELECT * FROM a) SELECT * FROM a", ["a"]),
        ("SELECT * FROM range(10) CROSS JOIN VALUES (1) AS v", []),
        ("FROM a SELECT x", ["a"]),
        ("SELECT * FROM a LATERAL VIEW explode(xs) t AS x", ["a"]),
        ("SELECT * FROM a TABLESAMPLE (10 PERCENT)", ["a"]),
        ("SELECT * FROM a LEFT ANTI JOIN b ON a.x = b.x", ["a", "b"]),
        ("SELECT * FROM `a` EXCEPT SELECT * FROM c.b", ["a", "c.b"]),
        ("SELECT x, (SELECT max(y) FROM b WHERE b.x = a.x) AS m FROM a", ["a", "b"]),
        ("SELECT * FROM a PIVOT (sum(x) FOR y IN (1, 2))", ["a"]),
    ],
)
def test_tables_of_a_query_are_found_wherever_they_stand(sql: str, reads: list[str]) -> None:
    """C30: FROM, joins, subqueries, set operations; not what functions, VALUES or WITH make."""
    assert sorted(read_sql(sql).reads) == reads


@pytest.mark.parametrize(
    "sql", ["", ";", "SELECT", "DROP TABLE a", "CREATE TABLE a AS SELECT 1", "SELEC 1", "SELECT 'a"]
)
def test_what_is_no_query_is_refused(sql: str) -> None:
    with pytest.raises(BadSql):
        read_sql(sql)


def test_without_the_extra_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """C30: SQL is read by sqlglot, which comes with an extra."""
    monkeypatch.setitem(sys.modules, "sqlglot", None)
    with pytest.raises(BadInput, match=r"needs sqlglot: pip install 'holdfast\[catalog\]'"):
        read_sql("SELECT 'nobody asked this before' AS a")


# -- any pipeline ------------------------------------------------------------------------------------------------------

NAMES = [f"s{number}" for number in range(7)]


@st.composite
def graphs(draw: st.DrawFn) -> dict[str, list[str]]:
    """Steps and what each reads, in any order and with any circles."""
    names = draw(st.permutations(NAMES[: draw(st.integers(1, len(NAMES)))]))
    return {name: draw(st.lists(st.sampled_from([*names, "src"]), max_size=3, unique=True)) for name in names}


def pipeline_of(reads: dict[str, list[str]]) -> Pipeline:
    steps = [
        Step(name=name, sql=f"SELECT * FROM {' CROSS JOIN '.join(read)}" if read else "SELECT 1 AS a")
        for name, read in reads.items()
    ]
    datasets = tuple(TableDataset(name=f"d_{name}", rows=name) for name in reads)
    return Pipeline(name="p", sources=(FileSource(name="src", path="x"),), steps=tuple(steps), datasets=datasets)


def reachable(start: str, reads: dict[str, list[str]]) -> set[str]:
    found: set[str] = set()
    ahead = list(reads.get(start, ()))
    while ahead:
        name = ahead.pop()
        if name not in found:
            found.add(name)
            ahead += reads.get(name, ())
    return found


@given(graphs())
def test_everything_comes_after_what_it_reads_and_every_circle_is_named(reads: dict[str, list[str]]) -> None:
    """C30: any pipeline without a circle has an order; of any other each circle is named, as it goes round."""
    circular = {name for name in reads if name in reachable(name, reads)}
    found = cycles(reads)
    for circle in found:
        for one, other in zip(circle, [*circle[1:], circle[0]], strict=True):
            assert other in reads[one]
    named = {name for circle in found for name in circle}
    assert sum(map(len, found)) == len(named)
    left = {name: [one for one in read if one not in named] for name, read in reads.items() if name not in named}
    assert not any(name in reachable(name, left) for name in left)
    assert named <= circular
    assert bool(named) == bool(circular)
    made = pipeline_of(reads)
    if circular:
        said = [one.message for one in check_pipeline(made)]
        assert len(said) == len(found)
        with pytest.raises(BadPipeline):
            plan(made)
        return
    tasks = plan(made).tasks
    places = {one.id: number for number, one in enumerate(tasks)}
    for task in tasks:
        for name in task.reads:
            before = places.get(f"step:{name}", places.get(f"source:{name}"))
            assert before is not None
            assert before < places[task.id]
            assert tasks[before].level < task.level
    for name in reads:
        alone = plan(made, only=[f"d_{name}"])
        assert set(alone.needs[f"d_{name}"]) == {name} | reachable(name, reads)
        assert {one.name for one in alone.tasks if one.kind != "dataset"} == {name} | reachable(name, reads)
    assert plan(made) == plan(made)
