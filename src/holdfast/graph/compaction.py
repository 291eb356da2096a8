"""Compaction: fewer and larger segments, and the same answers (G17).

    compact(store)              # what regular upkeep merges: see `compact_plan.py`
    compact(store, all=True)    # everything, into sorted segments; no tombstone is left

1. Merging reads and writes in the open: nobody waits for it. The run claims its keys before they are written, and pins
   the version whose segments are read. Only the commit takes the graph's lock.
2. Commits that came in between are kept: they are newer than all that was merged, so the merged segments take the place
   of the old ones in the version that is visible by then. If that version no longer has these segments as they were,
   after a rollback or another compaction, it is a Conflict, and nothing has happened.
3. One version merges one group of each kind. A graph that nobody looked after may need several: `compact` makes one
   after the other until nothing is left to do, and none at all if there was nothing.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import BinaryIO, cast

import pyarrow as pa

from holdfast.chain import Chain, Manifest, Run
from holdfast.errors import BadInput, Conflict, CorruptRecord, LockHeld, StoreUnavailable
from holdfast.fencing import KeepAlive, LockGuard
from holdfast.graph.compact_merge import merge_segments
from holdfast.graph.compact_plan import FAN, SEGMENT_ROWS_MAX, MergeGroup, plan_all, plan_tiers
from holdfast.graph.parts import totals
from holdfast.graph.publishing import Note, Publisher
from holdfast.graph.segment import SegmentDescriptor, SegmentKind
from holdfast.graph.segment_writer import SegmentWriter
from holdfast.graph.state import GraphState
from holdfast.graph.store import GraphStore

__all__ = ["Compacted", "compact", "plan_compaction"]

ROUNDS_MAX = 64
LEASE_S = 3600.0
LOCK_ATTEMPTS_MAX = 30
LOCK_WAIT_S = 1.0
_CHUNK_BYTES = 8 << 20
_KINDS: tuple[SegmentKind, SegmentKind] = ("nodes", "edges")

Groups = Mapping[SegmentKind, MergeGroup]


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    """What a compaction did."""

    version: int
    """The visible version afterwards; the one before if there was nothing to do."""
    rounds: int
    """How many versions it made."""
    merged: int
    """Segments that were merged, of both kinds; those that another round merged again count again."""
    written: int
    """Segments that took their place."""
    bytes_read: int
    bytes_written: int
    segments_before: int
    segments_after: int

    @property
    def committed(self) -> bool:
        return self.rounds > 0


def compact(
    store: GraphStore,
    *,
    all: bool = False,  # noqa: A002 - it is what everybody calls it
    fan: int = FAN,
    rows_max: int = SEGMENT_ROWS_MAX,
    why: str = "",
) -> Compacted:
    """Merge what the rule says, or everything; see the head of this file."""
    _check(fan, rows_max)
    state = store.state()
    done = Compacted(
        version=state.version,
        rounds=0,
        merged=0,
        written=0,
        bytes_read=0,
        bytes_written=0,
        segments_before=len(state.segments),
        segments_after=len(state.segments),
    )
    for _ in range(ROUNDS_MAX):
        base = store.load_manifest()
        state = store.state(base.manifest_id)
        groups = plan_compaction(state, all=all, fan=fan, rows_max=rows_max)
        if not groups:
            break
        did = _one_round(store, base, state, groups, rows_max, why or "compacted")
        merged = [segment for group in groups.values() for segment in group.segments]
        done = replace(
            done,
            version=did.version,
            rounds=done.rounds + 1,
            merged=done.merged + len(merged),
            written=done.written + len(did.made),
            bytes_read=done.bytes_read + sum(segment.byte_size for segment in merged),
            bytes_written=done.bytes_written + sum(segment.byte_size for segment in did.made),
            segments_after=did.segments_after,
        )
        if all:
            break
    return done


def plan_compaction(
    state: GraphState,
    *,
    all: bool = False,  # noqa: A002
    fan: int = FAN,
    rows_max: int = SEGMENT_ROWS_MAX,
) -> Groups:
    """What the next round would merge, by kind; the oldest group first, where there are several of a kind."""
    _check(fan, rows_max)
    found = {
        kind: plan_all(segments, rows_max=rows_max) if all else plan_tiers(segments, fan=fan, rows_max=rows_max)
        for kind, segments in zip(_KINDS, (state.nodes, state.edges), strict=True)
    }
    return {kind: groups[0] for kind, groups in found.items() if groups}


def _check(fan: int, rows_max: int) -> None:
    if fan < 2 or rows_max < 1:
        raise BadInput(f"fan={fan}, rows_max={rows_max}: they are at least 2 and 1")


# -- one round --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Round:
    version: int
    made: Sequence[SegmentDescriptor]
    segments_after: int


def _one_round(
    store: GraphStore, base: Manifest, before: GraphState, groups: Groups, rows_max: int, why: str
) -> _Round:
    chain, publisher = store.chain, Publisher(store.chain)
    keys = {kind: _Keys(publisher, chain, kind, -(-group.rows // rows_max)) for kind, group in groups.items()}
    claims = tuple(path for many in keys.values() for path in many.paths)
    run = chain.begin_run(base=base, lease_s=LEASE_S, claims=claims)
    is_undecided = False
    try:
        with KeepAlive(run.renew, every_s=LEASE_S / 3) as lease:
            made = [one for kind, group in groups.items() for one in _merged(chain, group, keys[kind], rows_max, lease)]
        is_undecided = True
        return _published(store, publisher, run, before, groups, made, why)
    except BaseException as error:
        if not (is_undecided and isinstance(error, StoreUnavailable)):
            run.give_up(error)
        raise


class _Keys:
    """Numbers and keys for segments, known before anything is written."""

    def __init__(self, publisher: Publisher, chain: Chain, kind: SegmentKind, count: int) -> None:
        self.numbers = [publisher.next_segment_id() for _ in range(count)]
        self.paths = [chain.layout.segment_key(number, kind) for number in self.numbers]


def _merged(chain: Chain, group: MergeGroup, keys: _Keys, rows_max: int, lease: KeepAlive) -> list[SegmentDescriptor]:
    """Merge and write one group."""
    rows = _Rows(merge_segments(chain.store, group.segments, drop_tombstones=group.drops_tombstones))
    made: list[SegmentDescriptor] = []
    for number, path in zip(keys.numbers, keys.paths, strict=True):
        if rows.is_empty():
            break
        lease.check()
        with (
            tempfile.TemporaryFile(prefix="holdfast-compact-") as spool,
            SegmentWriter(group.segments[0].kind, cast(BinaryIO, spool)) as out,
        ):
            for some in rows.take(rows_max):
                out.write(some)
            made.append(out.finish(segment_id=number, path=path, hidden_count=0))
            spool.seek(0)
            chain.store.upload(path, iter(partial(spool.read, _CHUNK_BYTES), b""))
    assert rows.is_empty(), "there are as many keys as there can be segments"
    return _with_hidden(group, made)


class _Rows:
    """Tables that follow each other, taken in pieces of so many rows."""

    def __init__(self, tables: Iterator[pa.Table]) -> None:
        self._tables = tables
        self._rest: pa.Table | None = None

    def is_empty(self) -> bool:
        while self._rest is None or not len(self._rest):
            self._rest = next(self._tables, None)
            if self._rest is None:
                return True
        return False

    def take(self, count: int) -> Iterator[pa.Table]:
        while count and not self.is_empty():
            rows = cast(pa.Table, self._rest)
            taken = min(count, len(rows))
            count -= taken
            self._rest = rows.slice(taken)
            yield rows.slice(0, taken)


def _with_hidden(group: MergeGroup, made: Sequence[SegmentDescriptor]) -> list[SegmentDescriptor]:
    """The sum of what is seen is as before; which of several segments hides a record does not matter (G5)."""
    hidden = sum(segment.record_count for segment in made) - group.net_records
    if hidden < 0 or (hidden and group.drops_tombstones):
        names = f"segments {group.segments[0].segment_id} to {group.segments[-1].segment_id}"
        raise CorruptRecord(
            names, f"what they say that they hide is {hidden:+} records from what they do; nothing merged"
        )
    return [replace(made[0], hidden_count=hidden), *made[1:]] if made else []


def _published(
    store: GraphStore,
    publisher: Publisher,
    run: Run,
    before: GraphState,
    groups: Groups,
    made: Sequence[SegmentDescriptor],
    why: str,
) -> _Round:
    """Put what was made in the place of what was merged, in the version that is visible by now."""
    leaving = {segment.segment_id for group in groups.values() for segment in group.segments}
    with _lock(publisher, store.chain) as guard:
        now = store.load_manifest()
        if now.manifest_id != before.version:
            _check_still_there(before, store.state(now.manifest_id), groups)
        arrangement = publisher.arranged(now, made, leaving, in_place=True)
        if arrangement.files:
            run.claim(*arrangement.files)
        outcome = publisher.commit(guard, run, arrangement, base=now, note=Note(why=why))
    left = sum(total.segments for total in totals(arrangement.artifacts).values())
    return _Round(outcome.manifest.manifest_id, made, left)


@contextmanager
def _lock(publisher: Publisher, chain: Chain) -> Iterator[LockGuard]:
    """The lock, once whoever commits just now has done: it would be a pity about the work."""
    with ExitStack() as held:
        for _ in range(LOCK_ATTEMPTS_MAX - 1):
            try:
                guard = held.enter_context(publisher.writing("compact a graph"))
            except LockHeld:
                chain.handle.clock.sleep(LOCK_WAIT_S)
            else:
                break
        else:
            guard = held.enter_context(publisher.writing("compact a graph"))
        yield guard


def _check_still_there(before: GraphState, now: GraphState, groups: Groups) -> None:
    """Conflict unless the segments that were merged, and all older ones, are as they were."""
    for kind, group in groups.items():
        (then, there) = (
            [segment.segment_id for segment in (state.nodes if kind == "nodes" else state.edges)[: group.end]]
            for state in (before, now)
        )
        if then != there:
            raise Conflict(
                f"version {now.version} no longer has the segments of version {before.version} that were merged; "
                "nothing has changed: look, then compact again"
            )
