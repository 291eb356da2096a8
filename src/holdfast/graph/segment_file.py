"""How a segment file ends, and what that says about its row groups: what a reader needs to read only a part (G7).

    PAR1 | row groups | buckets of the index | directory (JSON) | trailer | Parquet's footer | its length | PAR1

Parquet readers go from the footer to the row groups and never meet what is between them. The trailer is fixed in length
and stands right before the footer, so the end of the file tells where everything is. Each row group is one range of
bytes with one checksum, and so are the directory and the footer: a part that is read is checked as a whole.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import orjson
from xxhash import xxh3_64_intdigest

from holdfast.codec import Fields, Json
from holdfast.errors import CorruptRecord, CorruptShard
from holdfast.graph.segment_index import IndexDirectory

__all__ = ["RowGroup", "SegmentDirectory", "Tail", "decode_tail", "encode_tail"]

MAGIC = b"HOLDSEG1"
_TRAILER = struct.Struct("<IQQ8s")
"""Length of the directory, checksum of the directory, checksum of the footer, magic."""
_PARQUET_END = struct.Struct("<I4s")


@dataclass(frozen=True, slots=True, kw_only=True)
class RowGroup:
    """One range of bytes, and what is in it."""

    start: int
    length: int
    rows: int
    checksum: str
    first_id: str
    """The smallest semantic id: of the nodes, or of the sources of the edges."""
    last_id: str
    first_file: str
    last_file: str

    def to_json(self) -> Json:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    @classmethod
    def from_fields(cls, fields: Fields) -> RowGroup:
        return cls(
            start=fields.number("start"),
            length=fields.number("length"),
            rows=fields.number("rows"),
            checksum=fields.text("checksum"),
            first_id=fields.text("first_id"),
            last_id=fields.text("last_id"),
            first_file=fields.text("first_file"),
            last_file=fields.text("last_file"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentDirectory:
    """All row groups, in order, and the index."""

    row_groups: tuple[RowGroup, ...]
    index: IndexDirectory

    def encode(self) -> bytes:
        return orjson.dumps(
            {"row_groups": [group.to_json() for group in self.row_groups], "index": self.index.to_json()}
        )

    @classmethod
    def decode(cls, data: bytes, path: str) -> SegmentDirectory:
        fields = Fields(orjson.loads(data), key=path)
        return cls(
            row_groups=fields.records("row_groups", RowGroup.from_fields),
            index=IndexDirectory.from_fields(Fields(fields.mapping("index"), key=path)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Tail:
    """The end of a file: its directory, and the bytes by which Parquet finds its way."""

    directory: SegmentDirectory
    footer: bytes
    """Footer, length and magic, as they stand at the end of the file."""


def encode_tail(directory: SegmentDirectory, footer: bytes) -> bytes:
    """What follows the buckets: the directory, the trailer and the footer."""
    told = directory.encode()
    return told + _TRAILER.pack(len(told), xxh3_64_intdigest(told), xxh3_64_intdigest(footer), MAGIC) + footer


def decode_tail(data: bytes, path: str) -> Tail:
    """From the last bytes of a file, `tail_size` of them at least."""
    if len(data) < _PARQUET_END.size:
        raise CorruptShard(path, "it is too short for a segment")
    footer_length, _ = _PARQUET_END.unpack_from(data, len(data) - _PARQUET_END.size)
    at = len(data) - _PARQUET_END.size - footer_length
    if at < _TRAILER.size:
        raise CorruptShard(path, "its end is not that of a segment")
    length, checksum, footer_checksum, magic = _TRAILER.unpack_from(data, at - _TRAILER.size)
    footer, start = data[at:], at - _TRAILER.size - length
    if magic != MAGIC or start < 0:
        raise CorruptShard(path, "its end is not that of a segment")
    told = data[start : start + length]
    if xxh3_64_intdigest(told) != checksum or xxh3_64_intdigest(footer) != footer_checksum:
        raise CorruptShard(path, "its directory or its footer is not what was written")
    try:
        return Tail(directory=SegmentDirectory.decode(told, path), footer=footer)
    except CorruptRecord as error:
        raise CorruptShard(path, f"its directory cannot be read: {error}") from None
