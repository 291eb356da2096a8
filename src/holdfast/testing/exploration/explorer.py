"""Exploring schedules: all of them up to a bound, and random ones beyond it.

A schedule is told by how it deviates from the plain one, in which each actor runs to its end before the next begins and
nothing fails: `17:gc 31:p1!lost response` lets `gc` go on at step 17 and loses the response of `p1`'s operation at step
31. The bound is the number of preemptions (an actor is interrupted while it could go on) and of faults.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from holdfast.testing.exploration.invariants import Violation
from holdfast.testing.exploration.scenarios import Stage, judge
from holdfast.testing.exploration.world import NETWORK, Choice, Happening, World

__all__ = ["Deviations", "Finding", "Run", "exhaust", "format_schedule", "parse_schedule", "play", "shrink", "wander"]

STEPS_MAX = 2_000

Deviations = tuple[tuple[int, Choice], ...]
Chooser = Callable[[int, World, Choice], Choice]
"""(step, world, what the plain schedule would do) → what to do."""


@dataclass(slots=True)
class Option:
    """What could have been chosen at one step."""

    current: str
    others: tuple[str, ...]
    happenings: dict[str, tuple[Happening, ...]]
    forced: bool
    """Whether `current` was not a continuation: switching away from it costs no preemption."""


@dataclass(slots=True)
class Run:
    """One schedule, played."""

    deviations: Deviations
    options: list[Option] = field(default_factory=list)
    violation: Violation | None = None

    @property
    def steps(self) -> int:
        return len(self.options)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A schedule that breaks an invariant, as short as it could be made."""

    scenario: str
    schedule: str
    violation: str

    def __str__(self) -> str:
        return f"{self.scenario}: {self.violation}\n  replay: {self.schedule}"


def format_schedule(deviations: Deviations) -> str:
    return ", ".join(f"{step}:{choice}" for step, choice in deviations) or "(plain)"


def parse_schedule(text: str) -> Deviations:
    """The inverse of `format_schedule`."""
    if text == "(plain)":
        return ()
    parsed = []
    for part in text.split(", "):
        step, _, choice = part.partition(":")
        actor, _, happening = choice.partition("!")
        parsed.append((int(step), Choice(actor, Happening(happening) if happening else Happening.PASS)))
    return tuple(parsed)


def play(stage: Stage, deviations: Deviations, *, thorough: bool = True) -> Run:
    """Play one schedule from the beginning."""
    run = Run(deviations)
    wanted = dict(deviations)
    _step_through(stage, run, lambda step, _, default: wanted.get(step, default), thorough=thorough, record=True)
    return run


def _step_through(stage: Stage, run: Run, choose: Chooser, *, thorough: bool, record: bool) -> None:
    world, watcher = stage.set_up()
    current = ""
    try:
        world.start()
        for step in range(STEPS_MAX):
            runnable = world.runnable()
            if not runnable:
                break
            going_on = current in runnable
            default = Choice(current if going_on else runnable[0])
            if record:
                run.options.append(_options(world, default.actor, runnable, forced=not going_on))
            choice = choose(step, world, default)
            if choice.actor not in runnable:
                choice = default  # only while shrinking: what it deviated from is not there any more
            world.resume(choice)
            for actor in world.actors.values():
                if isinstance(actor.error, Violation):
                    raise actor.error
            if choice.actor != NETWORK:
                current = choice.actor
        else:
            raise Violation("S19", f"the schedule did not end within {STEPS_MAX} steps")
        judge(world, watcher.truth, thorough=thorough)
    except Violation as violation:
        run.violation = violation
    finally:
        world.stop()


def _options(world: World, current: str, runnable: list[str], *, forced: bool) -> Option:
    happenings = {}
    for name in runnable:
        pending = None if name == NETWORK else world.actors[name].pending
        happenings[name] = () if pending is None else pending.happenings
    return Option(current, tuple(name for name in runnable if name != current), happenings, forced)


# -- all schedules up to a bound ---------------------------------------------------------------------------------------


def exhaust(
    stage: Stage, *, preemptions: int, faults: int, part: tuple[int, int] = (0, 1), thorough_every: int = 1
) -> Iterator[Run]:
    """Every schedule with at most so many preemptions and faults, each once.

    `part` (i, n) is the i-th of n equal shares.
    """
    waiting: list[tuple[Deviations, int, int]] = [((), preemptions, faults)]
    played = 0
    while waiting:  # finite: every schedule is finite, and so is the budget
        deviations, switches_left, faults_left = waiting.pop()
        played += 1
        run = play(stage, deviations, thorough=played % thorough_every == 0)
        if deviations or part[0] == 0:
            yield run
        if run.violation is not None:
            continue
        first = deviations[-1][0] + 1 if deviations else 0
        children = [
            child
            for step in range(first, run.steps)
            for child in _children(run.options[step], step, deviations, switches_left, faults_left)
        ]
        waiting.extend(children if deviations else children[part[0] :: part[1]])


def _children(
    option: Option, step: int, deviations: Deviations, switches_left: int, faults_left: int
) -> Iterator[tuple[Deviations, int, int]]:
    if faults_left:
        for happening in option.happenings[option.current]:
            yield (*deviations, (step, Choice(option.current, happening))), switches_left, faults_left - 1
    price = 0 if option.forced else 1
    if switches_left < price:
        return
    for other in option.others:
        yield (*deviations, (step, Choice(other))), switches_left - price, faults_left
        if faults_left:
            for happening in option.happenings[other]:
                yield (*deviations, (step, Choice(other, happening))), switches_left - price, faults_left - 1


# -- random schedules --------------------------------------------------------------------------------------------------


def wander(stage: Stage, *, seed: int, faults_max: int = 3, thorough: bool = False) -> Run:
    """One random schedule, decided by its seed alone. How restless it is varies from seed to seed."""
    dice = random.Random(seed)
    restless = dice.choice((0.05, 0.15, 0.4, 0.8))
    faulty = dice.choice((0.0, 0.02, 0.05, 0.1))
    taken: list[tuple[int, Choice]] = []
    left = faults_max

    def choose(step: int, world: World, default: Choice) -> Choice:
        nonlocal left
        actor, happening = default.actor, Happening.PASS
        if dice.random() < restless:
            actor = dice.choice(world.runnable())
        if left and actor != NETWORK and dice.random() < faulty:
            pending = world.actors[actor].pending
            assert pending is not None
            happening = dice.choice(pending.happenings)
            left -= 1
        choice = Choice(actor, happening)
        if choice != default:
            taken.append((step, choice))
        return choice

    run = Run(())
    _step_through(stage, run, choose, thorough=thorough, record=False)
    run.deviations = tuple(taken)
    return run


def shrink(stage: Stage, run: Run, *, attempts_max: int = 2_000) -> Run:
    """The same violation with fewer deviations: drop one at a time while it still breaks the same invariant."""
    best = run
    attempts = 0
    shrunk = True
    while shrunk and attempts < attempts_max:
        shrunk = False
        for position in range(len(best.deviations)):
            attempts += 1
            fewer = best.deviations[:position] + best.deviations[position + 1 :]
            candidate = play(stage, fewer)
            if _broken(candidate) == _broken(run):
                best, shrunk = candidate, True
                break
    return best


def _broken(run: Run) -> str | None:
    return None if run.violation is None else run.violation.invariant
