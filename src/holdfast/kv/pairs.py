"""Pairs of key and value, as a Python program has them, made into Arrow batches of a bounded size (K1, K2)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime
from itertools import chain
from uuid import UUID

import orjson
import pyarrow as pa

from holdfast.errors import BadInput, BadRows
from holdfast.kv.dataset import ValueKind
from holdfast.kv.keys import Key

__all__ = ["pairs_to_batches"]

_CHUNK_ROWS = 50_000
_CHUNK_BYTES = 64 << 20
_KEY_TYPES: Mapping[type, pa.DataType] = {
    int: pa.int64(),
    str: pa.string(),
    bytes: pa.binary(),
    UUID: pa.uuid(),
    date: pa.date32(),
}

Pair = tuple[Key, object]


def pairs_to_batches(
    pairs: Iterable[Pair], *, key_names: Sequence[str], value: ValueKind | None, schema: pa.Schema | None
) -> tuple[ValueKind, pa.RecordBatchReader]:
    """The kind of the values, and the rows. Types are taken from the first chunk unless a schema is given."""
    chunks = _chunks(pairs)
    first = next(chunks, [])
    if not first and schema is None:
        raise BadInput("no rows: give at least one pair of key and value, or a schema")
    kind = value or (ValueKind.BINARY if first and isinstance(first[0][1], bytes) else ValueKind.ROW)
    names = list(key_names)
    given = names if schema is None else schema.names
    missing = [name for name in names if name not in given]
    if missing:
        raise BadInput(f"the schema has no column {missing[0]!r} for the key; it has {', '.join(given)}")
    head = _batch(first, names, kind, schema)
    rest = (_batch(chunk, names, kind, head.schema) for chunk in chunks)
    return kind, pa.RecordBatchReader.from_batches(head.schema, chain([head], rest))


def _chunks(pairs: Iterable[object]) -> Iterator[list[Pair]]:
    """Rows by the ten thousands, fewer if they are large: what a value weighs is known where it is bytes or text."""
    chunk: list[Pair] = []
    held = 0
    for pair in pairs:
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise BadInput(f"rows are pairs of key and value, not {pair!r:.80}")
        chunk.append(pair)
        values = pair[1].values() if isinstance(pair[1], Mapping) else (pair[1],)
        held += sum(len(value) for value in values if isinstance(value, bytes | str))
        if len(chunk) >= _CHUNK_ROWS or held >= _CHUNK_BYTES:
            yield chunk
            chunk, held = [], 0
    if chunk:
        yield chunk


def _batch(pairs: Sequence[Pair], names: list[str], kind: ValueKind, schema: pa.Schema | None) -> pa.RecordBatch:
    keys = [key if isinstance(key, tuple) else (key,) for key, _ in pairs]
    wrong = next((key for key in keys if len(key) != len(names)), None)
    if wrong is not None:
        raise BadInput(f"a key has {len(names)} part(s), {', '.join(names)}, unlike {wrong!r:.80}")
    columns: dict[str, pa.Array] = {}
    for index, name in enumerate(names):
        columns[name] = _key_array(name, [key[index] for key in keys], schema)
    for name, values in _values(pairs, names, kind, schema).items():
        columns[name] = _array(name, values, None if schema is None else schema.field(name).type)
    if schema is None:
        return pa.RecordBatch.from_pydict(columns)
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)


def _key_array(name: str, values: list[object], schema: pa.Schema | None) -> pa.Array:
    """Arrow would take True for 1, text for bytes and a time for its day; here one column has keys of one type."""
    types = {type(value) for value in values} - {type(None)}
    families = {family for family in _KEY_TYPES if any(issubclass(found, family) for found in types)}
    if len(families) > 1 or any(issubclass(found, bool | datetime) for found in types):
        shown = ", ".join(sorted(found.__name__ for found in types))
        raise BadRows(f"nothing was published: keys of different types in {name!r} ({shown}); use one of them")
    kind = None if schema is None else schema.field(name).type
    if kind is None and families == {int} and any(isinstance(value, int) and value >= 1 << 63 for value in values):
        kind = pa.uint64()
    elif kind is None and families:
        kind = _KEY_TYPES[families.pop()]
    return _array(name, values, kind)


def _values(
    pairs: Sequence[Pair], names: list[str], kind: ValueKind, schema: pa.Schema | None
) -> dict[str, list[object]]:
    if kind is ValueKind.ROW:
        rows = [_row(value) for _, value in pairs]
        found = dict.fromkeys(chain.from_iterable(rows))
        expected = found if schema is None else [name for name in schema.names if name not in names]
        extra = [name for name in found if name not in expected or name in names]
        if extra:
            raise BadRows(f"nothing was published: a row has a column {extra[0]!r}, which others have not or is a key")
        return {name: [row.get(name) for row in rows] for name in expected}
    others = ["value"] if schema is None else [name for name in schema.names if name not in names]
    if len(others) != 1:
        raise BadInput(f"value {kind.value!r} needs one column beside the key, the schema has {', '.join(others)}")
    return {others[0]: [_bytes(value) if kind is ValueKind.BINARY else _json(value) for _, value in pairs]}


def _bytes(value: object) -> object:
    if value is not None and not isinstance(value, bytes | bytearray | memoryview):
        raise BadRows(f"nothing was published: a value is {type(value).__name__}, not bytes; encode it first")
    return value


def _json(value: object) -> str:
    try:
        return orjson.dumps(value).decode()
    except TypeError as error:
        raise BadRows(f"nothing was published: {value!r:.80} cannot be spelled in JSON ({error})") from None


def _row(value: object) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise BadInput(f"a value is bytes, or a dict of columns, not {type(value).__name__}; or say value='json'")
    return value


def _array(name: str, values: list[object], kind: pa.DataType | None) -> pa.Array:
    try:
        found = pa.array(values, kind)
    except (pa.ArrowException, OverflowError, UnicodeEncodeError, TypeError, ValueError) as error:
        raise BadRows(
            f"nothing was published: column {name!r} has values of different types, or too large ones ({error}); "
            "give a schema"
        ) from None
    if isinstance(found, pa.ChunkedArray):
        raise BadRows(f"nothing was published: the values of column {name!r} are larger than two gigabytes together")
    return found
