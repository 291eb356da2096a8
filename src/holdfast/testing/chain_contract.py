"""The promises of a chain, as tests that any place for its records can inherit (S33).

    class TestChainInMyDatabase(ChainContract):
        @pytest.fixture
        def open_chain(self) -> OpenChain:
            return lambda layout, clock: chain_on(store, layout, records=MyRecords(layout), clock=clock)

`open_chain` is called once per test, for an empty place. Whoever else the test needs is the same handle, pickled and
read back, as another process would get it. Every test ends with `verify`.
"""

from __future__ import annotations

import asyncio
import hashlib
import pickle
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from holdfast.chain import (
    Artifact,
    Chain,
    Committed,
    Layout,
    Manifest,
    ManifestDraft,
    Outcome,
    Refreshed,
    RunState,
    Superseded,
    VerdictKind,
    layout_named,
)
from holdfast.errors import (
    AlreadyExists,
    RunIdInUse,
    RunSwept,
    SnapshotCollected,
    SnapshotNotFound,
    StaleFencingToken,
    VersionConflict,
)
from holdfast.testing.clock import VirtualClock

__all__ = ["ChainContract", "OpenChain", "other_handle", "publish_one"]

OpenChain = Callable[[Layout, VirtualClock], Chain]

_DAY_S = 24 * 3600.0


def publish_one(chain: Chain, content: str, *, run_id: str | None = None, **tags: str) -> Outcome:
    """One snapshot with one real artifact."""
    with chain.lock(operation="contract") as guard:
        run = chain.begin_run(run_id)
        draft = _draft(chain, run.artifact_key("part-0"), content, tags)
        return chain.publish(draft, run=run, permit=chain.permit(guard))


def _draft(chain: Chain, path: str, content: str, tags: dict[str, str] | None = None) -> ManifestDraft:
    data = content.encode()
    chain.store.put_new(path, data)
    artifact = Artifact(
        path=path,
        byte_size=len(data),
        row_count=1,
        checksum=f"sha256:{hashlib.sha256(data).hexdigest()}",
        kind=next(iter(chain.layout.names.lists)),
    )
    return ManifestDraft(artifacts=(artifact,), tags=tags or {}, payload={"content": content})


def other_handle(chain: Chain, by: str = "other") -> Chain:
    """The chain as another process would have it, at the same time of day."""
    again = pickle.loads(pickle.dumps(replace(chain.handle, clock=_no_clock())))
    return Chain(replace(again, clock=chain.handle.clock), by=by)


def _no_clock() -> VirtualClock:
    return _Unset()


class _Unset(VirtualClock):
    """Pickles, which a clock with a lock does not."""

    def __reduce__(self) -> tuple[type[_Unset], tuple[()]]:
        return type(self), ()


def _committed(outcome: Outcome) -> Committed:
    assert isinstance(outcome, Committed), outcome
    assert outcome.repair_pending == ()
    return outcome


def _content(manifest: Manifest | None) -> object:
    return None if manifest is None else manifest.payload["content"]


