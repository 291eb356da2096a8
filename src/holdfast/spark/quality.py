"""What must be true of rows before they are published, asked in as few passes as possible.

    broken_rules(df, [NoNulls(columns=("id",)), Unique(columns=("id",)), InRange(column="age", least=0, most=150)])

One pass counts for all rules but uniqueness, which takes a grouping of its own each. Examples are only looked for where
a rule is broken. Everything about rows happens in the JVM.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from difflib import get_close_matches
from typing import TypeAlias

from pyspark.sql import DataFrame, Row
from pyspark.sql.types import ArrayType, DataType, StructType

from holdfast.errors import BadInput
from holdfast.spark.failures import SPARK_ERRORS, failure_of_job

__all__ = ["EXAMPLES_MAX", "Broken", "InRange", "NoNulls", "RowCount", "Rule", "Unique", "broken_rules"]

EXAMPLES_MAX = 5
_NUMBERS = frozenset({"byte", "short", "integer", "long", "float", "double", "decimal"})
_TEXTS = frozenset({"string", "varchar", "char"})
_TIMES: dict[str, Callable[[str], date]] = {
    "date": date.fromisoformat,
    "timestamp": datetime.fromisoformat,
    "timestamp_ntz": datetime.fromisoformat,
}
_WITHOUT_ORDER = frozenset({"map", "variant", "interval", "calendarinterval", "geometry", "geography", "object"})


@dataclass(frozen=True, slots=True, kw_only=True)
class NoNulls:
    """None of these columns is null in any row."""

    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unique:
    """No two rows have the same values in all of these columns. Two nulls are the same."""

    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class InRange:
    """Values lie between both ends, which are included. Nulls are not looked at; what is no number lies outside."""

    column: str
    least: float | str | None = None
    """A number for numbers; text for text, and for dates and times, as ISO 8601 has them."""
    most: float | str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RowCount:
    """So many rows at least, and at most."""

    least: int | None = None
    most: int | None = None


Rule: TypeAlias = NoNulls | Unique | InRange | RowCount


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """A rule that does not hold."""

    rule: Rule
    rows: int
    """How many rows break it: all that share their values with another, of a uniqueness rule; of a row count, how many
    are missing or too many."""
    row_count: int | None
    """How many rows there are; None where no rule asked for it."""
    examples: tuple[Mapping[str, object], ...] = ()
    """Up to five rows; of a uniqueness rule, values that are there more than once, and nothing else of their rows."""


def broken_rules(frame: DataFrame, rules: Sequence[Rule]) -> tuple[Broken, ...]:
    """The rules that do not hold, in their order. BadInput, before any work, for one that cannot be asked."""
    known = _Frame(frame)
    conditions = [known.condition(rule) for rule in rules]  # also says what cannot be asked
    counted, total = known.counts(conditions, any(isinstance(rule, RowCount) for rule in rules))
    found = []
    for rule, condition in zip(rules, conditions, strict=True):
        if isinstance(rule, RowCount):
            rows = _off_by(rule, total or 0)
            examples: tuple[Mapping[str, object], ...] = ()
        elif isinstance(rule, Unique):
            rows = known.repeated(rule)
            examples = known.repeated_examples(rule) if rows else ()
        else:
            assert condition is not None, "every other rule is one condition"
            rows = counted[condition]
            examples = known.examples(condition) if rows else ()
        if rows:
            found.append(Broken(rule=rule, rows=rows, row_count=total, examples=examples))
    return tuple(found)


class _Frame:
    """A frame under names of our own, so that no name has to be quoted or is there twice."""

    def __init__(self, frame: DataFrame) -> None:
        self._names = frame.columns
        self._types = {column.name: column.dataType for column in frame.schema.fields}
        self._frame = frame.toDF(*(f"c{index}" for index in range(len(self._names))))

    # -- what is asked -----------------------------------------------------------------------------------------------

    def condition(self, rule: Rule) -> str | None:
        """What is true of rows that break a rule, in SQL; None where it is not about single rows."""
        match rule:
            case NoNulls(columns=columns):
                return " OR ".join(f"{self._at(name)} IS NULL" for name in _some(columns, "a rule about nulls"))
            case Unique(columns=columns):
                for name in _some(columns, "a rule about uniqueness"):
                    self._at(name)
                    if not _has_order(self._types[name]):
                        raise BadInput(
                            f"column {name!r} is {self._types[name].simpleString()}, whose values cannot be compared"
                        )
                return None
            case InRange():
                return self._outside(rule)
            case RowCount(least=least, most=most):
                if least is None and most is None:
                    raise BadInput("a rule about the number of rows needs an end: give least, most or both")
                if (least or 0) < 0 or (most is not None and most < (least or 0)):
                    raise BadInput(f"no number of rows is between {least} and {most}")
                return None

    def _at(self, name: str) -> str:
        places = [index for index, known in enumerate(self._names) if known == name]
        if not places:
            near = get_close_matches(name, self._names, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(self._names)}"
            raise BadInput(f"there is no column {name!r}; {hint}")
        if len(places) > 1:
            raise BadInput(f"there is more than one column {name!r}; rename one")
        return f"c{places[0]}"

    def _outside(self, rule: InRange) -> str:
        column = self._at(rule.column)
        kind = self._types[rule.column]
        if rule.least is None and rule.most is None:
            raise BadInput(f"the range of column {rule.column!r} needs an end: give least, most or both")
        least, most = (None if end is None else _literal(rule.column, kind, end) for end in (rule.least, rule.most))
        if rule.least is not None and rule.most is not None and _is_above(rule.least, rule.most):
            raise BadInput(f"nothing lies between {rule.least!r} and {rule.most!r}: column {rule.column!r}")
        parts = [f"{column} < {least}" if least else "", f"{column} > {most}" if most else ""]
        if kind.typeName() in {"float", "double"}:
            parts.append(f"isnan({column})")
        return " OR ".join(part for part in parts if part)

    # -- what is found -----------------------------------------------------------------------------------------------

    def counts(self, conditions: Sequence[str | None], wants_total: bool) -> tuple[dict[str, int], int | None]:
        """How many rows meet each condition, and how many there are: one pass, or none where nothing is asked."""
        distinct = list(dict.fromkeys(condition for condition in conditions if condition is not None))
        if not distinct and not wants_total:
            return {}, None
        sums = [f"count_if({condition}) AS n{index}" for index, condition in enumerate(distinct)]
        [row] = _collected(self._frame.selectExpr("count(1) AS total", *sums))
        return {condition: row[f"n{index}"] for index, condition in enumerate(distinct)}, row["total"]

    def examples(self, condition: str) -> tuple[Mapping[str, object], ...]:
        rows = _collected(self._frame.where(condition).limit(EXAMPLES_MAX))
        return tuple(self._plain(row, self._names) for row in rows)

    def repeated(self, rule: Unique) -> int:
        """How many rows share their values with another."""
        groups = self._groups(rule).selectExpr("coalesce(sum(n), 0) AS n")
        return int(_collected(groups)[0]["n"])

    def repeated_examples(self, rule: Unique) -> tuple[Mapping[str, object], ...]:
        return tuple(
            self._plain(row, rule.columns) for row in _collected(self._groups(rule).drop("n").limit(EXAMPLES_MAX))
        )

    def _groups(self, rule: Unique) -> DataFrame:
        columns = [self._at(name) for name in rule.columns]
        return self._frame.groupBy(*columns).count().withColumnRenamed("count", "n").where("n > 1")

    def _plain(self, row: Row, names: Sequence[str]) -> Mapping[str, object]:
        return dict(zip(names, row.asDict(recursive=True).values(), strict=True))


def _collected(frame: DataFrame) -> list[Row]:
    try:
        return frame.collect()
    except SPARK_ERRORS as error:
        raise failure_of_job(error) from error


def _some(columns: Sequence[str], what: str) -> Sequence[str]:
    if not columns or isinstance(columns, str):
        raise BadInput(f"{what} needs a list of columns, found {columns!r}")
    if len(set(columns)) != len(columns):
        raise BadInput(f"{what} names a column twice: {', '.join(columns)}")
    return columns


def _off_by(rule: RowCount, total: int) -> int:
    if rule.least is not None and total < rule.least:
        return rule.least - total
    return total - rule.most if rule.most is not None and total > rule.most else 0


def _is_above(least: float | str, most: float | str) -> bool:
    if isinstance(least, str) or isinstance(most, str):
        return str(least) > str(most)
    return least > most


def _has_order(kind: DataType) -> bool:
    if isinstance(kind, ArrayType):
        return _has_order(kind.elementType)
    if isinstance(kind, StructType):
        return all(_has_order(member.dataType) for member in kind.fields)
    return kind.typeName() not in _WITHOUT_ORDER


def _literal(name: str, kind: DataType, end: float | str) -> str:
    """An end of a range in SQL, of the column's kind; BadInput if it cannot be one of it."""
    found = kind.typeName()
    if found not in _NUMBERS | _TEXTS | set(_TIMES):
        raise BadInput(
            f"column {name!r} is {kind.simpleString()}, which has no order; ranges are for numbers, text and times"
        )
    is_number = isinstance(end, int | float) and not isinstance(end, bool)
    if is_number != (found in _NUMBERS) or isinstance(end, bool):
        raise BadInput(f"column {name!r} is {kind.simpleString()}, which {end!r} cannot be compared with")
    if not isinstance(end, str):
        if not math.isfinite(end):
            raise BadInput(f"the range of column {name!r} cannot end at {end}; leave that end out")
        return f"CAST('{end!r}' AS DOUBLE)" if type(end) is float else f"({end})"
    if found in _TEXTS:
        return _text(end)
    try:
        _TIMES[found](end)
    except ValueError:
        raise BadInput(f"column {name!r} is {kind.simpleString()}, and {end!r} is none; use ISO 8601") from None
    return f"CAST({_text(end)} AS {kind.simpleString().upper()})"


def _text(text: str) -> str:
    """A text in SQL, by its bytes: how quotes are escaped depends on settings."""
    return f"CAST(X'{text.encode().hex()}' AS STRING)" if text else "''"
