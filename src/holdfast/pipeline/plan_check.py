"""Whether a pipeline fits together: everything that is wrong with it, said at once (C30).

First its shape, as that of a file; then its parameters; then what the shape cannot tell: names that nobody has, SQL
that cannot be read, steps that read each other in a circle, columns that a step does not give, parts that nobody uses.
What follows from something wrong is not said a second time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter

from holdfast.pipeline.file_build import document_of
from holdfast.pipeline.file_fields import DATASET_NAME, PIPELINE
from holdfast.pipeline.file_parameters import fill_and_tell
from holdfast.pipeline.plan_problem import Problem, Where
from holdfast.pipeline.plan_sql import BadSql, read_sql
from holdfast.pipeline.spec import (
    Check,
    DataSet,
    DatasetSource,
    GraphDataset,
    KvDataset,
    NotNull,
    Pipeline,
    Range,
    RowCount,
    Step,
    Unique,
)
from holdfast.pipeline.suggest import did_you_mean

__all__ = [
    "NODE_COLUMNS_NEEDED",
    "check_meaning",
    "check_pipeline",
    "cycles",
    "first_problems",
    "inputs_of",
    "relations",
]

NODE_COLUMNS_NEEDED = ("semantic_id", "type")
EDGE_COLUMNS_NEEDED = ("source", "target", "type")
_SUBSTITUTE = "spark.sql.variable.substitute"


def check_pipeline(pipeline: Pipeline) -> list[Problem]:
    """Everything that is wrong, in the words of a file: `datasets.users.from` is `KvDataset.rows` of `users`."""
    shape = list(PIPELINE.problems(document_of(pipeline), ()))
    filled, unfilled = fill_and_tell(pipeline, {})
    return first_problems(shape, unfilled, check_meaning(filled))


def first_problems(*rounds: Iterable[Problem]) -> list[Problem]:
    """All problems of the first round, and of each later one those that lie elsewhere; warnings only if all is well."""
    kept: list[Problem] = []
    for problems in rounds:
        before = [one.where for one in kept]
        kept += [one for one in problems if not any(_is_around(one.where, other) for other in before)]
    errors = [one for one in kept if not one.is_warning]
    return errors or kept


def _is_around(one: Where, other: Where) -> bool:
    length = min(len(one), len(other))
    return one[:length] == other[:length]


def relations(pipeline: Pipeline) -> dict[str, str]:
    """Sources and steps: how each is spelled, by its name in lower case. Spark's names are the same in any case."""
    return {one.name.lower(): one.name for one in (*pipeline.steps, *pipeline.sources)}


def inputs_of(dataset: DataSet) -> dict[str, str]:
    """What a data set is made from, by the key that says it in a file."""
    if isinstance(dataset, GraphDataset):
        return {"nodes": dataset.nodes, "edges": dataset.edges}
    return {"from": dataset.rows}


