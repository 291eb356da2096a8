"""Many events at once, by columns: for the types that come by the million (C16, C19).

What one event says is decided in `events.py` and `event_rows.py`, one event at a time. This is the same for many,
about ten times faster, and says nothing of its own: a group of events is taken only if every value of every field is
certainly fine. Otherwise it raises `NotPlain`, and whoever asked halves the group and goes the slow way in the end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from datetime import datetime
from itertools import chain
from typing import Any, get_args, get_origin, get_type_hints

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.catalog import payloads as p
from holdfast.catalog.payload import NAME_CHARACTERS_MAX, TEXT_CHARACTERS_MAX, Payload, Record
from holdfast.catalog.tables import DELETED, EVENT_ID, POSITION, STATE_TABLES
from holdfast.codec import format_stamp

__all__ = ["PLAIN_TYPES", "NotPlain", "plain_rows"]

_CONTROL = r"[\x00-\x1f\x7f-\x{9f}]"
_HIDDEN = r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x{9f}]"
_WRITTEN_TIME = r"^(19|20)\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$"
"""As `format_time` writes it. Other spellings go the slow way."""
_TIME = pa.timestamp("us", "UTC")


class NotPlain(Exception):
    """Something about these events has to be looked at one by one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Told:
    """How the events of one type become rows."""

    table: str
    columns: Mapping[str, str]
    """Column of the table → field of the payload."""
    constants: Mapping[str, Any] = field(default_factory=dict)
    each: str | None = None
    """A field with a list of records, each of which is a row; those of its fields that are columns are so by name."""
    deleted: bool = False


def _same(*names: str) -> dict[str, str]:
    return {name: name for name in names}


_RUN, _TASK = _same("run_id", "attempt"), _same("run_id", "task_id", "attempt")
_FINISHED = {"status": "finished", "error": ""}
_FAILED = {"status": "failed", "counters": "{}"}
_EDGE = {"table": "edges", "columns": _same("run_id"), "each": "edges"}

_TOLD: Mapping[type[Payload], _Told] = {
    p.RunStarted: _Told(table="run_starts", columns=_RUN | _same("started_at", "pipeline", "trigger", "parameters")),
    p.RunFinished: _Told(
        table="run_ends",
        columns=_RUN | {"ended_at": "finished_at"} | _same("counters", "outputs"),
        constants=_FINISHED,
    ),
    p.RunFailed: _Told(
        table="run_ends",
        columns=_RUN | {"ended_at": "failed_at", "error": "error"},
        constants={**_FAILED, "outputs": []},
    ),
    p.TaskStarted: _Told(table="task_starts", columns=_TASK | _same("started_at")),
    p.TaskFinished: _Told(
        table="task_ends", columns=_TASK | {"ended_at": "finished_at", "counters": "counters"}, constants=_FINISHED
    ),
    p.TaskFailed: _Told(
        table="task_ends", columns=_TASK | {"ended_at": "failed_at", "error": "error"}, constants=_FAILED
    ),
    p.MaterializationCompleted: _Told(
        table="materializations",
        columns=_same("run_id", "asset", "partition", "task_id", "completed_at", "snapshot", "row_count", "byte_size"),
    ),
    p.LineageEdgesAdded: _Told(**_EDGE),  # type: ignore[arg-type]
    p.LineageEdgesRemoved: _Told(**_EDGE, deleted=True),  # type: ignore[arg-type]
}

PLAIN_TYPES: Mapping[tuple[str, int], type[Payload]] = {(kind.TYPE, kind.VERSION): kind for kind in _TOLD}
"""The types that can be read by columns."""


def plain_rows(kind: type[Payload], events: Sequence[Mapping[str, Any]], ids: Sequence[str]) -> tuple[str, pa.Table]:
    """The rows of parsed events of one type, and their table; `ids` are those of their paths. NotPlain if in doubt."""
    told = _TOLD[kind]
    envelope = _columns_of(_ENVELOPE, events)
    if not pc.all(pc.equal(envelope["event_id"], pa.array(ids, pa.string()))).as_py():
        raise NotPlain
    if not pc.all(pc.equal(envelope["format"], format_stamp("event"))).as_py():
        raise NotPlain
    said = _columns_of(_fields_of(kind), [event["payload"] for event in events])
    held = {POSITION: envelope["sequence_position"], EVENT_ID: envelope["event_id"]}
    held |= {column: said[name] for column, name in told.columns.items()}
    if told.each is not None:
        members, parents = said[told.each]
        held = {name: array.take(parents) for name, array in held.items()}
        # A row has no null in its key: what is not known of an edge is empty there.
        held |= {name: pc.fill_null(array, "") for name, array in members.items()}
    spec = STATE_TABLES[told.table]
    count = len(held[POSITION])
    constants = {**told.constants, DELETED: told.deleted}
    arrays = [
        _repeated(constants[column.name], column.type, count) if column.name in constants else held[column.name]
        for column in spec.schema
    ]
    return told.table, pa.Table.from_arrays(arrays, schema=spec.schema)


def _repeated(value: object, kind: pa.DataType, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, kind), count)


# -- fields -----------------------------------------------------------------------------------------------------------


_Made = Callable[[list[Any]], Any]


@dataclass(frozen=True, slots=True)
class _Field:
    """One field of a record: which Python type JSON gives for it, and how many of them become an array."""

    name: str
    kind: type
    default: Any
    required: bool
    made: _Made


