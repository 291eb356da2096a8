"""Every interleaving of appenders up to a bound, with crashes and lost, echoed and late answers, on the real code."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from unittest.mock import patch

import orjson
import pytest

from holdfast.catalog.ledger import Ledger
from holdfast.catalog.positions import Counter, PositionRecord
from holdfast.chain.ids import next_ulid
from holdfast.clock import Clock, Randomness
from holdfast.errors import AlreadyExists, StoreUnavailable, VersionConflict
from holdfast.storage.objects import Version
from holdfast.testing.exploration.explorer import exhaust, wander
from tests.catalog.exploring import LedgerStage, appending, explain, explored, judged, stage_of

BEHIND_S = -5_000.0

SAME = {"a": (appending("sales"), 0.0), "b": (appending("sales"), BEHIND_S)}
OTHER = {"a": (appending("sales"), 0.0), "b": (appending("users"), BEHIND_S)}
APART = {"a": (appending("sales", "users", key=None), 0.0), "b": (appending("users", key=None), BEHIND_S)}


@pytest.mark.parametrize("programs", [SAME, OTHER, APART], ids=["same event", "same key", "own keys"])
def test_two_appenders_with_every_fault_at_every_step_tell_each_event_once(
    programs: dict[str, tuple[Callable[..., object], float]],
) -> None:
    """C13, C14, C15: one preemption and one fault, and three preemptions without, anywhere."""
    stage = stage_of(**programs)
    assert explored(stage, preemptions=1, faults=1) > 500
    assert explored(stage, preemptions=3, faults=0) > 100


def test_one_appender_with_two_faults_anywhere_tells_its_event_once() -> None:
    """C13: and whoever comes later with the same key finds it."""
    assert explored(stage_of(a=(appending("sales", "sales"), 0.0)), preemptions=0, faults=2) > 500


def test_random_schedules_of_three_appenders_keep_every_rule() -> None:
    """C13, C14, C15: two with one key and one with its own, with up to three faults."""
    stage = stage_of(**SAME, c=(appending("users", "items", key=None), 5_000.0))
    with judged():
        for seed in range(400):
            run = wander(stage, seed=seed)
            assert run.violation is None, explain(stage, run)


# -- what proves the ledger must be able to disprove it ----------------------------------------------------------------


@contextmanager
def believes_the_first_conflict() -> Iterator[None]:
    """Takes an echo for somebody else's claim and makes up a place for the event."""

    def claim(self: Ledger, key: str, data: bytes) -> bytes:
        try:
            self._ledger.put_event(self._layout.claim_key(key), data)
        except AlreadyExists:
            return data
        return data

    with patch.object(Ledger, "_claim", claim):
        yield


@contextmanager
def leaves_it_to_the_first() -> Iterator[None]:
    """Finds a claim and believes that its event is there."""
    with patch.object(Ledger, "_finish", lambda _self, _claim: False):
        yield


@contextmanager
def repeats_a_lost_swap() -> Iterator[None]:
    """Believes that a swap whose answer was lost has landed."""

    def swap(self: Counter, planned: PositionRecord, version: Version) -> Version | None:
        try:
            return self._lock.swap_lock(self._layout.positions_key, planned.encode(), expected=version)
        except StoreUnavailable:
            return version
        except VersionConflict:
            return None

    with patch.object(Counter, "_swap", swap):
        yield


@contextmanager
def claims_after_the_event() -> Iterator[None]:
    """Writes the event first."""
    real = Ledger._claim

    def claim(self: Ledger, key: str, data: bytes) -> bytes:
        self._create(orjson.loads(data)["event_id"], data)
        return real(self, key, data)

    with patch.object(Ledger, "_claim", claim):
        yield


@contextmanager
def trusts_its_clock() -> Iterator[None]:
    """Makes ids from the time alone."""

    def timed(clock: Clock, randomness: Randomness, *, after: str | None) -> str:
        del after
        return next_ulid(clock, randomness, after=None)

    with patch("holdfast.catalog.positions.next_ulid", timed):
        yield


MISTAKES = [
    believes_the_first_conflict,
    leaves_it_to_the_first,
    repeats_a_lost_swap,
    claims_after_the_event,
    trusts_its_clock,
]


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_ledger_with_one_mistake_is_caught(mistake: Callable[[], AbstractContextManager[None]]) -> None:
    """C13, C14, C15: each of these breaks a rule in some schedule of the bound, and not without the mistake."""
    stages: list[LedgerStage] = [stage_of(**SAME), stage_of(**APART)]
    with mistake(), judged():
        assert any(
            run.violation is not None
            for stage in stages
            for bound in ((1, 0), (0, 1), (1, 1))
            for run in exhaust(stage, preemptions=bound[0], faults=bound[1])
        )
