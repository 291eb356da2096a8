"""A graph data set: versions of nodes and edges on any store, with everything a chain gives them (G8-G14).

    store = GraphStore.create("file:///data/code-graph")
    store.commit(nodes=nodes, edges=edges, why="first load")
    store.replace_files(["src/app.py"], nodes=…, edges=…)
    store.snapshot().node("src/app.py->FUNCTION->main")

A store object is for one thread that writes; the snapshots it gives may be read by any number.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa

from holdfast.chain import (
    Chain,
    CollectionPlan,
    CollectionRecord,
    Committed,
    Diff,
    InputPin,
    Manifest,
    ManifestRef,
    Move,
    Purged,
    TaggedSnapshot,
    chain_on,
    graph_layout,
)
from holdfast.chain.parts import expand
from holdfast.clock import Clock, Randomness
from holdfast.errors import AlreadyExists, BadInput, Conflict, NotAChain, SnapshotNotFound
from holdfast.graph.changes import Changes, plan_changes
from holdfast.graph.direct import DirectGraph
from holdfast.graph.listing import Versions
from holdfast.graph.loading import load_arrays
from holdfast.graph.publishing import GraphBuild, NewSegment, Note, Publisher
from holdfast.graph.records import Edge, Node
from holdfast.graph.segment import SegmentDescriptor, SegmentKind, read_segment
from holdfast.graph.segments_view import SegmentsView
from holdfast.graph.snapshot import GraphSnapshot
from holdfast.graph.state import GraphState
from holdfast.graph.view import LayeredView, SnapshotView
from holdfast.storage.memory import MemoryStore
from holdfast.storage.objects import ObjectStore
from holdfast.storage.url import open_store

__all__ = ["CommitResult", "GraphStore"]

SNAPSHOTS_KEPT = 4
"""How many versions a store object keeps in memory."""
LAYERED_ROWS_MAX = 20_000
"""Once later commits have so many rows, the next one looks at the graph anew."""
DIRECT_SHARE = 50
"""A commit of less than one row in so many of the graph does not load it."""
SEGMENT_ROWS_MAX = 524_288
"""A commit of more rows makes several segments of each kind, at the same time."""
READERS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitResult:
    """What a commit did. Without any change there is no new version."""

    version: int
    committed: bool
    changes: Changes


class GraphStore:
    """One graph data set."""

    def __init__(self, chain: Chain) -> None:
        self._chain = chain
        self._snapshots: OrderedDict[int, GraphSnapshot] = OrderedDict()
        self._views: dict[int, LayeredView] = {}
        self._publisher = Publisher(chain)
        self._versions = Versions(chain)
        self.is_ephemeral = False
        self._base: tuple[str, Manifest] | None = None

    @classmethod
    def create(
        cls,
        place: str | ObjectStore | Chain,
        *,
        by: str | None = None,
        clock: Clock | None = None,
        randomness: Randomness | None = None,
    ) -> GraphStore:
        """Make an empty graph (version 1) where there is none yet."""
        store = _chain_at(place, by=by, clock=clock, randomness=randomness)
        if store.handle.read_pointer() is not None:
            raise AlreadyExists(store.layout.pointer_key)
        graph = cls(store)
        with graph._publisher.writing("create a graph") as guard:
            graph._publisher.publish(guard, [], base=None, note=Note(why="created"))
        return graph

    @classmethod
    def open(
        cls,
        place: str | ObjectStore | Chain,
        *,
        by: str | None = None,
        clock: Clock | None = None,
        randomness: Randomness | None = None,
    ) -> GraphStore:
        """Open a graph that is there."""
        chain = _chain_at(place, by=by, clock=clock, randomness=randomness)
        if chain.handle.read_pointer() is None:
            raise SnapshotNotFound(f"no graph at {chain.store.url!r}; `GraphStore.create` makes one")
        return cls(chain)

    @classmethod
    def ephemeral(cls, *, clock: Clock | None = None, randomness: Randomness | None = None) -> GraphStore:
        """A graph in memory only, by the same code."""
        graph = cls.create(MemoryStore(), clock=clock, randomness=randomness)
        graph.is_ephemeral = True
        return graph

    @property
    def chain(self) -> Chain:
        return self._chain

    # -- versions ---------------------------------------------------------------------------------------------------

    def current(self) -> int:
        """The visible version: one read."""
        found = self._chain.current()
        assert found is not None
        return found.manifest_id

    def find(
        self, *, version: int | None = None, tag: tuple[str, str] | None = None, at: datetime | None = None
    ) -> Move:
        """One version, by number, tag or time; the visible one if nothing is given."""
        return self._chain.find(ref=None if version is None else str(version), tag=tag, at=at)

    def load_manifest(
        self, version: int | None = None, *, tag: tuple[str, str] | None = None, at: datetime | None = None
    ) -> Manifest:
        return self._chain.load_manifest(
            self._chain.layout.ref_of(self.find(version=version, tag=tag, at=at).manifest_path)
        )

    def state(
        self, version: int | None = None, *, tag: tuple[str, str] | None = None, at: datetime | None = None
    ) -> GraphState:
        """The segments of a version, checked."""
        return self._state_of(self.load_manifest(version, tag=tag, at=at))

    def _state_of(self, manifest: Manifest) -> GraphState:
        return GraphState.of_manifest(manifest, expand(self._chain.handle, manifest))

    def snapshot(
        self, version: int | None = None, *, tag: tuple[str, str] | None = None, at: datetime | None = None
    ) -> GraphSnapshot:
        """A version in memory. It stays as it is while writers commit."""
        manifest = self.load_manifest(version, tag=tag, at=at)
        kept = self._snapshots.get(manifest.manifest_id)
        if kept is None:
            kept = self._load(self._state_of(manifest))
            self._snapshots[manifest.manifest_id] = kept
            while len(self._snapshots) > SNAPSHOTS_KEPT:
                self._snapshots.popitem(last=False)
        self._snapshots.move_to_end(manifest.manifest_id)
        return kept

    def direct(
        self, version: int | None = None, *, tag: tuple[str, str] | None = None, at: datetime | None = None
    ) -> DirectGraph:
        """A version as it lies in the store: nothing is loaded, each query reads what it needs."""
        return DirectGraph(self._chain.store, self.state(version, tag=tag, at=at))

    def _load(self, state: GraphState) -> GraphSnapshot:
        nodes, edges = self.read_segments(state.nodes), self.read_segments(state.edges)
        return GraphSnapshot(load_arrays(nodes, edges, version=state.version))

    def read_segments(self, segments: Sequence[SegmentDescriptor]) -> list[pa.Table]:
        """The rows of some segments, several at a time."""
        if len(segments) < 2:
            return [read_segment(self._chain.store, segment) for segment in segments]
        with ThreadPoolExecutor(READERS) as pool:
            return list(pool.map(lambda segment: read_segment(self._chain.store, segment), segments))

    # -- writing ----------------------------------------------------------------------------------------------------

    def commit(
        self,
        *,
        nodes: pa.Table | Sequence[Node] | None = None,
        edges: pa.Table | Sequence[Edge] | None = None,
        remove_nodes: Sequence[str] = (),
        remove_edges: pa.Table | Sequence[Edge] | None = None,
        dangling: str = "refuse",
        tags: Mapping[str, str] | None = None,
        inputs: Sequence[InputPin] = (),
        why: str = "",
    ) -> CommitResult:
        """Put nodes and edges, take others away, and make that the next version."""
        return self._change(
            nodes=nodes,
            edges=edges,
            files=None,
            remove_nodes=pa.array(list(remove_nodes), pa.string()),
            remove_edges=remove_edges,
            dangling=dangling,
            note=Note(why=why, tags=tags or {}, inputs=inputs),
        )

    def replace_files(
        self,
        files: Sequence[str],
        *,
        nodes: pa.Table | Sequence[Node] | None = None,
        edges: pa.Table | Sequence[Edge] | None = None,
        dangling: str = "refuse",
        tags: Mapping[str, str] | None = None,
        inputs: Sequence[InputPin] = (),
        why: str = "",
    ) -> CommitResult:
        """Make these the whole contents of `files`; what was there and is not among them leaves (G15)."""
        if not files:
            raise BadInput("name at least one file to replace")
        return self._change(
            nodes=nodes,
            edges=edges,
            files=pa.array(list(files), pa.string()),
            remove_nodes=None,
            remove_edges=None,
            dangling=dangling,
            note=Note(why=why or "replaced files", tags=tags or {}, inputs=inputs),
        )

    def _change(
        self,
        *,
        nodes: pa.Table | Sequence[Node] | None,
        edges: pa.Table | Sequence[Edge] | None,
        files: pa.Array | None,
        remove_nodes: pa.Array | None,
        remove_edges: pa.Table | Sequence[Edge] | None,
        dangling: str,
        note: Note,
    ) -> CommitResult:
        with self._publisher.writing("commit to a graph") as guard:
            base = self._visible()
            view = self._view(base, sum(0 if given is None else len(given) for given in (nodes, edges, remove_nodes)))
            changes = plan_changes(
                view,
                nodes=nodes,
                edges=edges,
                files=files,
                remove_nodes=remove_nodes,
                remove_edges=remove_edges,
                dangling=dangling,
            )
            if not changes:
                return CommitResult(version=base.manifest_id, committed=False, changes=changes)
            outcome = self._publisher.publish(guard, new_segments(changes), base=base, note=note)
            self._base = outcome.manifest_hash, outcome.manifest
            self._remember(outcome.manifest.manifest_id, view, changes)
            return CommitResult(version=outcome.manifest.manifest_id, committed=True, changes=changes)

    def _visible(self) -> Manifest:
        """The visible manifest, under the lock: the one this object wrote last needs no reading again."""
        seen = self._chain.seen
        if seen is not None and self._base is not None and seen.pointer.manifest_hash == self._base[0]:
            return self._base[1]
        return self.load_manifest()

    def _remember(self, version: int, view: LayeredView, changes: Changes) -> None:
        """What the next writer finds, where that is cheaper to tell than to read again."""
        rows = view.row_count + len(changes.nodes) + len(changes.edges)
        self._views = {} if rows > LAYERED_ROWS_MAX else {version: view.with_changes(changes.nodes, changes.edges)}

    def _view(self, base: Manifest, rows: int) -> LayeredView:
        """What is there now, for a writer of so many rows: the version this object last wrote needs no reading again.

        A few rows are looked up where they lie; for many it is cheaper to load the graph.
        """
        known = self._views.get(base.manifest_id)
        if known is None:
            loaded = self._snapshots.get(base.manifest_id)
            state = self._state_of(base)
            if loaded is None and rows * DIRECT_SHARE > state.stats.total_nodes + state.stats.total_edges:
                loaded = self.snapshot(base.manifest_id)
            known = LayeredView(
                SegmentsView(self._chain.store, state) if loaded is None else SnapshotView(loaded.arrays)
            )
            self._views = {base.manifest_id: known}
        return known

    def replace_segments(
        self, base: Manifest, removed: Sequence[SegmentDescriptor], added: Sequence[NewSegment], *, why: str
    ) -> Committed:
        """Put other segments in the place of some: for compaction, which changes no answer."""
        with self._publisher.writing("compact a graph") as guard:
            if self.current() != base.manifest_id:
                raise Conflict(f"version {base.manifest_id} is no longer the visible one: look, then compact again")
            return self._publisher.publish(
                guard, added, base=base, note=Note(why=why), replacing={one.segment_id for one in removed}
            )

    @contextmanager
    def writing(self, operation: str = "a series of commits") -> Iterator[None]:
        """Hold the graph's lock for a series of commits, so that each costs less: for a writer that stays.

        Other writers get LockHeld meanwhile. Should the lock be lost all the same, the next commit says so.
        """
        with self._publisher.writing(operation):
            yield

    def building(
        self, operation: str, *, run_id: str | None = None, admit: Callable[[], None] | None = None
    ) -> AbstractContextManager[GraphBuild]:
        """Hold the lock and a run while segments are written elsewhere, such as in Spark's executors."""
        return self._publisher.building(operation, run_id=run_id, admit=admit)

    def next_segment_id(self) -> int:
        """A segment id that nobody else has or will ever get (G10)."""
        return self._publisher.next_segment_id()

    # -- tags, differences, keeping house ---------------------------------------------------------------------------

    def tag_snapshot(self, version: int | None, changes: Mapping[str, str | None]) -> None:
        self._chain.tag(self.find(version=version), changes)

    def find_snapshot(self, key: str, value: str) -> ManifestRef:
        """The newest version that is tagged key=value."""
        return self._versions.find(key, value)

    def list_snapshots(self, key: str | None = None, value: str | None = None) -> list[TaggedSnapshot]:
        """Versions with their tags, the oldest first; only those that have the tag, if one is given."""
        return self._versions.list(key, value)

    def diff_snapshots(self, source: int, target: int) -> Diff:
        """Which segments two versions do not share; for records see `holdfast.graph.version_diff`."""
        return self._chain.diff(self.find(version=source), self.find(version=target))

    def gc_collect(self, retention: int) -> CollectionPlan:
        """Condemn what only versions outside of the newest so many need. A graph in memory keeps all it has."""
        if self.is_ephemeral:
            return CollectionPlan(snapshots=(), kept=(), runs=(), condemned=(), unreadable=())
        return self._chain.collect(retention=retention)

    def gc_purge(self, *, grace_s: float | None = None) -> Purged:
        """Delete what was condemned long enough ago."""
        if self.is_ephemeral:
            return Purged(collections=(), deleted=())
        return self._chain.purge() if grace_s is None else self._chain.purge(grace_s=grace_s)

    def gc_restore(self, collection: str) -> CollectionRecord | None:
        """Take a collection back, before it is purged; None for a graph in memory, which has none."""
        return None if self.is_ephemeral else self._chain.restore(collection)


