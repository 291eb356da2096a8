"""The plan of a pipeline: what reads what, in which order everything is made, and what could be made side by side.

    plan(pipeline).levels           sources, then steps that read only them, and so on
    plan(pipeline, only=["users"])  just what this data set needs

Pure: the same pipeline gives the same plan, nothing is read but its SQL, and Spark is not asked. Everything comes after
what it reads; of what could come next, sources come before steps and steps before data sets, each as in the file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from holdfast.errors import BadInput
from holdfast.pipeline.file_build import argument_text, document_of
from holdfast.pipeline.file_parameters import fill_and_tell
from holdfast.pipeline.plan_check import check_pipeline, inputs_of, relations
from holdfast.pipeline.plan_problem import Problem, raise_errors
from holdfast.pipeline.plan_sql import read_sql
from holdfast.pipeline.spec import DataSet, GraphDataset, KvDataset, Pipeline, Source, Step
from holdfast.pipeline.suggest import did_you_mean

__all__ = ["Plan", "Task", "TaskKind", "kind_of", "plan"]

TaskKind: TypeAlias = Literal["source", "step", "dataset"]
_WORDS = ("description", "owner")
"""What may change without anything being made differently."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One thing to do: read a source, make a step, publish a data set."""

    kind: TaskKind
    name: str
    reads: tuple[str, ...] = ()
    """Sources and steps, in the order in which they are named."""
    level: int = 0
    """Longest way from a source. Tasks of one level need nothing of each other."""

    @property
    def id(self) -> str:
        """Sources and steps share one space of names, data sets have another: `step:totals`, `dataset:totals`."""
        return f"{self.kind}:{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What will be done, in order."""

    pipeline: Pipeline
    """With its parameters filled in, and whole, whatever the plan leaves out."""
    tasks: tuple[Task, ...]
    """Each after what it reads."""
    needs: Mapping[str, tuple[str, ...]]
    """Data set → every source and step it depends on, however far away, in order."""
    fingerprint: str
    """Of the whole definition: another one means that the pipeline was changed."""
    fingerprints: Mapping[str, str]
    """Of each data set's part of it: its own definition and that of all it needs."""
    warnings: tuple[Problem, ...] = ()

    @property
    def levels(self) -> tuple[tuple[Task, ...], ...]:
        """Tasks that could run side by side."""
        numbers = sorted({one.level for one in self.tasks})
        return tuple(tuple(one for one in self.tasks if one.level == number) for number in numbers)

    @property
    def sources(self) -> tuple[Source, ...]:
        by_name = {one.name: one for one in self.pipeline.sources}
        return tuple(by_name[one.name] for one in self.tasks if one.kind == "source")

    @property
    def steps(self) -> tuple[Step, ...]:
        by_name = {one.name: one for one in self.pipeline.steps}
        return tuple(by_name[one.name] for one in self.tasks if one.kind == "step")

    @property
    def datasets(self) -> tuple[DataSet, ...]:
        by_name = {one.name: one for one in self.pipeline.datasets}
        return tuple(by_name[one.name] for one in self.tasks if one.kind == "dataset")

    def task(self, kind: TaskKind, name: str) -> Task:
        return next(one for one in self.tasks if (one.kind, one.name) == (kind, name))


def kind_of(dataset: DataSet) -> Literal["kv", "graph", "table"]:
    if isinstance(dataset, KvDataset):
        return "kv"
    return "graph" if isinstance(dataset, GraphDataset) else "table"


def plan(pipeline: Pipeline, *, only: Iterable[str] = ()) -> Plan:
    """The plan, of all data sets or of some; BadPipeline with everything that is wrong with the pipeline."""
    problems = check_pipeline(pipeline)
    raise_errors(problems, what=f"pipeline {pipeline.name!r}")
    whole, _ = fill_and_tell(pipeline, {})
    chosen = _chosen(whole, only)
    reads = _reads(whole)
    needs = {one.name: _needs(set(inputs_of(one).values()), whole, reads) for one in chosen}
    definition = _definition(whole)
    needed = {name for names in needs.values() for name in names}
    return Plan(
        pipeline=whole,
        tasks=_tasks(whole, chosen, reads, needed),
        needs={name: tuple(one for one in _order(reads) if one in names) for name, names in needs.items()},
        fingerprint=_hash(definition),
        fingerprints={one.name: _hash(_part(definition, one.name, needs[one.name])) for one in chosen},
        warnings=tuple(one for one in problems if one.is_warning),
    )


