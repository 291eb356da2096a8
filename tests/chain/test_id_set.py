"""The set of collected ids behaves as a set, however it is cut into ranges."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from holdfast.chain.pointer import IdSet

ids = st.sets(st.integers(min_value=0, max_value=60))


@given(start=ids, added=ids, removed=ids)
def test_an_id_set_is_a_set(start: set[int], added: set[int], removed: set[int]) -> None:
    found = IdSet().add(start).add(added).remove(removed)
    expected = (start | added) - removed
    assert [number for number in range(62) if number in found] == sorted(expected)
    assert len(found) == len(expected)


@given(members=ids, removed=ids)
def test_the_ranges_of_an_id_set_ascend_and_do_not_touch(members: set[int], removed: set[int]) -> None:
    ranges = IdSet().add(members).remove(removed).ranges
    assert all(first <= last for first, last in ranges)
    assert all(before[1] + 1 < after[0] for before, after in pairwise(ranges))


def test_ranges_that_a_record_has_out_of_order_are_put_in_order() -> None:
    assert IdSet.from_json([[7, 9], [0, 2], [3, 4]], key="pointer") == IdSet(((0, 4), (7, 9)))
