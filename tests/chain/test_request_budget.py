"""What each operation costs in requests, counted on the store."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from holdfast.chain import Chain, Committed
from holdfast.chain.moves import MOVES_PER_SEGMENT
from holdfast.fencing import LockGuard
from holdfast.testing.faulty import CountingStore
from tests.chain.publishing import ChainFactory, draft_of, publish_one


@pytest.fixture
def store_kind() -> str:
    """Requests are counted before they reach the store, so one store is enough."""
    return "memory"


class Counted:
    """A writer that holds the lock, and a count of its requests by what they are about."""

    def __init__(self, factory: ChainFactory) -> None:
        self.store = CountingStore(factory.store)
        self.chain = factory(store=self.store)
        self.guard: LockGuard = self.chain.lock(ttl_s=1e9)

    def publish(self, artifacts: int = 3) -> Counter[tuple[str, str]]:
        """Publish, and say which requests it took, uploads of the artifacts included."""
        self.store.reset()
        run = self.chain.begin_run()
        draft = draft_of(self.chain, run, {f"part-{number}": b"rows" for number in range(artifacts)})
        outcome = self.chain.publish(draft, run=run, permit=self.chain.permit(self.guard))
        assert isinstance(outcome, Committed)
        assert outcome.repair_pending == ()
        return Counter((each.kind, self.about(each.key)) for each in self.store.log)

    def about(self, key: str) -> str:
        layout = self.chain.layout
        singles = {layout.pointer_key: "pointer", layout.mirror_key: "mirror", layout.root_key: "root"}
        if key in singles:
            return singles[key]
        if key.startswith(f"{layout.run_prefix}/"):
            return "run"
        if key.startswith(f"{layout.moves_prefix}/"):
            return "moves"
        if layout.parse_manifest_key(key) is not None:
            return "manifest"
        return "artifact" if key.startswith(layout.artifact_prefixes) else "other"


@pytest.mark.parametrize("layout_name", ["kv", "graph"])
def test_a_publish_keeps_its_budget(chain_factory: ChainFactory) -> None:
    """S10, S16: with the lock held: one run record, one head per artifact in one batch, one look at the run record, one
    manifest, one pointer swap and nothing after it; the pointer is not read, and nothing is listed."""
    writer = Counted(chain_factory)
    writer.publish()
    assert writer.publish(artifacts=3) == {
        ("put_new", "run"): 1,
        ("upload", "artifact"): 3,
        ("head", "artifact"): 3,
        ("get", "run"): 1,
        ("put_new", "manifest"): 1,
        ("swap", "pointer"): 1,
    }
    writes = [(each.kind, writer.about(each.key)) for each in writer.store.log if each.kind in {"put_new", "swap"}]
    assert writes == [("put_new", "run"), ("put_new", "manifest"), ("swap", "pointer")]


@pytest.mark.parametrize("layout_name", ["domain", "orchestration"])
def test_a_publish_with_a_legacy_path_costs_one_request_more(chain_factory: ChainFactory) -> None:
    """S10: the mirror is one swap, after the snapshot is visible; the root costs nothing once it names the domain."""
    writer = Counted(chain_factory)
    writer.publish()
    assert writer.publish(artifacts=1) == {
        ("put_new", "run"): 1,
        ("upload", "artifact"): 1,
        ("head", "artifact"): 1,
        ("get", "run"): 1,
        ("put_new", "manifest"): 1,
        ("swap", "pointer"): 1,
        ("swap", "mirror"): 1,
    }
    kinds = [(each.kind, each.key) for each in writer.store.log]
    layout = writer.chain.layout
    assert kinds.index(("swap", layout.pointer_key)) < kinds.index(("swap", str(layout.mirror_key)))


def test_a_publish_costs_the_same_however_long_the_history(chain_factory: ChainFactory) -> None:
    """S10: at 1, 100 and 500 snapshots a publish makes the same requests, and one more in sixteen for the log."""
    writer = Counted(chain_factory)
    writer.publish(artifacts=1)
    costs: dict[int, Counter[tuple[str, str]]] = {}
    for number in range(1, 520):
        costs[number] = writer.publish(artifacts=1)
    plain = costs[1]
    assert ("put_new", "moves") not in plain
    segments = 0
    for cost in costs.values():
        segments += cost[("put_new", "moves")]
        assert cost == plain or cost == plain + Counter({("put_new", "moves"): 1})
    for length in (1, 100, 500):
        window = [costs[length + step].total() for step in range(MOVES_PER_SEGMENT)]
        assert sum(window) <= MOVES_PER_SEGMENT * plain.total() + 1
    assert segments == 520 // MOVES_PER_SEGMENT - 1


def test_a_cold_open_is_two_reads(chain: Chain, chain_factory: ChainFactory) -> None:
    """S26, S31: pointer, then manifest, however long the history; the async reader the same."""
    with chain.lock(ttl_s=1e9) as guard:
        for _ in range(40):
            publish_one(chain, guard=guard)
    counting = CountingStore(chain_factory.store)
    chain_factory(store=counting).reader(lambda manifest: manifest).close()
    assert counting.counts == {"get": 2}
    counting.reset()

    async def opened() -> None:
        (await chain_factory(store=counting).async_reader(lambda manifest: manifest)).close()

    asyncio.run(opened())
    assert counting.counts == {"get": 2}


def test_a_refresh_is_one_conditional_read_and_a_swap_two_requests(chain: Chain, chain_factory: ChainFactory) -> None:
    """S29: unchanged: one conditional GET; changed: that one (with its body) and the new manifest."""
    publish_one(chain)
    counting = CountingStore(chain_factory.store)
    with chain_factory(store=counting).reader(lambda manifest: manifest.manifest_id) as reader:
        counting.reset()
        for _ in range(5):
            reader.refresh()
        assert counting.counts == {"get_if_changed": 5}
        publish_one(chain)
        counting.reset()
        reader.refresh()
        assert counting.counts == {"get": 1, "get_if_changed": 1}


def test_history_of_ten_is_one_read(chain: Chain, chain_factory: ChainFactory) -> None:
    """S32, S31: the newest ten snapshots are in the pointer itself; a hundred cost one more per sixteen."""
    with chain.lock(ttl_s=1e9) as guard:
        for _ in range(120):
            publish_one(chain, guard=guard)
    counting = CountingStore(chain_factory.store)
    reading = chain_factory(store=counting)
    assert len(reading.list_manifests(10)) == 10
    assert counting.counts == {"get": 1}
    counting.reset()
    assert len(reading.list_manifests(100)) == 100
    assert set(counting.counts) == {"get"}
    assert counting.total <= 1 + 100 // MOVES_PER_SEGMENT


@pytest.mark.parametrize("layout_name", ["kv", "graph"])
def test_a_rollback_keeps_its_budget(chain: Chain, chain_factory: ChainFactory) -> None:
    """S35:

    the pointer, the two manifests, one head per artifact of the target, one swap; nothing is listed or deleted.
    """
    with chain.lock(ttl_s=1e9) as guard:
        for _ in range(40):
            publish_one(chain, {"a": b"a", "b": b"b"}, guard=guard)
    counting = CountingStore(chain_factory.store)
    chain_factory(store=counting).rollback()
    counts = counting.counts
    assert counts["swap"] == 1
    assert counts["head"] == 2
    assert counts["get"] <= 3
    assert set(counts) == {"get", "head", "swap"}


@pytest.mark.parametrize("layout_name", ["kv"])
def test_finding_an_old_commit_halves_the_log(chain: Chain, chain_factory: ChainFactory) -> None:
    """S17: `status` of a commit 500 publishes ago reads a handful of segments, not all of them."""
    with chain.lock(ttl_s=1e9) as guard:
        first = [publish_one(chain, guard=guard).commit_ulid for _ in range(500)][3]
    counting = CountingStore(chain_factory.store)
    verdict = chain_factory(store=counting).status(first)
    assert verdict.kind.value == "committed"
    assert counting.total <= 7
