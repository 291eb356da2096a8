"""What a table can have for columns: names that every engine tells apart, and types that come back as they were."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from holdfast.errors import BadInput, BadRows

__all__ = ["as_stored", "table_schema"]

_PLAIN = (
    pa.types.is_boolean,
    pa.types.is_float32,
    pa.types.is_float64,
    pa.types.is_decimal128,
    pa.types.is_string,
    pa.types.is_binary,
    pa.types.is_date32,
)
_SPELLED_PLAINLY = (
    (pa.types.is_large_string, pa.string()),
    (pa.types.is_string_view, pa.string()),
    (pa.types.is_large_binary, pa.binary()),
    (pa.types.is_binary_view, pa.binary()),
)
_ADVICE = "cast it to a plain type, such as text, or drop it"


def table_schema(schema: pa.Schema) -> pa.Schema:
    """The columns as files store them; BadInput for those that could not be read back as they are."""
    if not len(schema):
        raise BadInput("rows without columns make no table; select at least one")
    _check_names(schema, "column")
    return pa.schema([pa.field(one.name, _stored(one.name, one.type), one.nullable) for one in schema])


def as_stored(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A batch in the types of a table, column by column. BadRows for nulls where there can be none."""
    arrays = []
    for array, column in zip(batch.columns, schema, strict=True):
        if array.null_count and not column.nullable:
            raise BadRows(
                f"nothing was published: column {column.name!r} is declared to have no nulls, "
                f"and has {array.null_count:,}"
            )
        arrays.append(array if array.type == column.type else array.cast(column.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _check_names(fields: Iterable[pa.Field], what: str) -> None:
    seen: dict[str, str] = {}
    for one in fields:
        if not one.name:
            raise BadInput(f"a {what} has no name; give it one")
        before = seen.get(one.name.lower())
        seen[one.name.lower()] = one.name
        if before is None:
            continue
        if before == one.name:
            raise BadInput(f"{what} {one.name!r} is there twice; rename one")
        raise BadInput(
            f"the names of {what}s {before!r} and {one.name!r} differ only in case, and SQL takes them for one; "
            "rename one"
        )


def _stored(name: str, kind: pa.DataType) -> pa.DataType:
    for is_that, plain in _SPELLED_PLAINLY:
        if is_that(kind):
            return plain
    if any(is_plain(kind) for is_plain in _PLAIN) or pa.types.is_signed_integer(kind):
        return kind
    if pa.types.is_dictionary(kind):
        return _stored(name, kind.value_type)
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", None if kind.tz is None else "UTC")
    if pa.types.is_duration(kind):
        return pa.duration("us")
    if pa.types.is_struct(kind):
        members = [kind.field(index) for index in range(kind.num_fields)]
        if not members or any(member.metadata for member in members):
            raise BadInput(f"column {name!r} is {kind}, which tables do not store; {_ADVICE}")
        _check_names(members, f"field of {name!r}")
        return pa.struct([_field(name, member) for member in members])
    if pa.types.is_map(kind):
        return pa.map_(_stored(name, kind.key_type), _field(name, kind.item_field))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(_field(name, kind.value_field))
    raise BadInput(f"column {name!r} is {kind}, which tables do not store; {_ADVICE}")


def _field(name: str, member: pa.Field) -> pa.Field:
    return pa.field(member.name, _stored(name, member.type), member.nullable)
