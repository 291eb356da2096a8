"""Keys: what each kind accepts, and that one key and a column of keys have the same hash."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date, datetime
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import BadInput, WrongKeyType
from holdfast.kv import KeyColumn, KeyKind, KeySchema
from holdfast.kv.keys import KEY_BYTES_MAX, KeyPart
from holdfast.xxh64 import SEED, hash_fixed_width, hash_variable_width

RANGES = {kind: (int(np.iinfo(kind.value).min), int(np.iinfo(kind.value).max)) for kind in KeyKind if kind.is_integer}


def values_of(kind: KeyKind) -> st.SearchStrategy[KeyPart]:
    """Any value that a key part of this kind can have."""
    if kind.is_integer:
        return st.integers(*RANGES[kind])
    others: dict[KeyKind, st.SearchStrategy[Any]] = {
        KeyKind.TEXT: st.text(st.characters(exclude_categories=["Cs"]), max_size=80),
        KeyKind.BYTES: st.binary(max_size=200),
        KeyKind.UUID: st.uuids(),
        KeyKind.DATE: st.dates(),
    }
    return others[kind]


def schema_of(*kinds: KeyKind) -> KeySchema:
    return KeySchema(columns=tuple(KeyColumn(name=f"k{n}", kind=kind) for n, kind in enumerate(kinds)))


def chained(parts: Sequence[bytes]) -> int:
    """What the format's text says a hash is, by the reference implementation."""
    hashed = SEED
    for part in parts:
        hashed = xxhash.xxh64_intdigest(part, hashed)
    return hashed


def test_the_vectorised_hash_is_xxh64_for_every_length() -> None:
    """K3: the hash of a column is the hash that Spark computes, whatever the length of the values."""
    random = np.random.default_rng(0)
    for length in range(201):
        raw = random.integers(0, 256, (7, length), np.uint8)
        seeds = random.integers(0, 1 << 64, 7, np.uint64)
        expected = [xxhash.xxh64_intdigest(row.tobytes(), SEED) for row in raw]
        seeded = [xxhash.xxh64_intdigest(row.tobytes(), int(seed)) for row, seed in zip(raw, seeds, strict=True)]
        offsets = np.arange(8) * length
        assert hash_variable_width(raw.ravel(), offsets).tolist() == expected
        assert hash_variable_width(raw.ravel(), offsets, seeds).tolist() == seeded
        if length:
            fixed = raw.view(f"V{length}").ravel()
            assert hash_fixed_width(fixed).tolist() == expected
            assert hash_fixed_width(fixed, seeds).tolist() == seeded


@pytest.mark.parametrize("count", [0, 1, 4095, 4096, 5000, 70_000])
def test_the_hash_of_many_values_of_mixed_lengths_is_that_of_each(count: int) -> None:
    """K3: beyond a few thousand rows, values are hashed by length; the answer stays the same."""
    random = np.random.default_rng(count)
    lengths = random.integers(0, 70, count)
    offsets = np.concatenate(([3], 3 + np.cumsum(lengths))).astype(np.int64)
    data = random.integers(0, 256, int(offsets[-1]) + 5, np.uint8)
    found = hash_variable_width(data, offsets)
    whole = data.tobytes()
    assert found.tolist() == [
        xxhash.xxh64_intdigest(whole[start : start + length], SEED)
        for start, length in zip(offsets[:-1].tolist(), lengths.tolist(), strict=True)
    ]


@pytest.mark.parametrize("kind", list(KeyKind))
@given(data=st.data())
def test_one_key_and_a_column_of_keys_have_the_same_hash(kind: KeyKind, data: st.DataObject) -> None:
    """K3: the reader hashes one key, the build a column: for every kind, also in a slice of a larger column."""
    keys = data.draw(st.lists(values_of(kind), min_size=1, max_size=30))
    schema = schema_of(kind)
    arrays = schema.to_arrays(keys)
    one_by_one = [schema.hash_of(key) for key in keys]
    assert schema.hash_arrays(arrays).tolist() == one_by_one
    assert one_by_one == [chained(schema.encode(key)) for key in keys]
    cut = data.draw(st.integers(0, len(keys)))
    assert schema.hash_arrays([arrays[0].slice(cut)]).tolist() == one_by_one[cut:]
    assert arrays[0].type == kind.arrow_type
    assert arrays[0].to_pylist() == keys


@given(data=st.data())
def test_a_composite_key_chains_the_hashes_of_its_parts(data: st.DataObject) -> None:
    """K3: a part's hash is the seed of the next, as in xxhash64(a, b, …)."""
    kinds = data.draw(st.lists(st.sampled_from(list(KeyKind)), min_size=2, max_size=4))
    schema = schema_of(*kinds)
    keys = data.draw(st.lists(st.tuples(*map(values_of, kinds)), min_size=1, max_size=20))
    expected = [chained(schema.encode(key)) for key in keys]
    assert [schema.hash_of(key) for key in keys] == expected
    assert schema.hash_arrays(schema.to_arrays(keys)).tolist() == expected


