"""What is on disk, in which order, and what is left of a writer that is killed anywhere on its way."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path

import orjson
import pytest

from holdfast.graph.compaction import compact
from holdfast.graph.parts import INLINE_MAX
from holdfast.graph.records import Edge, Node
from holdfast.graph.store import GraphStore
from holdfast.storage import LocalStore
from holdfast.testing.clock import SeededRandomness, VirtualClock
from tests.chain.dying_writer import Order, Report
from tests.graph.dying_writer import ACTIONS, after
from tests.graph.model import Paper, check_version

ROOT = Path(__file__).parents[2]


# -- the order of what is synced ---------------------------------------------------------------------------------------


class Recorder:
    """Notes which bytes are synced, which name they get and which folder is synced, in the order in which it happens.

    Bytes are told by their inode: a file has its name only after they are safe.
    """

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._root = root
        self.events: list[tuple[str, str]] = []
        self.pointers: dict[int, int] = {}
        """The version that each naming of the pointer names, by the place of the event."""
        self._watch_syncs(monkeypatch)
        for name in ("link", "rename", "replace"):
            self._watch_names(monkeypatch, name)

    def _watch_syncs(self, monkeypatch: pytest.MonkeyPatch) -> None:
        real = os.fsync

        def fsync(descriptor: int) -> None:
            real(descriptor)
            path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
            if path.is_dir():
                self.events.append(("folder", path.relative_to(self._root).as_posix()))
            else:
                self.events.append(("bytes", f"{os.fstat(descriptor).st_ino}"))

        monkeypatch.setattr(os, "fsync", fsync)

    def _watch_names(self, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        real: Callable[..., None] = getattr(os, name)

        def named(source: str, target: str, **options: int) -> None:
            real(source, target, **options)
            folder = Path(os.readlink(f"/proc/self/fd/{options['dst_dir_fd']}")) if options else Path()
            path = (folder / target).relative_to(self._root)
            if path.name == "current.json":
                self.pointers[len(self.events)] = orjson.loads((folder / target).read_bytes())["version"]
            self.events.append((path.as_posix(), f"{(self._root / path).stat().st_ino}"))

        monkeypatch.setattr(os, name, named)

    def places(self, path: str, at: int | None = None) -> tuple[int, int, int]:
        """When the bytes of a file were synced, when it got its name, and when its folder was synced."""
        named = at if at is not None else next(n for n, (what, _) in enumerate(self.events) if what == path)
        synced = self.events.index(("bytes", self.events[named][1]))
        parent = Path(path).parent.as_posix()
        return synced, named, self.events.index(("folder", parent), named)


@pytest.mark.parametrize("action", ["commit", "replace", "merge", "merge all", "commit with a new part"])
def test_segments_come_before_the_manifest_and_that_before_the_pointer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    """G13: segments, their folder, manifest, its folder, pointer, its folder: each synced before the next begins."""
    store = GraphStore.create(LocalStore(tmp_path))
    for number in range(INLINE_MAX if action == "commit with a new part" else 9):
        store.commit(nodes=[Node(semantic_id=f"n{number}", type="T", file="x.py")])
    before = {segment.path for segment in store.state().segments}
    recorder = Recorder(tmp_path, monkeypatch)
    if action == "merge all":
        compact(store, all=True)
    else:
        ACTIONS[action.partition(" ")[0]](store)
    version = store.current()
    new = sorted({segment.path for segment in store.state().segments} - before)
    parts = [one.path for one in store.load_manifest().artifacts if one.kind == "parts"]
    assert len(new) == (1 if action.startswith("merge") else 2)
    assert len(parts) == (action == "commit with a new part")
    (moved,) = [at for at, told in recorder.pointers.items() if told == version]
    manifest = recorder.places(f"manifests/{version:06}.json")
    pointer = recorder.places("current.json", at=moved)
    for path in (*new, *parts):
        order = (*recorder.places(path), *manifest, *pointer)
        assert list(order) == sorted(order), (path, recorder.events)


# -- kill -9 -----------------------------------------------------------------------------------------------------------


class Nursery:
    """The warm interpreter that forks writers to their death."""

    def __init__(self) -> None:
        path = os.pathsep.join([*filter(None, sys.path), str(ROOT)])
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.graph.dying_writer"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path},
        )

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


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    started = Nursery()
    yield started
    started.close()


class Template:
    """A graph of nine versions for each writer to begin with, and what it says."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.paper = Paper()
        store = GraphStore.create(LocalStore(root, durable=False), clock=VirtualClock(), randomness=SeededRandomness())
        for number in range(8):
            file = ("x.py", "y.py")[number % 2]
            nodes = [Node(semantic_id=f"n{number}", type="T", file=file)]
            edges = [Edge(source=f"n{number}", target="n0", type="E")]
            self.paper = self.paper.changed(nodes, edges)
            store.commit(nodes=nodes, edges=edges)
        self.version = store.current()


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Template:
    return Template(tmp_path_factory.mktemp("template") / "graph")


