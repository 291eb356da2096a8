"""Keys: which types they may have, how one is hashed, and how a column of them is (K2, K3).

A key is one value or a tuple of values. Each part has a canonical spelling in bytes, and the key's hash is XXH64 of
those, chained from part to part with the hash so far as the seed: what `xxhash64(part, part)` computes inside Spark's
JVM once each part is brought to its canonical form there.

    whole numbers   8 bytes, little-endian, whatever their width (so int8 7 and int64 7 are the same key)
    text            UTF-8
    bytes           as they are
    UUIDs           their 16 bytes
    dates           days since 1970-01-01, as a whole number
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from enum import StrEnum
from functools import cached_property
from struct import Struct
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from xxhash import xxh64_intdigest

from holdfast.arrow_memory import fixed_values, variable_parts
from holdfast.codec import Fields, Json
from holdfast.errors import BadInput, CorruptRecord, WrongKeyType
from holdfast.kv.key_arrays import is_bytes_or_text, to_uuids
from holdfast.xxh64 import SEED, Hashes, hash_fixed_width, hash_variable_width

__all__ = ["KEY_BYTES_MAX", "Key", "KeyColumn", "KeyKind", "KeyPart", "KeySchema"]

KeyPart = int | str | bytes | UUID | date
Key = KeyPart | tuple[KeyPart, ...]

KEY_BYTES_MAX = 4096
"""Longer texts and bytes are refused as keys: manifests carry the smallest and largest key of every shard."""

_EPOCH = date(1970, 1, 1)
_DAYS_MIN = (date.min - _EPOCH).days
_DAYS_MAX = (date.max - _EPOCH).days
_SIGNED = Struct("<q")
_UNSIGNED = Struct("<Q")


class KeyKind(StrEnum):
    """What one part of a key may be."""

    INT8 = "int8"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    UINT8 = "uint8"
    UINT16 = "uint16"
    UINT32 = "uint32"
    UINT64 = "uint64"
    TEXT = "text"
    BYTES = "bytes"
    UUID = "uuid"
    DATE = "date"

    @property
    def is_integer(self) -> bool:
        return self in _INTEGERS

    @property
    def is_variable(self) -> bool:
        """Whether values differ in length."""
        return self in {KeyKind.TEXT, KeyKind.BYTES}

    @property
    def arrow_type(self) -> pa.DataType:
        """How a shard stores it."""
        return _ARROW_TYPES[self]

    @property
    def python_type(self) -> type:
        return _PYTHON_TYPES[self]


_INTEGERS: Mapping[KeyKind, tuple[int, int]] = {
    KeyKind.INT8: (-(1 << 7), (1 << 7) - 1),
    KeyKind.INT16: (-(1 << 15), (1 << 15) - 1),
    KeyKind.INT32: (-(1 << 31), (1 << 31) - 1),
    KeyKind.INT64: (-(1 << 63), (1 << 63) - 1),
    KeyKind.UINT8: (0, (1 << 8) - 1),
    KeyKind.UINT16: (0, (1 << 16) - 1),
    KeyKind.UINT32: (0, (1 << 32) - 1),
    KeyKind.UINT64: (0, (1 << 64) - 1),
}
_ARROW_TYPES: Mapping[KeyKind, pa.DataType] = {
    **{kind: getattr(pa, kind.value)() for kind in _INTEGERS},
    KeyKind.TEXT: pa.string(),
    KeyKind.BYTES: pa.binary(),
    KeyKind.UUID: pa.uuid(),
    KeyKind.DATE: pa.date32(),
}
_PYTHON_TYPES: Mapping[KeyKind, type] = {
    **dict.fromkeys(_INTEGERS, int),
    KeyKind.TEXT: str,
    KeyKind.BYTES: bytes,
    KeyKind.UUID: UUID,
    KeyKind.DATE: date,
}


def _kind_of(name: str, found: pa.DataType) -> KeyKind:
    """The kind that an Arrow type is stored as."""
    for kind in _INTEGERS:
        if found == kind.arrow_type:
            return kind
    if pa.types.is_string(found) or pa.types.is_large_string(found) or pa.types.is_string_view(found):
        return KeyKind.TEXT
    if found == pa.uuid():
        return KeyKind.UUID
    if (
        pa.types.is_binary(found)
        or pa.types.is_large_binary(found)
        or pa.types.is_binary_view(found)
        or pa.types.is_fixed_size_binary(found)
    ):
        return KeyKind.BYTES
    if pa.types.is_date32(found):
        return KeyKind.DATE
    if pa.types.is_dictionary(found):
        return _kind_of(name, found.value_type)
    raise BadInput(
        f"column {name!r} is {found}, which cannot be a key; keys are whole numbers, text, bytes, UUIDs, dates, "
        "or several of these: cast it first"
    )


def _can_hold(found: pa.DataType, kind: KeyKind) -> bool:
    """Whether keys of a kind can come in a column of this type without being made into something else."""
    if pa.types.is_dictionary(found):
        return _can_hold(found.value_type, kind)
    if kind.is_integer:
        return bool(pa.types.is_integer(found) or (pa.types.is_decimal(found) and found.scale == 0))
    if kind is KeyKind.DATE:
        return bool(pa.types.is_date(found))
    return (kind is KeyKind.UUID and found == pa.uuid()) or is_bytes_or_text(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyColumn:
    """One part of a key."""

    name: str
    kind: KeyKind

    def encode(self, value: object) -> bytes:
        """The canonical bytes of one value; WrongKeyType unless it is exactly of this kind."""
        kind = self.kind
        if kind.is_integer and isinstance(value, int | np.integer) and not isinstance(value, bool):
            low, high = _INTEGERS[kind]
            if not low <= value <= high:
                raise WrongKeyType(f"{value} is outside {kind} ({low} to {high}), the type of key column {self.name!r}")
            return int(value).to_bytes(8, "little", signed=low < 0)
        if kind is KeyKind.TEXT and isinstance(value, str):
            return value.encode("utf-8", "strict") if value.isascii() else _utf8(self.name, value)
        if kind is KeyKind.BYTES and isinstance(value, bytes):
            return bytes(value)
        if kind is KeyKind.UUID and isinstance(value, UUID):
            return value.bytes
        if kind is KeyKind.DATE and isinstance(value, date) and not isinstance(value, datetime):
            return _SIGNED.pack((value - _EPOCH).days)
        raise WrongKeyType(
            f"key column {self.name!r} is {kind}: give {_WORDS[kind.python_type]}, "
            f"not {type(value).__name__} {value!r:.60}"
        )

    def canonical(self, array: pa.Array) -> pa.Array:
        """The column as a shard stores it; WrongKeyType if a value is not of this kind."""
        if pa.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        if array.type != self.kind.arrow_type:
            try:
                array = to_uuids(array) if self.kind is KeyKind.UUID else array.cast(self.kind.arrow_type)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                raise WrongKeyType(f"key column {self.name!r} is {self.kind}: {error}") from None
        if self.kind is KeyKind.DATE and len(array):
            days = pc.min_max(array.cast(pa.int32())).as_py()
            if (days["min"] or 0) < _DAYS_MIN or (days["max"] or 0) > _DAYS_MAX:
                raise WrongKeyType(f"key column {self.name!r} has dates outside the years 1 to 9999")
        return array

    def hash_array(self, array: pa.Array, seeds: Hashes | None) -> Hashes:
        """The hashes of a canonical column without nulls."""
        if self.kind.is_variable:
            data, offsets = variable_parts(array)
            return hash_variable_width(data, offsets, seeds)
        if self.kind is KeyKind.UUID:
            return hash_fixed_width(fixed_values(array.storage, "V16"), seeds)
        if self.kind is KeyKind.DATE:
            return hash_fixed_width(fixed_values(array, "<i4").astype("<i8"), seeds)
        values = array.to_numpy(zero_copy_only=False)
        return hash_fixed_width(values.astype("<i8" if _INTEGERS[self.kind][0] < 0 else "<u8"), seeds)

    def parse(self, text: str) -> KeyPart:
        """A key typed by a person: `42`, `abc`, `0xdeadbeef` or plain text for bytes, a UUID, `2026-11-15`."""
        try:
            if self.kind.is_integer:
                return int(text)
            if self.kind is KeyKind.UUID:
                return UUID(text)
            if self.kind is KeyKind.DATE:
                return date.fromisoformat(text)
            if self.kind is KeyKind.BYTES:
                return bytes.fromhex(text[2:]) if text.startswith("0x") else text.encode()
        except ValueError:
            raise WrongKeyType(
                f"{text!r} is not {_WORDS[self.kind.python_type]} as key column {self.name!r} ({self.kind}) needs"
            ) from None
        return text

    def to_json_value(self, value: KeyPart) -> object:
        """One value as manifests and `--json` spell it."""
        if isinstance(value, bytes):
            return {"base64": base64.b64encode(value).decode()}
        if isinstance(value, UUID | date | str):
            return str(value)
        return int(value)  # of numpy's kinds, perhaps

    def from_json_value(self, value: object) -> KeyPart:
        """The inverse; ValueError if it is not one."""
        match self.kind, value:
            case KeyKind.BYTES, {"base64": str(text)}:
                return base64.b64decode(text, validate=True)
            case KeyKind.UUID, str(text):
                return UUID(text)
            case KeyKind.DATE, str(text):
                return date.fromisoformat(text)
            case KeyKind.TEXT, str(text):
                return text
            case kind, bool():
                raise ValueError(f"not {kind}: {value!r}")
            case kind, int(number) if kind.is_integer:
                return number
        raise ValueError(f"not {self.kind}: {value!r}")


_WORDS: Mapping[type, str] = {int: "a whole number", str: "text", bytes: "bytes", UUID: "a UUID", date: "a date"}


@dataclass(frozen=True, kw_only=True)
class KeySchema:
    """The parts of a data set's keys, in order."""

    columns: tuple[KeyColumn, ...]

    def __post_init__(self) -> None:
        if not self.columns:
            raise BadInput("a key needs at least one column")
        names = [column.name for column in self.columns]
        if len(set(names)) != len(names):
            raise BadInput(f"key columns named twice: {', '.join(names)}")

    @classmethod
    def from_arrow(cls, schema: pa.Schema, names: Sequence[str], kinds: Mapping[str, str] | None = None) -> KeySchema:
        """The key columns of an Arrow schema; `kinds` says what one holds where its type cannot (a UUID in text)."""
        columns = []
        for name in names:
            if schema.get_field_index(name) < 0:
                raise BadInput(f"no column {name!r} for the key; there are {', '.join(schema.names)}")
            given = (kinds or {}).get(name)
            if given is not None and given not in KeyKind.__members__.values():
                raise BadInput(f"key column {name!r}: {given!r} is no kind of key; use one of {', '.join(KeyKind)}")
            found = schema.field(name).type
            kind = KeyKind(given) if given is not None else _kind_of(name, found)
            if not _can_hold(found, kind):
                raise BadInput(f"key column {name!r} is {found}, which cannot hold {kind}: cast it first")
            columns.append(KeyColumn(name=name, kind=kind))
        return cls(columns=tuple(columns))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @property
    def is_composite(self) -> bool:
        return len(self.columns) > 1

    def parts(self, key: object) -> tuple[object, ...]:
        """A key's parts, one per column."""
        if len(self.columns) == 1:
            return (key,)
        if not isinstance(key, tuple) or len(key) != len(self.columns):
            raise WrongKeyType(f"a key is a tuple of ({', '.join(self.names)}), not {key!r:.80}")
        return key

    def plain(self, key: Key) -> Key:
        """A key that is one of this schema's, in Python's own types; WrongKeyType if it is none."""
        self.encode(key)
        return self.from_json_key(self.to_json_key(key))

    def encode(self, key: object) -> tuple[bytes, ...]:
        """The canonical bytes of each part."""
        return tuple(column.encode(part) for column, part in zip(self.columns, self.parts(key), strict=True))

    @cached_property
    def hash_of(self) -> Callable[[object], int]:
        """A function from a key to its hash, checked as `encode` checks. The commonest key types have a short one."""
        if len(self.columns) == 1:
            column = self.columns[0]
            if column.kind is KeyKind.INT64:
                return _int64_hash(column)
            if column.kind is KeyKind.TEXT:
                return _text_hash(column)
            return lambda key: xxh64_intdigest(column.encode(key), SEED)
        return self._hash_composite

    def _hash_composite(self, key: object) -> int:
        hashed = SEED
        for part in self.encode(key):
            hashed = xxh64_intdigest(part, hashed)
        return hashed

    def hash_arrays(self, arrays: Sequence[pa.Array]) -> Hashes:
        """The hashes of canonical key columns without nulls."""
        hashes: Hashes | None = None
        for column, array in zip(self.columns, arrays, strict=True):
            hashes = column.hash_array(array, hashes)
        assert hashes is not None
        return hashes

    def to_arrays(self, keys: Sequence[object]) -> list[pa.Array]:
        """Keys given by a program, as canonical columns; WrongKeyType names the first that is none."""
        parts: Sequence[Sequence[object]] = (
            (keys,) if not self.is_composite else list(zip(*(self.parts(key) for key in keys), strict=True))
        )
        if self.is_composite and not keys:
            parts = [()] * len(self.columns)
        return [_to_array(column, values) for column, values in zip(self.columns, parts, strict=True)]

    def parse(self, text: str) -> Key:
        """A key typed by a person; the parts of a composite one are separated by commas."""
        if not self.is_composite:
            return self.columns[0].parse(text)
        pieces = text.split(",")
        if len(pieces) != len(self.columns):
            raise WrongKeyType(f"a key is {','.join(self.names)}: {len(self.columns)} parts, not {len(pieces)}")
        return tuple(column.parse(piece) for column, piece in zip(self.columns, pieces, strict=True))

    def to_json_key(self, key: Key) -> object:
        parts = key if isinstance(key, tuple) else (key,)
        spelled = [column.to_json_value(part) for column, part in zip(self.columns, parts, strict=True)]
        return spelled if self.is_composite else spelled[0]

    def from_json_key(self, value: object) -> Key:
        """The inverse; ValueError if it is not one."""
        if not self.is_composite:
            return self.columns[0].from_json_value(value)
        if not isinstance(value, list) or len(value) != len(self.columns):
            raise ValueError(f"not a key of {len(self.columns)} parts: {value!r}")
        return tuple(column.from_json_value(part) for column, part in zip(self.columns, value, strict=True))

    def to_json(self) -> list[Json]:
        return [{"name": column.name, "type": column.kind.value} for column in self.columns]

    @classmethod
    def from_fields(cls, fields: Fields, name: str) -> KeySchema:
        def column(part: Fields) -> KeyColumn:
            kind = part.text("type")
            if kind not in KeyKind.__members__.values():
                raise CorruptRecord(part.key, f"key type {kind!r} is unknown")
            return KeyColumn(name=part.text("name"), kind=KeyKind(kind))

        try:
            return cls(columns=fields.records(name, column))
        except BadInput as error:
            raise CorruptRecord(fields.key, str(error)) from None