@given(data=st.data())
def test_a_whole_number_has_one_hash_whatever_its_width(data: st.DataObject) -> None:
    """K2: int8 7 and int64 7 are the same key, so a column may become wider."""
    number = data.draw(st.integers(0, 127))
    assert len({schema_of(kind).hash_of(number) for kind in RANGES}) == 1


@given(data=st.data())
def test_a_key_survives_its_spelling_in_json(data: st.DataObject) -> None:
    """K8: manifests carry keys of every kind, and give them back."""
    kinds = data.draw(st.lists(st.sampled_from(list(KeyKind)), min_size=1, max_size=3))
    schema = schema_of(*kinds)
    parts = data.draw(st.tuples(*map(values_of, kinds)))
    key = parts if len(kinds) > 1 else parts[0]
    assert schema.from_json_key(schema.to_json_key(key)) == key
    assert schema.plain(key) == key


@pytest.mark.parametrize("kind", list(RANGES))
def test_numbers_at_the_ends_of_their_range_are_keys_and_beyond_it_are_not(kind: KeyKind) -> None:
    """K2, K26: negative and large integers are keys like all others."""
    low, high = RANGES[kind]
    schema = schema_of(kind)
    assert schema.hash_arrays(schema.to_arrays([low, high])).tolist() == [schema.hash_of(low), schema.hash_of(high)]
    for outside in (low - 1, high + 1):
        with pytest.raises(WrongKeyType, match=f"{outside} is outside {kind}"):
            schema.hash_of(outside)
        with pytest.raises(WrongKeyType, match=f"{outside} is outside {kind}"):
            schema.to_arrays([low, outside])


@pytest.mark.parametrize("kind", list(RANGES))
def test_the_numbers_of_numpy_are_keys(kind: KeyKind) -> None:
    """K2: a key that comes from an array is the number that it shows."""
    schema = schema_of(kind)
    for dtype in (np.int8, np.uint8, np.int64, np.uint64):
        assert schema.hash_of(dtype(7)) == schema.hash_of(7)
        assert schema.to_arrays([dtype(7), 8])[0].to_pylist() == [7, 8]
    assert schema.plain(np.int64(7)) == 7  # type: ignore[arg-type]
    assert type(schema.plain(np.int64(7))) is int  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "kind,wrong",
    [
        (KeyKind.INT64, True),
        (KeyKind.INT64, np.True_),
        (KeyKind.INT64, 1.0),
        (KeyKind.INT64, "1"),
        (KeyKind.INT64, None),
        (KeyKind.UINT8, True),
        (KeyKind.TEXT, b"a"),
        (KeyKind.TEXT, 1),
        (KeyKind.TEXT, "\ud800"),
        (KeyKind.TEXT, "a\udfff"),
        (KeyKind.BYTES, "a"),
        (KeyKind.BYTES, bytearray(b"a")),
        (KeyKind.BYTES, memoryview(b"a")),
        (KeyKind.UUID, "12345678-1234-5678-1234-567812345678"),
        (KeyKind.UUID, b"0123456789abcdef"),
        (KeyKind.DATE, datetime(2026, 11, 15)),  # noqa: DTZ001
        (KeyKind.DATE, "2026-11-15"),
        (KeyKind.DATE, 20000),
    ],
)
def test_a_key_of_another_type_is_refused_by_name(kind: KeyKind, wrong: object) -> None:
    """K18: a wrong key is an error that says what the key should be, never a miss."""
    schema = schema_of(kind)
    with pytest.raises(WrongKeyType, match="key column 'k0'"):
        schema.hash_of(wrong)
    with pytest.raises(WrongKeyType, match="key column 'k0'"):
        schema.to_arrays([wrong])
    with pytest.raises(WrongKeyType, match="key column 'k1'"):
        schema_of(KeyKind.INT8, kind).hash_of((1, wrong))


@pytest.mark.parametrize("wrong", [1, (1,), (1, "a", 2), [1, "a"], "1a", None])
def test_a_composite_key_is_a_tuple_of_as_many_parts(wrong: object) -> None:
    """K18: half a composite key is no key."""
    schema = schema_of(KeyKind.INT64, KeyKind.TEXT)
    for ask in (schema.hash_of, schema.encode, lambda key: schema.to_arrays([key])):
        with pytest.raises(WrongKeyType, match="a key is a tuple of"):
            ask(wrong)


@pytest.mark.parametrize(
    "found,kind",
    [
        (pa.int8(), "int8"),
        (pa.uint64(), "uint64"),
        (pa.string(), "text"),
        (pa.large_string(), "text"),
        (pa.string_view(), "text"),
        (pa.binary(), "bytes"),
        (pa.large_binary(), "bytes"),
        (pa.binary_view(), "bytes"),
        (pa.binary(16), "bytes"),
        (pa.uuid(), "uuid"),
        (pa.date32(), "date"),
        (pa.dictionary(pa.int32(), pa.string()), "text"),
        (pa.dictionary(pa.int8(), pa.int64()), "int64"),
    ],
)
def test_the_kind_of_a_key_follows_from_its_arrow_type(found: pa.DataType, kind: str) -> None:
    """K2: every type that can be a key is one without being asked."""
    assert KeySchema.from_arrow(pa.schema([("k", found)]), ["k"]).columns[0].kind == kind


