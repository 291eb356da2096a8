"""What commands about a pipeline's file share: its parameters, and the plan as a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

import click

from holdfast.cli.output import Column, Line, Part, Table
from holdfast.cli.words import count
from holdfast.errors import BadInput

if TYPE_CHECKING:
    from holdfast.pipeline.plan import Plan, Task

__all__ = ["only_option", "param_option", "parameters_of", "plan_json", "plan_parts"]

_F = TypeVar("_F", bound=Callable[..., object])
_COLUMNS = (
    Column(title="", right=True),
    Column(title="what", keep="middle", least=12),
    Column(title="kind", least=6),
    Column(title="reads", least=12),
    Column(title="makes", keep="middle", least=12),
)


def param_option(function: _F) -> _F:
    return click.option(
        "--param",
        "params",
        multiple=True,
        metavar="NAME=VALUE",
        help="The value of a parameter, instead of its default; may be given several times.",
    )(function)


def only_option(function: _F) -> _F:
    return click.option(
        "--only",
        multiple=True,
        metavar="DATASET",
        help="Just this data set and what it needs; may be given several times.",
    )(function)


def parameters_of(params: Sequence[str]) -> dict[str, str]:
    """`--param day=2026-11-16`."""
    found = {}
    for one in params:
        name, mark, value = one.partition("=")
        if not mark or not name.strip():
            raise BadInput(f"--param {one!r}: write NAME=VALUE, as in --param day=2026-11-16")
        found[name.strip()] = value
    return found


def plan_json(plan: Plan) -> dict[str, object]:
    """The plan for programs."""
    return {
        "pipeline": plan.pipeline.name,
        "workspace": plan.pipeline.workspace,
        "parameters": {name: _plain(value) for name, value in plan.pipeline.parameters.items()},
        "fingerprint": plan.fingerprint,
        "tasks": [
            {"id": one.id, "kind": one.kind, "name": one.name, "reads": list(one.reads), "level": one.level}
            for one in plan.tasks
        ],
        "datasets": [
            {
                "name": one.name,
                "kind": _kind(plan, plan.task("dataset", one.name)),
                "needs": list(plan.needs[one.name]),
                "fingerprint": plan.fingerprints[one.name],
            }
            for one in plan.datasets
        ],
    }


def plan_parts(plan: Plan) -> list[Part]:
    """The plan for people."""
    rows = [
        (str(number), one.name, _kind(plan, one), _reads(plan, one), _makes(plan, one))
        for number, one in enumerate(plan.tasks, 1)
    ]
    number = count(len(plan.datasets), "data set")
    title = f"Pipeline {plan.pipeline.name}: {number} in {count(len(plan.levels), 'turn')}"
    return [Line(title, style="bold"), Table(_COLUMNS, rows)]


def _kind(plan: Plan, task: Task) -> str:
    from holdfast.pipeline.plan import kind_of

    if task.kind == "dataset":
        return next(kind_of(one) for one in plan.datasets if one.name == task.name)
    if task.kind == "step":
        return "sql"
    source = next(one for one in plan.sources if one.name == task.name)
    return str(getattr(source, "format", "data set"))


def _reads(plan: Plan, task: Task) -> str:
    if task.kind != "source":
        return ", ".join(task.reads)
    source = next(one for one in plan.sources if one.name == task.name)
    return str(getattr(source, "path", getattr(source, "dataset", "")))


def _makes(plan: Plan, task: Task) -> str:
    from holdfast.pipeline.spec import GraphDataset, KvDataset

    if task.kind != "dataset":
        return f"view {task.name}"
    match next(one for one in plan.datasets if one.name == task.name):
        case KvDataset() as kv:
            size = count(kv.shards, "shard") if kv.shards is not None else f"{kv.rows_per_shard:,} rows a shard"
            return f"data set, {size} by {', '.join(kv.key)}"
        case GraphDataset():
            return "data set, nodes and edges"
        case table:
            return "data set, " + (count(table.files, "file") if table.files is not None else "files")


def _plain(value: object) -> object:
    return value if isinstance(value, bool | int | float | str) else str(value)
