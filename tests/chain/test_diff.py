"""What changed between two snapshots."""

from __future__ import annotations

import pytest

from holdfast.chain import Chain, Stats
from holdfast.testing.faulty import CountingStore
from tests.chain.publishing import ChainFactory, publish_one


def test_a_diff_tells_what_was_added_removed_and_kept(chain: Chain) -> None:
    """S37: artifacts by path, stats before and after, and how many changed."""
    first = publish_one(chain, {"a": b"aa", "b": b"bbb"}, run_id="first")
    publish_one(chain, {"c": b"c"}, run_id="second", base=first.manifest)
    publish_one(chain, {"d": b"dddd"}, run_id="third")
    one, two, three = (chain.find(run_id=run_id) for run_id in ("first", "second", "third"))
    grown = chain.diff(one, two)
    assert [each.path.rpartition("/")[2] for each in grown.added] == ["c"]
    assert (grown.removed, grown.kept, grown.change_count) == ((), 2, 1)
    assert (grown.source_id, grown.target_id) == (one.target_id, two.target_id)
    assert grown.before == Stats(artifacts=2, rows=2, bytes=5)
    assert grown.after == Stats(artifacts=3, rows=3, bytes=6)
    replaced = chain.diff(two, three)
    assert [each.path.rpartition("/")[2] for each in replaced.removed] == ["a", "b", "c"]
    assert [each.path.rpartition("/")[2] for each in replaced.added] == ["d"]
    assert (replaced.kept, replaced.change_count) == (0, 4)


def test_a_diff_is_the_mirror_image_of_the_way_back(chain: Chain) -> None:
    """S37: what one direction adds the other removes; a snapshot and itself differ in nothing."""
    first = publish_one(chain, {"a": b"a", "b": b"b"}, run_id="first")
    publish_one(chain, {"c": b"c"}, run_id="second", base=first.manifest)
    one, two = chain.find(run_id="first"), chain.find(run_id="second")
    there, back = chain.diff(one, two), chain.diff(two, one)
    assert (there.added, there.removed) == (back.removed, back.added)
    assert (there.before, there.after) == (back.after, back.before)
    assert chain.diff(two, two).change_count == 0
    assert chain.diff(two, two).kept == 3


def test_snapshots_on_both_sides_of_a_rollback_can_be_compared(chain: Chain) -> None:
    """S37: a diff goes by id, not by what is visible: a rolled-back snapshot is compared like any other."""
    publish_one(chain, b"good", run_id="good")
    publish_one(chain, b"bad", run_id="bad")
    chain.rollback()
    assert chain.diff(chain.find(), chain.find(run_id="bad")).change_count == 2


@pytest.mark.parametrize("store_kind", ["memory"])
def test_a_diff_costs_two_manifests_whatever_they_hold(chain: Chain, chain_factory: ChainFactory) -> None:
    """S37: it reads the two manifests and no artifact, so it costs the same for one file and for hundreds."""
    for run_id, count in (("few", 1), ("many", 300)):
        publish_one(chain, {f"part-{number}": b"x" for number in range(count)}, run_id=run_id)
    few, many = chain.find(run_id="few"), chain.find(run_id="many")
    counting = CountingStore(chain_factory.store)
    assert chain_factory(store=counting).diff(few, many).change_count == 301
    assert counting.counts == {"get": 2}
