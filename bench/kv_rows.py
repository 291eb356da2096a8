"""The rows of the key-value benchmarks: unique keys that look random, values of 100 bytes half of which compress.

Keys are numbers (int64) or texts of 12 to 40 characters. Both are made from a row's number by a bijection, so that hits
are the keys of rows that exist and misses those of rows beyond the last.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from struct import Struct

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["KEY", "VALUE", "VALUE_BYTES", "KeyType", "batches", "keys_of", "packed", "pick", "table", "write_parquet"]

KEY, VALUE = "id", "payload"
VALUE_BYTES = 100

_ODD = np.uint64(0x9E3779B97F4A7C15)
_POSITIVE = np.uint64((1 << 63) - 1)
_LETTERS = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_", np.uint8)
_TEXT_MIN, _TEXT_MAX = 12, 40
_UNIQUE_LETTERS = 11  # six bits each: together all of a key's 63
_BATCH_ROWS = 250_000
_PACK = Struct(">Q").pack
_SIGN = 1 << 63

Rows = npt.NDArray[np.uint64]


class KeyType(StrEnum):
    """What the keys are."""

    INT64 = "int64"
    TEXT = "text"


def keys_of(rows: npt.ArrayLike, kind: KeyType = KeyType.INT64) -> pa.Array:
    """The keys of these rows, by number; rows that do not exist have keys too, which are nowhere."""
    # An odd number times the row's, modulo 2**63: no two rows have the same key.
    numbers = (np.asarray(rows, np.uint64) * _ODD) & _POSITIVE
    return pa.array(numbers.astype(np.int64)) if kind is KeyType.INT64 else _texts(numbers)


def _texts(numbers: Rows) -> pa.Array:
    lengths = (_TEXT_MIN + (numbers >> np.uint64(17)) % np.uint64(_TEXT_MAX - _TEXT_MIN + 1)).astype(np.int64)
    places = np.arange(_TEXT_MAX, dtype=np.uint64)
    shifts = np.where(places < _UNIQUE_LETTERS, places * np.uint64(6), (places * np.uint64(7)) % np.uint64(58))
    letters = _LETTERS[((numbers[:, None] >> shifts) & np.uint64(63)).astype(np.uint8)]
    data = letters[places < lengths[:, None].astype(np.uint64)]
    offsets = np.zeros(len(numbers) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return pa.Array.from_buffers(pa.string(), len(numbers), [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def packed(key: int | str) -> bytes:
    """A key as bytes that sort like the keys, for engines that know nothing else."""
    return _PACK(key + _SIGN) if isinstance(key, int) else key.encode()


def batches(rows: int, kind: KeyType = KeyType.INT64, *, first: int = 0, seed: int = 7) -> Iterator[pa.RecordBatch]:
    """Record batches of the rows from `first` on: key and value, in no particular order of keys."""
    generator = np.random.default_rng(seed)
    for start in range(first, first + rows, _BATCH_ROWS):
        numbers = np.arange(start, min(start + _BATCH_ROWS, first + rows), dtype=np.uint64)
        values = np.full((len(numbers), VALUE_BYTES), ord("x"), np.uint8)
        half = VALUE_BYTES // 2
        values[:, :half] = generator.integers(0, 256, (len(numbers), half), np.uint8)
        offsets = np.arange(0, (len(numbers) + 1) * VALUE_BYTES, VALUE_BYTES, dtype=np.int32)
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(values)]
        column = pa.Array.from_buffers(pa.binary(), len(numbers), buffers)
        yield pa.record_batch({KEY: keys_of(numbers, kind), VALUE: column})


def table(rows: int, kind: KeyType = KeyType.INT64, *, first: int = 0, seed: int = 7) -> pa.Table:
    return pa.Table.from_batches(batches(rows, kind, first=first, seed=seed))


def pick(count: int, rows: int, kind: KeyType = KeyType.INT64, *, missing: bool = False, seed: int = 1) -> pa.Array:
    """Keys of rows chosen at random; or of as many rows that do not exist."""
    chosen = np.random.default_rng(seed).integers(0, rows, count).astype(np.uint64)
    return keys_of(chosen + np.uint64(rows) if missing else chosen, kind)


def write_parquet(folder: Path, rows: int, kind: KeyType = KeyType.INT64, *, files: int = 8) -> Path:
    """The rows as Parquet files, which is what Spark reads them from."""
    folder.mkdir(parents=True)
    share = -(-rows // files)
    for number in range(files):
        first = number * share
        some = table(min(share, rows - first), kind, first=first, seed=number)
        pq.write_table(some, folder / f"part-{number:05d}.parquet")
    return folder
