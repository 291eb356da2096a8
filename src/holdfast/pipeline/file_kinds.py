"""Kinds of values in a pipeline file. Each says two things of itself: what is wrong with a value, and its JSON schema.

Both come from the same fields, so that an editor and the reader agree on what a file may say.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any, Literal, Protocol

from holdfast.pipeline.plan_problem import Problem, Where
from holdfast.pipeline.suggest import did_you_mean, nearest

__all__ = ["DOTTED", "Field", "Kind", "Many", "Named", "Names", "Number", "Record", "Rule", "Settings", "Text", "Value",
           "Variants", "Whole"]  # fmt: skip

Schema = dict[str, Any]
DOTTED = "dotted"
"""What the schema calls `Settings(dotted=True)`, which may be inside of itself."""


class Kind(Protocol):
    """What a value may be."""

    def problems(self, value: object, where: Where) -> Iterator[Problem]: ...

    def schema(self) -> Schema: ...


def shown(value: object) -> str:
    """What a value is, in words, for whoever wrote it."""
    match value:
        case bool():
            return f"{str(value).lower()}"
        case int() | float():
            return f"the number {value}"
        case str():
            return f"the text {value[:40]!r}" + ("…" if len(value) > 40 else "")
        case list():
            return "a list"
        case dict():
            return "a table"
        case datetime():
            return "a time"
        case _:
            return "a date"


def _wrong(value: object, where: Where, wanted: str) -> Problem:
    name = next((str(one) for one in reversed(where) if isinstance(one, str)), "it")
    return Problem(where=where, message=f"{name!r} should be {wanted}, not {shown(value)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """Text, of certain choices or of a certain form; `form` says the latter in words."""

    choices: tuple[str, ...] = ()
    pattern: str = ""
    form: str = ""
    may_be_empty: bool = False

    def problems(self, value: object, where: Where) -> Iterator[Problem]:
        if not isinstance(value, str):
            yield _wrong(value, where, "text")
        elif not self.may_be_empty and not value.strip():
            yield Problem(where=where, message=f"{where[-1]!r} is empty: fill it in, or take it out")
        elif self.choices and value not in self.choices:
            near = nearest(value, self.choices)
            meant = "" if near is None else f": did you mean {near!r}?"
            message = f"{where[-1]!r} is one of {', '.join(self.choices)}, not {value!r}{meant}"
            yield Problem(where=where, message=message)
        elif self.pattern and not re.fullmatch(self.pattern, value):
            said = f"the name {value!r} cannot be used" if where[-1] == value else f"{where[-1]!r} is {value!r}"
            yield Problem(where=where, message=f"{said}: use {self.form}")

    def schema(self) -> Schema:
        if self.choices:
            return {"type": "string", "enum": list(self.choices)}
        if self.pattern:
            return {"type": "string", "pattern": f"^(?:{self.pattern})$"}
        return {"type": "string"} if self.may_be_empty else {"type": "string", "pattern": r"\S"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    """A whole number between both ends."""

    least: int
    most: int | None = None

    def problems(self, value: object, where: Where) -> Iterator[Problem]:
        if not isinstance(value, int) or isinstance(value, bool):
            yield _wrong(value, where, "a whole number")
        elif value < self.least or (self.most is not None and value > self.most):
            limits = f"from {self.least:,} to {self.most:,}" if self.most is not None else f"{self.least:,} or more"
            yield Problem(where=where, message=f"{where[-1]!r} is {value:,}: it may be {limits}")

    def schema(self) -> Schema:
        most = {} if self.most is None else {"maximum": self.most}
        return {"type": "integer", "minimum": self.least, **most}


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """A number between both ends."""

    least: float
    most: float | None = None

    def problems(self, value: object, where: Where) -> Iterator[Problem]:
        if not isinstance(value, int | float) or isinstance(value, bool):
            yield _wrong(value, where, "a number")
        elif not self.least <= value <= (sys.float_info.max if self.most is None else self.most):
            limits = f"from {self.least:g} to {self.most:g}" if self.most is not None else f"{self.least:g} or more"
            yield Problem(where=where, message=f"{where[-1]!r} is {value}: it may be {limits}")

    def schema(self) -> Schema:
        most = {} if self.most is None else {"maximum": self.most}
        return {"type": "number", "minimum": self.least, **most}


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """Text, a number, a date, or (where it is allowed) true and false. Editors see dates as text."""

    booleans: bool = True

    def problems(self, value: object, where: Where) -> Iterator[Problem]:
        kinds = "text, a number, a date" + (", true or false" if self.booleans else "")
        is_good = isinstance(value, str | int | float | date) and not isinstance(value, datetime)
        is_endless = isinstance(value, float) and not math.isfinite(value)
        if not is_good or is_endless or (isinstance(value, bool) and not self.booleans):
            yield _wrong(value, where, kinds)

    def schema(self) -> Schema:
        return {"type": ["string", "number", *(["boolean"] if self.booleans else [])]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """One name, or a list of different ones."""

    def problems(self, value: object, where: Where) -> Iterator[Problem]:
        items = [value] if isinstance(value, str) else value
        if not isinstance(items, list) or not all(isinstance(one, str) for one in items):
            yield _wrong(value, where, "a name or a list of names")
        elif not items or not all(one.strip() for one in items):
            yield Problem(where=where, message=f"{where[-1]!r} has an empty name, or none: name at least one column")
        elif len({one.lower() for one in items}) < len(items):
            yield Problem(where=where, message=f"{where[-1]!r} names a column twice: take one out")

    def schema(self) -> Schema:
        name = {"type": "string", "pattern": r"\S"}
        return {"oneOf": [name, {"type": "array", "items": name, "minItems": 1, "uniqueItems": True}]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Names with values; with `dotted` also written as `a.b = 1`, which TOML understands as a table in a table."""

    of: Kind = field(default_factory=Value)
    name: Text = field(default_factory=Text)
    dotted: bool = False

    def problems(self, value: object, where: Where) -> Iterator[Problem]:
        if not isinstance(value, dict):
            yield _wrong(value, where, "a table of names with values")
            return
        for key, inner in value.items():
            yield from self.name.problems(key, (*where, key))
            if self.dotted and isinstance(inner, dict):
                yield from Settings(of=self.of, dotted=True).problems(inner, (*where, key))
            else:
                yield from self.of.problems(inner, (*where, key))

    def schema(self) -> Schema:
        of = self.of.schema()
        if self.dotted:
            of = {"anyOf": [of, {"$ref": f"#/$defs/{DOTTED}"}]}
        return {"type": "object", "propertyNames": self.name.schema(), "additionalProperties": of}