class ChainContract:
    """What every chain promises, wherever its records are."""

    layouts = ("kv", "graph", "orchestration", "domain:catalog")

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        if "layout_name" in metafunc.fixturenames:
            metafunc.parametrize("layout_name", self.layouts)

    @pytest.fixture
    def clock(self) -> VirtualClock:
        return VirtualClock()

    @pytest.fixture
    def chain(self, open_chain: OpenChain, layout_name: str, clock: VirtualClock) -> Iterator[Chain]:
        chain = open_chain(layout_named(layout_name), clock)
        yield chain
        assert chain.verify() == []

    def test_an_empty_chain_has_nothing(self, chain: Chain) -> None:
        """S33: an empty chain loads nothing, lists nothing and finds nothing."""
        assert chain.current() is None
        assert chain.load_current() is None
        assert chain.list_manifests() == []

    def test_what_is_published_is_loaded_by_everybody(self, chain: Chain) -> None:
        """S33: publish, load_current and load_manifest agree, from every handle."""
        first, second = _committed(publish_one(chain, "one")), _committed(publish_one(chain, "two"))
        for reader in (chain, other_handle(chain)):
            assert reader.load_current() == second.manifest
            assert reader.load_manifest(first.ref) == first.manifest
            assert _content(reader.load_manifest(second.ref)) == "two"
        assert second.manifest.parent_hash == first.manifest_hash
        assert second.manifest.manifest_id == first.manifest.manifest_id + 1

    def test_manifests_are_listed_newest_first(self, chain: Chain) -> None:
        """S33: list_manifests has every snapshot that was visible, newest first, past the pointer's own log."""
        published = [_committed(publish_one(chain, str(number))).ref for number in range(40)]
        assert [found.ref for found in chain.list_manifests(limit=100)] == published[::-1]
        assert [found.ref for found in other_handle(chain).list_manifests(limit=3)] == published[:-4:-1]

    def test_set_current_moves_back_and_forth(self, chain: Chain) -> None:
        """S33: set_current shows an older snapshot, deletes nothing, and the next publish takes a new id."""
        refs = [_committed(publish_one(chain, str(number))).ref for number in range(3)]
        chain.set_current(refs[0], why="contract")
        assert _content(other_handle(chain).load_current()) == "0"
        assert [found.ref for found in chain.list_manifests()] == refs[::-1]
        assert chain.forward().current.ref == refs[2]
        chain.rollback(offset=2)
        after = _committed(publish_one(chain, "3"))
        assert after.manifest.manifest_id == chain.layout.first_id + 3
        assert after.manifest.previous_manifest_path == chain.layout.path_of(refs[0])

    def test_tags_are_kept_beside_the_manifest(self, chain: Chain) -> None:
        """S33: tags from birth and later ones are found, the last value wins, and hashes hold."""
        first = _committed(publish_one(chain, "one", stage="raw"))
        _committed(publish_one(chain, "two"))
        chain.tag(chain.find(ref=first.ref), {"stage": "gold", "owner": "ada"})
        assert other_handle(chain).find_snapshot("stage", "gold").ref == first.ref
        assert [found.tags for found in chain.list_snapshots("owner")] == [{"stage": "gold", "owner": "ada"}]
        with pytest.raises(SnapshotNotFound):
            chain.find_snapshot("stage", "raw")

    def test_a_run_is_registered_once(self, chain: Chain) -> None:
        """S33: a run id is used once, whoever comes second."""
        _committed(publish_one(chain, "one", run_id="nightly"))
        with pytest.raises(RunIdInUse):
            other_handle(chain).begin_run("nightly")
        run = chain.begin_run("failing")
        run.fail("contract")
        assert run.record.state is RunState.FAILED

    def test_a_stale_epoch_is_refused_with_a_fresh_read(self, chain: Chain, clock: VirtualClock) -> None:
        """S33, S34: a holder whose lock was taken over cannot publish, even though it has just read the pointer."""
        _committed(publish_one(chain, "zero"))
        stale = other_handle(chain, "stale")
        guard = stale.lock(ttl_s=10)
        run = stale.begin_run()
        draft = _draft(stale, run.artifact_key("part-0"), "stale")
        clock.advance(11)
        _committed(publish_one(chain, "new holder"))
        clock.set(guard.record.acquired_at)  # its own clock tells it that nothing has happened
        stale._look()  # noqa: SLF001 - the fresh read
        with pytest.raises(StaleFencingToken):
            stale.publish(draft, run=run, permit=stale.permit(guard))
        assert _content(chain.load_current()) == "new holder"

    def test_of_two_publishers_one_wins(self, chain: Chain) -> None:
        """S33, S34: two who read the same pointer cannot both publish; the loser is told who won."""
        _committed(publish_one(chain, "zero"))
        rival = other_handle(chain)
        with chain.lock() as guard:
            mine, theirs = chain.begin_run(), rival.begin_run()
            permits = [one.permit(guard) for one in (chain, rival)]
            drafts = [
                _draft(one, run.artifact_key("part-0"), run.run_id) for one, run in ((chain, mine), (rival, theirs))
            ]
            won = _committed(chain.publish(drafts[0], run=mine, permit=permits[0]))
            lost = rival.publish(drafts[1], run=theirs, permit=permits[1])
        assert isinstance(lost, Superseded)
        assert lost.winner.commit_ulid == won.commit_ulid
        assert rival.status(lost.commit_ulid).kind is not VerdictKind.COMMITTED
        assert len(chain.list_manifests()) == 2

    def test_the_pointer_is_swapped_only_at_its_version(self, chain: Chain) -> None:
        """S33, S34: a stale version, and creating a pointer that exists, are conflicts and change nothing."""
        _committed(publish_one(chain, "one"))
        key, records = chain.layout.pointer_key, chain.handle.records
        before = records.get(key)
        _committed(publish_one(chain, "two"))
        now = records.get(key)
        with pytest.raises(VersionConflict):
            records.swap(key, now.data, expected=before.version)
        with pytest.raises(AlreadyExists):
            records.put_new(key, before.data)
        assert records.get(key) == now
        assert records.get_if_changed(key, now.version) is None
        assert records.get_if_changed(key, before.version) == now

    def test_ids_are_never_used_twice(self, chain: Chain, clock: VirtualClock) -> None:
        """S33: the high-water id survives a rollback, a collection and a purge."""
        refs = [_committed(publish_one(chain, str(number))).ref for number in range(4)]
        chain.set_current(refs[1])
        chain.collect(retention=1)
        clock.advance(8 * _DAY_S)
        chain.purge()
        assert _committed(publish_one(chain, "new")).manifest.manifest_id == chain.layout.first_id + 4

    def test_status_answers_for_good(self, chain: Chain) -> None:
        """S33: a commit's verdict is found in the newest moves and in the old ones alike."""
        commits = [_committed(publish_one(chain, str(number))).commit_ulid for number in range(36)]
        other = other_handle(chain)
        assert {other.status(ulid).kind for ulid in commits} == {VerdictKind.COMMITTED}
        unsent = chain.handle.ulid(after=commits[-1])
        assert chain.status(unsent).kind is VerdictKind.OPEN
        assert chain.status(unsent, settle=True).kind is VerdictKind.NEVER_PUBLISHED

    def test_collected_snapshots_come_back_until_they_are_purged(self, chain: Chain, clock: VirtualClock) -> None:
        """S33: collect, restore and purge; what is tagged stays."""
        births: list[dict[str, str]] = [{}, {"keep": "yes"}, {}, {}, {}]
        refs = [_committed(publish_one(chain, str(number), **tags)).ref for number, tags in enumerate(births)]
        plan = chain.collect(retention=2)
        assert [found.ref for found in chain.list_manifests()] == [refs[4], refs[3], refs[1]]
        with pytest.raises(SnapshotCollected):
            chain.set_current(refs[0])
        assert plan.collection is not None
        chain.restore(plan.collection)
        assert len(other_handle(chain).list_manifests()) == 5
        chain.collect(retention=2)
        clock.advance(8 * _DAY_S)
        purged = chain.purge()
        assert {item.what for item in purged.deleted} >= {"artifact", "manifest", "run"}
        left = [info.key for page in chain.handle.records.list(chain.layout.manifest_prefix) for info in page]
        manifests = [key for key in left if chain.layout.parse_manifest_key(key) is not None]
        assert sorted(manifests) == sorted(chain.layout.path_of(ref) for ref in (refs[1], refs[3], refs[4]))

    def test_an_abandoned_run_is_swept_and_cannot_publish(self, chain: Chain, clock: VirtualClock) -> None:
        """S33: what a dead run wrote is collected, and the run finds itself swept."""
        _committed(publish_one(chain, "one"))
        writer = other_handle(chain)
        guard = writer.lock(ttl_s=_DAY_S)
        run = writer.begin_run(lease_s=60)
        draft = _draft(writer, run.artifact_key("part-0"), "late")
        clock.advance(61)
        plan = chain.collect(retention=5)
        assert plan.runs == (run.run_id,)
        with pytest.raises(RunSwept):
            writer.publish(draft, run=run, permit=writer.permit(guard))
        guard.release()

    def test_a_reader_follows_and_asks_for_no_body_in_vain(self, chain: Chain) -> None:
        """S33: a reader serves what is visible, follows a publish and a rollback, and sees when nothing changed."""
        first = _committed(publish_one(chain, "one"))
        with other_handle(chain).reader(_content) as reader:
            assert reader.refresh() is Refreshed.UNCHANGED
            _committed(publish_one(chain, "two"))
            assert reader.refresh() is Refreshed.SWAPPED
            with reader.borrow() as served:
                assert served.resource == "two"
            chain.set_current(first.ref)
            assert reader.refresh() is Refreshed.SWAPPED
            assert reader.manifest == first.manifest

    def test_the_async_reader_sees_the_same(self, chain: Chain) -> None:
        """S33, S32: the read half exists for asyncio, over the same records."""
        _committed(publish_one(chain, "one"))
        other = other_handle(chain)

        async def follow() -> list[object]:
            async with await other.async_reader(_content) as reader:
                seen = [_content(reader.manifest), await reader.refresh()]
                _committed(await asyncio.to_thread(publish_one, chain, "two"))
                return [*seen, await reader.refresh(), _content(reader.manifest)]

        assert asyncio.run(follow()) == ["one", Refreshed.UNCHANGED, Refreshed.SWAPPED, "two"]

    def test_reconcile_finds_nothing_after_ordinary_work(self, chain: Chain) -> None:
        """S33: publishing, rolling back and collecting leave nothing undone."""
        for number in range(3):
            _committed(publish_one(chain, str(number)))
        chain.rollback()
        chain.collect(retention=1)
        assert chain.reconcile() == []
