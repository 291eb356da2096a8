"""Lineage from SQL: which columns each column is made of, and how; what cannot be told is said."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.catalog.column_lineage import Schema, SqlLineage, column_lineage, is_sql_kind, table_inputs
from holdfast.catalog.payloads import Column, Edge
from holdfast.errors import BadInput

SCHEMAS: dict[str, Schema] = {
    "sales.orders": ["id", "customer", "items", "addr", "Amount", "paid"],
    "users": {"id": "bigint", "name": "string"},
    "staff": [Column(name="id", type="bigint"), Column(name="boss", type="bigint")],
}


def told(sql: str, output: str = "out") -> SqlLineage:
    return column_lineage(sql, SCHEMAS, output)


def fine(sql: str, output: str = "out") -> set[str]:
    """`table.column>column kind` of every edge between columns; no column where it is about rows."""
    edges = [edge for edge in told(sql, output).edges if edge.source_column]
    return {f"{edge.source}.{edge.source_column}>{edge.target_column or ''} {edge.kind}" for edge in edges}


def test_a_select_with_a_join_says_tables_columns_and_what_decides_about_rows() -> None:
    """C28: by table and by column where SQL tells; direct kinds, and those that only decide."""
    found = told(
        "SELECT o.id, u.name, upper(u.name) AS loud FROM sales.orders o JOIN users u ON o.customer = u.id WHERE paid"
    )
    assert found.inputs == ("sales.orders", "users")
    assert found.columns == ("id", "name", "loud")
    assert found.remarks == ()
    assert found.edges[:2] == (
        Edge(source="sales.orders", target="out", kind="sql"), Edge(source="users", target="out", kind="sql")
    )  # fmt: skip
    assert found.edges[2] == Edge(
        source="sales.orders", target="out", source_column="id", target_column="id", kind="identity"
    )
    assert fine(
        "SELECT o.id, u.name, upper(u.name) AS loud FROM sales.orders o JOIN users u ON o.customer = u.id WHERE paid"
    ) == {
        "sales.orders.id>id identity", "users.name>name identity", "users.name>loud transformation",
        "sales.orders.customer> join", "users.id> join", "sales.orders.paid> filter",
    }  # fmt: skip


CASES: list[tuple[str, str, set[str]]] = [
    (
        "a query in WITH called like its table, group, order by an alias",
        ("WITH orders AS (SELECT * FROM sales.orders WHERE paid) "
        "SELECT customer, sum(amount) AS Total, count(*) AS n FROM orders GROUP BY customer ORDER BY total"),
        {"sales.orders.customer>customer identity", "sales.orders.Amount>Total aggregation",
         "sales.orders.Amount> sort", "sales.orders.customer> group", "sales.orders.paid> filter"},
    ),
    (
        "several queries deep",
        "SELECT d.x + 1 AS y FROM (SELECT c.t AS x FROM (SELECT max(amount) AS t FROM sales.orders) c) d",
        {"sales.orders.Amount>y aggregation"},
    ),
    (
        "union by place",
        "SELECT id, name FROM users UNION ALL SELECT customer, upper(addr.city) FROM sales.orders",
        {"users.id>id identity", "sales.orders.customer>id identity", "users.name>name identity",
         "sales.orders.addr>name transformation"},
    ),
    (
        "windows, by themselves and named",
        ("SELECT sum(amount) OVER (PARTITION BY customer ORDER BY id) AS r, count(*) OVER w AS n FROM sales.orders "
        "WINDOW w AS (PARTITION BY paid)"),
        {"sales.orders.Amount>r aggregation", "sales.orders.customer>r window", "sales.orders.id>r window",
         "sales.orders.paid>n window"},
    ),
    (
        "case and if",
        ("SELECT CASE WHEN paid THEN amount ELSE id END AS a, if(paid, amount, 0) AS b, "
         "CASE customer WHEN 1 THEN 2 END AS c FROM sales.orders"),
        {"sales.orders.paid>a conditional", "sales.orders.Amount>a transformation", "sales.orders.id>a transformation",
         "sales.orders.paid>b conditional", "sales.orders.Amount>b transformation",
         "sales.orders.customer>c conditional"},
    ),
    (
        "an aggregate of some rows",
        "SELECT count(id) FILTER (WHERE paid) AS n FROM sales.orders HAVING max(amount) > 1",
        {"sales.orders.id>n aggregation", "sales.orders.paid>n conditional", "sales.orders.Amount> filter"},
    ),
    (
        "the strongest use counts",
        "SELECT id + id AS a, sum(x) AS s FROM (SELECT id, id AS x FROM users) GROUP BY id",
        {"users.id>a transformation", "users.id>s aggregation", "users.id> group"},
    ),
    (
        "fields of structs",
        "SELECT addr.city, k.c AS c FROM (SELECT addr, struct(id AS c) AS k FROM sales.orders) q",
        {"sales.orders.addr>city transformation", "sales.orders.id>c transformation"},
    ),
    (
        "a lateral view",
        "SELECT id, x.price FROM sales.orders LATERAL VIEW explode(items) v AS x",
        {"sales.orders.id>id identity", "sales.orders.items>price transformation"},
    ),
    (
        "a lateral view that names no columns",
        "SELECT pos, col FROM sales.orders LATERAL VIEW posexplode(items) v",
        {"sales.orders.items>pos transformation", "sales.orders.items>col transformation"},
    ),
    (
        "explode among the columns",
        "SELECT posexplode(items) AS (p, v), transform(items, i -> i.price + amount) AS t FROM sales.orders",
        {"sales.orders.items>p transformation", "sales.orders.items>v transformation",
         "sales.orders.items>t transformation", "sales.orders.Amount>t transformation"},
    ),
    (
        "a query among the columns, about the row outside",
        "SELECT (SELECT max(amount) FROM sales.orders o WHERE o.customer = u.id) AS m FROM users u",
        {"sales.orders.Amount>m aggregation", "sales.orders.customer> filter", "users.id> filter"},
    ),
    (
        "exists and in",
        ("SELECT name FROM users u WHERE EXISTS (SELECT 1 FROM sales.orders o WHERE o.customer = u.id) "
        "AND id IN (SELECT boss FROM staff)"),
        {"users.name>name identity", "sales.orders.customer> filter", "users.id> filter", "staff.boss> filter"},
    ),
    (
        "a join by lateral query",
        "SELECT name, amount FROM users u JOIN LATERAL (SELECT amount FROM sales.orders o WHERE o.customer = u.id)",
        {"users.name>name identity", "sales.orders.Amount>amount identity", "sales.orders.customer> filter",
         "users.id> filter"},
    ),
    (
        "using",
        "SELECT id, boss FROM users JOIN staff USING (id)",
        {"users.id>id transformation", "staff.id>id transformation", "staff.boss>boss identity", "users.id> join",
         "staff.id> join"},
    ),
    (
        "a query that asks itself",
        ("WITH RECURSIVE r AS (SELECT id, boss FROM staff WHERE boss = 1 UNION ALL "
        "SELECT s.id, r.boss FROM staff s JOIN r ON s.boss = r.id) SELECT id, boss FROM r"),
        {"staff.id>id identity", "staff.boss>boss identity", "staff.boss> filter, join", "staff.id> join"},
    ),
    (
        "columns by the whole name of their table",
        "SELECT sales.orders.id FROM sales.orders SORT BY sales.orders.paid",
        {"sales.orders.id>id identity", "sales.orders.paid> sort"},
    ),
    ("star, without some", "SELECT * EXCEPT (name) FROM users", {"users.id>id identity"}),
    ("values of nowhere", "SELECT v.a, 1 AS b FROM VALUES (1) AS v(a)", set()),
]  # fmt: skip


@pytest.mark.parametrize("sql, expected", [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_each_column_is_followed_to_the_stored_columns_it_is_made_of(sql: str, expected: set[str]) -> None:
    """C28: through WITH, subqueries, unions, windows, case, structs and lateral views."""
    assert fine(sql) == expected


def test_star_lists_the_columns_as_the_tables_have_them() -> None:
    """C28: star expansion needs the schemas, and keeps their spelling and order."""
    found = told("SELECT * FROM sales.orders LATERAL VIEW explode(items) v AS x")
    assert found.columns == ("id", "customer", "items", "addr", "Amount", "paid", "x")
    assert told("SELECT ID, AMOUNT FROM Sales.Orders").columns == ("ID", "AMOUNT")
    assert told("SELECT ID FROM Sales.Orders").inputs == ("sales.orders",)


@pytest.mark.parametrize(
    "sql, columns",
    [
        ("CREATE TABLE out AS SELECT id, name FROM users", ("id", "name")),
        ("CREATE OR REPLACE VIEW out (a, b) AS SELECT id, name FROM users", ("a", "b")),
        ("INSERT INTO out (a, b) SELECT id, name FROM users", ("a", "b")),
        ("INSERT OVERWRITE TABLE staff SELECT id AS x, id AS y FROM users", ("id", "boss")),
        ("INSERT INTO staff PARTITION (boss = 1) SELECT id AS x FROM users", ("id",)),
        ("INSERT INTO staff BY NAME SELECT id AS boss, 1 AS id FROM users", ("boss", "id")),
        ("SELECT id AS boss, 1 AS id FROM users", ("boss", "id")),
        ("WITH c AS (SELECT id FROM users) INSERT INTO out SELECT id FROM c", ("id",)),
        ("INSERT INTO out WITH c AS (SELECT id FROM users) SELECT id FROM c", ("id",)),
    ],
)
def test_the_columns_are_those_that_the_statement_fills(sql: str, columns: tuple[str, ...]) -> None:
    """C28: INSERT fills by place or by name, CREATE names anew, and WITH may stand before either."""
    found = told(sql, "staff")
    assert found.columns == columns
    assert found.inputs == ("users",)
    assert any(edge.target_column == columns[0] and edge.source_column == "id" for edge in found.edges)


def test_tables_are_named_as_they_are_written_and_once() -> None:
    """C28: what WITH makes is no table; what a query in WITH reads is one, even by the same name."""
    sql = (
        "WITH a AS (SELECT * FROM a), b AS (SELECT * FROM x.y.z) SELECT * FROM a, b, s.t WHERE 1 IN (SELECT 1 FROM a.b)"
    )
    assert table_inputs(sql) == ["a", "x.y.z", "s.t", "a.b"]
    assert table_inputs("INSERT INTO o SELECT * FROM range(3)") == []
    both = column_lineage("SELECT a.t.id, b.t.n FROM a.t JOIN b.t ON a.t.id = b.t.id", {}, "out")
    assert {(edge.source, edge.target_column) for edge in both.edges if edge.target_column} == {
        ("a.t", "id"), ("b.t", "n")
    }  # fmt: skip


@pytest.mark.parametrize(
    "sql, remark",
    [
        ("SELECT * FROM other", "other"),
        ("SELECT x FROM other JOIN another", "another, other"),
        ("SELECT max(id) AS m, * FROM users JOIN other", "other"),
        ("SELECT * FROM users PIVOT (max(id) FOR name IN ('a'))", "PIVOT"),
    ],
)
def test_where_columns_cannot_be_told_tables_are_and_a_remark_says_why(sql: str, remark: str) -> None:
    """C28: an unknown table is no error; what is left out is said."""
    found = told(sql)
    assert found.inputs
    assert [edge.kind for edge in found.edges] == ["sql"] * len(found.inputs)
    assert found.columns == ()
    (said,) = found.remarks
    assert remark in said


def test_columns_of_an_unknown_table_are_told_where_only_it_can_have_them() -> None:
    """C28: as much as SQL tells."""
    assert fine("SELECT x, name FROM users JOIN other ON other.k = users.id") == {
        "other.x>x identity", "users.name>name identity", "other.k> join", "users.id> join"
    }  # fmt: skip
    found = told("SELECT sum(id) FROM users")
    assert found.remarks == ("column 1 has no name in the statement; give it one with AS",)


@pytest.mark.parametrize(
    "sql, message",
    [
        ("SELEC 1", "not SQL"),
        ("", "one statement, not 0"),
        ("SELECT 1; SELECT 2", "one statement, not 2"),
        ("DROP TABLE users", "use SELECT"),
        ("MERGE INTO a USING users ON a.id = users.id WHEN MATCHED THEN DELETE", "use SELECT"),
        ("CREATE TABLE a (b int)", "use SELECT"),
        ("SELECT nope FROM users", "nope"),
        ("SELECT u.nope FROM users u", "nope"),
        ("SELECT q.id FROM users u", "q.id"),
        ("SELECT c.nope FROM (SELECT id FROM users) c", "nope"),
        ("SELECT id FROM users, staff", "more than one"),
        ("SELECT id, id FROM users", "twice"),
        ("INSERT INTO out (a) SELECT id, name FROM users", "2 columns are selected, and 1"),
        ("INSERT INTO staff SELECT id, name, 1 FROM users", "3 columns are selected, and 2"),
    ],
)
def test_a_statement_that_cannot_be_right_is_refused_in_one_line(sql: str, message: str) -> None:
    """C28: unparsable SQL and columns that known tables do not have are errors that say what."""
    with pytest.raises(BadInput, match=message) as caught:
        told(sql, "staff" if "staff SELECT" in sql else "out")
    assert "\n" not in str(caught.value)


def test_an_unknown_dialect_is_refused() -> None:
    """C28: Spark's SQL unless another is named."""
    assert column_lineage('SELECT "Id" FROM users', {"users": ["Id"]}, "o", dialect="duckdb").columns == ("Id",)
    with pytest.raises(BadInput, match="klingon"):
        table_inputs("SELECT 1", dialect="klingon")