@pytest.mark.parametrize(
    "found",
    [
        pa.float64(),
        pa.bool_(),
        pa.timestamp("us"),
        pa.date64(),
        pa.decimal128(10, 0),
        pa.null(),
        pa.list_(pa.int64()),
        pa.struct([("a", pa.int64())]),
        pa.dictionary(pa.int8(), pa.float64()),
    ],
)
def test_a_type_that_cannot_be_a_key_is_refused_with_what_can(found: pa.DataType) -> None:
    """K2: the error says which types keys have."""
    with pytest.raises(BadInput, match="cannot be a key; keys are whole numbers, text, bytes, UUIDs, dates"):
        KeySchema.from_arrow(pa.schema([("k", found)]), ["k"])


@pytest.mark.parametrize(
    "found,kind",
    [
        (pa.string(), "int64"),
        (pa.string(), "date"),
        (pa.float64(), "int64"),
        (pa.bool_(), "int64"),
        (pa.int64(), "text"),
        (pa.decimal128(10, 2), "int64"),
        (pa.timestamp("us"), "date"),
        (pa.int64(), "uuid"),
        (pa.uuid(), "text"),
    ],
)
def test_a_stated_kind_never_makes_another_value_of_a_key(found: pa.DataType, kind: str) -> None:
    """K2: the text "7" does not become the number 7 behind anybody's back."""
    with pytest.raises(BadInput, match="cast it first"):
        KeySchema.from_arrow(pa.schema([("k", found)]), ["k"], {"k": kind})


def test_bad_key_columns_are_named() -> None:
    """K2: each mistake in naming key columns has its own words."""
    schema = pa.schema([("a", pa.int64()), ("b", pa.int64())])
    with pytest.raises(BadInput, match="no column 'c' for the key; there are a, b"):
        KeySchema.from_arrow(schema, ["c"])
    with pytest.raises(BadInput, match="named twice"):
        KeySchema.from_arrow(schema, ["a", "a"])
    with pytest.raises(BadInput, match="at least one column"):
        KeySchema.from_arrow(schema, [])
    with pytest.raises(BadInput, match="'huge' is no kind of key"):
        KeySchema.from_arrow(schema, ["a"], {"a": "huge"})


@given(st.lists(st.uuids(), min_size=1, max_size=20), st.data())
def test_uuids_in_text_or_bytes_are_the_same_keys(keys: list[UUID], data: st.DataObject) -> None:
    """K2: a UUID is one key, in text with or without hyphens, in capitals or not, in 16 bytes, or as Arrow's own."""
    column = KeyColumn(name="k", kind=KeyKind.UUID)
    spellings: list[Callable[[UUID], str]] = [str, lambda key: key.hex, lambda key: str(key).upper()]
    spell = spellings[data.draw(st.integers(0, 2))]
    expected = column.canonical(pa.array([key.bytes for key in keys], pa.binary(16)))
    assert expected.to_pylist() == keys
    for text_type in (pa.string(), pa.large_string()):
        assert column.canonical(pa.array([spell(key) for key in keys], text_type)).equals(expected)
    assert column.canonical(pa.array([key.bytes for key in keys], pa.binary())).equals(expected)
    assert column.canonical(pa.array(["x", *map(str, keys)]).slice(1)).equals(expected)


@pytest.mark.parametrize("wrong", ["", "12345678", "g" * 32, "12345678-1234-5678-1234-567812345678\n", b"123", b""])
def test_text_or_bytes_that_are_no_uuid_are_shown(wrong: str | bytes) -> None:
    """K2: a value that its kind cannot hold is refused by name."""
    column = KeyColumn(name="k", kind=KeyKind.UUID)
    with pytest.raises(WrongKeyType, match=r"key column 'k' is uuid: .* is no UUID"):
        column.canonical(pa.array([wrong]))


def test_dates_that_python_cannot_tell_are_refused() -> None:
    """K2: a date key can be given by a program, so it lies in the years 1 to 9999."""
    column = KeyColumn(name="k", kind=KeyKind.DATE)
    ends = [date.min, date.max]
    assert column.canonical(pa.array(ends)).to_pylist() == ends
    days = [(end - date(1970, 1, 1)).days for end in ends]
    for outside in (days[0] - 1, days[1] + 1):
        with pytest.raises(WrongKeyType, match="outside the years 1 to 9999"):
            column.canonical(pa.array([outside], pa.int32()).view(pa.date32()))


def test_long_keys_are_hashed_in_little_memory() -> None:
    """K4: values of one length are hashed together, but not more of them than fit."""
    data = np.arange(6000 * KEY_BYTES_MAX, dtype=np.uint8)
    offsets = np.arange(6001) * KEY_BYTES_MAX
    found = hash_variable_width(data, offsets)
    assert found[0] == found[5999] == xxhash.xxh64_intdigest(data[:KEY_BYTES_MAX].tobytes(), SEED)
