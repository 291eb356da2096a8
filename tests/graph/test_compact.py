"""Compaction: fewer segments and the same answers, whoever commits meanwhile and whatever is left below."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest

from holdfast.chain import Run
from holdfast.errors import BadInput, Conflict, CorruptRecord, CorruptShard, LockHeld
from holdfast.graph import compact_merge, segment_writer
from holdfast.graph import compaction as compact_module
from holdfast.graph.compaction import compact, plan_compaction
from holdfast.graph.records import Edge, Node
from holdfast.graph.segment import SegmentDescriptor
from holdfast.graph.store import GraphStore
from holdfast.storage import LocalStore
from holdfast.testing.clock import SeededRandomness, VirtualClock
from holdfast.testing.faulty import CountingStore
from tests.graph.model import Paper, check_selection, check_version


class Kept:
    """A graph in a folder, and what it should say."""

    def __init__(self, root: Path) -> None:
        self.place = CountingStore(LocalStore(root, durable=False))
        self.clock = VirtualClock()
        self.store = GraphStore.create(self.place, clock=self.clock, randomness=SeededRandomness())
        self.paper = Paper()

    def another(self) -> GraphStore:
        return GraphStore.open(self.place, by="another", clock=self.clock, randomness=SeededRandomness(2))

    def commit(self, *nodes: Node, edges: tuple[Edge, ...] = (), gone: tuple[str, ...] = ()) -> int:
        self.paper = self.paper.changed(nodes, edges, remove_nodes=gone)
        return self.store.commit(nodes=list(nodes), edges=list(edges), remove_nodes=gone, dangling="keep").version

    def check(self, version: int | None = None) -> None:
        for store in (self.store, self.another()):
            check_version(store, version or store.current(), self.paper)
            for file, kind in (("x.py", "T"), ("y.py", "U"), ("z.py", "T")):
                check_selection(store.direct(version), self.paper, file, kind)


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Kept]:
    graph = Kept(tmp_path / "graph")
    yield graph
    assert graph.store.chain.verify() == []


def node(number: int, *, type: str = "T", file: str = "x.py", name: str = "") -> Node:  # noqa: A002
    return Node(semantic_id=f"n{number:05}", type=type, file=file, name=name)


def edge(source: int, target: int) -> Edge:
    return Edge(source=f"n{source:05}", target=f"n{target:05}", type="E")


def shape(segments: tuple[SegmentDescriptor, ...]) -> list[tuple[int, int, int]]:
    return [(one.record_count, one.tombstone_count, one.hidden_count) for one in segments]


def test_many_small_segments_become_few_and_every_version_answers_as_before(kept: Kept) -> None:
    """G17: merged by the rule; the new version and all old ones say the same."""
    papers = {}
    for number in range(20):
        version = kept.commit(node(number + 1), node(number // 2, name=f"{number}"), edges=(edge(number, 0),))
        papers[version] = kept.paper
    done = compact(kept.store)
    assert (done.segments_before, done.segments_after, done.rounds, done.written) == (40, 12, 1, 2)
    assert done.merged == 30
    assert done.version == kept.store.current() == 22
    assert len(kept.store.state().segments) == done.segments_after
    assert done.bytes_written == sum(one.byte_size for one in kept.store.state().segments if one.record_count > 10)
    kept.check()
    for version in (2, 11, 21):
        check_version(kept.another(), version, papers[version])


def test_compacting_what_needs_none_makes_no_version_and_writes_nothing(kept: Kept) -> None:
    """G17: nothing to merge, nothing written."""
    kept.commit(node(1), edges=(edge(1, 1),))
    kept.place.reset()
    for everything in (False, True):
        done = compact(kept.store, all=everything)
        assert (done.committed, done.version, done.segments_after) == (False, 2, 2)
    assert not {"put_new", "swap", "upload"} & kept.place.counts.keys()


def test_everything_becomes_one_sorted_run_without_tombstones(kept: Kept) -> None:
    """G16, G17: `all` leaves nothing that hides or is hidden, in segments of at most so many rows."""
    kept.commit(*(node(number) for number in range(10)), edges=tuple(edge(number, 0) for number in range(1, 10)))
    kept.commit(node(3, type="U", file="y.py"), gone=("n00004", "n00005"))
    kept.commit(node(4, file="z.py"))
    compact(kept.store, all=True, rows_max=4)
    state = kept.store.state()
    assert shape(state.nodes) == [(4, 0, 0), (4, 0, 0), (1, 0, 0)]
    assert shape(state.edges) == [(4, 0, 0), (3, 0, 0)]
    for before, after in zip(state.nodes, state.nodes[1:], strict=False):
        assert before.zone_map.max_id < after.zone_map.min_id
    kept.check()
    assert not compact(kept.store, all=True, rows_max=4).committed


def test_a_tombstone_stays_for_as_long_as_something_older_may_need_it(kept: Kept) -> None:
    """G16, G5: what a merged range hides below it stays hidden, and the stats still add up."""
    kept.commit(*(node(number) for number in range(40)), edges=(edge(1, 2), edge(2, 3)))
    kept.commit(gone=("n00001", "n00002"))
    kept.commit(node(3, type="U", file="y.py"), node(90))
    kept.commit(node(3, type="U", file="z.py"), gone=("n00090",))
    kept.commit(node(4, name="other"))
    with patch("holdfast.graph.compact_plan.LEVEL_ROWS", 10):
        done = compact(kept.store, fan=4)
    assert done.committed
    oldest, merged = kept.store.state().nodes
    assert shape((oldest,)) == [(40, 0, 0)]
    # 1 and 2 are gone, 90 came and went; 3 moved from where it was below, 4 changed there
    assert shape((merged,)) == [(2, 4, 4)]
    assert merged.zone_map.may_contain(node_type="T", file_path="x.py")
    assert not merged.zone_map.may_contain(file_path="y.py")
    kept.check()
    compact(kept.store, all=True)
    assert shape(kept.store.state().nodes) == [(38, 0, 0)]
    kept.check()


def test_what_becomes_empty_leaves_no_segment(kept: Kept) -> None:
    """G17: a graph whose records have all left has no segments after a merge."""
    kept.commit(node(1), edges=(edge(1, 1),))
    kept.commit(gone=("n00001",))
    assert compact(kept.store, all=True).segments_after == 0
    assert kept.store.state().segments == ()
    kept.commit(node(1, name="back"))
    kept.check()


def test_a_commit_in_between_is_kept(kept: Kept) -> None:
    """G17, G18: writers do not wait for the merge, and what they commit stays newer than what was merged."""
    for number in range(8):
        kept.commit(node(number), node(50, name=f"{number}"))
    merge = compact_merge.merge_segments

    def commit_meanwhile(*args: object, **options: object) -> Iterator[object]:
        change = [node(1, name="newer"), node(50, name="newer")]
        kept.paper = kept.paper.changed(change, [], remove_nodes=["n00002"])
        kept.another().commit(nodes=change, remove_nodes=["n00002"])
        yield from merge(*args, **options)  # type: ignore[arg-type]

    with patch.object(compact_module, "merge_segments", commit_meanwhile):
        done = compact(kept.store)
    assert (done.version, done.rounds, done.segments_after) == (11, 1, 2)
    kept.check()


@pytest.mark.parametrize("what", ["rollback", "compaction"])
def test_a_merge_whose_segments_are_no_longer_there_is_a_conflict(kept: Kept, what: str) -> None:
    """G17, G18: after a rollback or another compaction nothing of the merge is visible, and its files are collected."""
    for number in range(9):
        kept.commit(node(number))
    paper = kept.paper
    merge = compact_merge.merge_segments

    def meanwhile(*args: object, **options: object) -> Iterator[object]:
        rows = list(merge(*args, **options))  # type: ignore[arg-type]
        if what == "rollback":
            kept.another().chain.rollback(ref="3")
            kept.paper = Paper({id_: paper.nodes[id_] for id_ in sorted(paper.nodes)[:2]})
        else:
            with patch.object(compact_module, "merge_segments", merge):
                compact(kept.another(), all=True)
        yield from rows

    with patch.object(compact_module, "merge_segments", meanwhile), pytest.raises(Conflict, match="compact again"):
        compact(kept.store)
    assert kept.store.current() == (3 if what == "rollback" else 11)
    kept.check()
    used = {
        segment.path
        for version in kept.store.list_snapshots()
        for segment in kept.store.state(version.snapshot.manifest_id).segments
    }
    kept.store.gc_collect(100)
    kept.store.gc_purge(grace_s=0)
    stored = {info.key for page in kept.place.list("segments/") for info in page if info.key.endswith(".seg")}
    assert stored == used


def test_the_lock_is_held_for_the_commit_only_and_waited_for(kept: Kept) -> None:
    """G17: merging goes on under somebody else's lock; the commit comes once that is gone."""
    for number in range(8):
        kept.commit(node(number))
    busy = kept.another().chain.lock(operation="a long commit", ttl_s=10)
    assert compact(kept.store).committed
    kept.check()
    for number in range(8):
        kept.commit(node(100 + number))
    busy = kept.another().chain.lock(operation="for ever", ttl_s=3600)
    with pytest.raises(LockHeld):
        compact(kept.store)
    busy.release()
    kept.check()
    assert compact(kept.store).committed


