"""Before anything is written: which snapshots are read, and whether Spark understands every statement (C30).

Spark reads no rows here, only schemas. Whatever is wrong with columns and types is said with the pipeline's own names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.catalog import Workspace
from holdfast.catalog.payloads import Column
from holdfast.chain import Chain, InputPin, Move
from holdfast.errors import BadInput, BadSql, NotFound
from holdfast.graph.records import EDGE_COLUMNS, NODE_COLUMNS
from holdfast.pipeline.plan import Plan
from holdfast.pipeline.plan_problem import Problem, Where, raise_errors
from holdfast.pipeline.spec import (
    Check,
    DataSet,
    DatasetSource,
    FileSource,
    GraphDataset,
    KvDataset,
    NotNull,
    Range,
    Source,
    Unique,
)
from holdfast.pipeline.suggest import did_you_mean
from holdfast.pipeline.told_catalog import SourceNamed

if TYPE_CHECKING:
    from holdfast.spark.stage import Stage

__all__ = ["Prepared", "prepare", "resolve_pins"]

_EDGE_NEEDS, _NODE_NEEDS = ("source", "target", "type"), ("semantic_id", "type")


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What is known of a run's frames before any of its rows is."""

    pins: Mapping[str, InputPin]
    """Sources that are data sets: the snapshot of each."""
    named: Mapping[str, SourceNamed]
    frames: Mapping[str, tuple[Column, ...]]

    def columns(self, frame: str) -> tuple[Column, ...]:
        return self.frames[frame]


def resolve_pins(plan: Plan, workspace: Workspace) -> dict[str, str]:
    """Source → the ref of the snapshot that it is now."""
    return {
        source.name: _ref(chain := workspace.dataset(source.dataset), _found(chain, source))
        for source in plan.sources
        if isinstance(source, DatasetSource)
    }


def _found(chain: Chain, source: DatasetSource) -> Move:
    if source.version is not None:
        return _numbered(chain, source)
    key, mark, value = source.tag.partition("=")
    if source.tag and not mark:
        raise BadInput(f"source {source.name!r}: tag {source.tag!r} should be key=value")
    return chain.find(ref=source.ref or None, tag=(key, value) if source.tag else None)


def _numbered(chain: Chain, source: DatasetSource) -> Move:
    for found in chain.list_manifests(limit=1 << 30):
        if found.manifest_id == source.version:
            return chain.find(ref=found.ref)
    raise NotFound(f"source {source.name!r}: data set {source.dataset!r} has no version {source.version}")


def _ref(chain: Chain, move: Move) -> str:
    return chain.layout.ref_of(move.manifest_path)


def prepare(
    plan: Plan,
    workspace: Workspace,
    stage: Stage,
    pins: Mapping[str, str],
    *,
    locate: Callable[[Problem], Problem] = lambda problem: problem,
) -> Prepared:
    """Open sources and have Spark understand all steps; BadPipeline with everything that does not fit.

    `locate` puts a file and a line to a problem, where the pipeline is of a file.
    """
    found: dict[str, InputPin] = {}
    named: dict[str, SourceNamed] = {}
    problems: list[Problem] = []
    unknown: set[str] = set()
    for source in plan.sources:
        try:
            pin = _open(source, plan.pipeline.folder, workspace, stage, pins)
        except BadInput as error:
            unknown.add(source.name)
            problems.append(Problem(where=("sources", source.name), message=str(error)))
            continue
        if isinstance(source, FileSource):
            name, snapshot = _place(source, plan.pipeline.folder), None
        else:
            assert pin is not None
            found[source.name] = pin
            name, snapshot = source.dataset, str(pin.manifest_id)
        named[source.name] = SourceNamed(name=name, snapshot=snapshot, columns=_names(stage, source.name))
    for step in plan.steps:
        if unknown.isdisjoint(plan.task("step", step.name).reads):
            try:
                stage.ask(step.name, step.sql, args=step.arguments)
                continue
            except BadSql as error:
                row = error.line
                problems.append(Problem(where=("steps", step.name, "sql"), row=row, message=_said(error)))
        unknown.add(step.name)
    for dataset in plan.datasets:
        if unknown.isdisjoint(plan.task("dataset", dataset.name).reads):
            problems += _problems(dataset, stage)
    raise_errors(map(locate, problems), what=f"pipeline {plan.pipeline.name!r}")
    frames = {task.name: _columns(stage, task.name) for task in plan.tasks if task.kind != "dataset"}
    return Prepared(pins=found, named=named, frames=frames)


