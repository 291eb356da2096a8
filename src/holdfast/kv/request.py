"""What a look-up of many keys is asked with: keys as columns, with their hashes, and what to do about missing ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from holdfast.errors import BadInput, NotFound, WrongKeyType
from holdfast.kv.keys import Key, KeySchema
from holdfast.xxh64 import Hashes

__all__ = ["KeyColumns", "Missing"]


@dataclass(frozen=True, slots=True)
class KeyColumns:
    """Keys as canonical columns without nulls, and their hashes."""

    schema: KeySchema
    arrays: Sequence[pa.Array]
    hashes: Hashes

    @classmethod
    def of_keys(cls, schema: KeySchema, keys: Sequence[Key]) -> KeyColumns:
        """Keys that a program gives one by one."""
        arrays = schema.to_arrays(keys)
        return cls(schema, arrays, schema.hash_arrays(arrays))

    @classmethod
    def of_arrow(cls, schema: KeySchema, given: object) -> KeyColumns:
        """Keys that come as Arrow or numpy data: one column, or for a composite key a table with its columns."""
        if isinstance(given, pa.Table | pa.RecordBatch):
            absent = [name for name in schema.names if name not in given.schema.names]
            if absent:
                raise WrongKeyType(
                    f"the table of keys has no column {absent[0]!r}; keys are ({', '.join(schema.names)})"
                )
            columns = [given.column(name) for name in schema.names]
        elif schema.is_composite:
            raise WrongKeyType(f"keys are ({', '.join(schema.names)}): give a table with these columns, or tuples")
        else:
            columns = [pa.array(given) if isinstance(given, np.ndarray) else given]
        arrays = []
        for column, array in zip(schema.columns, columns, strict=True):
            plain = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
            if isinstance(plain, pa.ChunkedArray):  # what `combine_chunks` leaves of nothing at all
                plain = pa.array([], plain.type)
            if plain.null_count:
                raise WrongKeyType(f"key column {column.name!r} has {plain.null_count} nulls; a key is never null")
            _check_same_family(column.name, column.kind.arrow_type, plain.type)
            arrays.append(column.canonical(plain))
        return cls(schema, arrays, schema.hash_arrays(arrays))

    def __len__(self) -> int:
        return len(self.hashes)

    def slices(self, rows: int) -> Iterator[KeyColumns]:
        """Parts of at most so many keys; one empty part if there are none."""
        if len(self) <= rows:
            yield self
            return
        for start in range(0, len(self), rows):
            yield KeyColumns(
                self.schema, [array.slice(start, rows) for array in self.arrays], self.hashes[start : start + rows]
            )

    def first(self, where: npt.NDArray[np.bool_]) -> Key:
        row = int(np.flatnonzero(where)[0])
        parts = tuple(array[row].as_py() for array in self.arrays)
        return parts if self.schema.is_composite else parts[0]


def _check_same_family(name: str, wanted: pa.DataType, found: pa.DataType) -> None:
    """Numbers for numbers, text for text: a cast would turn the text "7" into a number."""
    plain = found.value_type if pa.types.is_dictionary(found) else found
    is_integer = pa.types.is_integer(plain)
    if pa.types.is_integer(wanted) != is_integer or (
        not is_integer and wanted != plain and _family(wanted) != _family(plain)
    ):
        raise WrongKeyType(f"key column {name!r} is {wanted}: {found} cannot be looked up there")


def _family(kind: pa.DataType) -> str:
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return "text"
    if (
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
        or pa.types.is_binary_view(kind)
    ):
        return "bytes"
    return str(kind)


class Missing(StrEnum):
    """What becomes of keys that are not there."""

    NULL = "null"
    """A row whose other columns are null: as many rows as keys."""
    DROP = "drop"
    """No row."""
    ERROR = "error"

    @classmethod
    def parse(cls, text: str) -> Missing:
        if text not in cls.__members__.values():
            raise BadInput(f"missing={text!r}: use {', '.join(cls)}")
        return cls(text)

    def check(self, keys: KeyColumns, found: npt.NDArray[np.bool_]) -> None:
        if self is Missing.ERROR and not found.all():
            raise NotFound(f"{int((~found).sum())} of {len(keys)} keys are not there, such as {keys.first(~found)!r}")

    def table(
        self, schema: pa.Schema, keys: KeyColumns, found: npt.NDArray[np.bool_], gathered: Sequence[pa.Array]
    ) -> pa.Table:
        """The answer, from the other columns of the keys that were found."""
        whole = bool(found.all())
        if whole or self is Missing.DROP:
            arrays = list(keys.arrays) if whole else [array.filter(pa.array(found)) for array in keys.arrays]
            return pa.Table.from_arrays([*arrays, *gathered], schema=schema)
        places = pa.array(np.cumsum(found) - 1, mask=~found)
        fields = [
            field if index < len(keys.arrays) else field.with_nullable(True) for index, field in enumerate(schema)
        ]
        return pa.Table.from_arrays(
            [*keys.arrays, *(array.take(places) for array in gathered)], schema=pa.schema(fields)
        )
