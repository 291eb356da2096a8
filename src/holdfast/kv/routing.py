"""Which shard a key belongs to (K3). The same answer in Spark's JVM, for one key, and for a column of keys.

- hash (the default): the key's hash, taken as a signed number, modulo the number of shards;
- range: by bounds, each the smallest key of its shard, so that neighbouring keys share a shard;
- expression: a little arithmetic over key columns (`holdfast.kv.expression`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.codec import Fields, Json
from holdfast.errors import BadInput, CorruptRecord
from holdfast.kv.expression import Expression
from holdfast.kv.keys import Key, KeyKind, KeySchema
from holdfast.xxh64 import Hashes

__all__ = [
    "SHARDS_MAX",
    "ExpressionRouting",
    "HashRouting",
    "RangeRouting",
    "Routing",
    "check_shard_count",
    "routing_from_fields",
]

SHARDS_MAX = 100_000
_SIGN = 1 << 63

Shards = npt.NDArray[np.int64]


class Routing(Protocol):
    """From keys to shard numbers."""

    @property
    def shard_count(self) -> int: ...

    def shard_of(self, key: Key, hashed: int) -> int:
        """The shard of one key, which was checked when it was hashed."""
        ...

    def shards_of(self, arrays: Sequence[pa.Array], hashes: Hashes) -> Shards:
        """The shard of each row of canonical key columns; a number outside the range where an expression gives one."""
        ...

    def to_json(self) -> Json: ...

    def describe(self) -> str:
        """For people, in a few words."""
        ...


@dataclass(frozen=True, slots=True)
class HashRouting:
    """By the hash of the whole key."""

    shard_count: int

    def __post_init__(self) -> None:
        check_shard_count(self.shard_count)

    def shard_of(self, key: Key, hashed: int) -> int:
        return ((hashed ^ _SIGN) - _SIGN) % self.shard_count

    def shards_of(self, arrays: Sequence[pa.Array], hashes: Hashes) -> Shards:
        return hashes.view(np.int64) % np.int64(self.shard_count)

    def to_json(self) -> Json:
        return {"kind": "hash"}

    def describe(self) -> str:
        return "hash of the key"


@dataclass(frozen=True)
class RangeRouting:
    """By sorted bounds: shard 0 holds the keys below the first, shard n those from bound n - 1 on."""

    key: KeySchema
    bounds: tuple[Key, ...]

    def __post_init__(self) -> None:
        check_shard_count(self.shard_count)
        object.__setattr__(self, "bounds", tuple(self.key.plain(bound) for bound in self.bounds))
        # Each was just found to be a key, and keys of one schema can be compared.
        if any(not low < high for low, high in pairwise(self.bounds)):  # type: ignore[operator]
            raise BadInput("range bounds must grow from one to the next")

    @property
    def shard_count(self) -> int:
        return len(self.bounds) + 1

    def shard_of(self, key: Key, hashed: int) -> int:
        return bisect_right(self.bounds, key)

    def shards_of(self, arrays: Sequence[pa.Array], hashes: Hashes) -> Shards:
        if len(arrays) == 1 and self.key.columns[0].kind.is_integer:
            bounds = np.array(self.bounds, dtype=self.key.columns[0].kind.value)
            found: Shards = np.searchsorted(bounds, arrays[0].to_numpy(zero_copy_only=False), side="right")
            return found.astype(np.int64)
        columns = [_comparable(array) for array in arrays]
        shards = np.zeros(len(arrays[0]), np.int64)
        for bound in self.bounds:
            shards += self._at_or_above(columns, bound)
        return shards

    def _at_or_above(self, columns: Sequence[pa.Array], bound: Key) -> npt.NDArray[np.bool_]:
        """Compares from the last part to the first: above here, or equal here and at or above after it."""
        parts = bound if isinstance(bound, tuple) else (bound,)
        answer = np.ones(len(columns[0]), dtype=bool)
        for column, part, spec in zip(reversed(columns), reversed(parts), reversed(self.key.columns), strict=True):
            scalar = pa.scalar(part.bytes, pa.binary()) if spec.kind is KeyKind.UUID else pa.scalar(part, column.type)  # type: ignore[union-attr]
            above = pc.greater(column, scalar).to_numpy(zero_copy_only=False)
            equal = pc.equal(column, scalar).to_numpy(zero_copy_only=False)
            answer = above | (equal & answer)
        return answer

    def to_json(self) -> Json:
        return {"kind": "range", "bounds": [self.key.to_json_key(bound) for bound in self.bounds]}

    def describe(self) -> str:
        return f"range, {len(self.bounds)} bounds"


@dataclass(frozen=True, slots=True)
class ExpressionRouting:
    """By an expression over the key's columns."""

    expression: Expression
    shard_count: int

    def __post_init__(self) -> None:
        check_shard_count(self.shard_count)

    def shard_of(self, key: Key, hashed: int) -> int:
        return int(self.expression.evaluate(self.expression.key.to_arrays([key]))[0])

    def shards_of(self, arrays: Sequence[pa.Array], hashes: Hashes) -> Shards:
        return self.expression.evaluate(arrays)

    def to_json(self) -> Json:
        return {"kind": "expression", "expression": self.expression.text}

    def describe(self) -> str:
        return f"expression {self.expression.text}"


def check_shard_count(count: object) -> int:
    """BadInput unless a data set can have this many shards."""
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= SHARDS_MAX:
        raise BadInput(f"{count!r} shards: a data set has from 1 to {SHARDS_MAX:,}")
    return count


def routing_from_fields(fields: Fields, *, key: KeySchema, shard_count: int) -> Routing:
    """What a manifest says, checked."""
    kind = fields.text("kind")
    try:
        match kind:
            case "hash":
                return HashRouting(shard_count)
            case "range":
                bounds = tuple(key.from_json_key(bound) for bound in fields.values("bounds"))
                if len(bounds) + 1 != shard_count:
                    raise CorruptRecord(fields.key, f"{len(bounds)} range bounds for {shard_count} shards")
                return RangeRouting(key, bounds)
            case "expression":
                return ExpressionRouting(Expression(fields.text("expression"), key), shard_count)
            case _:
                raise CorruptRecord(fields.key, f"routing {kind!r} is unknown")
    except (BadInput, ValueError) as error:
        raise CorruptRecord(fields.key, f"routing: {error}") from None


def _comparable(array: pa.Array) -> pa.Array:
    return array.storage.cast(pa.binary()) if isinstance(array, pa.ExtensionArray) else array
