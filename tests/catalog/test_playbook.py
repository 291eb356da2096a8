"""The rollout playbook on a workspace: the commands that an operator types, while others read and write (S45)."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import orjson
import pytest

from holdfast.catalog import Workspace, open_workspace
from holdfast.catalog import payloads as p
from holdfast.catalog.compactor import Compactor
from holdfast.catalog.domain_state import DomainState
from holdfast.catalog.fold import alive
from holdfast.catalog.reading import read_state, read_tables
from holdfast.catalog.search import refresh_search, search
from holdfast.chain.layout import ROOT_MANIFEST_KEY
from holdfast.chain.legacy import decode_any_manifest
from holdfast.errors import Conflict
from holdfast.storage import MemoryStore
from holdfast.storage.capabilities import Reader
from holdfast.testing.clock import SeededRandomness, VirtualClock
from holdfast.testing.faulty import Fault, FaultyStore, Operation
from tests.cli.support import Program, environment

PLACE = "./lake/acme/prod"
Seen = tuple[int, frozenset[str]]
"""A snapshot's version, and the names that it holds."""
WAIT_S = 60.0


class Readers(threading.Thread):
    """Look around all the time. What each sees never goes back, never gets less, and is never an error."""

    def __init__(self, looks: Mapping[str, Callable[[], Seen]]) -> None:
        super().__init__(daemon=True)
        self._looks = looks
        self._ended = threading.Event()
        self._turn = threading.Condition()
        self._rounds = 0
        self.seen: dict[str, Seen] = dict.fromkeys(looks, (0, frozenset()))
        self.problems: list[str] = []

    def run(self) -> None:
        while not self._ended.wait(0.02):  # others want to work as well
            for name, look in self._looks.items():
                self._watch(name, look)
            with self._turn:
                self._rounds += 1
                self._turn.notify_all()

    def _watch(self, name: str, look: Callable[[], Seen]) -> None:
        before = self.seen[name]
        try:
            now = look()
        except Exception as error:  # noqa: BLE001 - whatever a reader meets is a finding
            self.problems.append(f"{name}: {error!r}")
            return
        if now[0] < before[0] or not now[1] >= before[1]:
            self.problems.append(f"{name}: {now} after {before}")
        self.seen[name] = now

    def look_again(self) -> dict[str, frozenset[str]]:
        """What they see in looks that began after this was called."""
        with self._turn:
            wanted = self._rounds + 2
            assert self._turn.wait_for(lambda: self._rounds >= wanted, WAIT_S), "the readers hang"
        return {name: seen[1] for name, seen in self.seen.items()}

    def stop(self) -> None:
        self._ended.set()
        self.join(WAIT_S)


def names_in(state: DomainState, workspace: Workspace) -> frozenset[str]:
    table, column = ("tables", "table") if state.domain == "catalog" else ("edges", "target")
    rows = alive(state.read(Reader(workspace.store), [table])[table])
    return frozenset(str(name) for name in rows.column(column).to_pylist())


def by_pointer(workspace: Workspace, domain: str) -> Seen:
    """A reader of today, which begins anew each time."""
    state, _ = read_state(workspace, domain)
    return state.snapshot_version, names_in(state, workspace)


def by_root(workspace: Workspace, domain: str) -> Seen:
    """An outside reader: the root names a pointer or the legacy path, and it follows that."""
    store, layout = workspace.store, workspace.domain(domain).layout
    place = orjson.loads(store.get(ROOT_MANIFEST_KEY).data)[layout.root_field]
    found = orjson.loads(store.get(place).data)
    if place == layout.pointer_key and found["publishing"] == "pointer":
        return _manifest_at(workspace, domain, found["manifest_path"])
    return _manifest_at(workspace, domain, str(layout.mirror_key))


def by_mirror(workspace: Workspace, domain: str) -> Seen:
    """A reader of an older release, which knows the legacy path and nothing else."""
    return _manifest_at(workspace, domain, str(workspace.domain(domain).layout.mirror_key))


def _manifest_at(workspace: Workspace, domain: str, key: str) -> Seen:
    names = workspace.domain(domain).layout.names
    manifest = decode_any_manifest(workspace.store.get(key).data, key=key, names=names)
    state = DomainState.of_manifest(domain, manifest)
    return state.snapshot_version, names_in(state, workspace)


def test_the_playbook_is_walked_through_while_everybody_reads(tmp_path: Path) -> None:
    """S45: two domains to legacy-only writes and back, each by itself, with the real commands and writes in between.

    A reader of today, one that begins at the root and one that knows only the legacy path read all the time: each sees
    every step, none ever an error, an older state or an emptied one.
    """

    def holdfast(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "holdfast.cli", *words],
            cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300, env=environment(),
        )  # fmt: skip
        assert done.returncode == 0, f"holdfast {' '.join(words)}\n{done.stdout}{done.stderr}"
        return done.stdout

    def switch(domain: str, to: str) -> None:
        place = f"{PLACE}#domain:{domain}"
        if to == "legacy":
            assert "Nothing is broken" in holdfast("verify", place)
        holdfast("switch", place, to, "--why", "playbook")

    def register(name: str) -> None:
        holdfast("catalog", "register", PLACE, f"sales.{name}")
        expected["catalog"].add(name)

    def add_edge(name: str) -> None:
        workspace.ledger("lineage").append(p.LineageEdgesAdded(edges=(p.Edge(source="raw", target=name),)))
        holdfast("catalog", "compact", PLACE, "--domain", "lineage")
        expected["lineage"].add(name)

    holdfast("init", PLACE)
    holdfast("catalog", "register", PLACE, "sales")
    workspace = open_workspace(str(tmp_path / "lake"), tenant="acme", workspace="prod")
    expected: dict[str, set[str]] = {"catalog": set(), "lineage": set()}
    add_edge("first")
    looks = {
        f"{domain} {look.__name__}": partial(look, workspace, domain)
        for domain in expected
        for look in (by_pointer, by_root, by_mirror)
    }
    readers = Readers(looks)
    readers.start()
    steps: list[Callable[[], None]] = [
        partial(switch, "catalog", "legacy"),
        partial(register, "second"),
        partial(switch, "lineage", "legacy"),
        partial(add_edge, "second"),
        partial(register, "third"),
        partial(switch, "catalog", "pointer"),
        partial(register, "fourth"),
        partial(switch, "lineage", "pointer"),
        partial(add_edge, "third"),
    ]
    try:
        for step in steps:
            step()
            assert readers.look_again() == {name: expected[name.split()[0]] for name in looks}
    finally:
        readers.stop()
    assert readers.problems == []
    for domain in expected:
        chain = workspace.domain(domain)
        assert chain.verify() == []
        seen = chain.handle.read_pointer()
        assert seen is not None
        kinds = [move.kind.value for move in seen.pointer.moves]
        assert (kinds.count("switch"), kinds.count("adopt")) == (1, 1), "the way back is an adoption"