def _chosen(pipeline: Pipeline, only: Iterable[str]) -> list[DataSet]:
    wanted = list(only)
    names = [one.name for one in pipeline.datasets]
    for name in wanted:
        if name not in names:
            raise BadInput(f"the pipeline has no data set {name!r}: {did_you_mean(name, names)}")
    return [one for one in pipeline.datasets if not wanted or one.name in wanted]


def _reads(pipeline: Pipeline) -> dict[str, tuple[str, ...]]:
    """Of each source and step, sources first: what it reads, as it is spelled where it is said."""
    known = relations(pipeline)
    reads: dict[str, tuple[str, ...]] = {one.name: () for one in pipeline.sources}
    for step in pipeline.steps:
        reads[step.name] = tuple(dict.fromkeys(known[name.lower()] for name in read_sql(step.sql).reads))
    return reads


def _needs(names: set[str], pipeline: Pipeline, reads: Mapping[str, Sequence[str]]) -> set[str]:
    known = relations(pipeline)
    found: set[str] = set()
    ahead = [known[name.lower()] for name in names]
    while ahead:
        name = ahead.pop()
        if name not in found:
            found.add(name)
            ahead += reads[name]
    return found


def _levels(reads: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """Nothing is in a circle: the pipeline was checked."""
    levels: dict[str, int] = {}
    ahead = [*reads][::-1]
    while ahead:
        name = ahead[-1]
        waits = [one for one in reads[name] if one not in levels]
        if waits:
            ahead += waits
        else:
            levels[ahead.pop()] = 1 + max((levels[one] for one in reads[name]), default=-1)
    return levels


def _order(reads: Mapping[str, Sequence[str]]) -> list[str]:
    levels = _levels(reads)
    return sorted(reads, key=lambda name: levels[name])  # stable: else as they were said


def _tasks(
    pipeline: Pipeline, chosen: Sequence[DataSet], reads: Mapping[str, tuple[str, ...]], needed: set[str]
) -> tuple[Task, ...]:
    known, levels = relations(pipeline), _levels(reads)
    sources = {one.name for one in pipeline.sources}
    tasks = [
        Task(kind="source" if name in sources else "step", name=name, reads=reads[name], level=levels[name])
        for name in reads
        if name in needed
    ]
    for dataset in chosen:
        names = tuple(dict.fromkeys(known[name.lower()] for name in inputs_of(dataset).values()))
        level = 1 + max(levels[name] for name in names)
        tasks.append(Task(kind="dataset", name=dataset.name, reads=names, level=level))
    return tuple(sorted(tasks, key=lambda task: task.level))


# -- fingerprints ------------------------------------------------------------------------------------------------------


def _definition(pipeline: Pipeline) -> dict[str, dict[str, Any]]:
    """All that decides about what is made, by names, so that moving parts in the file changes nothing."""
    said = document_of(pipeline)
    steps = {
        one.name: {
            "sql": one.sql,
            "arguments": {
                name: f"{type(value).__name__} {argument_text(value)}" for name, value in one.arguments.items()
            },
        }
        for one in pipeline.steps
    }
    datasets = {
        name: {key: value for key, value in one.items() if key not in _WORDS} for name, one in said["datasets"].items()
    }
    named = {"name": pipeline.name, "namespace": pipeline.namespace}
    sources = said.get("sources", {})
    return {"pipeline": named, "spark": dict(pipeline.spark), "sources": sources, "steps": steps, "datasets": datasets}


def _part(whole: Mapping[str, Mapping[str, Any]], dataset: str, needs: set[str]) -> dict[str, object]:
    """What of a definition makes one data set."""
    return {
        "spark": whole["spark"],
        "sources": {name: one for name, one in whole["sources"].items() if name in needs},
        "steps": {name: one for name, one in whole["steps"].items() if name in needs},
        "datasets": {dataset: whole["datasets"][dataset]},
    }


def _hash(definition: object) -> str:
    text = json.dumps(definition, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
