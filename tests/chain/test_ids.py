"""Manifest ids and commit ULIDs only grow, and their text order is their order."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.chain.ids import MANIFEST_ID_DIGITS, format_manifest_id, is_ulid, next_ulid, parse_manifest_id
from holdfast.testing.clock import SeededRandomness, VirtualClock
from tests.chain.publishing import ChainFactory, publish_one

ids = st.integers(min_value=0, max_value=10**MANIFEST_ID_DIGITS - 1)
moments = st.datetimes(
    min_value=datetime(1970, 1, 2),  # noqa: DTZ001 - Hypothesis adds the zone
    max_value=datetime(9000, 1, 1),  # noqa: DTZ001
    timezones=st.just(UTC),
)


class FixedBits:
    """Always the same bits, as large as they can be or as small: the worst that randomness can do."""

    def __init__(self, *, ones: bool) -> None:
        self._ones = ones

    def bits(self, count: int) -> int:
        return (1 << count) - 1 if self._ones else 0


@given(ids)
@example(0)
@example(10**20 - 1)
def test_a_manifest_id_is_twenty_digits_and_reads_back(number: int) -> None:
    """S1: an id is a 20-digit zero-padded decimal, and its text means it and nothing else."""
    text = format_manifest_id(number)
    assert len(text) == 20
    assert set(text) <= set("0123456789")
    assert parse_manifest_id(text) == number


@given(ids, ids)
def test_text_order_of_manifest_ids_is_numeric_order(one: int, other: int) -> None:
    """S1: sorting keys as text sorts snapshots by age."""
    assert (format_manifest_id(one) < format_manifest_id(other)) == (one < other)


@pytest.mark.parametrize("number", [-1, 10**20])
def test_an_id_that_does_not_fit_is_refused(number: int) -> None:
    """S1: an id of another length would break the order, so there is none."""
    with pytest.raises(ValueError, match="out of range"):
        format_manifest_id(number)


@given(st.text(max_size=24) | st.from_regex(r"[0-9]{1,24}", fullmatch=True))
@example("0" * 19)
@example("0" * 21)
@example("-" + "0" * 19)
@example("+" + "0" * 19)
@example("0_0" + "0" * 17)
@example(" " + "0" * 19)
@example("٠" * 20)
@example("²" * 20)
def test_only_the_one_spelling_is_a_manifest_id(text: str) -> None:
    """S1: whatever reads as an id is spelled exactly as it would be written."""
    try:
        number = parse_manifest_id(text)
    except ValueError:
        return
    assert format_manifest_id(number) == text


def test_published_ids_grow_by_one_from_the_first(chain_factory: ChainFactory) -> None:
    """S1: ids of a chain are strictly monotonic, whoever publishes."""
    first = chain_factory.layout.first_id
    published = [publish_one(chain_factory(by=f"w{turn}")).manifest.manifest_id for turn in range(5)]
    assert published == [first, first + 1, first + 2, first + 3, first + 4]


@given(st.lists(moments, min_size=2, max_size=20), st.integers(min_value=0))
def test_ulids_grow_wherever_the_clock_jumps(times: list[datetime], seed: int) -> None:
    """S18: each ULID is greater than the one before, with a clock that jumps anywhere."""
    clock, randomness = VirtualClock(), SeededRandomness(seed)
    previous: str | None = None
    for moment in times:
        clock.set(moment)
        ulid = next_ulid(clock, randomness, after=previous)
        assert is_ulid(ulid)
        assert previous is None or ulid > previous
        previous = ulid


@given(moments, st.integers(min_value=1, max_value=10**6), st.booleans(), st.booleans())
def test_a_ulid_is_the_greater_of_new_and_previous_plus_one(
    moment: datetime, back_s: int, high_first: bool, high_then: bool
) -> None:
    """S18: max(new, previous + 1) plus a random step: a clock that went back continues from the previous one."""
    clock = VirtualClock(moment)
    previous = next_ulid(clock, FixedBits(ones=high_first), after=None)
    clock.advance(-min(back_s, moment.timestamp()))
    behind = next_ulid(clock, FixedBits(ones=high_then), after=previous)
    assert behind > previous
    new = _number(next_ulid(clock, FixedBits(ones=high_then), after=None))
    step = 2**64 - 1 if high_then else 0
    assert _number(behind) == (new if new > _number(previous) else _number(previous) + 1 + step)
    clock.set(moment)
    clock.advance(back_s)
    ahead = next_ulid(clock, FixedBits(ones=high_then), after=previous)
    assert ahead == next_ulid(clock, FixedBits(ones=high_then), after=None)


def test_commits_of_a_chain_have_growing_ulids_while_the_clock_goes_back(chain_factory: ChainFactory) -> None:
    """S18: per chain, through real publishes and a rollback, with every clock further behind."""
    chain = chain_factory()
    ulids = []
    for _ in range(4):
        ulids.append(publish_one(chain).commit_ulid)
        chain_factory.clock.advance(-86400)
    chain.rollback()
    seen = chain.handle.read_pointer()
    assert seen is not None
    ulids += [seen.pointer.commit_ulid, publish_one(chain).commit_ulid]
    assert ulids == sorted(set(ulids))


@given(st.text(min_size=26, max_size=26) | st.text(max_size=30) | st.from_regex(r"[0-9A-Z]{26}", fullmatch=True))
@example("8" + "0" * 25)
@example("7" + "Z" * 25)
@example("0" * 25 + "I")
@example("0" * 25 + "a")
def test_what_passes_as_a_ulid_can_be_followed_by_a_greater_one(text: str) -> None:
    """S18: no text is taken for a ULID that the next one could not exceed."""
    if not is_ulid(text) or text == "7" + "Z" * 25:
        return
    assert next_ulid(VirtualClock(), SeededRandomness(), after=text) > text


def _number(ulid: str) -> int:
    number = 0
    for character in ulid:
        number = number * 32 + "0123456789ABCDEFGHJKMNPQRSTVWXYZ".index(character)
    return number