NAMES = st.sampled_from(["a", "b", "c", "d"])


@given(picked=st.lists(st.tuples(NAMES, st.booleans()), min_size=1, max_size=6), depth=st.integers(0, 4))
def test_wrapping_a_question_changes_nothing(picked: list[tuple[str, bool]], depth: int) -> None:
    """C28: however deep a query is wrapped, its columns come from the same columns in the same way."""
    items = [f"-{name} AS o{place}" if used else f"{name} AS o{place}" for place, (name, used) in enumerate(picked)]
    sql = f"SELECT {', '.join(items)} FROM t"
    for level in range(depth):
        sql = f"SELECT * FROM ({sql}) w{level}" if level % 2 else f"WITH w{level} AS ({sql}) SELECT * FROM w{level}"
    found = column_lineage(sql, {"t": ["a", "b", "c", "d"]}, "out")
    assert [(edge.source_column, edge.target_column, edge.kind) for edge in found.edges[1:]] == [
        (name, f"o{place}", "transformation" if used else "identity") for place, (name, used) in enumerate(picked)
    ]
    assert all(is_sql_kind(edge.kind) for edge in found.edges)


def test_kinds_of_others_are_not_taken_for_those_of_sql() -> None:
    """C28: what a statement says may be replaced by what the next one says, and nothing else may."""
    assert is_sql_kind("filter, join")
    assert not any(is_sql_kind(kind) for kind in ("", "pinned", "filter, magic", "copy"))
