"""The rollout switch: legacy-only writes and back, one domain at a time, with every reader reading at every step."""

from __future__ import annotations

from dataclasses import dataclass

import orjson
import pytest

from holdfast.chain import Chain, ChainReader, Committed, domain_layout
from holdfast.errors import BadInput, Conflict, InvariantViolation, StaleFencingToken, VersionConflict
from holdfast.testing.clock import VirtualClock
from tests.chain.publishing import ChainFactory, draft_of, everything, overwrite, publish_one

MIRRORED = pytest.mark.parametrize("layout_name", ["domain", "orchestration"])


@pytest.fixture
def layout_name() -> str:
    return "domain"


@dataclass
class Readers:
    """One of each kind:

    who resolves the pointer, who only knows the legacy path, and who has been open all the time.
    """

    chain: Chain
    open: ChainReader[str]

    @classmethod
    def of(cls, chain: Chain) -> Readers:
        return cls(chain, chain.reader(lambda manifest: manifest.run_id))

    def see(self, run_id: str) -> None:
        """Every kind of reader sees this run's snapshot."""
        mirror = self.chain.layout.mirror_key
        assert mirror is not None
        assert orjson.loads(self.chain.store.get(mirror).data)["run_id"] == run_id
        current = self.chain.load_current()
        assert current is not None
        assert current.run_id == run_id
        with self.chain.reader(lambda manifest: manifest.run_id) as fresh:
            assert fresh.manifest.run_id == run_id
        self.open.refresh()
        with self.open.borrow() as served:
            assert served.resource == run_id


def publish_as(factory: ChainFactory, run_id: str, layout: str = "catalog") -> Committed:
    """A publish by a process that has just started."""
    return publish_one(factory(layout=domain_layout(layout)), run_id.encode(), run_id=run_id)


@MIRRORED
def test_readers_keep_working_at_every_step(chain_factory: ChainFactory) -> None:
    """S45: to legacy, publish there, back, publish again: pointer readers, legacy readers and an open one agree at each
    step."""
    chain = chain_factory()
    publish_one(chain, run_id="before")
    readers = Readers.of(chain)
    readers.see("before")
    chain.switch_publishing("legacy", why="playbook")
    readers.see("before")
    publish_one(chain_factory(), b"1", run_id="legacy-1")
    readers.see("legacy-1")
    publish_one(chain_factory(), b"2", run_id="legacy-2")
    readers.see("legacy-2")
    chain_factory().switch_publishing("pointer", why="all clear")
    readers.see("legacy-2")
    publish_one(chain_factory(), b"3", run_id="after")
    readers.see("after")
    assert [each.run_id for each in chain.list_manifests()] == ["after", "legacy-2", "before"]


@MIRRORED
def test_switching_twice_changes_nothing_the_second_time(chain_factory: ChainFactory) -> None:
    """S45: each switch can be repeated, as an operator who is not sure would."""
    chain = chain_factory()
    publish_one(chain)
    for mode in ("pointer", "legacy", "legacy"):
        chain.switch_publishing(mode)
    before = everything(chain.store)
    chain.switch_publishing("legacy")
    assert everything(chain.store) == before
    chain.switch_publishing("pointer")
    before = everything(chain.store)
    chain.switch_publishing("pointer")
    assert everything(chain.store) == before


