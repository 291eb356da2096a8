"""How records become bytes and come back: pretty JSON out, checked fields in.

A record keeps every field it does not know (`Fields.rest`) and writes it back, and refuses a format whose major version
is higher than its own (S9). A field that is missing or of the wrong type is `CorruptRecord`, which names the key it was
read from.

Records of older releases carry no format and spell their fields in camelCase. They are read by the names that are
written today; nothing is ever written the old way (C4).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import lru_cache
from typing import TypeVar

import orjson

from holdfast.clock import parse_time
from holdfast.errors import CorruptRecord, UnsupportedFormat

__all__ = ["Fields", "Json", "content_hash", "encode_record", "format_stamp", "snake_case", "snake_cased"]

Json = dict[str, object]

FORMAT_MAJOR = 1
FORMAT_MINOR = 0

_T = TypeVar("_T")
_HUMP = re.compile(r"(?<=[a-z0-9])[A-Z]")


def format_stamp(kind: str) -> str:
    """The `format` field of a record: `holdfast.pointer/1.0`."""
    return f"holdfast.{kind}/{FORMAT_MAJOR}.{FORMAT_MINOR}"


def encode_record(record: Mapping[str, object]) -> bytes:
    """Pretty-printed JSON with a final newline (S46): an operator can read every record with `cat`."""
    return orjson.dumps(record, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def content_hash(data: bytes) -> str:
    """How a record's raw bytes are named by the records that point to it."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


def snake_case(name: str) -> str:
    """The name that a field has today: `updated_at` for `updatedAt`."""
    return _HUMP.sub(lambda hump: f"_{hump[0].lower()}", name)


def snake_cased(fields: Mapping[str, object]) -> Json:
    """The same fields by the names of today. Where both spellings are there, today's counts."""
    found = {snake_case(name): value for name, value in fields.items()}
    return found | {name: value for name, value in fields.items() if name in found}


@lru_cache(maxsize=1024)
def _camel_case(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(other.capitalize() for other in others)


class Fields:
    """The fields of one record, taken one by one; what is left at the end is unknown and kept."""

    __slots__ = ("_fields", "is_old", "key")

    def __init__(self, fields: Mapping[str, object], *, key: str, is_old: bool = False) -> None:
        self._fields = dict(fields)
        self.key = key
        self.is_old = is_old
        """It has no format: fields may be in camelCase, as older releases wrote them."""

    @classmethod
    def decode(cls, data: bytes, *, key: str, kind: str | None) -> Fields:
        """Parse one record. `kind` None reads a legacy record, which has no format field."""
        try:
            parsed = orjson.loads(data)
        except orjson.JSONDecodeError as error:
            raise CorruptRecord(key, f"not JSON ({error})") from None
        if not isinstance(parsed, dict):
            raise CorruptRecord(key, "not a JSON object")
        fields = cls(parsed, key=key, is_old="format" not in parsed)
        if kind is not None:
            fields.check_format(kind)
        return fields

    def check_format(self, kind: str) -> None:
        """Take the format field; CorruptRecord unless it is of this kind, UnsupportedFormat if it is too new (S9)."""
        stamp = self.text("format")
        name, _, number = stamp.partition("/")
        major, _, minor = number.partition(".")
        if name != f"holdfast.{kind}" or not (major.isdigit() and minor.isdigit()):
            raise CorruptRecord(self.key, f"format {stamp!r} is not holdfast.{kind}/MAJOR.MINOR")
        if int(major) > FORMAT_MAJOR:
            raise UnsupportedFormat(
                f"{self.key!r} has format {stamp!r}, newer than this release reads ({format_stamp(kind)}); "
                "upgrade Holdfast"
            )

    def _find(self, name: str) -> None:
        """Give a field of an old record the name that it has today."""
        if self.is_old and name not in self._fields and (camel := _camel_case(name)) in self._fields:
            self._fields[name] = self._fields.pop(camel)

    def _take(self, name: str, kind: type[_T], expected: str) -> _T:
        self._find(name)
        value = self._fields.pop(name, None)
        if type(value) is kind:  # exactly: JSON has no subclasses, and a bool is no number
            return value
        found = "nothing" if value is None else type(value).__name__
        raise CorruptRecord(self.key, f"field {name!r} should be {expected}, found {found}")

    def _has(self, name: str) -> bool:
        """Whether an optional field is there. A null counts as absent, and is not kept."""
        self._find(name)
        if self._fields.get(name) is None:
            self._fields.pop(name, None)
            return False
        return True

    def text(self, name: str) -> str:
        return self._take(name, str, "text")

    def optional_text(self, name: str) -> str | None:
        return self.text(name) if self._has(name) else None

    def number(self, name: str) -> int:
        value = self._take(name, int, "a whole number")
        if value < 0:
            raise CorruptRecord(self.key, f"field {name!r} is negative: {value}")
        return value

    def optional_number(self, name: str) -> int | None:
        return self.number(name) if self._has(name) else None

    def time(self, name: str) -> datetime:
        text = self.text(name)
        try:
            return parse_time(text)
        except ValueError as error:
            raise CorruptRecord(self.key, f"field {name!r}: {error}") from None

    def optional_time(self, name: str) -> datetime | None:
        return self.time(name) if self._has(name) else None

    def mapping(self, name: str) -> Json:
        return self._take(name, dict, "an object") if self._has(name) else {}

    def text_mapping(self, name: str) -> dict[str, str]:
        found = self.mapping(name)
        texts = {field: value for field, value in found.items() if isinstance(value, str)}
        if len(texts) != len(found):
            raise CorruptRecord(self.key, f"field {name!r} should map names to text")
        return texts

    def number_mapping(self, name: str) -> dict[str, int]:
        found = self.mapping(name)
        numbers = {
            field: value for field, value in found.items() if isinstance(value, int) and not isinstance(value, bool)
        }
        if len(numbers) != len(found):
            raise CorruptRecord(self.key, f"field {name!r} should map names to whole numbers")
        return numbers

    def values(self, name: str) -> list[object]:
        """A list of anything, for whoever checks its members."""
        return self._list(name)

    def texts(self, name: str) -> tuple[str, ...]:
        values = self._list(name)
        texts = tuple(value for value in values if isinstance(value, str))
        if len(texts) != len(values):
            raise CorruptRecord(self.key, f"field {name!r} should be a list of text")
        return texts

    def numbers(self, name: str) -> tuple[int, ...]:
        values = self._list(name)
        numbers = tuple(value for value in values if isinstance(value, int) and not isinstance(value, bool))
        if len(numbers) != len(values):
            raise CorruptRecord(self.key, f"field {name!r} should be a list of whole numbers")
        return numbers

    def records(self, name: str, build: Callable[[Fields], _T]) -> tuple[_T, ...]:
        built = []
        for value in self._list(name):
            if not isinstance(value, dict):
                raise CorruptRecord(self.key, f"field {name!r} should be a list of objects")
            built.append(build(Fields(value, key=self.key, is_old=self.is_old)))
        return tuple(built)

    def rest(self) -> Json:
        """What nobody took: unknown fields, kept on rewrite."""
        return self._fields

    def _list(self, name: str) -> list[object]:
        return self._take(name, list, "a list") if self._has(name) else []
