"""XXH64 of many keys at once: the hash that Spark's `xxhash64` computes in the JVM, on numpy arrays.

For one key there is the `xxhash` package. For a column of keys a call per row would be the slowest part of a build or a
multi-get, so this runs the same arithmetic on whole arrays. Variable-length values are taken by length: all values of
one length go through the rounds together.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt
from xxhash import xxh64_intdigest

__all__ = ["SEED", "hash_fixed_width", "hash_variable_width"]

SEED = 42
"""Spark's."""

Hashes = npt.NDArray[np.uint64]
Bytes = npt.NDArray[np.uint8]
Offsets = npt.NDArray[np.int64]

_P1 = np.uint64(0x9E3779B185EBCA87)
_P2 = np.uint64(0xC2B2AE3D27D4EB4F)
_P3 = np.uint64(0x165667B19E3779F9)
_P4 = np.uint64(0x85EBCA77C2B2AE63)
_P5 = np.uint64(0x27D4EB2F165667C5)
_STRIPE = 32
_WORD = 8
_EIGHT_BYTES_SEEDED = np.uint64((SEED + int(_P5) + _WORD) % (1 << 64))
_FEW_ROWS = 4096
"""So few values of different lengths are hashed one by one: a dozen array operations per length would take longer."""
_SLICE_ROWS = 65_536
"""Rows hashed at a time: the intermediate arrays stay in the processor's cache, and memory stays bounded."""
_SLICE_BYTES = 4 << 20


def hash_fixed_width(values: npt.NDArray[np.generic], seeds: Hashes | None = None) -> Hashes:
    """The hash of each element's bytes; `seeds` chains the columns of a composite key as Spark does."""
    width = values.dtype.itemsize
    if width == _WORD and seeds is None:
        return _hash_words(np.ascontiguousarray(values).view("<u8"))
    raw = np.ascontiguousarray(values).view(np.uint8).reshape(len(values), width)
    return _in_slices(raw, seeds)


def hash_variable_width(data: Bytes, offsets: Offsets, seeds: Hashes | None = None) -> Hashes:
    """The hash of each `data[offsets[i]:offsets[i + 1]]`."""
    lengths = np.diff(offsets)
    if seeds is None and len(lengths) < _FEW_ROWS:
        whole, ends = data[offsets[0] : offsets[-1]].tobytes(), (offsets - offsets[0]).tolist()
        return np.array([xxh64_intdigest(whole[start:end], SEED) for start, end in pairwise(ends)], dtype=np.uint64)
    hashes = np.empty(len(lengths), dtype=np.uint64)
    order = np.argsort(lengths, kind="stable")
    ordered = lengths[order]
    edges = np.flatnonzero(np.diff(ordered)) + 1
    for rows in np.split(order, edges) if len(order) else []:
        length = int(lengths[rows[0]])
        step = max(1, min(_SLICE_ROWS, _SLICE_BYTES // max(1, length)))
        for start in range(0, len(rows), step):
            some = rows[start : start + step]
            raw = data[offsets[some][:, None] + np.arange(length)]
            hashes[some] = _hash_equal_lengths(raw, None if seeds is None else seeds[some])
    return hashes


def _hash_words(words: Hashes) -> Hashes:
    """The same as `_hash_equal_lengths` of eight bytes, for the commonest key of all, in as few passes as it takes."""
    hashed = words * _P2
    hashed = _rotate(hashed, 31)
    hashed *= _P1
    hashed ^= _EIGHT_BYTES_SEEDED
    hashed = _rotate(hashed, 27)
    hashed *= _P1
    hashed += _P4
    hashed ^= hashed >> np.uint64(33)
    hashed *= _P2
    hashed ^= hashed >> np.uint64(29)
    hashed *= _P3
    hashed ^= hashed >> np.uint64(32)
    return hashed


def _in_slices(raw: Bytes, seeds: Hashes | None) -> Hashes:
    hashes = np.empty(len(raw), dtype=np.uint64)
    for start in range(0, len(raw), _SLICE_ROWS):
        some = slice(start, start + _SLICE_ROWS)
        hashes[some] = _hash_equal_lengths(raw[some], None if seeds is None else seeds[some])
    return hashes


def _hash_equal_lengths(raw: Bytes, seeds: Hashes | None) -> Hashes:
    """XXH64 of each row of a matrix of bytes."""
    count, length = raw.shape
    seed = np.full(count, SEED, dtype=np.uint64) if seeds is None else seeds
    with np.errstate(over="ignore"):  # arithmetic modulo 2**64 is what the function is made of
        if length >= _STRIPE:
            lanes = [seed + _P1 + _P2, seed + _P2, seed.copy(), seed - _P1]
            for position in range(0, length - _STRIPE + 1, _STRIPE):
                for number in range(4):
                    lanes[number] = _round(lanes[number], _words(raw, position + 8 * number))
            hashed = _rotate(lanes[0], 1) + _rotate(lanes[1], 7) + _rotate(lanes[2], 12) + _rotate(lanes[3], 18)
            for lane in lanes:
                hashed = (hashed ^ _round(np.zeros_like(hashed), lane)) * _P1 + _P4
        else:
            hashed = seed + _P5
        hashed = hashed + np.uint64(length)
        for position in range(length - length % _STRIPE, length - 7, 8):
            hashed = _rotate(hashed ^ _round(np.zeros_like(hashed), _words(raw, position)), 27) * _P1 + _P4
        tail = length - length % 8
        if length - tail >= 4:
            half = np.ascontiguousarray(raw[:, tail : tail + 4]).view("<u4").ravel().astype(np.uint64)
            hashed = _rotate(hashed ^ (half * _P1), 23) * _P2 + _P3
            tail += 4
        for position in range(tail, length):
            hashed = _rotate(hashed ^ (raw[:, position].astype(np.uint64) * _P5), 11) * _P1
        hashed = (hashed ^ (hashed >> np.uint64(33))) * _P2
        hashed = (hashed ^ (hashed >> np.uint64(29))) * _P3
        return hashed ^ (hashed >> np.uint64(32))


def _words(raw: Bytes, position: int) -> Hashes:
    return np.ascontiguousarray(raw[:, position : position + 8]).view("<u8").ravel()


def _rotate(values: Hashes, bits: int) -> Hashes:
    return (values << np.uint64(bits)) | (values >> np.uint64(64 - bits))


def _round(accumulator: Hashes, lane: Hashes) -> Hashes:
    return _rotate(accumulator + lane * _P2, 31) * _P1
