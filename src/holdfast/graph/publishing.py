"""From segments to a visible version: the lock, the run, the parts of the manifest and the one commit (G9, G13, G18).

A commit of this process makes its segments in memory and knows their keys before it registers its run. A build writes
elsewhere, in tasks that may run twice, die or be late: it reserves keys for them first. Either way files are claimed
before they are written, and come before the manifest, which comes before the pointer.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import BinaryIO, cast

import pyarrow as pa

from holdfast.chain import Chain, Committed, InputPin, Layout, Manifest, ManifestDraft, Run, Superseded, Unknown
from holdfast.chain.numbering import reserve
from holdfast.errors import AlreadyExists, BuildFailed, Conflict, StoreUnavailable
from holdfast.fencing import KeepAlive, LockGuard
from holdfast.graph.parts import Arrangement, arrange, totals
from holdfast.graph.records import hash_texts
from holdfast.graph.segment import SegmentDescriptor, SegmentKind
from holdfast.graph.segment_index import Hashes
from holdfast.graph.segment_writer import SegmentWriter, encode_segment
from holdfast.graph.state import stats_of_totals
from holdfast.storage.objects import ObjectStore

__all__ = ["GraphBuild", "NewSegment", "Note", "Publisher", "SegmentSlots"]

LOCK_TTL_S = 60.0
LEASE_S = 3600.0
IDS_AT_A_TIME = 32
SLOTS_PER_TASK = 8
"""How often a task may write: Spark tries four times by itself, speculates, and may run a stage again."""
WRITERS = 4
_CHUNK_BYTES = 8 << 20
_PARALLEL_ROWS = 50_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """What a commit says about itself."""

    why: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    inputs: Sequence[InputPin] = ()


@dataclass(frozen=True, slots=True)
class NewSegment:
    """Sorted rows that will be a segment, and how many older records they hide."""

    kind: SegmentKind
    rows: pa.Table
    hidden_count: int


class Publisher:
    """The one way by which a graph's chain moves."""

    def __init__(self, chain: Chain) -> None:
        self._chain = chain
        self._free_ids: list[int] = []
        self._held: tuple[LockGuard, KeepAlive] | None = None

    def next_segment_id(self) -> int:
        """A segment id that nobody else has or will ever get (G10)."""
        if not self._free_ids:
            self._free_ids = list(reserve(self._chain.handle, self._chain.layout.segment_ids_key, IDS_AT_A_TIME))
        return self._free_ids.pop(0)

    @contextmanager
    def writing(self, operation: str) -> Iterator[LockGuard]:
        """Hold the lock for as long as the block runs; inside another such block, it is held already."""
        if self._held is not None:
            guard, keep_alive = self._held
            keep_alive.check()
            self._chain.look()  # taking the lock would have done that
            yield guard
            return
        with (
            self._chain.lock(operation=operation, ttl_s=LOCK_TTL_S) as guard,
            KeepAlive(lambda: guard.extend(LOCK_TTL_S), every_s=LOCK_TTL_S / 3) as keep_alive,
        ):
            self._held = guard, keep_alive
            try:
                yield guard
            finally:
                self._held = None

    def publish(
        self,
        guard: LockGuard,
        segments: Sequence[NewSegment],
        *,
        base: Manifest | None,
        note: Note,
        replacing: Collection[int] = (),
    ) -> Committed:
        """Write segments and make them part of the next version, in the place of those that are `replacing`."""
        made = self._encoded(segments)
        arrangement = self.arranged(base, [one for _, one in made], replacing, in_place=bool(replacing))
        claims = (*(one.path for _, one in made), *arrangement.files)
        # The base needs no pin: it is visible, and should that change, the pointer's own compare-and-swap will tell.
        run = self._chain.begin_run(claims=claims)
        for data, descriptor in made:
            self._chain.store.upload(descriptor.path, [data])
        return self.commit(guard, run, arrangement, base=base, note=note)

    @contextmanager
    def building(
        self, operation: str, *, run_id: str | None = None, admit: Callable[[], None] | None = None
    ) -> Iterator[GraphBuild]:
        """Hold the lock and a registered run for the length of a build; whatever fails, nothing of it is visible.

        `admit` is asked once the lock is held and before anything is written. Where there is no graph yet, an empty
        one is made then.
        """
        chain = self._chain
        with chain.lock(operation=operation, ttl_s=LOCK_TTL_S) as guard:
            if admit is not None:
                admit()
            if chain.seen is None:
                self.publish(guard, [], base=None, note=Note(why="created"))
            base = chain.load_manifest(chain.layout.ref_of(chain.find().manifest_path))
            run = chain.begin_run(run_id, base=base, lease_s=LEASE_S, claims=(self._scratch_key(),))
            with ExitStack() as leases:
                checks = [
                    leases.enter_context(KeepAlive(lambda: guard.extend(LOCK_TTL_S), every_s=LOCK_TTL_S / 3)),
                    leases.enter_context(KeepAlive(run.renew, every_s=LEASE_S / 3)),
                ]
                build = GraphBuild(self, chain, base, run, guard, leases, checks)
                try:
                    yield build
                except BaseException as error:
                    leases.close()
                    if not build.is_undecided:
                        run.give_up(error)
                    raise

    def _scratch_key(self) -> str:
        """A run claims something from the beginning: a key that only it could ever write."""
        return self._chain.layout.segment_part_key(self.next_segment_id())

    def _encoded(self, segments: Sequence[NewSegment]) -> list[tuple[bytes, SegmentDescriptor]]:
        numbers = [self.next_segment_id() for _ in segments]

        def encode(number: int, segment: NewSegment, hashes: Hashes | None = None) -> tuple[bytes, SegmentDescriptor]:
            return encode_segment(
                segment.kind,
                segment.rows,
                segment_id=number,
                path=self._chain.layout.segment_key(number, segment.kind),
                hidden_count=segment.hidden_count,
                hashes=hashes,
            )

        if sum(len(segment.rows) for segment in segments) < _PARALLEL_ROWS:
            return [encode(number, segment) for number, segment in zip(numbers, segments, strict=True)]
        with ThreadPoolExecutor(WRITERS) as pool:
            return list(pool.map(encode, numbers, segments, _target_hashes(segments)))

    def arranged(
        self,
        base: Manifest | None,
        made: Sequence[SegmentDescriptor],
        replacing: Collection[int],
        *,
        in_place: bool,
    ) -> Arrangement:
        """What the next manifest lists."""
        return arrange(
            self._chain.handle,
            base,
            [descriptor.to_artifact() for descriptor in made],
            set(replacing),
            new_part=lambda: self._chain.layout.segment_part_key(self.next_segment_id()),
            in_place=in_place,
        )

    def commit(
        self, guard: LockGuard, run: Run, arrangement: Arrangement, *, base: Manifest | None, note: Note
    ) -> Committed:
        """Write the parts, the manifest and the pointer; say what became of it."""
        chain = self._chain
        for path, data in arrangement.files.items():
            chain.store.upload(path, [data])
        draft = ManifestDraft(
            artifacts=arrangement.artifacts,
            inputs=tuple(note.inputs),
            tags=dict(note.tags),
            payload={"stats": stats_of_totals(totals(arrangement.artifacts)).to_json()},
        )
        outcome = chain.publish(draft, run=run, permit=chain.permit(guard), why=note.why, base=base)
        match outcome:
            case Committed():
                return outcome
            case Superseded(winner=winner):
                raise Conflict(
                    f"another writer committed first ({winner}); nothing of this commit is visible: look, commit again"
                )
            case Unknown(commit_ulid=ulid, reason=reason):
                raise StoreUnavailable(
                    f"whether the commit happened is not known yet ({reason}); ask `holdfast status {ulid}` first"
                )


