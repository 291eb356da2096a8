"""Two dictionaries beside a graph: whatever is committed, replaced, merged, rolled back, collected or cut short, every
version that is kept answers as they do."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from holdfast.errors import BadRows, HoldfastError, SnapshotCollected, SnapshotNotFound
from holdfast.graph.compaction import compact
from holdfast.graph.records import Edge, Node
from holdfast.graph.store import CommitResult, GraphStore
from holdfast.storage import LocalStore, MemoryStore, ObjectStore
from holdfast.testing.clock import SeededRandomness, VirtualClock
from holdfast.testing.faulty import Crashed, Fault, FaultyStore, Operation
from tests.graph.model import EdgeKey, Paper, check_difference, check_selection, check_version, key_of

IDS = ("a", "a\x00", "b", "c", "d", "é", "z")
TYPES = ("T", "U")
FILES = ("x.py", "y.py", "")
EDGE_TYPES = ("E", "F")
LONGER_THAN_ANY_LEASE_S = 7_200.0

ids = st.sampled_from(IDS)
nodes = st.builds(
    Node,
    semantic_id=ids,
    type=st.sampled_from(TYPES),
    name=st.sampled_from(["n", "m"]),
    file=st.sampled_from(FILES),
    content_hash=st.sampled_from([None, "1"]),
    metadata=st.sampled_from([{}, {"line": 1}]),
)
edges = st.builds(
    Edge,
    source=ids,
    target=ids,
    type=st.sampled_from(EDGE_TYPES),
    file=st.sampled_from(FILES),
    metadata=st.sampled_from([{}, {"line": 1}]),
)
some_nodes = st.lists(nodes, max_size=5, unique_by=lambda node: node.semantic_id)
some_edges = st.lists(edges, max_size=6, unique_by=key_of)
dangling_ways = st.sampled_from(["keep", "keep", "refuse"])
picks = st.integers(min_value=0, max_value=30)
few_picks = st.sets(picks, min_size=1, max_size=2)
names = st.sampled_from(["red", "green"])


@dataclass(eq=False)
class Version:
    """What the model knows of one version."""

    number: int
    paper: Paper
    tags: dict[str, str] = field(default_factory=dict)


Action = Callable[[GraphStore], CommitResult]


class GraphMachine(RuleBasedStateMachine):
    """G9, G10, G12, G15, G16, G17, G20:

    contents, tags and differences of every version are what the model says, after every step.
    """

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        self.clock = VirtualClock()
        self.randomness = SeededRandomness()
        self.history: list[Version] = []
        self.rolled_back: list[Version] = []
        self.collections: dict[str, list[Version]] = {}
        self.collected: set[int] = set()
        self.segments: dict[int, str] = {}
        self.steps = 0

    def teardown(self) -> None:
        try:
            if self.history:
                self.look_at_everything()
        finally:
            self.stack.close()

    @initialize(in_memory=st.booleans(), put=some_nodes, put_edges=some_edges)
    def begin(self, in_memory: bool, put: list[Node], put_edges: list[Edge]) -> None:
        self.place: ObjectStore = (
            MemoryStore()
            if in_memory
            else LocalStore(Path(self.stack.enter_context(tempfile.TemporaryDirectory())) / "graph", durable=False)
        )
        self.store = GraphStore.create(self.place, clock=self.clock, randomness=self.randomness)
        self.current = Version(1, Paper())
        self.history.append(self.current)
        self._commit(put, put_edges, set(), set(), "keep")

    def _open(self, place: ObjectStore | None = None) -> GraphStore:
        return GraphStore.open(place or self.place, clock=self.clock, randomness=self.randomness)

    def _came(self, paper: Paper) -> int:
        """Take over the versions that have come into being; how many."""
        known = {version.number for version in self.history} | self.collected
        new = sorted({found.manifest_id for found in self.store.chain.list_manifests(1000)} - known)
        for number in new:
            self.current = Version(number, paper)
            self.history.append(self.current)
            self.rolled_back.clear()
        return len(new)

    # -- what is done --------------------------------------------------------------------------------------------------

    @rule(put=some_nodes, put_edges=some_edges, few=few_picks, few_edges=few_picks, dangling=dangling_ways)
    def commit(self, put: list[Node], put_edges: list[Edge], few: set[int], few_edges: set[int], dangling: str) -> None:
        nodes_there, edges_there = sorted(self.current.paper.nodes), sorted(self.current.paper.edges)
        gone = {nodes_there[pick % len(nodes_there)] for pick in few if nodes_there}
        gone_edges = {edges_there[pick % len(edges_there)] for pick in few_edges if edges_there}
        self._commit(put, put_edges, gone, gone_edges, dangling)

    @rule(few=few_picks, everything=st.booleans())
    def remove_and_compact(self, few: set[int], everything: bool) -> None:
        """What is gone stays gone: a pair of steps that chance alone seldom brings together."""
        self.commit([], [], few, set(), "keep")
        self.compact(everything, 2, 3)

    def _commit(
        self, put: list[Node], put_edges: list[Edge], gone: set[str], gone_edges: set[EdgeKey], dangling: str
    ) -> None:
        before = self.current.paper
        after = before.changed(put, put_edges, remove_nodes=gone, remove_edges=gone_edges)

        def act(store: GraphStore) -> CommitResult:
            removed = [before.edges[key] for key in sorted(gone_edges)]
            return store.commit(
                nodes=put, edges=put_edges, remove_nodes=sorted(gone), remove_edges=removed, dangling=dangling
            )

        self._change(act, after, refused=dangling == "refuse" and after.refused(before, put_edges))

    @rule(files=st.sets(st.sampled_from(FILES), min_size=1, max_size=2), put=some_nodes, put_edges=some_edges)
    def replace_files(self, files: set[str], put: list[Node], put_edges: list[Edge]) -> None:
        put = [node for node in put if node.file in files]
        put_edges = [edge for edge in put_edges if edge.file in files and edge.file]
        after = self.current.paper.changed(put, put_edges, files=files)

        def act(store: GraphStore) -> CommitResult:
            return store.replace_files(sorted(files), nodes=put, edges=put_edges, dangling="keep")

        self._change(act, after)

    def _change(self, act: Action, after: Paper, *, refused: bool = False) -> None:
        before = self.current
        if refused:
            with pytest.raises(BadRows):
                act(self.store)
            return
        result = act(self.store)
        assert result.committed == (after != before.paper)
        assert self._came(after) == result.committed
        assert result.version == self.current.number
        assert dict(result.changes.report) == before.paper.report_to(after)

    @rule(everything=st.booleans(), fan=st.integers(2, 4), rows_max=st.sampled_from([2, 3, 5, 1000]))
    def compact(self, everything: bool, fan: int, rows_max: int) -> None:
        done = compact(self.store, all=everything, fan=fan, rows_max=rows_max)
        assert self._came(self.current.paper) == done.rounds
        assert done.version == self.current.number
        state = self.store.state()
        assert done.segments_after == len(state.segments)
        if everything:
            assert not any(segment.tombstone_count or segment.hidden_count for segment in state.segments)
        again = compact(self.store, all=everything, fan=fan, rows_max=rows_max)
        assert not again.committed

    @rule(
        put=some_nodes,
        put_edges=some_edges,
        files=st.sets(st.sampled_from(FILES), max_size=1),
        everything=st.sampled_from([None, None, False, True]),
        serial=st.integers(1, 40),
        fault=st.sampled_from(list(Fault)),
    )
    def be_cut_short(
        self,
        put: list[Node],
        put_edges: list[Edge],
        files: set[str],
        everything: bool | None,
        serial: int,
        fault: Fault,
    ) -> None:
        """A writer that dies, or whose answers are lost: what it did happened as a whole or not at all."""
        dead = False

        def plan(operation: Operation) -> Fault:
            nonlocal dead
            if dead:
                return Fault.CRASH_BEFORE
            here = fault if operation.serial == serial else Fault.PASS
            dead = here in {Fault.CRASH_BEFORE, Fault.CRASH_AFTER}
            return here

        before = self.current
        if everything is not None:
            after = before.paper
        elif files:
            put = [node for node in put if node.file in files]
            put_edges = [edge for edge in put_edges if edge.file in files and edge.file]
            after = before.paper.changed(put, put_edges, files=files)
        else:
            after = before.paper.changed(put, put_edges)
        try:
            doomed = self._open(FaultyStore(self.place, plan))
            if everything is not None:
                compact(doomed, all=everything, fan=2, rows_max=3)
            elif files:
                doomed.replace_files(sorted(files), nodes=put, edges=put_edges, dangling="keep")
            else:
                doomed.commit(nodes=put, edges=put_edges, dangling="keep")
        except (HoldfastError, Crashed):
            self.clock.advance(LONGER_THAN_ANY_LEASE_S)
        self.store = self._open()
        self.store.chain.reconcile(enforce=True)
        came = self._came(after)
        assert came <= 1 or everything is not None

    @rule()
    def reopen(self) -> None:
        self.store = self._open()

    @rule(pick=picks)
    def rollback(self, pick: int) -> None:
        target = self.history[pick % len(self.history)]
        self.rolled_back.append(self.current)
        self.store.chain.rollback(ref=str(target.number))
        self.current = target

    @rule()
    def forward(self) -> None:
        if not self.rolled_back:
            with pytest.raises(SnapshotNotFound):
                self.store.chain.forward()
            return
        target = self.rolled_back[-1]
        if target not in self.history:
            with pytest.raises(SnapshotCollected):
                self.store.chain.forward()
            return
        self.store.chain.forward()
        self.current = self.rolled_back.pop()

    @rule(pick=picks, name=names, value=st.none() | names)
    def tag(self, pick: int, name: str, value: str | None) -> None:
        target = self.history[pick % len(self.history)]
        self.store.tag_snapshot(target.number, {name: value})
        target.tags.pop(name, None)
        if value is not None:
            target.tags[name] = value

    @rule(retention=st.integers(min_value=1, max_value=4))
    def collect(self, retention: int) -> None:
        plan = self.store.gc_collect(retention)
        newest = self.history[-retention:]
        leaving = [each for each in self.history if each not in newest and each is not self.current and not each.tags]
        assert {move.target_id for move in plan.snapshots} == {each.number for each in leaving}
        self.history = [each for each in self.history if each not in leaving]
        self.collected |= {each.number for each in leaving}
        if plan.collection is not None:
            self.collections[plan.collection] = leaving

    @precondition(lambda self: self.collections)
    @rule(pick=picks)
    def restore(self, pick: int) -> None:
        collection = sorted(self.collections)[pick % len(self.collections)]
        self.store.gc_restore(collection)
        back = self.collections.pop(collection)
        self.history = sorted([*self.history, *back], key=lambda each: each.number)
        self.collected -= {each.number for each in back}

    @rule()
    def purge(self) -> None:
        self.store.gc_purge(grace_s=0)
        self.collections.clear()

    @rule(one=picks, other=picks)
    def compare(self, one: int, other: int) -> None:
        self._check_difference(*(self.history[pick % len(self.history)] for pick in (one, other)))

    def look_at_everything(self) -> None:
        fresh = self._open()
        for version in self.history:
            check_version(fresh, version.number, version.paper)
            self._check_segments(fresh, version)
        assert list(fresh.direct().nodes()) == self.current.paper.nodes_like(lambda _: True)
        assert list(fresh.direct().edges()) == self.current.paper.edges_like(lambda _: True)
        self._check_difference(self.history[0], self.history[-1])

    def _check_difference(self, before: Version, after: Version) -> None:
        check_difference(self.store, (before.number, before.paper), (after.number, after.paper))

    def _check_segments(self, store: GraphStore, version: Version) -> None:
        for segment in store.state(version.number).segments:
            assert self.segments.setdefault(segment.segment_id, segment.checksum) == segment.checksum

    # -- what must hold ------------------------------------------------------------------------------------------------

    @invariant()
    def what_is_visible_is_the_models(self) -> None:
        if not self.history:
            return
        self.steps += 1
        assert self.store.current() == self.current.number
        assert {each.snapshot.manifest_id: dict(each.tags) for each in self.store.list_snapshots()} == {
            each.number: each.tags for each in self.history
        }
        check_version(self.store, self.current.number, self.current.paper)
        self._check_segments(self.store, self.current)
        direct, paper, turn = self.store.direct(), self.current.paper, self.steps
        check_selection(direct, paper, FILES[turn % len(FILES)], TYPES[turn % len(TYPES)])
        other = self.history[self.steps % len(self.history)]
        if other is not self.current:
            check_version(self.store, other.number, other.paper)

    @invariant()
    def nothing_is_broken(self) -> None:
        if self.history:
            assert self.store.chain.verify() == []


TestGraphMachine = GraphMachine.TestCase
TestGraphMachine.settings = settings(max_examples=22, stateful_step_count=18, deadline=None)