def test_two_domains_are_switched_independently(chain_factory: ChainFactory) -> None:
    """S45:

    one domain goes to legacy and back while the other publishes by pointer; the root says where each is read.
    """
    catalog, search = (chain_factory(layout=domain_layout(name)) for name in ("catalog", "search"))
    for name in ("catalog", "search"):
        publish_as(chain_factory, f"{name}-0", name)
    readers = {"catalog": Readers.of(catalog), "search": Readers.of(search)}

    def root() -> dict[str, str]:
        record = orjson.loads(chain_factory.store.get(str(catalog.layout.root_key)).data)
        return {name: record[f"{name}_manifest_path"] for name in ("catalog", "search")}

    catalog.switch_publishing("legacy")
    assert root() == {"catalog": catalog.layout.mirror_key, "search": search.layout.pointer_key}
    publish_as(chain_factory, "search-1", "search")
    publish_as(chain_factory, "catalog-1", "catalog")
    readers["catalog"].see("catalog-1")
    readers["search"].see("search-1")
    search.switch_publishing("legacy")
    catalog.switch_publishing("pointer")
    assert root() == {"catalog": catalog.layout.pointer_key, "search": search.layout.mirror_key}
    publish_as(chain_factory, "search-2", "search")
    publish_as(chain_factory, "catalog-2", "catalog")
    readers["catalog"].see("catalog-2")
    readers["search"].see("search-2")
    search.switch_publishing("pointer")
    for name in ("catalog", "search"):
        assert chain_factory(layout=domain_layout(name)).verify() == []


@pytest.mark.parametrize("damage", ["stale mirror", "missing mirror", "missing root", "wrong root"])
def test_the_switch_is_refused_unless_mirror_and_root_are_current(chain_factory: ChainFactory, damage: str) -> None:
    """S45: `verify` must find both current before pointer publishing is disabled; reconcile first, then it goes."""
    chain = chain_factory()
    first = publish_one(chain, run_id="first")
    publish_one(chain, b"new", run_id="second")
    store, mirror, root = chain.store, str(chain.layout.mirror_key), str(chain.layout.root_key)
    match damage:
        case "stale mirror":
            overwrite(store, mirror, store.get(first.manifest_path).data)
        case "missing mirror":
            store.delete([mirror])
        case "missing root":
            store.delete([root])
        case _:
            overwrite(store, root, b'{"version": 1, "updated_at": "2026-01-01T00:00:00Z"}')
    assert chain.verify() != []
    before = everything(store)
    with pytest.raises(InvariantViolation, match="reconcile"):
        chain.switch_publishing("legacy")
    assert everything(store) == before
    chain.reconcile(enforce=True)
    assert chain.verify() == []
    chain.switch_publishing("legacy")
    Readers.of(chain).see("second")
    chain.switch_publishing("pointer")


@MIRRORED
def test_a_legacy_writer_that_slept_cannot_commit_after_the_switch_back(chain_factory: ChainFactory) -> None:
    """S45:

    it read the legacy manifest before the switch back and writes it afterwards: its swap finds another version.
    """
    chain = chain_factory()
    publish_one(chain, run_id="before")
    chain.switch_publishing("legacy")
    key = str(chain.layout.mirror_key)
    asleep = chain.store.get(key)
    chain_factory().switch_publishing("pointer")
    with pytest.raises(VersionConflict):
        chain.store.swap(key, b'{"manifest_id": 99, "run_id": "stale"}', expected=asleep.version)
    publish_one(chain_factory(), run_id="after")
    Readers.of(chain).see("after")


@MIRRORED
def test_our_own_writer_that_slept_through_the_switch_back_is_stopped(chain_factory: ChainFactory) -> None:
    """S45, S15: a Holdfast writer in legacy mode wakes up after the switch back, with a lock of before: it cannot
    commit."""
    chain = chain_factory()
    publish_one(chain, run_id="before")
    chain.switch_publishing("legacy")
    sleeper = chain_factory(by="sleeper")
    with sleeper.lock(ttl_s=1e6) as guard:
        run = sleeper.begin_run("sleeper")
        draft = draft_of(sleeper, run, b"stale")
        permit = sleeper.permit(guard)
        guard.release()
        other = chain_factory()
        other.switch_publishing("pointer")
        publish_one(other, b"newer", run_id="after")
        with pytest.raises((StaleFencingToken, Conflict)):
            sleeper.publish(draft, run=run, permit=permit)
    Readers.of(chain).see("after")


