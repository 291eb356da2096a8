"""Reading one value of one column straight from a block's buffers.

A reader knows which buffers of a record batch are its column's, and turns the bytes at a row into a Python value.
Columns whose values are not in one place, or not plain (lists, structs, decimals, timestamps …), are left to Arrow.

`table[at + n]` is everywhere where buffer n of the block starts in `data`, 0 for a buffer that is empty.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date, timedelta
from mmap import mmap
from struct import Struct
from typing import Protocol
from uuid import UUID

import pyarrow as pa

from holdfast.kv.shard_format import buffer_count

__all__ = [
    "ArrowColumn",
    "ColumnReader",
    "DateColumn",
    "FixedBytesColumn",
    "NumberColumn",
    "VariableColumn",
    "column_readers",
]

_INT32_PAIR = Struct("<ii")
_INT64_PAIR = Struct("<qq")
_INT32 = Struct("<i")
_INT64 = Struct("<q")
_UINT64 = Struct("<Q")
_EPOCH = date(1970, 1, 1)

_NUMBERS: Mapping[pa.DataType, str] = {
    pa.int8(): "<b",
    pa.int16(): "<h",
    pa.int32(): "<i",
    pa.int64(): "<q",
    pa.uint8(): "<B",
    pa.uint16(): "<H",
    pa.uint32(): "<I",
    pa.uint64(): "<Q",
    pa.float32(): "<f",
    pa.float64(): "<d",
}


class ColumnReader(Protocol):
    """How to read one column."""

    index: int
    """Of the column in its batch."""
    first_buffer: int
    """The column's validity buffer, as counted among all buffers of a batch; its data follows."""

    def value(self, data: mmap, table: memoryview, at: int, row: int) -> object: ...

    def canonical(self, data: mmap, table: memoryview, at: int, row: int) -> bytes:
        """A key's part as `KeyColumn.encode` spells it, without making a Python value of it."""
        ...


class ArrowColumn:
    """A column that only Arrow can read."""

    __slots__ = ("first_buffer", "index")

    def __init__(self, index: int, first_buffer: int) -> None:
        self.index = index
        self.first_buffer = first_buffer

    def value(self, data: mmap, table: memoryview, at: int, row: int) -> object:
        raise TypeError("only Arrow reads such a column: take it from the batch")

    def canonical(self, data: mmap, table: memoryview, at: int, row: int) -> bytes:
        raise TypeError("no key is of such a type")


class NumberColumn(ArrowColumn):
    """Numbers of one width."""

    __slots__ = ("_unpack", "_width")

    def __init__(self, index: int, first_buffer: int, spelling: str) -> None:
        super().__init__(index, first_buffer)
        kind = Struct(spelling)
        self._unpack = kind.unpack_from
        self._width = kind.size

    def value(self, data: mmap, table: memoryview, at: int, row: int) -> object:
        at += self.first_buffer
        if table[at] and not is_valid(data, table[at], row):
            return None
        return self._unpack(data, table[at + 1] + self._width * row)[0]

    def canonical(self, data: mmap, table: memoryview, at: int, row: int) -> bytes:
        number = self._unpack(data, table[at + self.first_buffer + 1] + self._width * row)[0]
        return _UINT64.pack(number) if number > 0x7FFFFFFFFFFFFFFF else _INT64.pack(number)


class DateColumn(NumberColumn):
    """Days since 1970-01-01."""

    __slots__ = ()

    def __init__(self, index: int, first_buffer: int) -> None:
        super().__init__(index, first_buffer, "<i")

    def value(self, data: mmap, table: memoryview, at: int, row: int) -> object:
        days = super().value(data, table, at, row)
        return None if not isinstance(days, int) else _EPOCH + timedelta(days=days)


class FixedBytesColumn(ArrowColumn):
    """Values of one length, such as UUIDs."""

    __slots__ = ("_decode", "_width")

    def __init__(self, index: int, first_buffer: int, width: int, decode: Callable[[bytes], object]) -> None:
        super().__init__(index, first_buffer)
        self._width = width
        self._decode = decode

    def value(self, data: mmap, table: memoryview, at: int, row: int) -> object:
        at += self.first_buffer
        if table[at] and not is_valid(data, table[at], row):
            return None
        start = table[at + 1] + self._width * row
        return self._decode(data[start : start + self._width])

    def canonical(self, data: mmap, table: memoryview, at: int, row: int) -> bytes:
        start = table[at + self.first_buffer + 1] + self._width * row
        return data[start : start + self._width]


class VariableColumn(ArrowColumn):
    """Text and bytes."""

    __slots__ = ("_decode", "_unpack", "_width")

    def __init__(self, index: int, first_buffer: int, *, wide: bool, decode: Callable[[bytes], object]) -> None:
        super().__init__(index, first_buffer)
        self._unpack = (_INT64_PAIR if wide else _INT32_PAIR).unpack_from
        self._width = 8 if wide else 4
        self._decode = decode

    def value(self, data: mmap, table: memoryview, at: int, row: int) -> object:
        at += self.first_buffer
        if table[at] and not is_valid(data, table[at], row):
            return None
        start, end = self._unpack(data, table[at + 1] + self._width * row)
        base = table[at + 2]
        return self._decode(data[base + start : base + end])

    def canonical(self, data: mmap, table: memoryview, at: int, row: int) -> bytes:
        at += self.first_buffer
        start, end = self._unpack(data, table[at + 1] + self._width * row)
        base = table[at + 2]
        return data[base + start : base + end]


def is_valid(data: mmap, bitmap: int, row: int) -> bool:
    """Whether a row is not null, by the bitmap that starts there."""
    return bool(data[bitmap + (row >> 3)] >> (row & 7) & 1)


def column_readers(schema: pa.Schema) -> list[ColumnReader]:
    """A reader for each column of a shard's schema."""
    readers: list[ColumnReader] = []
    first_buffer = 0
    for index, field in enumerate(schema):
        readers.append(_reader(index, first_buffer, field.type))
        first_buffer += buffer_count(field.type)
    return readers


def _reader(index: int, first_buffer: int, kind: pa.DataType) -> ColumnReader:
    if kind in _NUMBERS:
        return NumberColumn(index, first_buffer, _NUMBERS[kind])
    if pa.types.is_date32(kind):
        return DateColumn(index, first_buffer)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return VariableColumn(index, first_buffer, wide=pa.types.is_large_string(kind), decode=bytes.decode)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return VariableColumn(index, first_buffer, wide=pa.types.is_large_binary(kind), decode=bytes)
    if kind == pa.uuid():
        return FixedBytesColumn(index, first_buffer, 16, lambda data: UUID(bytes=data))
    if pa.types.is_fixed_size_binary(kind) and not pa.types.is_decimal(kind):
        return FixedBytesColumn(index, first_buffer, kind.byte_width, bytes)
    return ArrowColumn(index, first_buffer)