def _columns_of(schema: Sequence[_Field], records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Each field of some records as an array, every value looked at. NotPlain at the first that is not as it should."""
    if set(map(type, records)) != {dict}:
        raise NotPlain
    if not set().union(*records) <= {one.name for one in schema}:
        raise NotPlain  # a field of a newer release
    found = {}
    for one in schema:
        values = [record.get(one.name) for record in records]
        kinds = set(map(type, values))
        if type(None) in kinds:
            if one.required:
                raise NotPlain
            kinds.discard(type(None))
            values = (
                [one.default if value is None else value for value in values] if one.default is not None else values
            )
        if kinds - {one.kind}:
            raise NotPlain
        try:
            found[one.name] = one.made(values)
        except (pa.ArrowException, OverflowError, UnicodeError):
            raise NotPlain from None
    return found


def _texts(most: int, least: int, unwanted: str) -> _Made:
    def made(values: list[Any]) -> pa.Array:
        array = pa.array(values, pa.string())
        lengths = pc.min_max(pc.utf8_length(array))
        if lengths["max"].is_valid and not least <= lengths["min"].as_py() <= lengths["max"].as_py() <= most:
            raise NotPlain
        if pc.any(pc.match_substring_regex(array, unwanted)).as_py():
            raise NotPlain
        return array

    return made


_names = _texts(NAME_CHARACTERS_MAX, 1, _CONTROL)
_plain_texts = _texts(TEXT_CHARACTERS_MAX, 0, _HIDDEN)


def _any_text(values: list[Any]) -> pa.Array:
    return pa.array(values, pa.string())


def _numbers(values: list[Any], least: int = 0) -> pa.Array:
    array = pa.array(values, pa.int64())
    lowest = pc.min(array)
    if lowest.is_valid and lowest.as_py() < least:
        raise NotPlain
    return array


def _positions(values: list[Any]) -> pa.Array:
    return _numbers(values, 1)


def _times(values: list[Any]) -> pa.Array:
    texts = pa.array(values, pa.string())
    if pc.any(pc.invert(pc.match_substring_regex(texts, _WRITTEN_TIME))).as_py():
        raise NotPlain
    return texts.cast(_TIME)


def _mapping(made: _Made, kind: type) -> _Made:
    def mapped(values: list[Any]) -> pa.Array:
        filled = [value for value in values if value]
        if filled:
            _names(list(chain.from_iterable(filled)))
            inner = list(chain.from_iterable(value.values() for value in filled))
            if set(map(type, inner)) != {kind}:
                raise NotPlain
            made(inner)
        dump, option = orjson.dumps, orjson.OPT_SORT_KEYS
        return pa.array([dump(value, option=option).decode() if value else "{}" for value in values], pa.string())

    return mapped


def _lists_of_names(values: list[Any]) -> pa.Array:
    inner = list(chain.from_iterable(values))
    if inner:
        if set(map(type, inner)) != {str}:
            raise NotPlain
        _names(inner)
    return pa.array(values, pa.list_(pa.string()))


def _lists_of(member: type[Record]) -> _Made:
    """Members, flat, and for each the row it is from. A list must have one at least."""

    def made(values: list[Any]) -> tuple[dict[str, pa.Array], pa.Array]:
        if not all(values):
            raise NotPlain
        parents = np.repeat(np.arange(len(values)), [len(value) for value in values])
        return _columns_of(_fields_of(member), list(chain.from_iterable(values))), pa.array(parents)

    return made


_known: dict[type, tuple[_Field, ...]] = {}


def _fields_of(record: type[Record]) -> tuple[_Field, ...]:
    """Made once for each class, from its own types."""
    if record not in _known:
        hints = get_type_hints(record)
        _known[record] = tuple(
            _field_of(one.name, hints[one.name], one.default, one.default_factory)
            for one in fields(record)
            if one.name != "unknown"
        )
    return _known[record]


def _field_of(name: str, hint: Any, default: Any, factory: Any) -> _Field:
    required = default is MISSING and factory is MISSING
    value = None if required else factory() if factory is not MISSING else default
    plain = [one for one in get_args(hint) if one is not type(None)]
    optional = type(None) in get_args(hint)
    kind, made = _kind_of(plain[0] if optional else hint, required)
    return _Field(name, kind, list(value) if isinstance(value, tuple) else value, required, made)


def _kind_of(hint: Any, required: bool) -> tuple[type, _Made]:
    if hint is str:
        return str, _names if required else _plain_texts
    if hint is int:
        return int, _numbers
    if hint is datetime:
        return str, _times
    members = get_args(hint)
    if get_origin(hint) is tuple:
        return list, _lists_of_names if members[0] is str else _lists_of(members[0])
    if members == (str, str):
        return dict, _mapping(_plain_texts, str)
    if members == (str, int):
        return dict, _mapping(_numbers, int)
    raise TypeError(f"events with a field of type {hint} are not read by columns")


_ENVELOPE = (
    _Field("format", str, None, True, _any_text),
    _Field("event_type", str, None, True, _any_text),
    _Field("event_version", int, None, True, _numbers),
    _Field("event_id", str, None, True, _any_text),
    _Field("idempotency_key", str, None, True, _names),
    _Field("occurred_at", str, None, True, _times),
    _Field("source", str, None, True, _names),
    _Field("trace_id", str, None, False, _any_text),
    _Field("sequence_position", int, None, True, _positions),
    _Field("payload", dict, None, True, lambda values: values),
)
