"""Whether a commit costs more the longer the history is. Ours should not: it reads none of it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import ExitStack

from bench.chains import Writer, grow, writer
from bench.harness import Samples, Settings, interleave, timed
from bench.peers import open_peers
from bench.report import Report, Target, duration, ratio
from holdfast.storage.local import LocalStore

ARTIFACTS = 100
WINDOW = 20
"""Commits that are measured at each length of history."""
FLAT_MAX = 1.25
YOUNG_COMMITS = 40
"""A young chain has this many, so that its pointer has its full length."""

Found = dict[int, tuple[Samples, Samples]]
"""Length of history → commits on it, and on a young one in turns: the machine's mood cancels out."""


def run(settings: Settings) -> Report:
    lengths = [10, 100, 1_000] if settings.quick else [10, 100, 1_000, 10_000]
    found = {"ours": _ours(settings, lengths)}
    if settings.peers:
        found |= _peers(settings, [10, 40] if settings.quick else [10, 100, 200])
    report = Report(
        name="commit_growth",
        about=f"a commit of {ARTIFACTS} artifacts (memory disk, no fsync) as history grows",
        columns=("after", *(title for name in found for title in (name, "/ young"))),
    )
    for length in sorted({length for one in found.values() for length in one}):
        cells = [f"{length:,} commits"]
        for name, by_length in found.items():
            if length not in by_length:
                cells += ["", ""]
                continue
            old, young = by_length[length]
            cells += [duration(old.median), ratio(old.median / young.median)]
            report.figures |= {
                f"{name} at {length} s": old.median,
                f"{name} at {length} / young": old.median / young.median,
            }
        report.rows.append(tuple(cells))
    report.notes.append("/ young: beside the same commit on a young chain or table, in turns with it")
    claim = f"a commit after {lengths[-1]:,} / one on a young chain"
    report.targets.append(Target(claim=claim, value=report.figures[f"ours at {lengths[-1]} / young"], limit=FLAT_MAX))
    return report


def _ours(settings: Settings, lengths: list[int]) -> Found:
    found: Found = {}
    with writer(LocalStore(settings.memory_disk / "old", durable=False), artifact_count=ARTIFACTS) as old:
        done = 0
        for length in lengths:
            grow(old, length - done)
            folder = settings.memory_disk / "young"
            with writer(LocalStore(folder, durable=False), artifact_count=ARTIFACTS) as young:
                grow(young, min(length, YOUNG_COMMITS))
                rounds = WINDOW if length < 1_000 else 5 * WINDOW
                samples = interleave(rounds, [_publishing(old, "old"), _publishing(young, "young")], warm_up=0)
            shutil.rmtree(folder)
            found[length] = samples["old"], samples["young"]
            done = length + rounds
    return found


def _peers(settings: Settings, lengths: list[int]) -> dict[str, Found]:
    found: dict[str, Found] = {}
    with ExitStack() as stack:
        folder = settings.memory_disk / "peers"
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        old = open_peers(folder / "old")
        done = 0
        for length in lengths:
            young = open_peers(folder / f"young-{length}")
            for name, append in old.items():
                for _ in range(length - done):
                    append()
                for _ in range(5):
                    young[name]()
                actions = [_appending(append, "old"), _appending(young[name], "young")]
                samples = interleave(WINDOW // 2, actions, warm_up=0)
                found.setdefault(name, {})[length] = samples["old"], samples["young"]
            done = length + WINDOW // 2
    return found


def _publishing(one: Writer, name: str) -> Callable[[], dict[str, float]]:
    def publish() -> dict[str, float]:
        run = one.begin()
        return {name: timed(lambda: one.publish(run))}

    return publish


def _appending(append: Callable[[], object], name: str) -> Callable[[], dict[str, float]]:
    return lambda: {name: timed(append)}
