"""Routing: one key and a column of keys go to the same shard, for every kind of key and of routing."""

from __future__ import annotations

from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.codec import Fields
from holdfast.errors import BadInput, CorruptRecord, WrongKeyType
from holdfast.kv import Expression, ExpressionRouting, HashRouting, KeyKind, RangeRouting, Routing, routing_for
from holdfast.kv.keys import Key, KeySchema
from holdfast.kv.routing import SHARDS_MAX, routing_from_fields
from tests.kv.test_keys_hash import schema_of, values_of


def shards_both_ways(routing: Routing, schema: KeySchema, keys: list[Key]) -> list[int]:
    """The shard of each key; the two ways to ask must agree."""
    arrays = schema.to_arrays(keys)
    hashes = schema.hash_arrays(arrays)
    many = routing.shards_of(arrays, hashes).tolist()
    one_by_one = [routing.shard_of(key, schema.hash_of(key)) for key in keys]
    assert many == one_by_one
    halves = [array.slice(len(keys) // 2) for array in arrays]
    assert routing.shards_of(halves, hashes[len(keys) // 2 :]).tolist() == many[len(keys) // 2 :]
    read = routing_from_fields(Fields(routing.to_json(), key="m"), key=schema, shard_count=routing.shard_count)
    assert read == routing, "what a manifest says is the same routing"
    return one_by_one


@st.composite
def schemas_and_keys(draw: st.DrawFn) -> tuple[KeySchema, list[Key]]:
    kinds = draw(st.lists(st.sampled_from(list(KeyKind)), min_size=1, max_size=3))
    if len(kinds) == 1:
        return schema_of(*kinds), draw(st.lists(values_of(kinds[0]), min_size=1, max_size=40))
    return schema_of(*kinds), draw(st.lists(st.tuples(*map(values_of, kinds)), min_size=1, max_size=40))


@given(schemas_and_keys(), st.integers(1, SHARDS_MAX))
def test_hash_routing_takes_the_signed_hash_modulo_the_shards(found: tuple[KeySchema, list[Key]], count: int) -> None:
    """K3: pmod(xxhash64(key), shards), which is what the JVM computes."""
    schema, keys = found
    shards = shards_both_ways(HashRouting(count), schema, keys)
    for key, shard in zip(keys, shards, strict=True):
        signed = int(np.uint64(schema.hash_of(key)).astype(np.int64))
        assert shard == signed % count
        assert 0 <= shard < count


@given(schemas_and_keys(), st.data())
def test_range_routing_counts_the_bounds_at_or_below_a_key(
    found: tuple[KeySchema, list[Key]], data: st.DataObject
) -> None:
    """K3: for every kind, composite keys included, neighbours share a shard and a bound is its shard's smallest key."""
    schema, keys = found
    bounds = sorted(set(data.draw(st.lists(st.sampled_from(keys), max_size=10))))
    routing = RangeRouting(schema, tuple(bounds))
    shards = shards_both_ways(routing, schema, keys)
    assert shards == [sum(bound <= key for bound in bounds) for key in keys]  # type: ignore[operator]
    assert routing.shard_count == len(bounds) + 1


def test_text_is_ordered_by_code_point_and_uuids_by_their_bytes() -> None:
    """K3: the order of ranges is the order of the canonical bytes, which every language has."""
    text = schema_of(KeyKind.TEXT)
    bounds = ("Z", "a", "é", "￿", "\U00010000")
    keys: list[Key] = ["", "Y", "Z", "ZZ", "b", "z", "ê", "￿", "\U00010000", "\U0010ffff"]
    assert shards_both_ways(RangeRouting(text, bounds), text, keys) == [0, 0, 1, 1, 2, 2, 3, 4, 5, 5]
    uuid = schema_of(KeyKind.UUID)
    half = UUID(int=1 << 127)
    assert shards_both_ways(RangeRouting(uuid, (half,)), uuid, [UUID(int=0), half, UUID(int=(1 << 128) - 1)]) == [
        0,
        1,
        1,
    ]


def test_bounds_may_be_numbers_of_numpy() -> None:
    """K3: what a quantile gives can be a bound, and the manifest can spell it."""
    schema = schema_of(KeyKind.INT64)
    routing = RangeRouting(schema, tuple(np.array([10, 20])))
    assert routing.to_json() == {"kind": "range", "bounds": [10, 20]}
    assert all(type(bound) is int for bound in routing.bounds)
    assert shards_both_ways(routing, schema, [9, 10, 20]) == [0, 1, 2]


@pytest.mark.parametrize("count", [0, -1, True, 1.0, "8", None, SHARDS_MAX + 1])
def test_a_number_of_shards_that_cannot_be_is_refused(count: object) -> None:
    """K5: from 1 to a hundred thousand, and nothing else."""
    with pytest.raises(BadInput, match="shards"):
        routing_for(schema_of(KeyKind.INT64), shards=count)  # type: ignore[arg-type]


def test_bad_bounds_are_refused() -> None:
    """K3: bounds are keys that grow."""
    schema = schema_of(KeyKind.INT64)
    for bounds in ((2, 1), (1, 1)):
        with pytest.raises(BadInput, match="must grow"):
            RangeRouting(schema, bounds)
    with pytest.raises(WrongKeyType, match="give a whole number"):
        RangeRouting(schema, ("a",))
    with pytest.raises(WrongKeyType):
        RangeRouting(schema, (1, True))
    with pytest.raises(BadInput, match="2 bounds make 3 shards, not 2"):
        routing_for(schema, shards=2, bounds=[1, 2])
    with pytest.raises(BadInput, match="not both"):
        routing_for(schema, shards=2, bounds=[1], route="k0 % 2")
    with pytest.raises(BadInput, match="bounds is a list of keys"):
        routing_for(schema_of(KeyKind.TEXT), shards=None, bounds="abc")
    assert routing_for(schema, shards=None, bounds=[]).shard_count == 1


@pytest.mark.parametrize(
    "routing",
    [
        {"kind": "other"},
        {},
        {"kind": "range", "bounds": [2, 1]},
        {"kind": "range", "bounds": ["a"]},
        {"kind": "range", "bounds": [1]},
        {"kind": "range"},
        {"kind": "range", "bounds": [1 << 70, 1 << 71]},
        {"kind": "expression", "expression": "open('x')"},
        {"kind": "expression"},
    ],
)
def test_a_manifest_with_a_damaged_routing_is_corrupt(routing: dict[str, object]) -> None:
    """K26: a routing that cannot be understood sends no key anywhere."""
    with pytest.raises(CorruptRecord):
        routing_from_fields(Fields(routing, key="m"), key=schema_of(KeyKind.INT64), shard_count=3)


@given(st.data())
def test_expression_routing_agrees_for_every_kind_of_key(data: st.DataObject) -> None:
    """K3: an expression sends one key where it sends a column."""
    kinds = data.draw(st.lists(st.sampled_from(list(KeyKind)), min_size=2, max_size=3))
    schema = schema_of(*kinds)
    keys: list[Key] = list(data.draw(st.lists(st.tuples(*map(values_of, kinds)), min_size=1, max_size=20)))
    names = ", ".join(schema.names)
    routing = ExpressionRouting(Expression(f"pmod(xxhash64({names}), 7)", schema), 7)
    assert shards_both_ways(routing, schema, keys) == shards_both_ways(HashRouting(7), schema, keys)


def test_what_a_routing_says_of_itself_is_short() -> None:
    schema = schema_of(KeyKind.INT64)
    assert HashRouting(3).describe() == "hash of the key"
    assert RangeRouting(schema, (1, 2)).describe() == "range, 2 bounds"
    assert ExpressionRouting(Expression("k0 % 4", schema), 4).describe() == "expression k0 % 4"


def test_routing_a_column_of_no_rows_gives_no_shards() -> None:
    schema = schema_of(KeyKind.TEXT, KeyKind.UUID)
    for routing in (HashRouting(3), RangeRouting(schema, (("a", UUID(int=0)),))):
        arrays = schema.to_arrays([])
        assert [array.type for array in arrays] == [pa.string(), pa.uuid()]
        assert routing.shards_of(arrays, schema.hash_arrays(arrays)).tolist() == []