@dataclass(frozen=True, slots=True, kw_only=True)
class Many:
    """A list."""

    of: Kind

    def problems(self, value: object, where: Where) -> Iterator[Problem]:
        if not isinstance(value, list):
            yield _wrong(value, where, "a list")
            return
        for index, one in enumerate(value):
            yield from self.of.problems(one, (*where, index))

    def schema(self) -> Schema:
        return {"type": "array", "items": self.of.schema()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """Tables by their names: `[steps.totals]`."""

    of: Kind
    name: Text

    def problems(self, value: object, where: Where) -> Iterator[Problem]:
        if not isinstance(value, dict):
            yield _wrong(value, where, f"a table: write [{where[-1]}.NAME]")
            return
        for key, inner in value.items():
            yield from self.name.problems(key, (*where, key))
            if isinstance(inner, dict):
                yield from self.of.problems(inner, (*where, key))
            else:
                message = f"{key!r} should be a table, not {shown(inner)}: write [{where[-1]}.{key}]"
                yield Problem(where=(*where, key), message=message)

    def schema(self) -> Schema:
        return {"type": "object", "propertyNames": self.name.schema(), "additionalProperties": self.of.schema()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One key of a table, and what it is for."""

    name: str
    kind: Kind
    about: str
    is_needed: bool = False


@dataclass(frozen=True, slots=True)
class Rule:
    """How many of some keys a table has: exactly one, at most one, or at least one."""

    number: Literal["one", "at most one", "at least one"]
    names: tuple[str, ...]

    def problem(self, value: Mapping[str, object], where: Where, what: str) -> Problem | None:
        found = [name for name in self.names if name in value]
        several = ", ".join(self.names[:-1]) + f" {'and' if len(found) > 1 else 'or'} {self.names[-1]}"
        if not found and self.number != "at most one":
            return Problem(where=(*where, self.names[0]), message=f"{what} needs {self.number} of {several}")
        if len(found) > 1 and self.number != "at least one":
            here = " and ".join(found)
            return Problem(where=(*where, found[-1]), message=f"{what} has {here}: give only one of {several}")
        return None

    def schema(self) -> Schema:
        each: list[Schema] = [{"required": [name]} for name in self.names]
        if self.number == "one":
            return {"oneOf": each}
        if self.number == "at least one":
            return {"anyOf": each}
        pairs = [(one, two) for at, one in enumerate(self.names) for two in self.names[at + 1 :]]
        return {"not": {"anyOf": [{"required": list(pair)} for pair in pairs]}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A table with known keys."""

    what: str
    """What it is called in messages: `a kv data set`."""
    fields: tuple[Field, ...]
    rules: tuple[Rule, ...] = ()
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    """Keys that others have, and who: so that a message can say it."""

    def problems(self, value: object, where: Where) -> Iterator[Problem]:
        if not isinstance(value, dict):
            yield _wrong(value, where, "a table")
            return
        known = {one.name: one for one in self.fields}
        strangers = [key for key in value if key not in known and key not in self.elsewhere]
        meant = {nearest(key, known) for key in strangers}  # what is only misspelled is not missing
        for key, inner in value.items():
            if key in known:
                yield from known[key].kind.problems(inner, (*where, key))
            elif key in self.elsewhere:
                yield Problem(where=(*where, key), message=f"{key!r} is for {self.elsewhere[key]}, not for {self.what}")
            else:
                near = did_you_mean(key, known)
                yield Problem(where=(*where, key), message=f"unknown key {key!r} in {self.what}: {near}")
        for one in self.fields:
            if one.is_needed and one.name not in value and one.name not in meant:
                yield Problem(where=(*where, one.name), message=f"{self.what} needs {one.name!r}: {one.about}")
        for rule in self.rules:
            problem = rule.problem(value, where, self.what)
            if problem is not None and meant.isdisjoint(rule.names):
                yield problem

    def schema(self) -> Schema:
        needed = [one.name for one in self.fields if one.is_needed]
        return {
            "type": "object",
            "properties": {one.name: {"description": one.about, **one.kind.schema()} for one in self.fields},
            "additionalProperties": False,
            **({"required": needed} if needed else {}),
            **({"allOf": [one.schema() for one in self.rules]} if self.rules else {}),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Variants:
    """A table that is of one sort or another; which one, its key `by` says, or which of the keys of `marks` it has."""

    what: str
    sorts: Mapping[str, Record]
    by: str = ""
    marks: Mapping[str, str] = field(default_factory=dict)
    """Key → sort."""

    def problems(self, value: object, where: Where) -> Iterator[Problem]:
        if not isinstance(value, dict):
            yield _wrong(value, where, "a table")
        elif self.by and self.by not in value:
            message = f"{self.what} needs {self.by!r}: {', '.join(self.sorts)}"
            yield Problem(where=(*where, self.by), message=message)
        elif self.by:
            known = Text(choices=tuple(self.sorts))
            named = value[self.by]
            wrong = list(known.problems(named, (*where, self.by)))
            yield from wrong if wrong else self.sorts[named].problems(value, where)
        else:
            yield from self._marked(value, where)

    def _marked(self, value: Mapping[str, object], where: Where) -> Iterator[Problem]:
        found = [key for key in self.marks if key in value]
        if len(found) != 1:
            names = " or ".join(repr(key) for key in self.marks)
            said = f"has {' and '.join(found)}: give only one" if found else f"needs {names}"
            yield Problem(where=(*where, *found[1:2]), message=f"{self.what} {said}")
            known = {one.name for record in self.sorts.values() for one in record.fields}
            for key in value:
                if key not in known:
                    message = f"unknown key {key!r} in {self.what}: {did_you_mean(key, sorted(known))}"
                    yield Problem(where=(*where, key), message=message)
        else:
            yield from self.sorts[self.marks[found[0]]].problems(value, where)

    def schema(self) -> Schema:
        return {"oneOf": [one.schema() for one in self.sorts.values()]}