def test_numbers_that_do_not_add_up_are_found_and_nothing_is_merged(kept: Kept) -> None:
    """G5: a segment that says it hides more, or less, than it does."""
    kept.commit(node(1), node(2))
    kept.commit(gone=("n00001",))
    state = kept.store.state()
    lying = [SegmentDescriptor.of_artifact(one.to_artifact()) for one in state.nodes]
    object.__setattr__(lying[1], "hidden_count", 2)
    group = plan_compaction(state, all=True)["nodes"]
    object.__setattr__(group, "segments", tuple(lying))
    with (
        patch.object(compact_module, "plan_compaction", lambda *_, **__: {"nodes": group}),
        pytest.raises(CorruptRecord, match="nothing merged"),
    ):
        compact(kept.store, all=True)
    assert kept.store.current() == 3
    kept.check()


def test_a_flipped_byte_is_found_before_it_is_merged(kept: Kept, tmp_path: Path) -> None:
    """G7: damage does not travel into a new segment with a good checksum."""
    for number in range(8):
        kept.commit(node(number))
    path = tmp_path / "graph" / kept.store.state().nodes[3].path
    good = path.read_bytes()
    path.write_bytes(good[:40] + bytes([good[40] ^ 1]) + good[41:])
    with pytest.raises(CorruptShard):
        compact(kept.store)
    assert kept.store.current() == 9
    path.write_bytes(good)


