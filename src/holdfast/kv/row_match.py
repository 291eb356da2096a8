"""Finding keys among rows that are in memory as Arrow columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.kv.keys import Key, KeyKind, KeySchema
from holdfast.kv.request import KeyColumns
from holdfast.kv.rows import plain

__all__ = ["match_rows", "row_finder"]

Indices = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


def row_finder(key: KeySchema) -> Callable[[pa.RecordBatch, Key], int]:
    """A function from a block and a key, which was checked when it was hashed, to the key's row; below 0 for none.

    The commonest kinds of key have a short one: there is one call of it for each look-up.
    """
    if len(key.columns) == 1 and key.columns[0].kind.is_integer:
        return _row_of_number
    if len(key.columns) == 1 and key.columns[0].kind is KeyKind.TEXT:
        return lambda batch, wanted: batch.column(0).index(str(wanted)).as_py()

    def row_of(batch: pa.RecordBatch, wanted: Key) -> int:
        rows = np.flatnonzero(equal_rows(batch.columns[: len(key.columns)], key.to_arrays([wanted])))
        return int(rows[0]) if len(rows) else -1

    return row_of


def _row_of_number(batch: pa.RecordBatch, wanted: Key) -> int:
    numbers = batch.column(0).to_numpy()
    row = int((numbers == wanted).argmax())
    return row if numbers[row] == wanted else -1


def equal_rows(columns: Sequence[pa.Array], wanted: Sequence[pa.Array]) -> Flags:
    """Whether each row has the wanted key: one for all rows, or one for each."""
    same: Flags | None = None
    for column, one in zip(columns, wanted, strict=True):
        right = plain(one)
        equal = pc.equal(plain(column), right[0] if len(right) == 1 else right).to_numpy(zero_copy_only=False)
        same = equal if same is None else same & equal
    assert same is not None
    return same


def match_rows(columns: Sequence[pa.Array], keys: KeyColumns, some: Indices) -> Indices:
    """The row of each of some keys among the columns' rows; below 0 for a key that is not there.

    Found by hash, then compared: two keys may share a hash.
    """
    hashes = keys.schema.hash_arrays(columns)
    order = np.argsort(hashes, kind="stable")
    in_order = hashes[order]
    candidate = np.searchsorted(in_order, keys.hashes[some], side="left")
    rows = np.full(len(some), -1, np.int64)
    open_ = np.arange(len(some))
    while len(open_):  # almost always once: each further time needs one more key with the same 64 bits
        at = candidate[open_]
        there = at < len(order)
        there[there] = in_order[at[there]] == keys.hashes[some[open_[there]]]
        open_ = open_[there]
        found = order[candidate[open_]]
        same = _same(columns, found, keys, some[open_])
        rows[open_[same]] = found[same]
        open_ = open_[~same]
        candidate[open_] += 1
    return rows


def _same(columns: Sequence[pa.Array], rows: Indices, keys: KeyColumns, some: Indices) -> Flags:
    if not len(rows):
        return np.zeros(0, dtype=bool)
    taken, asked = pa.array(rows), pa.array(some)
    return equal_rows([column.take(taken) for column in columns], [array.take(asked) for array in keys.arrays])