def new_segments(changes: Changes) -> list[NewSegment]:
    """What a commit stores. Which of several segments hides a record does not matter: the sum does."""
    made: list[NewSegment] = []
    kinds: tuple[SegmentKind, SegmentKind] = ("nodes", "edges")
    for kind, rows, hidden in zip(
        kinds, (changes.nodes, changes.edges), (changes.hidden_nodes, changes.hidden_edges), strict=True
    ):
        pieces = max(1, -(-len(rows) // SEGMENT_ROWS_MAX))
        size = -(-len(rows) // pieces)
        made += [
            NewSegment(kind, rows.slice(start, size), 0 if start else hidden)
            for start in range(0, len(rows), max(1, size))
        ]
    return made


def _chain_at(
    place: str | ObjectStore | Chain, *, by: str | None, clock: Clock | None, randomness: Randomness | None
) -> Chain:
    """The chain of a graph; one that is given as such says itself who writes, and on which clock."""
    if isinstance(place, Chain):
        if place.layout.name != graph_layout().name:
            raise NotAChain(f"{place.store.url!r} is opened as a {place.layout.name} chain: a graph is a graph one")
        return place
    store = open_store(place.partition("#")[0]) if isinstance(place, str) else place
    return chain_on(store, graph_layout(), by=by, clock=clock, randomness=randomness)
