"""What must be true of rows before they are published."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from holdfast.errors import BadInput, BuildFailed
from holdfast.spark.quality import Broken, InRange, NoNulls, RowCount, Rule, Unique, broken_rules

ROWS = """
    SELECT id, id % 40 AS `odd.name`, IF(id % 10 = 3, NULL, 'n' || id) AS name, CAST(id AS DOUBLE) / 2 AS half,
    date_add(DATE'2026-01-01', CAST(id AS INT)) AS day, TIMESTAMP'2026-01-01 00:00:00Z' + make_dt_interval(0, id) AS at,
    map('a', id) AS pairs, array(id % 2) AS list, CAST(id AS DECIMAL(38, 18)) AS much FROM range(100)
"""


def broken(spark: SparkSession, *rules: Rule, sql: str = ROWS) -> tuple[Broken, ...]:
    return broken_rules(spark.sql(sql), rules)


def test_rules_that_hold_say_nothing(spark: SparkSession) -> None:
    """C30: rows that are as they should be are published."""
    assert broken(spark) == ()
    assert broken(
        spark,
        NoNulls(columns=("id", "half", "pairs")),
        Unique(columns=("id",)),
        Unique(columns=("odd.name", "half")),
        InRange(column="id", least=0, most=99),
        InRange(column="half", least=0.0, most=49.5),
        InRange(column="name", least="n0", most="n99"),
        InRange(column="day", least="2026-01-01", most="2026-04-10"),
        InRange(column="at", least="2026-01-01T00:00:00+00:00"),
        InRange(column="much", most=99),
        RowCount(least=100, most=100),
    ) == ()  # fmt: skip


def test_each_broken_rule_says_how_many_rows_and_shows_some(spark: SparkSession) -> None:
    """C30: the numbers are exact, examples are plain and at most five."""
    rules: list[Rule] = [
        NoNulls(columns=("id", "name")),
        Unique(columns=("odd.name",)),
        InRange(column="id", least=2, most=96),
        RowCount(least=200),
        RowCount(most=99),
        InRange(column="day", most="2026-01-31"),
    ]

    found = broken(spark, *rules)

    assert [(one.rule, one.rows) for one in found] == list(zip(rules, [10, 100, 5, 100, 1, 69], strict=True))
    assert {one.row_count for one in found} == {100}
    nulls, unique, outside, few, many, late = found
    assert all(row["name"] is None and isinstance(row["pairs"], dict) for row in nulls.examples)
    assert len(nulls.examples) == len(unique.examples) == len(late.examples) == 5
    assert all(set(row) == {"odd.name"} for row in unique.examples)
    assert {row["id"] for row in outside.examples} == {0, 1, 97, 98, 99}
    assert set(outside.examples[0]) == {"id", "odd.name", "name", "half", "day", "at", "pairs", "list", "much"}
    assert few.examples == many.examples == ()


def test_nulls_are_the_same_and_what_is_no_number_lies_outside(spark: SparkSession) -> None:
    """C30: two nulls are a repetition, ranges do not look at nulls, and NaN is in no range."""
    rows = "SELECT * FROM VALUES (NULL, DOUBLE('NaN')), (NULL, 1D), (1, 2D), (2, NULL) AS t(a, b)"

    unique, outside, numbers = broken(
        spark, Unique(columns=("a",)), InRange(column="a", least=2), InRange(column="b", least=0), sql=rows
    )

    assert (unique.rows, unique.examples) == (2, ({"a": None},))
    assert (outside.rows, [row["a"] for row in outside.examples]) == (1, [1])
    assert (numbers.rows, str(numbers.examples[0]["b"])) == (1, "nan")


def test_text_is_compared_as_it_is_written(spark: SparkSession) -> None:
    """C30: quotes and backslashes of an end are characters, whatever the session's settings."""
    rows = r"SELECT * FROM VALUES ('it''s'), ('it''t'), ('\\') AS t(a)"

    [outside] = broken(spark, InRange(column="a", least="", most="it's"), sql=rows)
    assert outside.examples == ({"a": "it't"},)
    assert broken(spark, InRange(column="a", least="\\"), sql=rows) == ()


def test_no_row_is_looked_at_more_often_than_needed(spark: SparkSession) -> None:
    """C30: one pass for nulls, ranges and the count together, and one for each uniqueness rule."""
    seen = spark.sparkContext.accumulator(0)

    def looked(n: int) -> tuple[int, int]:
        seen.add(1)
        return n, n

    rows = spark.sparkContext.parallelize(range(100), 2).map(looked).toDF("a int, b int")

    broken_rules(
        rows, [NoNulls(columns=("a",)), InRange(column="b", least=0), RowCount(least=1), NoNulls(columns=("b",))]
    )
    assert seen.value == 100
    broken_rules(rows, [NoNulls(columns=("a",)), Unique(columns=("a",)), Unique(columns=("b",))])
    assert seen.value == 400


@pytest.mark.parametrize(
    "rule, said",
    [
        (NoNulls(columns=("nmae",)), "no column 'nmae'; did you mean 'name'"),
        (Unique(columns=("zzz",)), "no column 'zzz'; there are id, odd.name"),
        (NoNulls(columns=()), "needs a list of columns"),
        (NoNulls(columns=("id", "id")), "names a column twice"),
        (Unique(columns=("pairs",)), r"column 'pairs' is map<string,bigint>, whose values cannot be compared"),
        (InRange(column="pairs", least=1), r"column 'pairs' is map<string,bigint>, which has no order"),
        (InRange(column="list", least=1), "which has no order"),
        (InRange(column="id"), "needs an end"),
        (InRange(column="id", least="a"), "is bigint, which 'a' cannot be compared with"),
        (InRange(column="name", least=1), "is string, which 1 cannot be compared with"),
        (InRange(column="id", least=True), "is bigint, which True cannot be compared with"),
        (InRange(column="day", least="2026-13-01"), "is date, and '2026-13-01' is none"),
        (InRange(column="id", least=5, most=4), "nothing lies between 5 and 4"),
        (InRange(column="id", least=float("nan")), "cannot end at nan"),
        (RowCount(), "needs an end"),
        (RowCount(least=5, most=4), "no number of rows is between 5 and 4"),
    ],
)
def test_a_rule_that_cannot_be_asked_is_refused_before_any_work(spark: SparkSession, rule: Rule, said: str) -> None:
    """C30: unknown columns, types without an order, ranges without ends."""
    with pytest.raises(BadInput, match=said):
        broken(spark, rule, sql=f"SELECT *, raise_error('looked') AS e FROM ({ROWS})")


def test_a_name_that_is_there_twice_is_refused_and_a_failure_is_one_line(spark: SparkSession) -> None:
    """C30: nobody guesses which column was meant."""
    with pytest.raises(BadInput, match="more than one column 'a'"):
        broken(spark, NoNulls(columns=("a",)), sql="SELECT 1 AS a, 2 AS a")
    with pytest.raises(BuildFailed, match="no good") as told:
        broken(spark, NoNulls(columns=("a",)), sql="SELECT raise_error('no good') AS a FROM range(2)")
    assert "\n" not in str(told.value)
