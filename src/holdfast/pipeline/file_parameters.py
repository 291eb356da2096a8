"""Parameters: `:name` is a value in SQL, `${name}` is text in SQL, in paths, in options, in tags and in settings.

`:name` is Spark's own parameter marker. Spark binds the value when it has read the statement, so that no value can
change what the statement asks; it has the type of the parameter's default. That is the way for values.

`${name}` is replaced before anybody reads the text, which is what paths need, and names of columns in SQL. In SQL it
takes only words and numbers: letters, digits and _, with single `.`, `-`, `:` or `/` between them. Such a value cannot
end a text or a comment, nor begin one, so what a statement asks can be seen in the file. `$${` is a plain `${`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import date

from holdfast.errors import BadInput
from holdfast.pipeline.file_build import argument_text
from holdfast.pipeline.plan_problem import Problem, Where, raise_errors
from holdfast.pipeline.plan_sql import BadSql, read_sql
from holdfast.pipeline.spec import Argument, DataSet, DatasetSource, Pipeline, Source, Step
from holdfast.pipeline.suggest import did_you_mean

__all__ = ["fill", "fill_and_tell", "given_values"]

_MARK = re.compile(r"\$\$\{|\$\{(?P<name>[^}\n]*)\}")
_SAFE_IN_SQL = re.compile(r"\w+(?:[.:/-]\w+)*")


def fill(pipeline: Pipeline, given: Mapping[str, str] | None = None) -> Pipeline:
    """The pipeline with values where parameters stood; `given` ones count before defaults."""
    filled, problems = fill_and_tell(pipeline, given or {})
    raise_errors(problems, what=f"pipeline {pipeline.name!r}")
    return filled


def fill_and_tell(pipeline: Pipeline, given: Mapping[str, str]) -> tuple[Pipeline, list[Problem]]:
    """The same, with what is wrong; what cannot be replaced stays as it is. Nothing is filled twice."""
    if pipeline.is_filled:
        if given:
            raise BadInput("parameters were put in before: give them when the pipeline is read")
        return pipeline, []
    values = given_values(pipeline.parameters, given)
    problems: list[Problem] = []

    def put(text: str, *where: str | int) -> str:
        return _put(text, where, values, problems, is_sql=False)

    filled = replace(
        pipeline,
        workspace=put(pipeline.workspace, "workspace"),
        parameters=values,
        spark={key: put(text, "spark", key) for key, text in pipeline.spark.items()},
        sources=tuple(_source(one, put) for one in pipeline.sources),
        steps=tuple(_step(one, values, problems) for one in pipeline.steps),
        datasets=tuple(_dataset(one, put) for one in pipeline.datasets),
        is_filled=True,
    )
    return filled, problems


def given_values(defaults: Mapping[str, Argument], given: Mapping[str, str]) -> dict[str, Argument]:
    """Values in effect: each that is given has the type of its default."""
    for name in given:
        if name not in defaults:
            raise BadInput(f"the pipeline has no parameter {name!r}: {did_you_mean(name, defaults)}")
    return {
        name: _typed(name, given[name], default) if name in given else default for name, default in defaults.items()
    }


def _typed(name: str, text: str, default: Argument) -> Argument:
    try:
        match default:
            case bool():
                return {"true": True, "false": False}[text.lower()]
            case int():
                return int(text)
            case float():
                return float(text)
            case date():
                return date.fromisoformat(text)
            case _:
                return text
    except (KeyError, ValueError):
        kinds = {bool: "true or false", int: "a whole number", float: "a number"}
        wanted = kinds.get(type(default), "a date such as 2026-11-15")
        raise BadInput(f"parameter {name!r} is {text!r}: give {wanted}, as its default {default} is") from None


_Put = Callable[..., str]


def _source(one: Source, put: _Put) -> Source:
    where = ("sources", one.name)
    if isinstance(one, DatasetSource):
        dataset, ref = put(one.dataset, *where, "dataset"), put(one.ref, *where, "ref")
        return replace(one, dataset=dataset, ref=ref, tag=put(one.tag, *where, "tag"))
    options = {key: put(text, *where, "options", key) for key, text in one.options.items()}
    return replace(one, path=put(one.path, *where, "path"), options=options, schema=put(one.schema, *where, "schema"))


def _dataset(one: DataSet, put: _Put) -> DataSet:
    return replace(one, tags={key: put(text, "datasets", one.name, "tags", key) for key, text in one.tags.items()})


def _step(step: Step, values: Mapping[str, Argument], problems: list[Problem]) -> Step:
    where = ("steps", step.name, "sql")
    before = len(problems)
    sql = _put(step.sql, where, values, problems, is_sql=True)
    if len(problems) > before or not sql:
        return step
    try:
        markers = read_sql(sql).markers
    except BadSql:
        return replace(step, sql=sql)  # said by whoever checks the pipeline
    used = {name: values[name] for name in markers if name in values}
    return replace(step, sql=sql, arguments={**used, **step.arguments})


def _put(text: str, where: Where, values: Mapping[str, Argument], problems: list[Problem], *, is_sql: bool) -> str:
    def value(found: re.Match[str]) -> str:
        name = found["name"]
        if name is None:
            return "${"
        row = text.count("\n", 0, found.start()) + 1 if is_sql else 0
        if name not in values:
            problems.append(
                Problem(where=where, row=row, message=f"unknown parameter ${{{name}}}: {did_you_mean(name, values)}")
            )
            return found[0]
        put = argument_text(values[name])
        if is_sql and not _SAFE_IN_SQL.fullmatch(put):
            message = (
                f"${{{name}}} would put {put!r} into SQL as text, which takes only words and numbers: write :{name} "
                "without quotes, a value that Spark binds"
            )
            problems.append(Problem(where=where, row=row, message=message))
            return found[0]
        return put

    return _MARK.sub(value, text)
