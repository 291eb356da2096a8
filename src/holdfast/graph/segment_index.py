"""The index inside a segment: from the hash of an id to the row groups that may hold it, without a scan (G7).

Entries are (XXH64 of the id, row group), in the order of the hash, cut into buckets by the first bits of it. An entry
keeps the next 16 bits only: a look-up reads one bucket of about 4,096 entries and is sent to a row group in vain about
once in sixteen times, and an index costs about two bytes an entry. Buckets are compressed one by one; each has a
checksum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from xxhash import xxh3_64_intdigest

from holdfast.codec import Fields, Json
from holdfast.errors import CorruptShard

__all__ = ["IndexDirectory", "IndexEntries", "encode_index", "groups_in_bucket"]

BUCKET_ENTRIES = 4_096
FINGERPRINT_BITS = 16
_ENTRY = np.dtype("<u2"), np.dtype("<u4")

Hashes = npt.NDArray[np.uint64]
Groups = npt.NDArray[np.uint32]


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexDirectory:
    """Where the buckets of an index are."""

    column: str
    bucket_bits: int
    starts: tuple[int, ...]
    """Where each bucket begins in the file, and behind them where the last ends."""
    counts: tuple[int, ...]
    checksums: tuple[str, ...]

    def bucket_of(self, hashed: int) -> int:
        return hashed >> (64 - self.bucket_bits) if self.bucket_bits else 0

    def to_json(self) -> Json:
        return {
            "column": self.column,
            "bucket_bits": self.bucket_bits,
            "starts": list(self.starts),
            "counts": list(self.counts),
            "checksums": list(self.checksums),
        }

    @classmethod
    def from_fields(cls, fields: Fields) -> IndexDirectory:
        return cls(
            column=fields.text("column"),
            bucket_bits=fields.number("bucket_bits"),
            starts=fields.numbers("starts"),
            counts=fields.numbers("counts"),
            checksums=fields.texts("checksums"),
        )


class IndexEntries:
    """What a writer gathers, row group by row group: 12 bytes for each id of each group."""

    def __init__(self) -> None:
        self._hashes: list[Hashes] = []
        self._groups: list[Groups] = []

    def add(self, hashes: Hashes, group: int) -> None:
        """The different ids of one row group."""
        self._hashes.append(hashes)
        self._groups.append(np.full(len(hashes), group, np.uint32))

    def sorted(self) -> tuple[Hashes, Groups]:
        hashes, groups = np.concatenate(self._hashes), np.concatenate(self._groups)
        order = np.argsort(hashes, kind="stable")
        return hashes[order], groups[order]


def encode_index(column: str, entries: IndexEntries, start: int) -> tuple[list[bytes], IndexDirectory]:
    """The buckets, to be written from `start` on, and their directory."""
    hashes, groups = entries.sorted()
    bits = max(0, (len(hashes) // BUCKET_ENTRIES).bit_length())
    numbers = (hashes >> np.uint64(64 - bits)).astype(np.int64) if bits else np.zeros(len(hashes), np.int64)
    fingerprints = _fingerprints(hashes, bits)
    edges = np.searchsorted(numbers, np.arange((1 << bits) + 1))
    buckets, starts, counts = [], [start], []
    for first, last in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        raw = fingerprints[first:last].astype(_ENTRY[0]).tobytes() + groups[first:last].astype(_ENTRY[1]).tobytes()
        buckets.append(pa.compress(raw, codec="zstd", asbytes=True) if raw else b"")
        starts.append(starts[-1] + len(buckets[-1]))
        counts.append(last - first)
    return buckets, IndexDirectory(
        column=column,
        bucket_bits=bits,
        starts=tuple(starts),
        counts=tuple(counts),
        checksums=tuple(f"{xxh3_64_intdigest(bucket):016x}" for bucket in buckets),
    )


def groups_in_bucket(
    directory: IndexDirectory, bucket: int, data: bytes, hashes: Sequence[int] | Hashes, path: str
) -> Groups:
    """The row groups that may hold one of these ids, all of which belong to this bucket."""
    if f"{xxh3_64_intdigest(data):016x}" != directory.checksums[bucket]:
        raise CorruptShard(path, f"bucket {bucket} of its index is not what was written")
    count = directory.counts[bucket]
    if not count:
        return np.empty(0, np.uint32)
    raw = pa.decompress(data, decompressed_size=count * (_ENTRY[0].itemsize + _ENTRY[1].itemsize), codec="zstd")
    fingerprints = np.frombuffer(raw, _ENTRY[0], count)
    groups = np.frombuffer(raw, _ENTRY[1], count, count * _ENTRY[0].itemsize)
    wanted = _fingerprints(np.asarray(hashes, np.uint64), directory.bucket_bits)
    return np.unique(groups[np.isin(fingerprints, wanted)]).astype(np.uint32)


def _fingerprints(hashes: Hashes, bucket_bits: int) -> npt.NDArray[np.uint16]:
    """The bits behind those that choose the bucket."""
    return (hashes << np.uint64(bucket_bits) >> np.uint64(64 - FINGERPRINT_BITS)).astype(np.uint16)