def _said(error: BadSql) -> str:
    """Without the line inside the statement: the problem has one of the file."""
    return f"{error.reason}; did you mean {error.suggestion}?" if error.suggestion else error.reason


def _open(source: Source, folder: Path, workspace: Workspace, stage: Stage, pins: Mapping[str, str]) -> InputPin | None:
    if isinstance(source, DatasetSource):
        chain = workspace.dataset(source.dataset)
        return stage.read_dataset(source.name, chain, ref=pins[source.name], part=source.part or None)
    stage.read_files(
        source.name,
        format=source.format,
        path=_place(source, folder),
        options=source.options,
        schema=source.schema or None,
    )
    return None


def _place(source: FileSource, folder: Path) -> str:
    """Beside the pipeline's file, unless it says where by itself."""
    if "://" in source.path or source.path.startswith("/"):
        return source.path
    return str(folder.absolute() / source.path)


def _names(stage: Stage, frame: str) -> tuple[str, ...]:
    return tuple(column.name for column in stage.columns(frame))


def _columns(stage: Stage, frame: str) -> tuple[Column, ...]:
    return tuple(
        Column(name=column.name, type=column.type, nullable=column.nullable) for column in stage.columns(frame)
    )


def _problems(dataset: DataSet, stage: Stage) -> list[Problem]:
    """Columns that a data set or its checks name, and that are not there."""
    where = ("datasets", dataset.name)
    if isinstance(dataset, GraphDataset):
        nodes, edges = _names(stage, dataset.nodes), _names(stage, dataset.edges)
        return [
            *_graph_problems((*where, "nodes"), nodes, _NODE_NEEDS, NODE_COLUMNS),
            *_graph_problems((*where, "edges"), edges, _EDGE_NEEDS, EDGE_COLUMNS),
            *_unchecked((*where, "checks"), dataset.checks, nodes),
            *_unchecked((*where, "edge_checks"), dataset.edge_checks, edges),
        ]
    there = _names(stage, dataset.rows)
    keys = dataset.key if isinstance(dataset, KvDataset) else ()
    return [*_missing((*where, "key"), keys, there), *_unchecked((*where, "checks"), dataset.checks, there)]


def _graph_problems(
    where: Where, there: tuple[str, ...], needs: tuple[str, ...], known: tuple[str, ...]
) -> list[Problem]:
    extra = [name for name in there if name not in known]
    return [
        *_missing(where, needs, there),
        *(
            Problem(where=where, message=f"it cannot have a column {one!r}: {did_you_mean(one, known)}")
            for one in extra
        ),
    ]


def _unchecked(where: Where, checks: tuple[Check, ...], there: tuple[str, ...]) -> list[Problem]:
    problems = []
    for number, check in enumerate(checks):
        columns = check.columns if isinstance(check, NotNull | Unique) else ()
        columns = (check.column,) if isinstance(check, Range) else columns
        problems += _missing((*where, number), columns, there)
    return problems


def _missing(where: Where, wanted: tuple[str, ...], there: tuple[str, ...]) -> list[Problem]:
    known = {name.lower() for name in there}
    return [
        Problem(where=where, message=f"there is no column {name!r}: {did_you_mean(name, there)}")
        for name in dict.fromkeys(wanted)
        if name.lower() not in known
    ]
