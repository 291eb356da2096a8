"""One key of the commonest kinds, in as little Python as it takes: a whole number or a text, answered with bytes.

`MappedSnapshot.get` does the same for every kind of key and value. Here the steps are written out in one function,
because function calls are what a look-up would otherwise mostly consist of.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from mmap import mmap
from struct import Struct
from typing import NamedTuple

import pyarrow as pa
from xxhash import xxh64_intdigest

from holdfast.kv.columns import is_valid
from holdfast.kv.dataset import DataSet, ValueKind
from holdfast.kv.keys import KeyKind
from holdfast.kv.mapped import MappedShard
from holdfast.kv.routing import HashRouting
from holdfast.xxh64 import SEED

__all__ = ["point_getter"]

_SIGN = 1 << 63
_INT64 = Struct("<q")
_PAIR = Struct("<ii")
_TAG = Struct("<H")

Getter = Callable[[object, object], object]


class _Parts(NamedTuple):
    """What a look-up needs of one shard."""

    block_count: int
    table_offset: int
    tags_offset: int
    mapping: mmap
    find: Callable[[bytes, int, int], int]
    unverified: bytearray
    verify: Callable[[int], None]


def point_getter(dataset: DataSet, shards: Sequence[MappedShard | None], fallback: Getter) -> Getter:
    """A short `get` where there is one, else `fallback`, which also answers for keys of another type."""
    if (
        dataset.value is not ValueKind.BINARY
        or len(dataset.key.columns) != 1
        or not isinstance(dataset.routing, HashRouting)
        or not pa.types.is_binary(dataset.schema.field(1).type)
    ):
        return fallback
    parts = [
        None
        if shard is None
        else _Parts(
            shard.block_count,
            shard.trailer.table_offset,
            shard.trailer.tags_offset,
            shard.mapping,
            shard.mapping.find,
            shard.unverified,
            shard.verify_block,
        )
        for shard in shards
    ]
    kind = dataset.key.columns[0].kind
    if kind is KeyKind.INT64:
        return _int64_getter(parts, fallback)
    return _text_getter(parts, fallback) if kind is KeyKind.TEXT else fallback


def _int64_getter(parts: Sequence[_Parts | None], fallback: Getter) -> Getter:
    # A block's row of the table, and the first number of the next: first row; key: validity, which is skipped, and
    # numbers; value: validity, offsets, bytes; first row of the next block.
    stride, unpack_row = 48, Struct("<Q8x5Q").unpack_from
    count, digest, pack, pack_tag = len(parts), xxh64_intdigest, _INT64.pack, _TAG.pack
    unpack_key, unpack_pair = _INT64.unpack_from, _PAIR.unpack_from

    def get(key: object, default: object = None) -> object:
        if type(key) is not int or not -_SIGN <= key < _SIGN:
            return fallback(key, default)
        turned = digest(pack(key), SEED) ^ _SIGN
        chosen = parts[(turned - _SIGN) % count]
        if chosen is None:
            return default
        block_count, table_offset, tags_offset, mapping, find, unverified, verify = chosen
        position = (turned >> 32) * block_count
        block = position >> 32
        tag = pack_tag(position >> 16 & 0xFFFF)
        first, numbers, validity, offsets, data, end = unpack_row(mapping, table_offset + stride * block)
        begin = tags_offset + 2 * first
        stop = tags_offset + 2 * end
        at = find(tag, begin, stop)
        while at >= 0:
            row = at - begin
            if not row & 1:  # else it is the end of one tag and the beginning of the next
                row >>= 1
                if unverified[block]:
                    verify(block)
                if unpack_key(mapping, numbers + 8 * row)[0] == key:
                    if validity and not is_valid(mapping, validity, row):
                        return None
                    start, close = unpack_pair(mapping, offsets + 4 * row)
                    return mapping[data + start : data + close]
            at = find(tag, at + 1, stop)
        return default

    return get


def _text_getter(parts: Sequence[_Parts | None], fallback: Getter) -> Getter:
    # As above, with a key of validity, offsets and bytes.
    stride, unpack_row = 56, Struct("<Q8x6Q").unpack_from
    count, digest, pack_tag, unpack_pair = len(parts), xxh64_intdigest, _TAG.pack, _PAIR.unpack_from

    def get(key: object, default: object = None) -> object:
        if type(key) is not str or not key.isascii():
            return fallback(key, default)
        wanted = key.encode()
        turned = digest(wanted, SEED) ^ _SIGN
        chosen = parts[(turned - _SIGN) % count]
        if chosen is None:
            return default
        block_count, table_offset, tags_offset, mapping, find, unverified, verify = chosen
        position = (turned >> 32) * block_count
        block = position >> 32
        tag = pack_tag(position >> 16 & 0xFFFF)
        first, ends, texts, validity, offsets, data, end = unpack_row(mapping, table_offset + stride * block)
        begin = tags_offset + 2 * first
        stop = tags_offset + 2 * end
        at = find(tag, begin, stop)
        while at >= 0:
            row = at - begin
            if not row & 1:  # else it is the end of one tag and the beginning of the next
                row >>= 1
                if unverified[block]:
                    verify(block)
                start, close = unpack_pair(mapping, ends + 4 * row)
                if mapping[texts + start : texts + close] == wanted:
                    if validity and not is_valid(mapping, validity, row):
                        return None
                    start, close = unpack_pair(mapping, offsets + 4 * row)
                    return mapping[data + start : data + close]
            at = find(tag, at + 1, stop)
        return default

    return get
