"""What is left of a commit when the disk costs nothing: our own work, beside that of the table formats."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from bench.chains import Writer, writer
from bench.harness import Samples, Settings, interleave, timed
from bench.peers import open_peers
from bench.report import Report, Target, duration, ratio
from holdfast.storage.local import LocalStore

TIMES_FASTER_MIN = 5.0
FIRST_COMMITS = 20
PEERS = ("deltalake", "deltalake, open", "pyiceberg")
COMMIT_MANY = "ours: publish, 100 artifacts"
COMMIT_ONE = "ours: publish, 1 artifact"
WHOLE = "ours: run, 1 small file, publish"


def run(settings: Settings) -> Report:
    report = Report(
        name="commit_memory_disk",
        about=f"first {FIRST_COMMITS} commits without fsync, beside an append of one small file",
        columns=("", "median", "p99", *(f"{peer} /" for peer in PEERS if settings.peers)),
    )
    rounds = [_round(settings, number) for number in range(settings.pick(5, 2))]
    samples = {name: Samples(tuple(s for one in rounds for s in one[name].seconds)) for name in rounds[0]}
    peers = [name for name in PEERS if name in samples]
    for name, found in samples.items():
        times = {peer: samples[peer].median / found.median for peer in peers}
        report.rows.append((name, duration(found.median), duration(found.p99), *map(ratio, times.values())))
        report.figures |= {f"{name} median_s": found.median, **{f"{peer} / {name}": times[peer] for peer in peers}}
        if name == COMMIT_MANY:
            report.targets += [
                Target(claim=f"times faster than {peer}", value=times[peer], limit=TIMES_FASTER_MIN, at_least=True)
                for peer in peers
            ]
    if not peers:
        report.notes.append("without peers: deltalake and pyiceberg were left out or are not installed")
    return report


def _round(settings: Settings, number: int) -> dict[str, Samples]:
    """The first commits of fresh chains and fresh tables, in turns."""
    folder = settings.memory_disk / f"round-{number}"
    with ExitStack() as stack:

        def on(name: str, artifact_count: int) -> Writer:
            store = LocalStore(folder / name, durable=False)
            return stack.enter_context(writer(store, artifact_count=artifact_count))

        actions = [
            _publishing(on("many", 100), COMMIT_MANY),
            _publishing(on("one", 1), COMMIT_ONE),
            _whole(on("whole", 0)),
        ]
        if settings.peers:
            actions += [_appending(append, name) for name, append in open_peers(folder).items()]
        # The very first commit of each pays for folders and imports, and is not what anybody waits for.
        return interleave(FIRST_COMMITS, actions, warm_up=1)


def _publishing(one: Writer, name: str) -> Callable[[], dict[str, float]]:
    def publish() -> dict[str, float]:
        run = one.begin()
        return {name: timed(lambda: one.publish(run))}

    return publish


def _whole(one: Writer) -> Callable[[], dict[str, float]]:
    return lambda: {WHOLE: timed(lambda: one.commit_own_files(1))}


def _appending(append: Callable[[], object], name: str) -> Callable[[], dict[str, float]]:
    return lambda: {name: timed(append)}