def test_merging_holds_a_few_row_groups_and_not_the_segments(kept: Kept) -> None:
    """G17: memory is bounded by what is around one id, not by what is merged: here thirty times that."""
    with patch.object(segment_writer, "ROW_GROUP_ROWS", 16):
        for number in range(4):
            many = [node(place * 4 + number) for place in range(250)]
            hub = [edge(7, place * 4 + number) for place in range(40)]
            kept.store.commit(
                nodes=many, edges=[*hub, *(edge(one, 0) for one in range(number, 1000, 12))], dangling="keep"
            )
        before = kept.store.snapshot()
        held: list[int] = []
        merge_rows = compact_merge.merge_rows

        def watched(kind: object, rows: object, *, drop_tombstones: bool) -> object:
            held.append(len(rows))  # type: ignore[arg-type]
            return merge_rows(kind, rows, drop_tombstones=drop_tombstones)  # type: ignore[arg-type]

        merge = compact_merge.merge_segments

        def in_little_memory(store: object, segments: object, *, drop_tombstones: bool) -> object:
            return merge(store, segments, drop_tombstones=drop_tombstones, buffer_rows=32)  # type: ignore[arg-type]

        with (
            patch.object(compact_merge, "merge_rows", watched),
            patch.object(compact_module, "merge_segments", in_little_memory),
        ):
            compact(kept.store, all=True, rows_max=300)
    assert len(held) > 20
    # four row groups in the making and four read ahead, or the 160 edges of one node
    assert max(held) <= 8 * 16 + 4 * 40
    assert [one.record_count for one in kept.store.state().nodes] == [300, 300, 300, 100]
    after = kept.another().snapshot()
    assert after.version != before.version
    assert after.nodes().to_dicts() == before.nodes().to_dicts()
    assert after.edges().to_dicts() == before.edges().to_dicts()


def test_a_run_of_a_compaction_that_failed_says_so(kept: Kept) -> None:
    """S42: the collector need not wait for a lease to run out."""
    for number in range(8):
        kept.commit(node(number))
    failed: list[str] = []

    def note(_run: Run, why: str) -> None:
        failed.append(why)

    with (
        patch.object(compact_module, "_with_hidden", side_effect=ZeroDivisionError("by hand")),
        patch.object(Run, "fail", note),
        pytest.raises(ZeroDivisionError),
    ):
        compact(kept.store)
    assert failed == ["ZeroDivisionError: by hand"]


def test_nonsense_is_refused(kept: Kept) -> None:
    """G17: bad input is one clear line."""
    with pytest.raises(BadInput, match="at least 2"):
        compact(kept.store, fan=1)
    with pytest.raises(BadInput, match="at least 2 and 1"):
        compact(kept.store, rows_max=0)