def _int64_hash(column: KeyColumn) -> Callable[[object], int]:
    pack = _SIGNED.pack

    def hash_of(key: object) -> int:
        if type(key) is int and -0x8000000000000000 <= key <= 0x7FFFFFFFFFFFFFFF:
            return xxh64_intdigest(pack(key), SEED)
        return xxh64_intdigest(column.encode(key), SEED)

    return hash_of


def _text_hash(column: KeyColumn) -> Callable[[object], int]:
    def hash_of(key: object) -> int:
        if type(key) is str and key.isascii():
            return xxh64_intdigest(key.encode(), SEED)
        return xxh64_intdigest(column.encode(key), SEED)

    return hash_of


def _utf8(name: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise WrongKeyType(f"key column {name!r}: {text!r:.60} is not text that can be written as UTF-8") from None


def _to_array(column: KeyColumn, values: Sequence[object]) -> pa.Array:
    """One column of keys. The types are looked at first: Arrow would take True for 1 and bytes for text."""
    kind = column.kind
    types = set(map(type, values))
    if types <= {kind.python_type}:
        try:
            if kind is KeyKind.UUID:
                storage = pa.array([value.bytes for value in values if isinstance(value, UUID)], pa.binary(16))
                return pa.ExtensionArray.from_storage(pa.uuid(), storage)
            return pa.array(values, kind.arrow_type)
        except (pa.ArrowInvalid, OverflowError, UnicodeEncodeError):
            pass
    encoded = [column.encode(value) for value in values]  # raises, or these are subclasses and numpy's own numbers
    if kind.is_integer:
        unpack = (_SIGNED if _INTEGERS[kind][0] < 0 else _UNSIGNED).unpack
        return pa.array([unpack(value)[0] for value in encoded], kind.arrow_type)
    if kind is KeyKind.DATE:
        return pa.array([_EPOCH + timedelta(days=_SIGNED.unpack(value)[0]) for value in encoded], pa.date32())
    if kind is KeyKind.UUID:
        return pa.ExtensionArray.from_storage(pa.uuid(), pa.array(encoded, pa.binary(16)))
    return pa.array(encoded, pa.binary()).cast(kind.arrow_type)