@MIRRORED
def test_what_was_published_in_legacy_mode_is_adopted_byte_for_byte(chain_factory: ChainFactory) -> None:
    """S45, S27: the legacy manifest of the switch back becomes a snapshot: in history, with its artifacts, to roll back
    to."""
    chain = chain_factory()
    publish_one(chain, run_id="before")
    chain.switch_publishing("legacy")
    legacy = publish_one(chain_factory(), b"legacy", run_id="legacy")
    chain_factory().switch_publishing("pointer")
    adopted = chain.load_current()
    assert adopted is not None
    assert (adopted.run_id, adopted.artifacts) == ("legacy", legacy.manifest.artifacts)
    mirror = chain.store.get(str(chain.layout.mirror_key)).data
    current = chain.current()
    assert current is not None
    assert chain.store.get(current.manifest_path).data == mirror
    after = publish_one(chain_factory(), b"after", run_id="after")
    assert after.manifest.manifest_id > adopted.manifest_id
    assert after.manifest.parent_hash == current.manifest_hash
    chain.rollback(run_id="legacy")
    Readers.of(chain).see("legacy")
    chain.rollback(run_id="before")
    Readers.of(chain).see("before")


@MIRRORED
def test_a_foreign_legacy_manifest_is_adopted_too(chain_factory: ChainFactory) -> None:
    """S45, S27: an old release, which knows neither ids nor tokens, wrote the legacy path meanwhile: that is what
    counts."""
    chain = chain_factory()
    publish_one(chain, run_id="before")
    chain.switch_publishing("legacy")
    key = str(chain.layout.mirror_key)
    overwrite(chain.store, key, b'{"tables": ["users", "orders"]}')
    reader = chain.reader(lambda manifest: manifest.payload["tables"])
    assert reader.manifest.payload["tables"] == ["users", "orders"]
    chain_factory().switch_publishing("pointer")
    reader.refresh()
    assert reader.manifest.payload["tables"] == ["users", "orders"]
    publish_one(chain_factory(), run_id="after")
    assert len(chain.list_manifests()) == 3


@MIRRORED
def test_while_legacy_counts_the_pointer_stays_where_it_is(chain_factory: ChainFactory) -> None:
    """S45: nothing is collected and nothing is rolled back while the pointer does not say what is in use."""
    chain = chain_factory()
    publish_one(chain, run_id="one")
    publish_one(chain, run_id="two")
    chain.switch_publishing("legacy")
    before = everything(chain.store)
    with pytest.raises(Conflict, match="legacy-only"):
        chain.collect(retention=1)
    with pytest.raises(Conflict, match="switch it back"):
        chain.rollback()
    assert everything(chain.store) == before
    chain.switch_publishing("pointer")
    chain.rollback()


@pytest.mark.parametrize("layout_name", ["kv", "graph"])
def test_a_chain_without_a_legacy_path_cannot_be_switched(chain: Chain) -> None:
    """S45: there is nowhere to switch to, and the error says so."""
    publish_one(chain)
    for mode in ("legacy", "pointer"):
        with pytest.raises(BadInput, match="no legacy path"):
            chain.switch_publishing(mode)


@MIRRORED
def test_collecting_goes_on_after_the_switch_back(chain_factory: ChainFactory, clock: VirtualClock) -> None:
    """S45, S39: runs that were published by the legacy path are never taken for abandoned ones."""
    chain = chain_factory()
    publish_one(chain, run_id="before")
    chain.switch_publishing("legacy")
    publish_one(chain_factory(), b"1", run_id="legacy-1")
    publish_one(chain_factory(), b"2", run_id="legacy-2")
    chain_factory().switch_publishing("pointer")
    clock.advance(1e6)
    publish_one(chain_factory(), b"3", run_id="after")
    chain.collect(retention=2)
    chain.purge(grace_s=0)
    assert [each.run_id for each in chain.list_manifests()] == ["after", "legacy-2"]
    chain.rollback()
    Readers.of(chain).see("legacy-2")
