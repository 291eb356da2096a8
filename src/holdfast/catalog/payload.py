"""What an event may say: frozen records whose fields are checked when they are made and again when they are read (C16).

A record is a dataclass, and its types are its schema. Three rules make it additive:

1. A field that is not known is kept (`unknown`) and written back.
2. A field that is added later has a default, and a field at its default is not written: a release that knows more
   fields writes the same about the same thing, so that its idempotency key is the same too (C13).
3. A required text is a name: not empty, short, without control characters. Any other text may be empty and long.
"""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from datetime import datetime
from functools import partial
from typing import Any, ClassVar, Self

import orjson

from holdfast.clock import format_time, parse_time
from holdfast.codec import Json
from holdfast.errors import BadInput

__all__ = ["NAME_CHARACTERS_MAX", "TEXT_CHARACTERS_MAX", "Payload", "Record", "check_name_text"]

NAME_CHARACTERS_MAX = 1_024
TEXT_CHARACTERS_MAX = 65_536

_NUMBER_MAX = 2**63 - 1
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_HIDDEN = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Fields that check themselves. The base of payloads and of what they are made of."""

    unknown: Mapping[str, object] = field(default_factory=dict)
    """Fields of a newer release, kept as they are."""

    def __post_init__(self) -> None:
        for one in _schema(type(self)):
            try:
                object.__setattr__(self, one.name, one.checked(getattr(self, one.name)))
            except ValueError as error:
                raise BadInput(f"{self._label()}: field {one.name!r} {error}") from None
        taken = {one.name for one in _schema(type(self))} & set(self.unknown)
        if taken:
            raise BadInput(f"{self._label()}: unknown field {min(taken)!r} is a known one; set that instead")
        try:
            _check_json(self.unknown)
        except ValueError as error:
            raise BadInput(f"{self._label()}: an unknown field {error}") from None

    @classmethod
    def _label(cls) -> str:
        return cls.__name__.lower()

    def to_json(self) -> Json:
        """Fields that are not at their default, in order, then the unknown ones."""
        known = {
            one.name: one.written(value)
            for one in _schema(type(self))
            if (value := getattr(self, one.name)) != one.default
        }
        return known | dict(self.unknown)

    @classmethod
    def from_json(cls, json: object) -> Self:
        """The inverse; BadInput says which field is wrong. A null is as good as an absent field."""
        if not isinstance(json, dict):
            raise BadInput(f"{cls._label()}: should be an object, found {_kind_of(json)}")
        rest = dict(json)
        values: dict[str, Any] = {}
        for one in _schema(cls):
            found = rest.pop(one.name, None)
            try:
                if found is not None:
                    values[one.name] = one.parsed(found)
                elif one.is_required:
                    raise _Unfit("is missing")
            except ValueError as error:
                raise BadInput(f"{cls._label()}: field {one.name!r} {error}") from None
        return cls(**values, unknown=rest)


@dataclass(frozen=True, slots=True, kw_only=True)
class Payload(Record):
    """What one type of event says."""

    TYPE: ClassVar[str]
    DOMAIN: ClassVar[str]
    """Whose ledger it belongs to."""
    VERSION: ClassVar[int] = 1

    @classmethod
    def _label(cls) -> str:
        return f"{cls.TYPE} event"


def check_name_text(value: str, what: str) -> str:
    """A name as any payload has them; BadInput otherwise. For what stands beside the payload."""
    try:
        return _name(value)
    except ValueError as error:
        raise BadInput(f"{what} {error}") from None


# -- the schema of a record ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _FieldRule:
    """One field: how it is read from JSON, checked, and written."""

    name: str
    default: object
    is_required: bool
    parsed: Callable[[object], object]
    checked: Callable[[Any], object]
    written: Callable[[Any], object]


_schemas: dict[type, tuple[_FieldRule, ...]] = {}


def _schema(cls: type[Record]) -> tuple[_FieldRule, ...]:
    """Made once for each class."""
    known = _schemas.get(cls)
    if known is None:
        hints = typing.get_type_hints(cls)
        known = tuple(_rule(one, hints[one.name]) for one in fields(cls) if one.name != "unknown")
        _schemas[cls] = known
    return known


def _rule(one: Field[Any], hint: object) -> _FieldRule:
    default = one.default if one.default_factory is MISSING else one.default_factory()
    required = default is MISSING
    members = typing.get_args(hint)
    if isinstance(hint, types.UnionType) and types.NoneType in members:  # X | None
        (hint,) = (member for member in members if member is not types.NoneType)
    parsed, checked, written = _kind(hint, is_name=required)
    may_be_none = default is None
    return _FieldRule(
        one.name,
        default,
        required,
        parsed,
        (lambda value: None if value is None else checked(value)) if may_be_none else checked,
        (lambda value: None if value is None else written(value)) if may_be_none else written,
    )


_Kind = tuple[Callable[[object], object], Callable[[Any], object], Callable[[Any], object]]


def _kind(hint: object, *, is_name: bool) -> _Kind:
    """How a type is parsed, checked and written."""
    if hint is str:
        check = _name if is_name else _text
        return check, check, _same
    if hint is int:
        return _number, _number, _same
    if hint is bool:
        return _truth, _truth, _same
    if hint is datetime:
        return _parsed_time, _time, format_time
    origin, members = typing.get_origin(hint), typing.get_args(hint)
    if origin is Mapping:
        checks: dict[object, Callable[[object], object]] = {str: _text, int: _number, object: _same}
        check_all = partial(_mapping, checks[members[1]])
        return check_all, check_all, dict
    if origin is tuple:
        return _list_kind(members[0])
    raise TypeError(f"a record cannot have a field of type {hint}")


def _list_kind(member: Any) -> _Kind:
    if member is str:
        return partial(_list, _name), partial(_tuple, _name), list
    parse = partial(_list, _nested(member))
    return parse, partial(_tuple, partial(_instance, member)), _written_records


class _Unfit(ValueError):
    """What is wrong with a value. Whoever knows its field says which that is."""


def _same(value: Any) -> Any:
    return value


def _kind_of(value: object) -> str:
    return "nothing" if value is None else type(value).__name__


def _text(value: object, *, at_most: int = TEXT_CHARACTERS_MAX, unwanted: re.Pattern[str] = _HIDDEN) -> str:
    if not isinstance(value, str):
        raise _Unfit(f"should be text, found {_kind_of(value)}")
    if len(value) > at_most:
        raise _Unfit(f"has {len(value)} characters, more than {at_most}")
    if unwanted.search(value) is not None:
        raise _Unfit("has a control character")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise _Unfit("has a lone surrogate and cannot be written as UTF-8") from None
    return value


def _name(value: object) -> str:
    text = _text(value, at_most=NAME_CHARACTERS_MAX, unwanted=_CONTROL)
    if not text:
        raise _Unfit("is empty")
    return text


def _number(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise _Unfit(f"should be a whole number, found {_kind_of(value)}")
    if not 0 <= value <= _NUMBER_MAX:
        raise _Unfit(f"is {value}, and should be between 0 and {_NUMBER_MAX}")
    return value


def _truth(value: object) -> bool:
    if not isinstance(value, bool):
        raise _Unfit(f"should be true or false, found {_kind_of(value)}")
    return value


def _time(value: object) -> datetime:
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise _Unfit(f"should be a time with a zone, found {value!r}")
    return parse_time(format_time(value))


def _parsed_time(value: object) -> datetime:
    return parse_time(_text(value))


def _mapping(check_value: Callable[[object], object], value: object) -> dict[str, object]:
    if not isinstance(value, Mapping):
        raise _Unfit(f"should be an object, found {_kind_of(value)}")
    made = {_name(name): check_value(one) for name, one in value.items()}
    _check_json(made)
    return made


def _check_json(value: object) -> None:
    """ValueError unless it can be written, and comes back as it is."""
    try:
        orjson.dumps(value, option=orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_DATACLASS)
    except orjson.JSONEncodeError as error:
        raise _Unfit(f"cannot be written as JSON ({error})") from None


def _list(parse: Callable[[object], object], value: object) -> tuple[object, ...]:
    if not isinstance(value, list):
        raise _Unfit(f"should be a list, found {_kind_of(value)}")
    return tuple(parse(one) for one in value)


def _tuple(check: Callable[[object], object], value: object) -> tuple[object, ...]:
    if not isinstance(value, tuple | list):
        raise _Unfit(f"should be a tuple, found {_kind_of(value)}")
    return tuple(check(one) for one in value)


def _nested(member: type[Record]) -> Callable[[object], Record]:
    def parse(value: object) -> Record:
        try:
            return member.from_json(value)
        except BadInput as error:
            raise _Unfit(f"has a bad member: {error}") from None

    return parse


def _instance(member: type[Record], value: object) -> Record:
    if not isinstance(value, member):
        raise _Unfit(f"should hold {member.__name__} records, found {_kind_of(value)}")
    return value


def _written_records(value: tuple[Record, ...]) -> list[Json]:
    return [one.to_json() for one in value]
