"""A snapshot whose shards are files on this machine, mapped into memory: a look-up is a read of memory (K14, K17)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import cast

import numpy as np
import orjson
import pyarrow as pa

from holdfast.arrow_memory import variable_parts
from holdfast.kv.dataset import DataSet, ValueKind
from holdfast.kv.gather import Gatherer, Places
from holdfast.kv.keys import Key
from holdfast.kv.mapped import MappedShard, Row
from holdfast.kv.point import point_getter
from holdfast.kv.request import KeyColumns, Missing
from holdfast.kv.routing import HashRouting

__all__ = ["MappedSnapshot"]

_GATHER_KEYS = 65_536
"""Keys gathered at a time: one Arrow array of text holds at most two gigabytes."""


class MappedSnapshot:
    """Look-ups in mapped shards. Safe for any number of threads; closed when nothing refers to it any more."""

    def __init__(
        self, dataset: DataSet, paths: Sequence[Path | None], *, known: Mapping[str, MappedShard] | None = None
    ) -> None:
        """`paths` are the shards' files by number, `known` the shards that an older snapshot has mapped already."""
        self.dataset = dataset
        shards: list[MappedShard | None] = []
        for shard, path in zip(dataset.shards, paths, strict=True):
            if shard is None or path is None:
                shards.append(None)
                continue
            mapped = (known or {}).get(shard.path)
            shards.append(
                mapped
                or MappedShard(
                    path,
                    name=shard.path,
                    schema=dataset.schema,
                    key=dataset.key,
                    row_count=shard.row_count,
                    fingerprint=shard.fingerprint,
                )
            )
        self._shards = shards
        present = [shard for shard in shards if shard is not None]
        self._gatherer = Gatherer(present, schema=dataset.schema, key=dataset.key)
        ordinals = np.cumsum([shard is not None for shard in shards]) - 1
        self._ordinals = np.where([shard is not None for shard in shards], ordinals, -1).astype(np.int64)
        self._hashed_and_full = len(present) == len(shards) and isinstance(dataset.routing, HashRouting)
        # Functions that know the shards but not this object: nothing may refer to it in a circle, or it would stay open
        # until the garbage collector comes by.
        self.find = _finder(dataset, shards)
        self.get = point_getter(dataset, shards, _getter(self.find, _value_reader(dataset)))
        """`get(key, default)`: a key's value, or `default`."""

    @property
    def shards(self) -> Mapping[str, MappedShard]:
        """The mapped shards by path, for the next snapshot to go on with."""
        return {shard.name: shard for shard in self._shards if shard is not None}

    # -- one key ------------------------------------------------------------------------------------------------------

    def contains(self, key: Key) -> bool:
        return self.find(key) is not None

    # -- many keys ----------------------------------------------------------------------------------------------------

    def multi_get(self, keys: Sequence[Key]) -> dict[Key, object]:
        """The values of the keys that are there."""
        found: dict[Key, object] = {}
        for start in range(0, len(keys), _GATHER_KEYS):
            some = keys[start : start + _GATHER_KEYS]
            places = self._places(KeyColumns.of_keys(self.dataset.key, some))
            hits = (
                some
                if places.found.all()
                else [key for key, hit in zip(some, places.found.tolist(), strict=True) if hit]
            )
            found.update(zip(hits, self._values(places), strict=True))
        return found

    def get_arrow(self, keys: KeyColumns, missing: Missing) -> pa.Table:
        """One table in the order of the keys."""
        parts = [self._table(some, missing) for some in keys.slices(_GATHER_KEYS)]
        return pa.concat_tables(parts)

    def _places(self, keys: KeyColumns) -> Places:
        numbers = self.dataset.routing.shards_of(keys.arrays, keys.hashes)
        if self._hashed_and_full:
            return self._gatherer.find(keys.arrays, keys.hashes, numbers)
        inside = (numbers >= 0) & (numbers < len(self._shards))
        ordinals = self._ordinals[np.where(inside, numbers, 0)]
        return self._gatherer.find(keys.arrays, keys.hashes, np.where(inside, ordinals, -1))

    def _values(self, places: Places) -> Iterator[object]:
        first = len(self.dataset.key.columns)
        if self.dataset.value is ValueKind.BINARY and (equal := self._gatherer.bytes_of(first, places)) is not None:
            return iter(equal)
        columns = [self._gatherer.gather(first + index, places) for index in range(len(self.dataset.value_schema))]
        if self.dataset.value is ValueKind.ROW:
            names = self.dataset.value_schema.names
            rows = zip(*(to_python(column) for column in columns), strict=True) if columns else ((),) * len(places.row)
            return (dict(zip(names, row, strict=True)) for row in rows)
        values = to_python(columns[0])
        return map(parse_json, values) if self.dataset.value is ValueKind.JSON else iter(values)

    def _table(self, keys: KeyColumns, missing: Missing) -> pa.Table:
        places = self._places(keys)
        missing.check(keys, places.found)
        key_count = len(keys.arrays)
        gathered = [self._gatherer.gather(key_count + index, places) for index in range(len(self.dataset.value_schema))]
        return missing.table(self.dataset.schema, keys, places.found, gathered)


Found = tuple[MappedShard, Row]


def _finder(dataset: DataSet, shards: Sequence[MappedShard | None]) -> Callable[[object], Found | None]:
    """A function from a key to its row."""
    hash_of, shard_of, encode, count = dataset.key.hash_of, dataset.routing.shard_of, dataset.key.encode, len(shards)

    def find(key: object) -> Found | None:
        hashed = hash_of(key)  # and checked
        number = shard_of(cast("Key", key), hashed)
        shard = shards[number] if 0 <= number < count else None
        row = None if shard is None else shard.find(hashed, encode(key))
        return None if shard is None or row is None else (shard, row)

    return find


def _value_reader(dataset: DataSet) -> Callable[[MappedShard, Row], object]:
    """What a look-up answers with, from a row."""
    match dataset.value:
        case ValueKind.BINARY:
            return lambda shard, row: shard.read(shard.value_readers[0], row)
        case ValueKind.JSON:
            return lambda shard, row: parse_json(shard.read(shard.value_readers[0], row))
        case ValueKind.ROW:
            names = dataset.value_schema.names
            return lambda shard, row: {
                name: shard.read(reader, row) for name, reader in zip(names, shard.value_readers, strict=True)
            }


def _getter(
    find: Callable[[object], Found | None], value_of: Callable[[MappedShard, Row], object]
) -> Callable[[object, object], object]:
    def get(key: object, default: object = None) -> object:
        found = find(key)
        return default if found is None else value_of(*found)

    return get


def parse_json(text: object) -> object:
    return None if text is None else orjson.loads(text)  # type: ignore[arg-type]


def to_python(array: pa.Array) -> list[object]:
    """A column as Python values. For bytes there is a shorter way than Arrow's own."""
    if array.null_count == 0 and (pa.types.is_binary(array.type) or pa.types.is_large_binary(array.type)):
        data, offsets = variable_parts(array)
        whole = data[offsets[0] : offsets[-1]].tobytes()
        return [whole[start:end] for start, end in pairwise((offsets - offsets[0]).tolist())]
    return array.to_pylist()  # type: ignore[no-any-return]
