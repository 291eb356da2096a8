"""Tags: any number of key=value per snapshot, beside the manifests."""

from __future__ import annotations

import threading

import pytest

from holdfast.chain import Chain
from holdfast.errors import BadInput, HoldfastError, SnapshotCollected, SnapshotNotFound
from holdfast.testing.faulty import CountingStore, Fault, FaultyStore
from tests.chain.publishing import ChainFactory, edit, everything, publish_one

TAGGERS = 6
TAGS_EACH = 10


def tags(chain: Chain) -> dict[str, dict[str, str]]:
    """What each run's snapshot is tagged with."""
    return {each.snapshot.run_id: dict(each.tags) for each in chain.list_snapshots()}


def test_tags_are_given_at_birth_or_later(chain: Chain) -> None:
    """S36: both kinds are shown together, for any number of tags, and each snapshot has its own."""
    publish_one(chain, run_id="one", tags={"stage": "raw", "team": "ads"})
    publish_one(chain, run_id="two")
    chain.tag(chain.find(run_id="one"), {"checked": "yes"})
    chain.tag(chain.find(run_id="two"), {f"tag-{number}": str(number) for number in range(20)})
    assert tags(chain)["one"] == {"stage": "raw", "team": "ads", "checked": "yes"}
    assert tags(chain)["two"] == {f"tag-{number}": str(number) for number in range(20)}


def test_the_last_value_wins(chain: Chain) -> None:
    """S36: a tag given again replaces its value, at birth or later; None takes it away, also one from birth."""
    publish_one(chain, run_id="one", tags={"stage": "raw"})
    target = chain.find(run_id="one")
    chain.tag(target, {"stage": "checked", "owner": "ann"})
    chain.tag(target, {"stage": "live"})
    assert tags(chain)["one"] == {"stage": "live", "owner": "ann"}
    chain.tag(target, {"stage": None, "owner": None})
    assert tags(chain)["one"] == {}
    chain.tag(target, {"stage": "raw again"})
    assert tags(chain)["one"] == {"stage": "raw again"}


def test_tagging_changes_no_manifest(chain: Chain, chain_factory: ChainFactory) -> None:
    """S36, S12: tags are one object of their own, written by compare-and-swap; every other byte stays what it was."""
    publish_one(chain, run_id="one", tags={"stage": "raw"})
    chain.tag(chain.find(), {"a": "1"})
    before = everything(chain.store)
    counting = CountingStore(chain_factory.store)
    chain_factory(store=counting).tag(chain.find(), {"a": "2"})
    after = everything(chain.store)
    changed = {key for key in after if after[key] != before.get(key)}
    assert chain.layout.tags_key in changed
    assert changed <= {chain.layout.tags_key, chain.layout.pointer_key}, (
        "the collector is told by a touch of the pointer"
    )
    assert {each.kind for each in counting.log if each.kind not in {"get", "head"}} == {"swap"}
    current = chain.current()
    assert current is not None
    assert current.run_id == "one"


def test_snapshots_are_found_by_tag(chain: Chain) -> None:
    """S36: `find_snapshot` answers the newest with that value; `list_snapshots` filters by key, or by key and value."""
    for run_id, stage in (("one", "live"), ("two", "test"), ("three", "live"), ("four", "")):
        publish_one(chain, run_id=run_id, tags={"stage": stage} if stage else {})
    assert chain.find_snapshot("stage", "live").run_id == "three"
    assert chain.find_snapshot("stage", "test").run_id == "two"
    assert [each.snapshot.run_id for each in chain.list_snapshots("stage")] == ["one", "two", "three"]
    assert [each.snapshot.run_id for each in chain.list_snapshots("stage", "live")] == ["one", "three"]
    assert [each.snapshot.run_id for each in chain.list_snapshots()] == ["one", "two", "three", "four"]
    chain.tag(chain.find(run_id="three"), {"stage": None})
    assert chain.find_snapshot("stage", "live").run_id == "one"
    assert chain.rollback(ref=chain.find_snapshot("stage", "test").ref).current.run_id == "two"
    with pytest.raises(SnapshotNotFound, match="stage=gone"):
        chain.find_snapshot("stage", "gone")


def test_an_empty_chain_has_no_tagged_snapshots(chain: Chain) -> None:
    """S36: listing an empty chain answers an empty list."""
    assert chain.list_snapshots() == []
    assert chain.list_snapshots("stage", "live") == []


