"""How what people do with history grows with it: listing, looking up, comparing, collecting, verifying."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.chains import Writer, grow, writer
from bench.harness import Settings, cpu_time, exponent
from bench.report import Report, Target, duration
from holdfast.chain import Chain, ManifestDraft
from holdfast.storage.local import LocalStore

EXPONENT_MAX = 1.15
"""Linear is 1; the rest is for caches that are too small for the larger size."""

Points = list[tuple[int, float]]


def run(settings: Settings) -> Report:
    counts = [100, 1_000] if settings.quick else [100, 1_000, 10_000]
    report = Report(
        name="history",
        about="processor time by size (memory disk, no fsync); growth 0 is flat, 1 is linear",
        columns=("", *(f"{count:,}" for count in counts), "growth"),
    )
    for name, points in _measure(settings, counts).items():
        growth = exponent(points)
        cells = dict(points)
        report.rows.append((name, *(duration(cells[n]) if n in cells else "" for n in counts), f"{growth:.2f}"))
        report.figures |= {f"{name} at {count} s": seconds for count, seconds in points}
        report.figures[f"{name} growth"] = growth
    worst = max(report.rows, key=lambda row: float(row[-1]))
    report.targets.append(Target(claim=f"worst growth ({worst[0]})", value=float(worst[-1]), limit=EXPONENT_MAX))
    return report


def _measure(settings: Settings, counts: list[int]) -> dict[str, Points]:
    found: dict[str, Points] = {}
    for count in counts:
        for part in (_snapshots, _comparison, _collection, _many_collected):
            if part is _many_collected and count > 1_000:
                continue
            with _fresh(settings.memory_disk) as one:
                for name, seconds in part(one, count).items():
                    found.setdefault(name, []).append((count, seconds))
    return found


@contextmanager
def _fresh(folder: Path) -> Iterator[Writer]:
    root = folder / "chain"
    with writer(LocalStore(root, durable=False), artifact_count=1) as one:
        yield one
    shutil.rmtree(root)


def _snapshots(one: Writer, count: int) -> dict[str, float]:
    """A long history of small snapshots. The tag is on the oldest: the longest way there is."""
    oldest = one.commit()
    chain = one.chain
    chain.tag(chain.find(ref=oldest.ref), {"kept": "yes"})
    grow(one, count - 1)
    return {
        "list all snapshots": cpu_time(lambda: chain.list_manifests(count), repeats=3),
        "list the newest 10 snapshots": cpu_time(lambda: chain.list_manifests(10), repeats=5),
        "tag look-up, the oldest of all snapshots": cpu_time(lambda: chain.find_snapshot("kept", "yes"), repeats=3),
        "look-up by ref, the oldest of all snapshots": cpu_time(lambda: chain.find(ref=oldest.ref), repeats=5),
        "roll back to the oldest and forward": cpu_time(_there_and_back(chain, oldest.ref), repeats=2),
        "verify (sizes) of all snapshots, 1 artifact each": cpu_time(_verifying(chain), repeats=2),
    }


def _there_and_back(chain: Chain, ref: str) -> Callable[[], object]:
    def work() -> None:
        chain.rollback(ref=ref)
        chain.forward()

    return work


def _verifying(chain: Chain) -> Callable[[], object]:
    def work() -> None:
        if breaks := chain.verify(read_artifacts=False):
            raise AssertionError(f"the chain that was measured is broken: {breaks[0]}")

    return work


def _comparison(one: Writer, count: int) -> dict[str, float]:
    """Two manifests that share half of their artifacts."""
    one.commit_own_files(count + count // 2)
    whole = one.chain.load_current()
    if whole is None:
        raise AssertionError("what was just published is not there")
    for part in (whole.artifacts[:count], whole.artifacts[count // 2 :]):
        run = one.chain.begin_run(base=whole)
        permit = one.chain.permit(one.guard)
        one.chain.publish(ManifestDraft(artifacts=part), run=run, permit=permit, base=whole)
    source, target = one.chain.find(offset=1), one.chain.find(offset=0)
    return {
        "diff of two manifests, artifacts in each": cpu_time(lambda: one.chain.diff(source, target), repeats=3),
        "load the visible manifest, artifacts": cpu_time(one.chain.load_current, repeats=3),
        "verify (sizes), artifacts": cpu_time(_verifying(one.chain), repeats=2),
    }


def _collection(one: Writer, count: int) -> dict[str, float]:
    """One snapshot with all the artifacts leaves, one small one stays."""
    one.commit_own_files(count)
    one.commit_own_files(1)
    return {
        "collect, plan, artifacts": cpu_time(lambda: one.chain.plan_collection(retention=1), repeats=2),
        "collect, artifacts": cpu_time(lambda: one.chain.collect(retention=1)),
        "purge, artifacts": cpu_time(lambda: one.chain.purge(grace_s=0)),
    }


def _many_collected(one: Writer, count: int) -> dict[str, float]:
    """Many snapshots leave, each with ten artifacts; every other one is tagged and stays."""
    for number in range(count):
        one.commit_own_files(10, **({"kept": "yes"} if number % 2 else {}))
    return {
        "collect, plan, snapshots of 10 artifacts": cpu_time(lambda: one.chain.plan_collection(retention=1), repeats=2),
        "collect, snapshots of 10 artifacts": cpu_time(lambda: one.chain.collect(retention=1)),
        "purge, snapshots of 10 artifacts": cpu_time(lambda: one.chain.purge(grace_s=0)),
    }