def _target_hashes(segments: Sequence[NewSegment]) -> list[Hashes | None]:
    """For each segment of edges whose targets come as numbers into a dictionary, the hash of each row's target.

    Segments of one commit share that dictionary: its texts are hashed once, and not once for every row group.
    """
    hashed: dict[tuple[int, int], Hashes] = {}
    edge_count = sum(len(segment.rows) for segment in segments if segment.kind == "edges")
    found: list[Hashes | None] = []
    for segment in segments:
        targets = segment.rows.column("target").chunks if segment.kind == "edges" else []
        if len(targets) != 1 or not pa.types.is_dictionary(targets[0].type):
            found.append(None)
            continue
        texts = targets[0].dictionary
        if len(texts) > edge_count:  # those of other edges, which stay as they are
            found.append(None)
            continue
        identity = (len(texts), texts.buffers()[-1].address)
        if identity not in hashed:
            hashed[identity] = hash_texts(texts)
        found.append(hashed[identity][targets[0].indices.to_numpy()])
    return found


class GraphBuild:
    """A registered run that holds the graph's lock, for segments that are written elsewhere."""

    def __init__(
        self,
        publisher: Publisher,
        chain: Chain,
        base: Manifest,
        run: Run,
        guard: LockGuard,
        leases: ExitStack,
        checks: Sequence[KeepAlive],
    ) -> None:
        self.base = base
        """The visible version when the build began. It stays whole for as long as the build runs."""
        self._publisher = publisher
        self._chain = chain
        self._run = run
        self._guard = guard
        self._leases = leases
        self._checks = checks
        self.is_undecided = False
        """Whether the commit may or may not have happened: then the run must not be called failed."""

    @property
    def run_id(self) -> str:
        return self._run.run_id

    def check(self) -> None:
        """LockLost once this build can no longer be published; costs no request. Ask it between steps of long work."""
        for lease in self._checks:
            lease.check()

    def slots(self, kind: SegmentKind, tasks: int) -> SegmentSlots:
        """Keys for the segments of so many tasks, reserved and claimed."""
        layout = self._chain.layout
        ids = reserve(self._chain.handle, layout.segment_ids_key, tasks * SLOTS_PER_TASK)
        self._run.claim(*(layout.segment_key(number, kind) for number in ids))
        return SegmentSlots(store=self._chain.store, layout=layout, kind=kind, ids=ids)

    def publish(
        self, made: Sequence[SegmentDescriptor], *, replacing: Collection[int], in_place: bool, note: Note
    ) -> Committed:
        """Make these segments part of the next version and take others away.

        `in_place` puts them where the newest was that leaves, as a compaction must. Otherwise they are the newest.
        """
        arrangement = self._publisher.arranged(self.base, made, replacing, in_place=in_place)
        self.check()
        if arrangement.files:
            self._run.claim(*arrangement.files)
        self._leases.close()  # a lease that is renewed by another thread could move under the commit's feet
        try:
            return self._publisher.commit(self._guard, self._run, arrangement, base=self.base, note=note)
        except StoreUnavailable:
            self.is_undecided = True
            raise


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentSlots:
    """Where tasks may write their segments. Pickles; what is pickled can write files and cannot publish."""

    store: ObjectStore
    layout: Layout
    kind: SegmentKind
    ids: range

    def write(self, task: int, rows: Iterable[pa.Table], *, attempt: int = 0) -> SegmentDescriptor | None:
        """One segment of sorted rows, in bounded memory; None if there are none.

        Each attempt writes to a key that no other has written: its own, or the next that is free.
        """
        with (
            tempfile.TemporaryFile(prefix="holdfast-segment-") as spool,
            SegmentWriter(self.kind, cast(BinaryIO, spool)) as writer,
        ):
            for some in rows:
                writer.write(some)
            if not writer.row_count:
                return None
            written = writer.finish(segment_id=0, path="", hidden_count=0)
            for number in self._numbers(task, attempt):
                path = self.layout.segment_key(number, self.kind)
                spool.seek(0)
                try:
                    self.store.upload(path, iter(lambda: spool.read(_CHUNK_BYTES), b""))
                except AlreadyExists:
                    continue
                return replace(written, segment_id=number, path=path)
        raise BuildFailed(
            f"nothing was published: task {task} has been tried more than {SLOTS_PER_TASK} times; build again"
        )

    def _numbers(self, task: int, attempt: int) -> list[int]:
        mine = self.ids[task * SLOTS_PER_TASK : (task + 1) * SLOTS_PER_TASK]
        first = attempt % SLOTS_PER_TASK
        return [*mine[first:], *mine[:first]]
