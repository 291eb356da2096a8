"""kill -9, for real: a writer process dies at every step of the protocol, and the chain is whole every time."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import orjson
import pytest

from holdfast.chain import Committed
from holdfast.storage import LocalStore
from holdfast.testing.clock import SeededRandomness, VirtualClock
from tests.chain.dying_writer import NEW, Order, Report
from tests.chain.publishing import LAYOUTS, ChainFactory, contents, keys_below, publish_one, write_artifact
from tests.chain.test_history import leave_orphan, publish_many

OLD = {"part-0": b"v3"}
BEFORE = {"part-0": b"v2"}
VISIBLE = {"publish": (OLD, NEW), "rollback": (OLD, BEFORE), "collect": (OLD,), "purge": (OLD,)}
"""What a reader may see after each action died: the old whole, or the new whole."""

ROOT = Path(__file__).parents[2]
FAR_FUTURE = datetime(2200, 1, 1, tzinfo=UTC)


class Nursery:
    """The warm interpreter that forks writers to their death."""

    def __init__(self) -> None:
        self._process = spawn()

    def carry_out(self, order: Order) -> Report:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(orjson.dumps(asdict(order)) + b"\n")
        self._process.stdin.flush()
        report = Report(**orjson.loads(self._process.stdout.readline()))
        assert report.killed or report.exit_status == 0, f"{order} failed by itself"
        return report

    def close(self) -> None:
        self._process.communicate()


def spawn() -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])}
    return subprocess.Popen(
        [sys.executable, "-m", "tests.chain.dying_writer"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
    )


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    started = Nursery()
    yield started
    started.close()


def factory_at(root: Path, layout: str) -> ChainFactory:
    """The next writer: another process, a day later."""
    factory = ChainFactory(
        layout=LAYOUTS[layout], store=LocalStore(root, durable=False), randomness=SeededRandomness(3)
    )
    factory.clock.advance(24 * 3600)
    return factory


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Path]:
    """A chain for each action to begin with: four snapshots, an orphan, an abandoned run; collected for the purge."""
    made = {}
    for layout in ("kv", "domain"):
        for action in VISIBLE:
            root = tmp_path_factory.mktemp(f"{layout}-{action}") / "chain"
            factory = ChainFactory(layout=LAYOUTS[layout], store=LocalStore(root, durable=False))
            chain = factory()
            publish_many(chain, 4)
            leave_orphan(factory, "crashed")
            write_artifact(chain, chain.begin_run("abandoned", lease_s=60), "garbage", b"garbage")
            factory.clock.advance(7200)
            if action == "purge":
                chain.collect(retention=2)
            made[layout, action] = root
    return made


def check(root: Path, layout: str, action: str, order: Order) -> dict[str, bytes]:
    """Nothing is wrong, a reader sees the old or the new whole, and the next writer publishes."""
    factory = factory_at(root, layout)
    chain = factory()
    if chain.layout.mirror_key is None:
        assert factory.breaks() == [], order
    seen = contents(chain)
    assert seen in VISIBLE[action], order
    with chain.reader(lambda manifest: {artifact.path.rpartition("/")[2] for artifact in manifest.artifacts}) as reader:
        with reader.borrow() as served:
            assert served.resource == set(seen)
        assert not reader.status().fell_back
    chain.reconcile(enforce=True)
    assert factory.breaks() == [], order
    next_one = factory(by="next")
    assert isinstance(publish_one(next_one, b"next", run_id="next"), Committed)
    assert contents(chain) == {"part-0": b"next"}
    if order.number % 4 == 0:  # the slow half, for some of them
        next_one.collect(retention=3)
        next_one.purge(grace_s=0)
        assert factory.breaks() == [], order
    return seen


@pytest.mark.parametrize("where", ["before", "after", "step"])
@pytest.mark.parametrize("action", list(VISIBLE))
@pytest.mark.parametrize("layout", ["kv", "domain"])
def test_a_writer_killed_anywhere_leaves_the_old_or_the_new(
    nursery: Nursery,
    template: dict[tuple[str, str], Path],
    tmp_path: Path,
    layout: str,
    action: str,
    where: str,
) -> None:
    """S47, S20, S21, I6: killed before or after any request, or at any step inside a write: `verify` finds nothing
    wrong, a reader sees the old or the new whole, and the next writer publishes."""

    def fresh(name: str) -> Path:
        root = tmp_path / name
        shutil.copytree(template[layout, action], root)
        return root

    complete = nursery.carry_out(Order(root=str(fresh("complete")), layout=layout, action=action))
    assert not complete.killed
    deaths = 0
    outcomes = []
    for number in range(1, (complete.steps if where == "step" else complete.requests) + 1):
        order = Order(root=str(fresh(f"{number}")), layout=layout, action=action, where=where, number=number)
        if nursery.carry_out(order).killed:
            deaths += 1
            outcomes.append(check(Path(order.root), layout, action, order))
        shutil.rmtree(order.root)
    assert deaths >= 5
    if action in {"publish", "rollback"}:
        assert outcomes[0] == VISIBLE[action][0]
        if where != "before":  # nothing need come after the pointer swap
            assert outcomes[-1] == VISIBLE[action][1]
        turns = [one != other for one, other in pairwise(outcomes)]
        assert turns.count(True) <= 1, "there is one moment at which it becomes visible"


@pytest.mark.parametrize("kill_after", range(6))
def test_a_writer_killed_at_any_moment_by_somebody_else(tmp_path: Path, kill_after: int) -> None:
    """S47: a process that publishes without pause is killed from outside, whatever it is at: the chain is whole."""
    root = tmp_path / "chain"
    publish_many(ChainFactory(layout=LAYOUTS["kv"], store=LocalStore(root, durable=False))(), 1)
    writer = spawn()
    assert writer.stdin is not None
    assert writer.stdout is not None
    writer.stdin.write(orjson.dumps(asdict(Order(root=str(root), layout="kv", action="publish for ever"))) + b"\n")
    writer.stdin.flush()
    for _ in range(kill_after + 1):
        assert writer.stdout.readline() == b".\n"
    writer.kill()
    writer.communicate()
    assert writer.returncode == -signal.SIGKILL
    factory = factory_at(root, "kv")
    assert factory.breaks() == []
    assert contents(factory()) == NEW
    assert len(factory().list_manifests(1000)) >= kill_after + 2
    publish_one(factory(), b"next")
    assert contents(factory()) == {"part-0": b"next"}
    assert factory.breaks() == []


def test_what_a_killed_writer_leaves_behind_is_collected(
    nursery: Nursery, template: dict[tuple[str, str], Path], tmp_path: Path
) -> None:
    """S47: temporary files of killed writers are ignored by every reader and deleted by the purge."""
    root = tmp_path / "chain"
    shutil.copytree(template["kv", "publish"], root)
    leftovers: set[Path] = set()
    for number in range(1, 40):
        order = Order(root=str(root), layout="kv", action="publish", where="step", number=number)
        if not nursery.carry_out(order).killed:
            break
        leftovers = {path for path in root.rglob("*") if path.name.endswith(".tmp")}
        if leftovers:
            break
    assert leftovers
    store = LocalStore(root, durable=False)
    assert not [key for key in keys_below(store) if key.endswith(".tmp")]
    factory = ChainFactory(layout=LAYOUTS["kv"], store=store, clock=VirtualClock(FAR_FUTURE))
    removed = factory().purge(grace_s=0).stray_files
    assert set(removed) == {path.relative_to(root).as_posix() for path in leftovers}
    assert not [path for path in leftovers if path.exists()]
    assert factory.breaks() == []