def check(root: Path, template: Template, order: Order) -> bool:
    """Whether the dead writer's version is visible. It is whole, or the old one is; nothing is wrong; the next writer
    goes on, under numbers of its own."""
    clock = VirtualClock()
    clock.advance(24 * 3600)

    def opened() -> GraphStore:
        return GraphStore.open(LocalStore(root, durable=False), by="next", clock=clock, randomness=SeededRandomness(3))

    store = opened()
    assert store.chain.verify() == [], order
    happened = store.current() != template.version
    paper = after(order.action, template.paper) if happened else template.paper
    check_version(store, store.current(), paper)
    store.chain.reconcile(enforce=True)
    used = {path.name for path in (root / "segments").iterdir()}
    told = {segment.segment_id for segment in store.state().segments}
    change = [Node(semantic_id="next", type="T", file="z.py")]
    result = store.commit(nodes=change)
    (mine,) = {segment.segment_id for segment in store.state().segments} - told
    assert not [name for name in used if name.startswith(f"seg_{mine:06}_")], order
    check_version(opened(), result.version, paper.changed(change, []))
    if order.number % 4 == 0:  # the slow half, for some of them
        check_version(opened(), template.version, template.paper)
        store.gc_collect(2)
        store.gc_purge(grace_s=0)
        compact(store, all=True)
        check_version(opened(), store.current(), paper.changed(change, []))
    assert store.chain.verify() == [], order
    return happened


@pytest.mark.parametrize("action", list(ACTIONS))
def test_a_writer_that_is_killed_anywhere_leaves_a_whole_version(
    nursery: Nursery, template: Template, tmp_path: Path, action: str
) -> None:
    """G9, G10, G13: killed at any step of any write: a reader sees the old or the new whole, `verify` finds nothing,
    the next commit goes on and no segment number is used again."""

    def fresh(name: str) -> str:
        shutil.copytree(template.root, tmp_path / name)
        return str(tmp_path / name)

    complete = nursery.carry_out(Order(root=fresh("complete"), layout="graph", action=action))
    assert not complete.killed
    outcomes = []
    before: dict[str, bytes] = {}
    for number in range(1, complete.steps + 1):
        order = Order(root=fresh(f"{number}"), layout="graph", action=action, where="step", number=number)
        assert nursery.carry_out(order).killed
        left = files_below(Path(order.root))
        if left != before:  # most steps change nothing that has a name
            before = left
            outcomes.append(check(Path(order.root), template, order))
        shutil.rmtree(order.root)
    assert complete.steps > 30
    assert len(outcomes) >= 8
    assert (outcomes[0], outcomes[-1]) == (False, True)
    assert [one != other for one, other in pairwise(outcomes)].count(True) == 1, "it becomes visible at one moment"


def files_below(root: Path) -> dict[str, bytes]:
    """What has a name. Temporary files are nobody's: `tests/chain/test_killed_writer.py`."""
    found = (path for path in root.rglob("*") if path.is_file() and path.suffix != ".tmp")
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in found}