@pytest.mark.parametrize("when", ["birth", "later"])
def test_a_tagged_snapshot_is_never_collected(chain: Chain, when: str) -> None:
    """S36, S40: tagged at birth or later, it stays; once its last tag is gone it may go."""
    publish_one(chain, b"tagged", run_id="tagged", tags={"keep": "me"} if when == "birth" else {})
    publish_one(chain, b"plain", run_id="plain")
    publish_one(chain, b"newest", run_id="newest")
    if when == "later":
        chain.tag(chain.find(run_id="tagged"), {"keep": "me"})
    chain.collect(retention=1)
    chain.purge(grace_s=0)
    assert [each.run_id for each in chain.list_manifests()] == ["newest", "tagged"]
    assert chain.rollback(run_id="tagged").current.run_id == "tagged"
    chain.forward()
    chain.tag(chain.find(run_id="tagged"), {"keep": None})
    chain.collect(retention=1)
    assert [each.run_id for each in chain.list_manifests()] == ["newest"]


def test_a_collected_snapshot_cannot_be_tagged(chain: Chain) -> None:
    """S36: tagging what was collected a moment ago is refused, and leaves no trace of the tag."""
    publish_one(chain, run_id="old", tags={"stage": "raw"})
    chain.tag(chain.find(), {"stage": None, "seen": "yes"})
    chain.tag(chain.find(), {"seen": None})
    old = chain.find()
    publish_one(chain, run_id="new")
    collection = chain.collect(retention=1).collection
    assert collection is not None
    with pytest.raises(SnapshotCollected, match="restore it"):
        chain.tag(old, {"stage": "too late", "other": "x"})
    chain.restore(collection)
    assert tags(chain)["old"] == {}


@pytest.mark.parametrize("layout_name", ["kv"])
def test_concurrent_taggers_lose_nothing(chain: Chain, chain_factory: ChainFactory) -> None:
    """S36: many threads tag at once, each with tags of its own: all of them are there in the end."""
    publish_one(chain, run_id="one")
    target = chain.find()
    start = threading.Barrier(TAGGERS)
    failures: list[HoldfastError] = []

    def tag(number: int) -> None:
        mine = chain_factory(attempts_max=1000)
        start.wait()
        try:
            for each in range(TAGS_EACH):
                mine.tag(target, {f"{number}-{each}": "here"})
        except HoldfastError as error:
            failures.append(error)

    threads = [threading.Thread(target=tag, args=(number,)) for number in range(TAGGERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(tags(chain)["one"]) == TAGGERS * TAGS_EACH


@pytest.mark.parametrize("store_kind", ["memory"])
@pytest.mark.parametrize("fault", [Fault.ERROR_BEFORE, Fault.ERROR_AFTER, Fault.ECHO])
def test_a_lost_answer_neither_loses_nor_doubles_a_tag(chain: Chain, chain_factory: ChainFactory, fault: Fault) -> None:
    """S36: the answer to the first write is lost, for a new book and for an old one: the tags are as if it was not."""
    publish_one(chain, run_id="one")
    for number in range(2):
        plan = lambda operation: (  # noqa: E731
            fault if operation.key == chain.layout.tags_key and operation.serial == 2 else Fault.PASS
        )
        faulty = FaultyStore(chain_factory.store, plan)
        chain_factory(store=faulty).tag(chain.find(), {f"tag-{number}": "here"})
        assert [each.kind for each in faulty.log if each.key == chain.layout.tags_key][:2] == [
            "get",
            "swap" if number else "put_new",
        ]
    assert tags(chain)["one"] == {"tag-0": "here", "tag-1": "here"}


@pytest.mark.parametrize("store_kind", ["memory"])
@pytest.mark.parametrize("bad", [{"": "x"}, {"a=b": "x"}, {" a": "x"}, {"a\n": "x"}, {"a": "x\n"}, {"a" * 513: "x"}])
def test_a_tag_that_cannot_be_spelled_is_refused(chain: Chain, bad: dict[str, str]) -> None:
    """S36: a name that could not be written as key=value is refused before anything is written."""
    publish_one(chain)
    before = everything(chain.store)
    with pytest.raises(BadInput, match="tag"):
        chain.tag(chain.find(), bad)
    assert everything(chain.store) == before


@pytest.mark.parametrize("store_kind", ["memory"])
def test_what_another_release_wrote_into_the_tags_is_kept(chain: Chain, chain_factory: ChainFactory) -> None:
    """S9, S36: unknown fields of the tag book survive the next tag."""
    publish_one(chain)
    chain.tag(chain.find(), {"a": "1"})
    edit(chain_factory.store, chain.layout.tags_key, colour="green")
    chain.tag(chain.find(), {"b": "2"})
    assert b'"colour": "green"' in chain_factory.store.get(chain.layout.tags_key).data
