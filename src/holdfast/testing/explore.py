"""Explore on: `python -m holdfast.testing.explore`, or `make explore`.

First every scenario is exhausted up to its bound, then random schedules of all scenarios follow until the number asked
for is reached. Prints how many schedules, how long, and which bounds were exhausted; ends with 1 if any invariant was
ever broken, after printing the schedule that breaks it, ready to replay:

    python -m holdfast.testing.explore --replay tag-collect "2:gc, 11:tag, 18:gc!error before"
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from holdfast.clock import SystemClock
from holdfast.testing.exploration.explorer import (
    Finding,
    Run,
    exhaust,
    format_schedule,
    parse_schedule,
    play,
    shrink,
    wander,
)
from holdfast.testing.exploration.memory import remembered_parsing
from holdfast.testing.exploration.scenarios import SCENARIOS, Stage
from holdfast.testing.exploration.world import Happening

__all__ = ["BOUNDS", "main"]

BOUNDS: dict[str, tuple[int, int]] = {
    "two-publishers": (2, 1),
    "two-publishers-on-base": (2, 1),
    "publish-collect": (2, 1),
    "rollback-collect": (2, 1),
    "tag-collect": (2, 1),
    "base-collect": (2, 1),
    "parts-collect": (1, 1),
    "publish-rollback-collect": (1, 1),
    "two-collectors": (1, 1),
    "domain-mirror": (1, 1),
    "settle": (1, 1),
    "everybody": (0, 0),
}
"""Scenario → (preemptions, faults) that `make explore` exhausts."""

_SHARES = 16
_SEEDS_PER_TASK = 2_000
_THOROUGH_EVERY = 8
"""Every so many schedules the whole chain is verified at the end, and the next writer publishes."""
_FINDINGS_MAX = 10


@dataclass(frozen=True, slots=True)
class Task:
    """A share of the work for one process."""

    scenario: str
    bound: tuple[int, int] | None
    part: tuple[int, int]
    """A share of the bounded schedules, or (first seed, past the last)."""


@dataclass(frozen=True, slots=True)
class Done:
    task: Task
    schedules: int
    with_faults: int
    findings: tuple[Finding, ...]


def work(task: Task) -> Done:
    """Explore one share. Runs in a process of its own."""
    stage = Stage(SCENARIOS[task.scenario])
    findings: list[Finding] = []
    schedules = with_faults = 0
    with remembered_parsing():
        for run in _runs(stage, task):
            schedules += 1
            with_faults += any(choice.happening is not Happening.PASS for _, choice in run.deviations)
            if run.violation is not None and len(findings) < _FINDINGS_MAX:
                findings.append(_finding(stage, run))
    return Done(task, schedules, with_faults, tuple(findings))


def _runs(stage: Stage, task: Task) -> Iterator[Run]:
    if task.bound is not None:
        yield from exhaust(
            stage, preemptions=task.bound[0], faults=task.bound[1], part=task.part, thorough_every=_THOROUGH_EVERY
        )
    else:
        for seed in range(*task.part):
            yield wander(stage, seed=seed, thorough=seed % _THOROUGH_EVERY == 0)


def _finding(stage: Stage, run: Run) -> Finding:
    small = shrink(stage, run)
    broken = small if small.violation is not None else run
    return Finding(
        scenario=stage.scenario.name, schedule=format_schedule(broken.deviations), violation=str(broken.violation)
    )


def _tasks(names: list[str], schedules: int, first_seed: int | None) -> Iterator[Task]:
    """Bounded shares first, then random ones, in turn over the scenarios; whoever consumes this stops when there is
    enough."""
    for name in names if first_seed is None else ():
        for part in range(_SHARES):
            yield Task(name, BOUNDS[name], (part, _SHARES))
    begin = first_seed or 0
    for first in range(begin, begin + 2 * schedules, _SEEDS_PER_TASK):
        for name in names:
            yield Task(name, None, (first, first + _SEEDS_PER_TASK))


def explore(names: list[str], *, schedules: int, processes: int, first_seed: int | None = None) -> int:
    """Explore until the bounds are exhausted and `schedules` schedules with faults were played. Returns the exit code.

    With `first_seed` only random walks are taken, from there on: to go on where an earlier run has ended.
    """
    clock = SystemClock()
    started = clock.now()
    total = with_faults = 0
    exhausted = dict.fromkeys(names, 0)
    findings: list[Finding] = []
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        for done in pool.imap_unordered(work, _tasks(names, schedules, first_seed), chunksize=1):
            total += done.schedules
            with_faults += done.with_faults
            findings += done.findings
            for finding in done.findings:
                print(f"\nVIOLATION {finding}", flush=True)
            if done.task.bound is not None:
                exhausted[done.task.scenario] += done.schedules
            elapsed_s = (clock.now() - started).total_seconds()
            if sys.stdout.isatty():
                print(f"\r{total:,} schedules, {elapsed_s:,.0f} s, {len(findings)} violations", end="", flush=True)
            if with_faults >= schedules and done.task.bound is None:
                pool.terminate()
                break
    elapsed_s = (clock.now() - started).total_seconds()
    print(f"\n{'scenario':28}{'exhausted bound':32}{'schedules':>12}")
    for name in names if first_seed is None else ():
        preemptions, faults = BOUNDS[name]
        print(f"{name:28}{f'{preemptions} preemptions, {faults} faults':32}{exhausted[name]:>12,}")
    random_walks = total - sum(exhausted.values())
    print(f"{'random walks':28}{'unbounded, up to 3 faults':32}{random_walks:>12,}")
    print(f"{total:,} schedules ({with_faults:,} with faults) in {elapsed_s:,.0f} s: {len(findings)} violations")
    return 1 if findings else 0


def replay(name: str, schedule: str) -> int:
    """Play one schedule and say what it breaks."""
    run = play(Stage(SCENARIOS[name]), parse_schedule(schedule))
    print(f"{name}: {run.steps} steps: {run.violation or 'nothing is broken'}")
    return 0 if run.violation is None else 1


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m holdfast.testing.explore", description=__doc__.split("\n\n")[0])
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=f"of {', '.join(SCENARIOS)}; all by default")
    parser.add_argument(
        "--schedules", type=int, default=1_000_000, help="play at least so many with faults (default 1,000,000)"
    )
    parser.add_argument(
        "--first-seed", type=int, help="only random walks, from this seed on: goes on from an earlier run"
    )
    parser.add_argument("--processes", type=int, default=2, help="how many at once (default 2)")
    parser.add_argument("--replay", nargs=2, metavar=("SCENARIO", "SCHEDULE"), help="play one schedule again")
    given = parser.parse_args(arguments)
    unknown = sorted(set(given.scenarios) - set(SCENARIOS))
    if unknown:
        parser.error(f"no scenario {unknown[0]!r}; there are {', '.join(SCENARIOS)}")
    if given.replay is not None:
        return replay(*given.replay)
    return explore(
        given.scenarios or list(SCENARIOS),
        schedules=given.schedules,
        processes=given.processes,
        first_seed=given.first_seed,
    )


if __name__ == "__main__":
    sys.exit(main())