def cycles(reads: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """Circles, each as names of which one reads the next and the last the first; no name is in two of them."""
    left = {name: tuple(one for one in read if one in reads) for name, read in reads.items()}
    found = []
    for _ in range(len(left)):
        try:
            TopologicalSorter(left).prepare()
        except CycleError as error:
            circle = [str(name) for name in reversed(error.args[1])][:-1]
            first = circle.index(next(name for name in reads if name in circle))
            found.append([*circle[first:], *circle[:first]])
            left = {
                name: tuple(one for one in read if one not in circle)
                for name, read in left.items()
                if name not in circle
            }
        else:
            break
    return found


def check_meaning(pipeline: Pipeline) -> list[Problem]:
    """Of a pipeline whose parameters are filled in."""
    look = _Look(pipeline)
    return [*look.errors(), *look.warnings()]


@dataclass(slots=True)
class _Look:
    pipeline: Pipeline
    known: dict[str, str] = field(init=False)
    reads: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Of each step whose SQL can be read: the sources and steps it names, as they are spelled where they are said."""
    columns: dict[str, tuple[str, ...]] = field(default_factory=dict)
    rows: dict[tuple[str, str], int] = field(default_factory=dict)
    """The line of a step's SQL that names something."""

    def __post_init__(self) -> None:
        self.known = relations(self.pipeline)

    def errors(self) -> Iterator[Problem]:
        yield from self._names()
        for step in self.pipeline.steps:
            if step.sql:
                yield from self._step(step)
        for circle in cycles(self.reads):
            yield self._circle(circle)
        for dataset in self.pipeline.datasets:
            yield from self._dataset(dataset)

    # -- names ---------------------------------------------------------------------------------------------------------

    def _names(self) -> Iterator[Problem]:
        seen: dict[str, str] = {}
        everything = [("sources", "a source", one.name) for one in self.pipeline.sources]
        everything += [("steps", "a step", one.name) for one in self.pipeline.steps]
        for section, what, name in everything:
            if name.lower() in seen:
                message = f"{name!r} is also the name of {seen[name.lower()]}: to SQL they are the same, rename one"
                yield Problem(where=(section, name), message=message)
            seen.setdefault(name.lower(), what)
        made = [one.name for one in self.pipeline.datasets]
        for name in dict.fromkeys(one for one in made if made.count(one) > 1):
            yield Problem(where=("datasets", name), message=f"data set {name!r} is there twice: rename one")
        for source in self.pipeline.sources:
            if isinstance(source, DatasetSource):
                yield from DATASET_NAME.problems(source.dataset, ("sources", source.name, "dataset"))
        if not made:
            message = "the pipeline publishes nothing: add a data set, [datasets.NAME]"
            yield Problem(where=("datasets",), message=message)

    def _unknown(self, name: str, where: Where, row: int = 0) -> Problem:
        if "." in name:
            message = f"{name!r} is no source or step: tables of other catalogs are read by a source, [sources.NAME]"
        else:
            message = f"there is no source or step {name!r}: {did_you_mean(name, self.known.values())}"
        return Problem(where=where, row=row, message=message)

    # -- steps ---------------------------------------------------------------------------------------------------------

    def _step(self, step: Step) -> Iterator[Problem]:
        where: Where = ("steps", step.name, "sql")
        try:
            query = read_sql(step.sql)
        except BadSql as error:
            yield Problem(where=where, row=error.row, message=str(error))
            return
        for name, row in query.reads.items():
            if name.lower() not in self.known:
                yield self._unknown(name, where, row)
            self.rows[step.name, self.known.get(name.lower(), name)] = row
        for name, row in query.markers.items():
            if name not in step.arguments:
                near = did_you_mean(name, self.pipeline.parameters)
                yield Problem(where=where, row=row, message=f"unknown parameter :{name}: {near}")
        found = (self.known[name.lower()] for name in query.reads if name.lower() in self.known)
        self.reads[step.name] = tuple(dict.fromkeys(found))
        if query.columns is not None:
            self.columns[step.name] = query.columns

    def _circle(self, circle: Sequence[str]) -> Problem:
        where: Where = ("steps", circle[0], "sql")
        pairs = list(zip(circle, [*circle[1:], circle[0]], strict=True))
        row = self.rows.get(pairs[0], 0)
        if len(circle) == 1:
            message = f"step {circle[0]!r} reads itself: read a source, or another step"
        else:
            said = ", ".join(f"{one} reads {other}" for one, other in pairs)
            message = f"steps read each other in a circle: {said}; one of them must not"
        return Problem(where=where, row=row, message=message)

    # -- data sets -----------------------------------------------------------------------------------------------------

    def _dataset(self, dataset: DataSet) -> Iterator[Problem]:
        where: Where = ("datasets", dataset.name)
        for key, name in inputs_of(dataset).items():
            if name and name.lower() not in self.known:
                yield self._unknown(name, (*where, key))
        if isinstance(dataset, GraphDataset):
            yield from self._columns(dataset.nodes, NODE_COLUMNS_NEEDED, (*where, "nodes"), "nodes need")
            yield from self._columns(dataset.edges, EDGE_COLUMNS_NEEDED, (*where, "edges"), "edges need")
            yield from self._checks(dataset.checks, dataset.nodes, (*where, "checks"))
            yield from self._checks(dataset.edge_checks, dataset.edges, (*where, "edge_checks"))
            return
        yield from self._checks(dataset.checks, dataset.rows, (*where, "checks"))
        if isinstance(dataset, KvDataset):
            yield from self._columns(dataset.rows, dataset.key, (*where, "key"), "the key is")
            if dataset.on_duplicate.startswith("max("):
                column = dataset.on_duplicate[4:-1].strip()
                yield from self._columns(dataset.rows, (column,), (*where, "on_duplicate"), "the largest wins of")

    def _checks(self, checks: Sequence[Check], rows: str, where: Where) -> Iterator[Problem]:
        for index, check in enumerate(checks):
            here = (*where, index)
            if isinstance(check, NotNull | Unique):
                yield from self._columns(rows, check.columns, here, "the check is of")
            elif isinstance(check, Range):
                yield from self._columns(rows, (check.column,), here, "the check is of")
            if isinstance(check, Range | RowCount):
                least, most = check.least, check.most
                if least is not None and most is not None and _is_above(least, most):
                    yield Problem(where=here, message=f"min is {least} and max is {most}: nothing lies between them")

    def _columns(self, rows: str, wanted: Sequence[str], where: Where, why: str) -> Iterator[Problem]:
        """Columns that the SQL of a step certainly does not give; where it has a star nobody knows."""
        given = self.columns.get(self.known.get(rows.lower(), rows))
        if given is None:
            return
        lower = {one.lower() for one in given}
        for name in wanted:
            if name.lower() not in lower:
                message = f"{why} {name!r}, which step {rows!r} does not give: {did_you_mean(name, given)}"
                yield Problem(where=where, message=message)

    # -- warnings ------------------------------------------------------------------------------------------------------

    def warnings(self) -> Iterator[Problem]:
        needed: set[str] = set()
        ahead = [
            self.known.get(name.lower(), name) for one in self.pipeline.datasets for name in inputs_of(one).values()
        ]
        while ahead:
            name = ahead.pop()
            if name not in needed:
                needed.add(name)
                ahead += self.reads.get(name, ())
        made = {one.name for one in self.pipeline.datasets}
        for source in self.pipeline.sources:
            where: Where = ("sources", source.name)
            if source.name not in needed:
                message = f"no data set needs source {source.name!r}: it is not read"
                yield Problem(where=where, message=message, is_warning=True)
            elif isinstance(source, DatasetSource) and source.dataset in made:
                message = f"source {source.name!r} is the snapshot of {source.dataset!r} from before the run"
                yield Problem(where=(*where, "dataset"), message=message, is_warning=True)
        for step in self.pipeline.steps:
            if step.name not in needed:
                message = f"no data set needs step {step.name!r}: it is not made"
                yield Problem(where=("steps", step.name), message=message, is_warning=True)
            elif "${" in step.sql and self.pipeline.spark.get(_SUBSTITUTE, "true").lower() != "false":
                row = step.sql.count("\n", 0, step.sql.index("${")) + 1
                message = f"Spark would replace the plain ${{…}} itself: [spark] {_SUBSTITUTE} = false keeps it"
                yield Problem(where=("steps", step.name, "sql"), row=row, message=message, is_warning=True)


def _is_above(least: float | str, most: float | str) -> bool:
    if isinstance(least, str) or isinstance(most, str):
        return False  # text may stand for a date or a number: Spark knows
    return least > most
