"""Parameters: values in SQL, text elsewhere, and never a surprise."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest
import sqlglot
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import BadInput, BadPipeline
from holdfast.pipeline import Argument, FileSource, Pipeline, Step, TableDataset
from holdfast.pipeline.file import read_pipeline
from holdfast.pipeline.file_parameters import fill, given_values
from holdfast.pipeline.plan import plan
from tests.pipeline.golden import FOLDER

ALL = FOLDER / "good" / "all-keys.toml"


def pipeline(sql: str = "SELECT * FROM orders", path: str = "a", **parameters: Argument) -> Pipeline:
    return Pipeline(
        name="p",
        sources=(FileSource(name="orders", path=path),),
        steps=(Step(name="s", sql=sql),),
        datasets=(TableDataset(name="d", rows="s"),),
        parameters=parameters,
    )


def test_values_on_the_command_line_count_before_defaults() -> None:
    """C30: `--param` wins, with the type of the default; paths, options, tags and SQL get it."""
    read = read_pipeline(ALL, {"day": "2027-01-02", "least": "5", "share": "2", "strict": "False", "root": "pond"})
    assert read.parameters == {
        "root": "pond", "day": date(2027, 1, 2), "least": 5, "share": 2.0, "strict": False, "column": "price",
    }  # fmt: skip
    assert read.steps[0].arguments == {"strict": False, "least": 5, "share": 2.0, "day": date(2027, 1, 2)}
    assert read.workspace == "s3://bucket/pond/acme/prod"
    assert read.datasets[0].tags["day"] == "2027-01-02"
    assert isinstance(read.sources[0], FileSource)
    assert read.sources[0].path == "data/2027-01-02/*.csv"


@pytest.mark.parametrize(
    "name, text, said",
    [
        ("dya", "1", "the pipeline has no parameter 'dya': did you mean 'day'"),
        ("day", "tomorrow", "give a date such as 2026-11-15"),
        ("least", "1.5", "give a whole number"),
        ("share", "much", "give a number"),
        ("strict", "yes", "give true or false"),
    ],
)
def test_a_value_of_the_wrong_type_or_name_is_refused(name: str, text: str, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        read_pipeline(ALL, {name: text})


def test_a_value_that_is_bound_is_not_in_the_text() -> None:
    """C30: `:name` stays in the SQL and its value goes beside it, so that no value can change the question."""
    made = fill(pipeline("SELECT a::int, ':no' AS b FROM orders WHERE x = :evil", evil="' OR 1=1 --", no=1))
    assert made.steps[0].sql == "SELECT a::int, ':no' AS b FROM orders WHERE x = :evil"
    assert made.steps[0].arguments == {"evil": "' OR 1=1 --"}


def test_only_words_and_numbers_go_into_sql_as_text() -> None:
    """C30: a quote, a comment or a semicolon cannot come in by a parameter."""
    made = fill(pipeline("SELECT ${c} FROM orders WHERE d = '${d}'", c="a.b_1", d="2026-11-15"))
    assert made.steps[0].sql == "SELECT a.b_1 FROM orders WHERE d = '2026-11-15'"
    for value in ("it's", "a b", "-1", "a--b", "a;b", "/*", "a/*b", "", "`a`", 'a"b', "a\nb", "a(b)", "1 OR 1", "a-"):
        with pytest.raises(BadPipeline, match=r"steps\.s\.sql line 2: .*write :v without quotes"):
            fill(pipeline("SELECT *\nFROM orders WHERE d = '${v}'", v=value))


@given(st.text(st.sampled_from("ab1_.:/- '\"`;*\\\n()é"), max_size=8))
def test_no_text_changes_the_form_of_a_statement(value: str) -> None:
    """C30: whatever is put in as text, the words around it mean what they meant: one literal, one comment."""
    sql = "SELECT '${v}' AS a /* ${v} */ FROM orders -- ${v}"
    try:
        filled = fill(pipeline(sql, v=value)).steps[0].sql
    except BadPipeline:
        return
    tokens = sqlglot.tokenize(filled, read="spark")
    assert [one.text for one in tokens] == ["SELECT", value, "AS", "a", "FROM", "orders"]


def test_an_unknown_parameter_is_named_with_the_nearest() -> None:
    with pytest.raises(BadPipeline, match=r"sources.orders.path: unknown parameter \$\{dya\}: did you mean 'day'\?"):
        fill(pipeline(path="${dya}", day="1"))
    with pytest.raises(BadPipeline, match=r"steps\.s\.sql line 2: unknown parameter :dya: did you mean 'day'"):
        plan(pipeline("SELECT *\nFROM orders WHERE d = :dya", day="1"))


def test_doubled_dollars_are_plain_and_nothing_is_filled_twice() -> None:
    once = fill(pipeline(path="$${day}/${day}", day="${day}"))
    assert once.sources == (FileSource(name="orders", path="${day}/${day}"),)
    assert fill(once) == once
    with pytest.raises(BadInput, match="were put in before"):
        fill(once, {"day": "1"})


def test_a_pipeline_in_python_is_filled_by_its_plan() -> None:
    """C30: the same in Python."""
    made = plan(pipeline("SELECT * FROM orders WHERE d = :day", path="data/${day}", day=date(2026, 11, 15)))
    assert made.sources == (FileSource(name="orders", path="data/2026-11-15"),)
    assert made.steps[0].arguments == {"day": date(2026, 11, 15)}


def test_values_keep_the_order_of_their_defaults() -> None:
    assert list(given_values({"a": 1, "b": 2}, {"b": "3"}).items()) == [("a", 1), ("b", 3)]


def test_a_relative_path_begins_at_the_file() -> None:
    assert read_pipeline(ALL).folder == Path(ALL).parent
