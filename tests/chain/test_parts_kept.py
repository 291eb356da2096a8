"""Whoever needs everything that a snapshot names looks into its parts: verify, collect, purge, rollback, diff."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from holdfast.chain import Chain
from holdfast.chain.parts import encode_part, expand, parts_of
from holdfast.errors import InvariantViolation
from holdfast.testing.faulty import CountingStore
from tests.chain.part_writer import Writer, current, delete, names_of
from tests.chain.publishing import ChainFactory, keys_below, overwrite

pytestmark = pytest.mark.parametrize("layout_name", ["graph"])
DAY_S = 86400.0


@pytest.fixture
def writer(chain: Chain) -> Iterator[Writer]:
    with chain.lock(ttl_s=1e9) as guard:
        yield Writer(chain, guard)


@pytest.mark.parametrize("read_artifacts", [True, False])
def test_verify_looks_into_parts(writer: Writer, chain_factory: ChainFactory, *, read_artifacts: bool) -> None:
    """S38, I6, G19: a segment inside a part that is missing or changed, and a part that is, are each reported once."""
    segments = [writer.segment(name) for name in "abcdef"]
    parts = [writer.part(*segments[:2]), writer.part(*segments[2:4])]
    one = writer.publish(*parts, segments[4])
    writer.publish(*parts, segments[4], segments[5], base=one.manifest)
    assert chain_factory().verify(read_artifacts=read_artifacts) == []
    delete(chain_factory.store, segments[0])
    overwrite(chain_factory.store, segments[1].path, b"short")
    overwrite(chain_factory.store, segments[4].path, b"x" * segments[4].byte_size)
    overwrite(chain_factory.store, parts[1].path, encode_part([segments[2]], writer.chain.layout.names))
    chain_factory.expect_damage()
    found = chain_factory().verify(read_artifacts=read_artifacts)
    expected = [parts[1].path, segments[0].path, segments[1].path]
    if read_artifacts:
        expected.append(segments[4].path)
    assert sorted(each.key for each in found) == sorted(expected)
    assert {each.invariant for each in found} == {"I6"}


def test_verify_finds_what_a_snapshot_names_twice(writer: Writer, chain_factory: ChainFactory) -> None:
    """S38, I3, G19: the commit does not read the parts that it shares, so it cannot see this; verify does."""
    segment = writer.segment("a")
    base = writer.publish(writer.part(segment)).manifest
    writer.publish(*base.artifacts, segment, base=base, claims=["segments/a"])
    chain_factory.expect_damage()
    assert [(each.invariant, each.key) for each in chain_factory.breaks()] == [("I3", "segments/a")]


def test_what_only_a_part_of_a_kept_snapshot_names_is_never_collected(
    writer: Writer, chain_factory: ChainFactory
) -> None:
    """S40, I6, G19: retention, tags, the pointer's target and a live run's base each keep what their parts list."""
    chain, store = writer.chain, chain_factory.store
    shared = writer.part(writer.segment("shared"))
    tagged = writer.publish(shared, writer.part(writer.segment("tagged"))).manifest
    chain.tag(chain.find(), {"keep": "yes"})
    pinned = writer.publish(shared, writer.part(writer.segment("pinned"))).manifest
    chain.begin_run("live", base=pinned, lease_s=10 * DAY_S)
    gone = writer.publish(shared, writer.part(writer.segment("gone"), writer.segment("gone too"))).manifest
    for name in ("pointed", "newer"):
        writer.publish(shared, writer.part(writer.segment(name)))
    chain.rollback()
    chain_factory.clock.advance(DAY_S)
    plan = chain.collect(retention=1)
    assert [move.target_id for move in plan.snapshots] == [gone.manifest_id]
    gone_part = parts_of(chain.layout.names, gone.artifacts)[1]
    condemned = {item.key: item.last_id for item in plan.condemned if item.what == "artifact"}
    assert condemned == dict.fromkeys(["segments/gone", "segments/gone too", gone_part.path], gone.manifest_id)
    chain.purge(grace_s=0)
    left = {key.rpartition("/")[2] for key in keys_below(store, "segments")}
    assert left >= {"shared", "tagged", "pinned", "pointed", "newer"}
    assert not left & {"gone", "gone too"}
    for manifest in (tagged, pinned):
        assert all(store.get(artifact.path) for artifact in expand(chain.handle, manifest))


def test_a_collection_of_parts_can_be_restored(writer: Writer, chain_factory: ChainFactory) -> None:
    """S39, G19: until it is purged; and a purge that is due deletes parts before what they list."""
    old = writer.publish(writer.part(writer.segment("a"), writer.segment("b"))).manifest
    writer.publish(writer.part(writer.segment("c")))
    plan = writer.chain.collect(retention=1)
    assert plan.collection is not None
    writer.chain.restore(plan.collection)
    assert names_of(expand(writer.chain.handle, old)) == ["a", "b"]
    assert chain_factory.breaks() == []
    writer.chain.collect(retention=1)
    chain_factory.clock.advance(DAY_S)
    order = [item.key for item in writer.chain.purge(grace_s=0).deleted if item.what == "artifact"]
    assert order == [old.artifacts[0].path, "segments/a", "segments/b"]


def test_a_part_that_cannot_be_read_stops_the_collection(writer: Writer, chain_factory: ChainFactory) -> None:
    """S41, G19: in the window it fails closed; outside of it, the snapshot stays with whatever it may name."""
    broken = writer.part(writer.segment("a"))
    writer.publish(broken)
    writer.publish(writer.part(writer.segment("b")))
    writer.publish(writer.part(writer.segment("c")))
    before = chain_factory.store.get(broken.path).data
    overwrite(chain_factory.store, broken.path, b"{}")
    chain_factory.clock.advance(DAY_S)
    with pytest.raises(InvariantViolation, match="nothing was collected"):
        writer.chain.collect(retention=3)
    plan = writer.chain.collect(retention=1)
    assert [move.target_id for move in plan.snapshots] == [2]
    assert len(plan.unreadable) == 1
    assert {item.key for item in plan.condemned if item.what == "artifact"} == {
        "segments/b",
        "segments/parts/part_000002.json",
    }
    purged = writer.chain.purge(grace_s=0)
    assert [item.key for item in purged.deleted if item.what == "artifact"] == []
    assert len(purged.spared) == 2
    overwrite(chain_factory.store, broken.path, before)


def test_collecting_many_versions_reads_each_part_once(writer: Writer, chain_factory: ChainFactory) -> None:
    """G19: a hundred versions that share their parts do not read them a hundred times, nor does a purge."""
    parts = [writer.part(writer.segment(f"s{number}")) for number in range(3)]
    base = writer.publish(*parts).manifest
    for number in range(100):
        base = writer.publish(*parts, writer.segment(f"i{number}"), base=base).manifest
    chain_factory.clock.advance(DAY_S)
    counting = CountingStore(chain_factory.store)
    chain = chain_factory(store=counting)
    acts: list[Callable[[], object]] = [lambda: chain.collect(retention=50), lambda: chain.purge(grace_s=0)]
    for act in acts:
        counting.reset()
        act()
        assert sum(one.kind == "get" and "parts" in one.key for one in counting.log) == 3


def test_a_rollback_looks_for_everything_that_the_target_names(writer: Writer, chain_factory: ChainFactory) -> None:
    """S16, S35, G19: the pointer never moves to a snapshot whose part lists a file that is not there."""
    lost = writer.segment("a")
    writer.publish(writer.part(lost), writer.segment("b"))
    writer.publish(writer.segment("c"))
    writer.chain.rollback()
    writer.chain.forward()
    delete(chain_factory.store, lost)
    with pytest.raises(InvariantViolation, match="'segments/a' is missing"):
        writer.chain.rollback()
    assert [each.manifest_id for each in (writer.chain.current(),) if each] == [2]
    chain_factory.expect_damage()


def test_a_difference_is_between_what_is_named_wherever_it_is_named(writer: Writer) -> None:
    """S37, G11, G19: moving segments into a part is no change; what came and left is told with its sizes."""
    segments = [writer.segment(name) for name in "abc"]
    one = writer.publish(*segments).manifest
    writer.publish(writer.part(*segments), base=one)
    two = current(writer.chain)
    writer.publish(writer.part(*segments[1:]), writer.segment("d"), base=two)
    moves = [writer.chain.find(offset=offset) for offset in (2, 1, 0)]
    same = writer.chain.diff(moves[0], moves[1])
    assert (same.change_count, same.kept, same.before) == (0, 3, same.after)
    other = writer.chain.diff(moves[1], moves[2])
    assert (names_of(other.added), names_of(other.removed), other.kept) == (["d"], ["a"], 2)
    assert (other.after.artifacts, other.after.rows, other.after.bytes) == (3, 6, 27)