def workspace_on(store: MemoryStore | FaultyStore, seed: int = 1) -> Workspace:
    return Workspace(
        root=store, tenant="acme", name="prod", by="test", clock=VirtualClock(), randomness=SeededRandomness(seed)
    )


def tell(workspace: Workspace, name: str) -> str:
    return workspace.ledger("catalog").append(p.TableRegistered(namespace="n", table=name)).path


def tables_of(workspace: Workspace) -> list[str]:
    return [str(name) for name in read_tables(workspace, "catalog")["tables"].column("table").to_pylist()]


def test_in_legacy_mode_a_fold_builds_on_what_the_legacy_path_holds() -> None:
    """S45, C22: not on what the pointer named before: nothing that was published since is undone."""
    workspace = workspace_on(MemoryStore())
    workspace.initialize()
    compactor = Compactor(workspace, "catalog")
    compactor.compact([tell(workspace, "a")])
    workspace.domain("catalog").switch_publishing("legacy")
    Compactor(workspace, "catalog").compact([tell(workspace, "b")])
    done = Compactor(workspace, "catalog").compact([tell(workspace, "c")])
    assert tables_of(workspace) == ["a", "b", "c"]
    workspace.domain("catalog").switch_publishing("pointer")
    assert tables_of(workspace) == ["a", "b", "c"]
    assert read_state(workspace, "catalog")[0].snapshot_version == done.snapshot_version
    assert compactor.compact([tell(workspace, "d")]).snapshot_version > done.snapshot_version
    assert workspace.domain("catalog").verify() == []


def test_an_older_writer_that_comes_in_between_is_not_undone() -> None:
    """S45, C22: the legacy manifest changed while events were folded: a conflict, and telling it again is right."""
    root = MemoryStore()
    workspace = workspace_on(root)
    workspace.initialize()
    Compactor(workspace, "catalog").compact([tell(workspace, "a")])
    workspace.domain("catalog").switch_publishing("legacy")
    path, other = tell(workspace, "mine"), tell(workspace, "theirs")

    def plan(operation: Operation) -> Fault:
        if operation.kind == "upload" and not came:
            came.append(operation.key)
            chain = workspace_on(root, seed=5).domain("catalog")
            _publish_without_lock(workspace_on(root, seed=5), other)
            assert chain.load_current() is not None
        return Fault.PASS

    came: list[str] = []
    with pytest.raises(Conflict, match="tell it again"):
        Compactor(workspace_on(FaultyStore(root, plan), seed=3), "catalog").compact([path])
    assert tables_of(workspace) == ["a", "theirs"]
    Compactor(workspace, "catalog").compact([path])
    assert tables_of(workspace) == ["a", "mine", "theirs"]


def _publish_without_lock(workspace: Workspace, path: str) -> None:
    """What a writer of an older release does, which takes no lock of ours: it replaces the manifest."""
    chain = workspace.domain("catalog")
    key = str(chain.layout.mirror_key)
    before = chain.store.get(key)
    aside = MemoryStore()
    for page in workspace.root.list(""):
        for info in page:
            if "/locks/catalog.lock" not in info.key:
                aside.put_new(info.key, workspace.root.get(info.key).data)
    Compactor(workspace_on(aside, seed=6), "catalog").compact([path])
    there = workspace_on(aside).store
    for page in there.list("l0"):
        for info in page:
            if not chain.store.head_many([info.key])[0]:
                chain.store.put_new(info.key, there.get(info.key).data)
    chain.store.swap(key, there.get(key).data, expected=before.version)


def test_search_and_history_know_where_a_domain_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S45, C27: the index is built from what the legacy path holds; `history` does not speak of a rollback."""
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.chdir(tmp_path)
    holdfast = Program(monkeypatch)
    holdfast("init", PLACE)
    holdfast("catalog", "register", PLACE, "sales")
    holdfast("switch", f"{PLACE}#domain:catalog", "legacy")
    holdfast("catalog", "register", PLACE, "sales.customers")
    workspace = open_workspace(str(tmp_path / "lake"), tenant="acme", workspace="prod")
    assert refresh_search(workspace) is not None
    assert refresh_search(workspace) is None
    assert [hit.name for hit in search(workspace, "custmers")] == ["sales.customers"]
    said = holdfast("history", f"{PLACE}#domain:catalog").out
    assert "rolled back" not in said
    assert "legacy path only" in said
    assert "holdfast switch" in said
