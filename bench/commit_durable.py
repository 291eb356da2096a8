"""What a durable commit costs beside two bare durable file writes: on a disk, the syncs should be nearly all of it."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from bench.chains import Writer, grow, writer
from bench.harness import Settings, interleave, stopwatch
from bench.report import Report, Target, duration, ratio
from holdfast.chain import domain_layout, graph_layout, kv_layout
from holdfast.storage.local import LocalStore

ARTIFACTS = 100
RATIO_MAX = 1.5
WARM_COMMITS = 40
"""Past these the pointer has its full length."""


def run(settings: Settings) -> Report:
    report = Report(
        name="commit_durable",
        about=f"commit of {ARTIFACTS} artifacts on file:// with fsync, beside two bare durable file writes",
        columns=("", "median", "p99", "fastest", "median ratio"),
    )
    with ExitStack() as stack:
        actions = []
        for layout in (kv_layout(), graph_layout(), domain_layout("catalog")):
            root = settings.disk / layout.name.replace(":", "-")
            one = stack.enter_context(writer(LocalStore(root), artifact_count=ARTIFACTS, layout=layout))
            grow(one, WARM_COMMITS)
            last = one.commit()
            sizes = [(root / key).stat().st_size for key in (last.manifest_path, layout.pointer_key)]
            actions += [_committing(one, layout.name), _bare_writes(root / "bare", sizes, layout.name)]
        samples = interleave(settings.pick(200, 25), actions, warm_up=2)
    for name, found in samples.items():
        base = samples[f"{name.split(' ')[0]} two bare durable writes"].median
        cells = (duration(found.median), duration(found.p99), duration(found.best), ratio(found.median / base))
        report.rows.append((name, *cells))
        report.figures |= {f"{name} median_s": found.median, f"{name} ratio": found.median / base}
        if name.endswith(" publish") and "begin_run" not in name:
            target = Target(claim=f"{name} / two bare durable writes", value=found.median / base, limit=RATIO_MAX)
            report.targets.append(target)
    report.rows.sort()
    return report


def _committing(one: Writer, name: str) -> Callable[[], dict[str, float]]:
    def commit() -> dict[str, float]:
        begun, published = one.timed_commit()
        return {f"{name} publish": published, f"{name} begin_run + publish": begun + published}

    return commit


def _bare_writes(folder: Path, sizes: list[int], name: str) -> Callable[[], dict[str, float]]:
    """The least that a durable manifest and a durable pointer could cost: a new name, and a replaced one."""
    folder.mkdir(parents=True)
    payloads = [os.urandom(size) for size in sizes]
    count = 0

    def write() -> dict[str, float]:
        nonlocal count
        count += 1
        names = (f"{folder}/manifest-{count}", f"{folder}/pointer")
        with stopwatch() as watch:
            for path, data in zip(names, payloads, strict=True):
                durable_write(path, data)
        return {f"{name} two bare durable writes": watch.seconds}

    return write


def durable_write(path: str, data: bytes) -> None:
    """Write, fsync, rename, fsync of the folder."""
    temporary = f"{path}.tmp"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        os.write(descriptor, data)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.rename(temporary, path)
    folder = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
