"""The little language of routing expressions: what it means, and everything that it is not."""

from __future__ import annotations

from datetime import date

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import BadInput
from holdfast.kv import Expression, KeyKind
from holdfast.kv.keys import Key
from tests.kv.test_keys_hash import schema_of, values_of

NUMBERS = schema_of(KeyKind.INT64, KeyKind.INT32)
MIXED = schema_of(KeyKind.INT64, KeyKind.TEXT, KeyKind.DATE, KeyKind.UINT64)


def value_of(text: str, key: tuple[object, ...]) -> int:
    schema = NUMBERS if len(key) == 2 else MIXED
    return int(Expression(text, schema).evaluate(schema.to_arrays([key]))[0])


@st.composite
def sums(draw: st.DrawFn, depth: int = 3) -> str:
    """Expressions that mean the same in Python, as long as no number leaves 64 bits."""
    if depth == 0 or draw(st.booleans()):
        return draw(st.sampled_from(["k0", "k1", "0", "1", "17", "1000"]))
    left, right = draw(sums(depth - 1)), draw(sums(depth - 1))
    divisor = draw(st.integers(1, 99))
    return draw(
        st.sampled_from(
            [
                f"({left} + {right})",
                f"({left} - {right})",
                f"({left} * {divisor})",
                f"({left} % {divisor})",
                f"({left} // {divisor})",
                f"(-{left})",
                f"pmod({left}, {divisor})",
                f"abs({left})",
                f"least({left}, {right})",
                f"greatest({left}, {right}, 3)",
            ]
        )
    )


@given(sums(), st.integers(-(10**6), 10**6), st.integers(-(10**6), 10**6))
def test_arithmetic_means_what_it_means_in_python(text: str, first: int, second: int) -> None:
    """K3: `%` and `//` round towards minus infinity; the SQL is made to say the same."""
    names = {"pmod": lambda a, b: a % b, "abs": abs, "least": min, "greatest": max}
    expected = eval(text, {"__builtins__": {}}, {**names, "k0": first, "k1": second})  # noqa: S307  made above
    assert value_of(text, (first, second)) == expected


@given(st.tuples(*map(values_of, [KeyKind.INT64, KeyKind.TEXT, KeyKind.DATE, KeyKind.UINT64])))
def test_columns_of_every_kind_can_be_used(key: tuple[object, ...]) -> None:
    """K3: lengths are in bytes, dates are days, unsigned numbers are taken as signed ones, hashes as Spark's."""
    day = key[2]
    assert isinstance(day, date)
    assert value_of("length(k1)", key) == len(str(key[1]).encode())
    assert value_of("k2", key) == (day - date(1970, 1, 1)).days
    assert value_of("k3", key) == int(np.array([key[3]], np.uint64).view(np.int64)[0])
    assert value_of("xxhash64(k1)", key) == int(np.uint64(schema_of(KeyKind.TEXT).hash_of(key[1])).astype(np.int64))
    both = schema_of(KeyKind.TEXT, KeyKind.TEXT).hash_of((key[1], key[1]))
    assert value_of("xxhash64(k1, k1)", key) == int(np.uint64(both).astype(np.int64))


def test_numbers_wrap_around_at_64_bits() -> None:
    """K3: as they do in the arithmetic of every processor; no row stops a build."""
    largest: tuple[Key, ...] = ((1 << 63) - 1, 0)
    assert value_of("k0 + 1", largest) == -(1 << 63)
    assert value_of("k0 * 2", largest) == -2


def test_a_constant_sends_every_key_to_one_shard() -> None:
    schema = schema_of(KeyKind.TEXT)
    assert Expression("3", schema).evaluate(schema.to_arrays(["a", "b"])).tolist() == [3, 3]
    assert Expression("least(3, 4)", schema).evaluate(schema.to_arrays([])).tolist() == []


@pytest.mark.parametrize(
    "text,why",
    [
        ("", "cannot be read"),
        ("k0 +", "cannot be read"),
        ("k0\n+ 1 2", "cannot be read"),
        ("k0 \x00", "cannot be read"),
        ("(" * 500 + "k0" + ")" * 500, "cannot be read"),
        (" + ".join(["k0"] * 200), "too long"),
        ("k9 % 4", "'k9' is no key column"),
        ("k1 % 4", "put it into xxhash64"),
        ("k0 / 2", "is not allowed"),
        ("k0 ** 2", "is not allowed"),
        ("k0 & 3", "is not allowed"),
        ("k0 if k0 else 1", "is not allowed"),
        ("k0 < 3", "is not allowed"),
        ("not k0", "is not allowed"),
        ("1.5", "is not allowed"),
        ("True", "is not allowed"),
        ("'a'", "is not allowed"),
        ("9223372036854775808", "is not allowed"),
        ("[k0]", "is not allowed"),
        ("k0.real", "is not allowed"),
        ("k0[0]", "is not allowed"),
        ("(lambda: 1)()", "is not allowed"),
        ("__import__('os')", "is not allowed"),
        ("open(k0)", "is not allowed"),
        ("pmod(k0, n=4)", "is not allowed"),
        ("pmod(*k0)", "takes 2 argument"),
        ("k0 % 0", "must be a number above 0"),
        ("k0 % -4", "must be a number above 0"),
        ("k0 // k0", "must be a number above 0"),
        ("pmod(k0, 0)", "must be a number above 0"),
        ("pmod(k0)", "pmod takes 2 arguments, not 1"),
        ("abs(k0, k0)", "abs takes 1 argument, not 2"),
        ("xxhash64()", "xxhash64 takes 1 argument, not 0"),
        ("xxhash64(k0 + 1)", "xxhash64 takes key columns"),
        ("length(k0)", "has no length"),
        ("length('a')", "length takes key columns"),
    ],
)
def test_what_is_not_in_the_language_is_refused_with_what_is(text: str, why: str) -> None:
    """K3: an expression comes from a manifest too; nothing but arithmetic is ever carried out."""
    with pytest.raises(BadInput, match=why) as caught:
        Expression(text, MIXED)
    assert "use whole numbers, the key columns (k0, k1, k2, k3)" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", [None, 5, b"k0"])
def test_an_expression_is_text(text: object) -> None:
    with pytest.raises(BadInput, match="a routing expression is text"):
        Expression(text, MIXED)  # type: ignore[arg-type]
