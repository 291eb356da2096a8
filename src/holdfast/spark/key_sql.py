"""Keys and routing in Spark SQL (K3): what `holdfast.kv.keys` and `holdfast.kv.routing` compute, inside the JVM.

Columns are called by names of our own (`k0`, `k1`, …), so that nobody's column names need quoting or can collide.

    travel     how a key column goes through Spark: its own type, except that UUIDs in text become 16 bytes
    canonical  what is hashed and compared: BIGINT for numbers and dates, BINARY or STRING for the rest

A value that its kind cannot hold is no business of the JVM: it travels on as it is, and the writer of the shard refuses
it by name. So nothing here may fail or turn into null, whatever the session's ANSI mode.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql.types import (
    BinaryType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
)

from holdfast.errors import BadInput
from holdfast.kv.keys import Key, KeyColumn, KeyKind, KeySchema
from holdfast.kv.routing import ExpressionRouting, HashRouting, RangeRouting, Routing

__all__ = ["canonical_sql", "check_key_type", "hash_sql", "route_sql", "travel_sql"]

_SIGN = 1 << 63
_UUID_PATTERN = "^[0-9a-fA-F]{8}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{12}$"


def check_key_type(column: KeyColumn, found: DataType) -> None:
    """BadInput unless a Spark column can hold keys of this kind."""
    kind = column.kind
    if kind.is_integer:
        fits = isinstance(found, ByteType | ShortType | IntegerType | LongType) or (
            isinstance(found, DecimalType) and found.scale == 0
        )
    elif kind is KeyKind.DATE:
        fits = isinstance(found, DateType)
    else:
        fits = isinstance(found, StringType | BinaryType)
    if not fits:
        raise BadInput(f"key column {column.name!r} is {found.simpleString()}, not {kind}: cast it first")


def travel_sql(column: KeyColumn, name: str, found: DataType) -> str:
    """How a key column goes through Spark."""
    if column.kind is KeyKind.UUID and isinstance(found, StringType):
        # Text that is no UUID stays recognisable: one byte more than the text has, so never sixteen by chance.
        plain = f"CAST({name} AS STRING COLLATE UTF8_BINARY)"
        return (
            f"CASE WHEN {plain} RLIKE '{_UUID_PATTERN}' THEN unhex(replace({plain}, '-', '')) "
            f"ELSE CAST(concat('not a UUID: ', {plain}) AS BINARY) END"
        )
    if isinstance(found, StringType) and not found.isUTF8BinaryCollation():
        return f"CAST({name} AS STRING COLLATE UTF8_BINARY)"
    return name


def canonical_sql(column: KeyColumn, name: str, found: DataType) -> str:
    """What is hashed and compared, of a column that has travelled."""
    if column.kind.is_integer:
        if isinstance(found, DecimalType):
            wide = f"CAST({name} AS DECIMAL(38, 0))"
            return (
                f"CASE WHEN {wide} >= {_SIGN}BD THEN try_cast({wide} - {2 * _SIGN}BD AS BIGINT) "
                f"ELSE try_cast({wide} AS BIGINT) END"
            )
        return f"CAST({name} AS BIGINT)"
    if column.kind is KeyKind.DATE:
        return f"CAST(unix_date({name}) AS BIGINT)"
    return name


def hash_sql(canonical: Sequence[str]) -> str:
    """The hash of a key, as a BIGINT. A null part leaves it as it was: such rows are counted later."""
    return f"xxhash64({', '.join(canonical)})"


def route_sql(routing: Routing, key: KeySchema, canonical: Sequence[str], hashed: str) -> str:
    """The shard of a row as an INT from 0 up to the number of shards.

    What an expression gives outside of that wraps around here; the writer of the shard sees it and refuses the row.
    """
    match routing:
        case HashRouting(shard_count=count):
            return f"CAST(pmod({hashed}, {count}L) AS INT)"
        case RangeRouting(bounds=bounds):
            return _range_sql(key, canonical, bounds, 0)
        case ExpressionRouting(expression=expression, shard_count=count):
            number = expression.to_sql(dict(zip(key.names, canonical, strict=True)))
            return f"CAST(pmod({number}, {count}L) AS INT)"
        case _:
            raise BadInput(f"routing by {routing.describe()} has no spelling in Spark SQL")


def _range_sql(key: KeySchema, canonical: Sequence[str], bounds: Sequence[Key], below: int) -> str:
    """A balanced tree of comparisons: a row takes as many as the logarithm of the number of bounds."""
    if not bounds:
        return str(below)
    middle = len(bounds) // 2
    left = _range_sql(key, canonical, bounds[:middle], below)
    right = _range_sql(key, canonical, bounds[middle + 1 :], below + middle + 1)
    return f"CASE WHEN {_at_or_above(key, canonical, bounds[middle])} THEN {right} ELSE {left} END"


def _at_or_above(key: KeySchema, canonical: Sequence[str], bound: Key) -> str:
    """Compares from the last part to the first: above here, or equal here and at or above after it."""
    condition = ""
    for column, name, part in reversed(list(zip(key.columns, canonical, key.encode(bound), strict=True))):
        compared, literal = _comparable(column, name, part)
        rest = f"({compared} = {literal} AND {condition})" if condition else f"{compared} = {literal}"
        condition = f"({compared} > {literal} OR {rest})" if condition else f"{compared} >= {literal}"
    return condition


def _comparable(column: KeyColumn, canonical: str, part: bytes) -> tuple[str, str]:
    """A column and a bound's canonical bytes in a form whose order is the key's."""
    if column.kind.is_integer or column.kind is KeyKind.DATE:
        number = int.from_bytes(part, "little", signed=True)
        if column.kind is KeyKind.UINT64:  # as a signed number with its top bit turned over, it sorts as unsigned
            return f"({canonical} ^ {_bigint(-_SIGN)})", _bigint(number + _SIGN if number < 0 else number - _SIGN)
        return canonical, _bigint(number)
    return f"CAST({canonical} AS BINARY)", f"X'{part.hex()}'"


def _bigint(number: int) -> str:
    return f"CAST('{number}' AS BIGINT)"
