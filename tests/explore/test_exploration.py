"""The explorer's bounded part: every interleaving and fault up to the bound, on the real kernel, in about a minute.

`make explore` goes on from here. A failing schedule is printed as a short list that `python -m holdfast.testing.explore
--replay` plays again.
"""

from __future__ import annotations

import pytest

from holdfast.testing.exploration.explorer import Run, exhaust, format_schedule, parse_schedule, play, shrink, wander
from holdfast.testing.exploration.mutants import MUTANTS
from holdfast.testing.exploration.scenarios import SCENARIOS, Stage
from holdfast.testing.exploration.world import Happening
from holdfast.testing.explore import BOUNDS, main

PAIRS = [
    ("two-publishers", 1, 1),
    ("two-publishers-on-base", 1, 1),
    ("tag-collect", 1, 1),
    ("rollback-collect", 2, 0),
    ("publish-collect", 2, 0),
    ("base-collect", 2, 0),
    ("parts-collect", 1, 0),
]
CROWDS = ["publish-rollback-collect", "two-collectors", "domain-mirror", "settle"]


def explain(stage: Stage, run: Run) -> str:
    """What to read when a schedule breaks something."""
    small = shrink(stage, run)
    return f"{small.violation}\nreplay: --replay {stage.scenario.name} {format_schedule(small.deviations)!r}"


@pytest.mark.parametrize("name, preemptions, faults", PAIRS)
def test_every_schedule_of_two_actors_up_to_the_bound_keeps_every_invariant(
    name: str, preemptions: int, faults: int
) -> None:
    """S42, S17, S21: two publishers, or one and a collector, or a tagger or a rollback and a collector."""
    stage = Stage(SCENARIOS[name])
    for run in exhaust(stage, preemptions=preemptions, faults=faults, thorough_every=4):
        assert run.violation is None, explain(stage, run)


@pytest.mark.parametrize("name", CROWDS)
def test_every_single_interruption_and_every_single_fault_among_three_actors_keeps_every_invariant(name: str) -> None:
    """S42, S35: a rollback, a second collector, a mirror or a repair in between changes nothing."""
    stage = Stage(SCENARIOS[name])
    for preemptions, faults in ((1, 0), (0, 1)):
        for run in exhaust(stage, preemptions=preemptions, faults=faults, thorough_every=4):
            assert run.violation is None, explain(stage, run)


@pytest.mark.parametrize("first_seed", range(0, 1_200, 300))
def test_random_schedules_of_everybody_at_once_keep_every_invariant(first_seed: int) -> None:
    """S42: two publishers, a rollback, a collector, a tagger and a reader, with up to three faults."""
    stage = Stage(SCENARIOS["everybody"])
    for seed in range(first_seed, first_seed + 300):
        run = wander(stage, seed=seed, thorough=seed % 4 == 0)
        assert run.violation is None, explain(stage, run)


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_kernel_with_one_mistake_is_caught(mutant: str) -> None:
    """S42, S13, S15, S17: what proves the kernel must be able to disprove it."""
    mistake, scenarios = MUTANTS[mutant]
    stage = Stage(SCENARIOS[scenarios[0]])
    with mistake():
        caught = next(
            run
            for preemptions, faults in ((1, 0), (0, 1), (2, 0), (1, 1))
            for run in exhaust(stage, preemptions=preemptions, faults=faults)
            if run.violation is not None
        )
        small = shrink(stage, caught)
        assert len(small.deviations) <= 3
        again = play(stage, parse_schedule(format_schedule(small.deviations)))
        assert str(again.violation) == str(small.violation)
    assert play(stage, small.deviations).violation is None


def test_the_same_seed_walks_the_same_way() -> None:
    """A schedule that was found can be found again."""
    first, second = (wander(Stage(SCENARIOS["everybody"]), seed=7) for _ in range(2))
    assert first.deviations == second.deviations
    assert first.deviations != wander(Stage(SCENARIOS["everybody"]), seed=8).deviations


def test_a_schedule_reads_back_as_it_was_printed() -> None:
    """A failing schedule prints as a short list that can be replayed."""
    text = "7:p2, 18:p1!lost response, 20:network, 31:gc!jump"
    deviations = parse_schedule(text)
    assert format_schedule(deviations) == text
    assert [choice.happening for _, choice in deviations] == [
        Happening.PASS,
        Happening.ERROR_AFTER,
        Happening.PASS,
        Happening.JUMP,
    ]


def test_replaying_from_the_command_line_says_what_happened(capsys: pytest.CaptureFixture[str]) -> None:
    """The printed schedule is all that is needed to see it again."""
    assert main(["--replay", "two-publishers", "7:p2"]) == 0
    assert "nothing is broken" in capsys.readouterr().out


def test_every_scenario_has_a_bound() -> None:
    """`make explore` exhausts each scenario up to a stated bound."""
    assert set(BOUNDS) == set(SCENARIOS)
