"""`POST /notify`: what is told is folded soon, together, once; nothing is lost on the way."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.catalog import Workspace
from holdfast.catalog import payloads as p
from holdfast.catalog.compactor import Compactor, MergeLimits
from holdfast.catalog.cursor import CursorKeeper, read_cursor
from holdfast.catalog.layout import compactor_lock_key
from holdfast.catalog.remote_compactor import Notified, RemoteCompactor
from holdfast.errors import BadInput, StoreUnavailable
from holdfast.fencing import LockGuard, read_lock
from holdfast.service.compactor import CompactorService
from holdfast.service.notifications import Batch, Notifications, Offered, QueueFull
from holdfast.storage.capabilities import ManifestSwap, Reader
from holdfast.testing.clock import VirtualClock
from tests.service.polite import rude_lock
from tests.service.support import ULID, call, edge, edges_of, serving, state_of, table, tables_of, tell, until

LATER = "01M7H8H6Z2G4GEWKD5CBMBR2J9"


@contextmanager
def held(workspace: Workspace, domain: str) -> Iterator[LockGuard]:
    """Nothing notified of this domain is folded in this block: somebody changes it."""
    with workspace.domain(domain).lock(operation="test") as guard:
        yield guard


def metric(url: str, name: str, domain: str) -> float:
    found = re.search(
        rf'^holdfast_compactor_{name}{{domain="{domain}"}} (\S+)$', call(url, "GET", "/metrics").document, re.M
    )
    assert found is not None, name
    return float(found[1])


def test_what_was_notified_is_folded_soon_and_together(workspace: Workspace, url: str, remote: RemoteCompactor) -> None:
    """C18, C20: 60 notifications that came while the domain was busy cost few publishes; a repeated one waits once."""
    paths = tell(workspace, *(edge(number) for number in range(60)))
    with held(workspace, "lineage"):
        answers = [call(url, "POST", "/notify", {"domain": "lineage", "paths": [path]}) for path in paths]
        assert {answer.status for answer in answers} == {202}
        assert answers[-1].document == {"domain": "lineage", "accepted": 1, "known": 0, "waiting": 60}
        assert remote.notify("lineage", paths[:7]) == Notified(accepted=0, known=7, waiting=60)
        until(lambda: metric(url, "conflicts_total", "lineage") > 0)
    until(lambda: len(edges_of(workspace)) == 60)
    until(lambda: metric(url, "waiting", "lineage") == 0)
    publishes = state_of(workspace, "lineage").snapshot_version
    assert publishes <= 2, "what was in hand, and all that came after it"
    assert metric(url, "publishes_total", "lineage") == publishes
    assert metric(url, "in_trouble", "lineage") == 0, "waiting for a lock is no trouble"


def test_a_full_queue_is_429_with_when_to_come_back(workspace: Workspace) -> None:
    """C18: nothing of it is taken, what waited is folded, and then there is room."""
    paths = tell(workspace, *(edge(number) for number in range(5)))
    with serving(CompactorService(workspace, queue_max=3)) as url:
        with held(workspace, "lineage"):
            assert call(url, "POST", "/notify", {"domain": "lineage", "paths": paths[:3]}).status == 202
            full = call(url, "POST", "/notify", {"domain": "lineage", "paths": paths[3:]})
            assert (full.status, full.document["error"], full.headers["retry-after"]) == (429, "QueueFull", "1")
            assert call(url, "POST", "/notify", {"domain": "lineage", "paths": paths[:3]}).status == 202
            clock = VirtualClock()
            before = clock.now()
            with pytest.raises(StoreUnavailable, match="no room"):
                RemoteCompactor(url, clock=clock).notify("lineage", paths[3:])
            assert (clock.now() - before).total_seconds() == 3.0, "it waits as long as it is told, a few times"
            assert metric(url, "rejected_total", "lineage") >= 2
        until(lambda: len(edges_of(workspace)) == 3)
        RemoteCompactor(url).notify("lineage", paths[3:])
        until(lambda: len(edges_of(workspace)) == 5)


def test_a_cursor_is_written_once_everything_before_it_is_folded(
    workspace: Workspace, url: str, remote: RemoteCompactor
) -> None:
    """C18: durable, never before, never backwards, and never because of what came after it."""
    paths = tell(workspace, edge(1), edge(2))
    reader = Reader(workspace.store)
    with held(workspace, "lineage"):
        remote.notify("lineage", paths[:1], cursor=ULID)
        remote.notify("lineage", [], cursor=LATER)
        remote.notify("lineage", paths[1:])
        until(lambda: metric(url, "conflicts_total", "lineage") > 0)
        assert remote.cursor("lineage") is None
    until(lambda: remote.cursor("lineage") == LATER)
    assert edges_of(workspace) >= {"s1"}
    remote.notify("lineage", [], cursor=ULID)
    until(lambda: len(edges_of(workspace)) == 2)
    assert remote.notify("lineage", [], cursor=ULID).waiting == 0
    found = read_cursor(reader, "lineage")
    assert found is not None
    assert found.event_id == LATER
    assert call(url, "GET", "/cursor/lineage").document == {"domain": "lineage", "event_id": LATER}
    assert call(url, "GET", "/cursor/catalog").document == {"domain": "catalog", "event_id": None}
    assert call(url, "GET", "/cursor/..%2fx").status in {404, 422}
    assert call(url, "GET", "/cursor/search").status == 422
    CursorKeeper(ManifestSwap(workspace.store), reader).advance("catalog", ULID)
    assert remote.cursor("catalog") == ULID


@pytest.mark.parametrize(
    "cursor", ["x", 7, {"event_id": "../x"}, {"event_id": ULID, "domain": "catalog"}, {"event_id": ULID, "at": 1}]
)
def test_what_is_no_cursor_is_refused(url: str, cursor: object) -> None:
    """C18: an id that is none, or another domain's."""
    answer = call(url, "POST", "/notify", {"domain": "lineage", "paths": [], "cursor": cursor})
    assert (answer.status, answer.document["error"]) == (422, "BadInput")


def test_an_event_that_is_gone_holds_nobody_up(workspace: Workspace, url: str, remote: RemoteCompactor) -> None:
    """C18: it is dropped, counted and reported; what came with it is folded, and the cursor moves on."""
    paths = tell(workspace, edge(1), edge(2))
    gone = [f"ledger/lineage/{ULID}.json", f"ledger/lineage/{LATER}.json"]
    remote.notify("lineage", [paths[0], *gone, paths[1]], cursor=LATER)
    until(lambda: remote.cursor("lineage") == LATER)
    assert edges_of(workspace) == {"s1", "s2"}
    assert metric(url, "missing_total", "lineage") == 2
    assert metric(url, "waiting", "lineage") == 0


def test_damaged_state_stops_the_domain_and_no_other_until_it_is_repaired(workspace: Workspace) -> None:
    """C22, C2: nothing is published or dropped; health and metrics say so; what waits is folded after the repair."""
    with serving(CompactorService(workspace)) as url:
        RemoteCompactor(url).compact(tell(workspace, edge(1)), domain="lineage")
    (file,) = state_of(workspace, "lineage").files
    good = workspace.store.get(file.path).data
    workspace.store.delete([file.path])
    with serving(CompactorService(workspace)) as url:
        remote = RemoteCompactor(url)
        remote.notify("lineage", tell(workspace, edge(2)))
        until(lambda: call(url, "GET", "/health").document == {"status": "degraded"})
        assert metric(url, "in_trouble", "lineage") == 1
        assert metric(url, "waiting", "lineage") == 1
        assert metric(url, "pending_lag", "lineage") == 1
        assert remote.compact(tell(workspace, table("a"))).published
        assert state_of(workspace, "lineage").snapshot_version == 1
        workspace.store.put_new(file.path, good)
        until(lambda: call(url, "GET", "/health").document == {"status": "ok"})
        until(lambda: metric(url, "pending_lag", "lineage") == 0)
    assert edges_of(workspace) == {"s1", "s2"}


def test_executions_take_a_delta_per_batch_and_are_merged(workspace: Workspace) -> None:
    """C21: the manifest names base and deltas; every run is there."""

    def run(number: int) -> p.RunStarted:
        return p.RunStarted(run_id=f"r{number}", started_at=datetime(2026, 11, 16, tzinfo=UTC))

    levels = []
    with serving(CompactorService(workspace, limits=MergeLimits(files_max=2))) as url:
        remote = RemoteCompactor(url)
        for batch in range(4):
            paths = tell(workspace, *(run(10 * batch + number) for number in range(5)))
            remote.notify("executions", paths)
            until(lambda batch=batch: state_of(workspace, "executions").snapshot_version == batch + 1)  # type: ignore[misc]
            levels.append([file.level for file in state_of(workspace, "executions").files])
        until(lambda: metric(url, "events_total", "executions") == 20)
        assert metric(url, "merges_total", "executions") == 1
    assert levels == [["delta"], ["delta", "delta"], ["base"], ["base", "delta"]]
    rows = state_of(workspace, "executions").read(Reader(workspace.store), ["run_starts"])["run_starts"]
    assert len(rows) == 20


def test_what_is_folded_here_fences_nobody_off(workspace: Workspace, url: str, remote: RemoteCompactor) -> None:
    """C18, C17: a change that took the lock before a notified fold was published is published after it all the same."""
    chain = workspace.domain("catalog")
    remote.notify("catalog", tell(workspace, table("first")))
    until(lambda: tables_of(workspace) == ["first"])
    with chain.lock() as guard:
        ticket = guard.ticket
        paths = tell(workspace, table("second"), table("third"), table("fourth"))
        # A compactor elsewhere that did not see the lock: its fold is published under no lock of the domain.
        for path in paths[:2]:
            assert Compactor(workspace, "catalog", own_lock=rude_lock).compact([path]).published
        assert remote.compact(paths[2:], ticket=ticket).published
    assert tables_of(workspace) == ["first", "fourth", "second", "third"]
    own = read_lock(chain.handle.records, compactor_lock_key("catalog"))
    assert own is not None
    assert not own.is_live(workspace.clock.now()), "it is given back after each fold"


def test_nothing_new_takes_no_lock(workspace: Workspace, remote: RemoteCompactor) -> None:
    """C18: telling again what is folded writes nothing at all."""
    paths = tell(workspace, edge(1))
    assert remote.compact(paths, domain="lineage").published
    key = compactor_lock_key("lineage")
    before = workspace.store.get(key).version
    assert not remote.compact(paths, domain="lineage").published
    assert workspace.store.get(key).version == before


# The queue by itself.

PATHS = st.lists(st.sampled_from("abcdefgh"), max_size=5)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("offer"), PATHS, st.none() | st.sampled_from("0123456789")),
        st.tuples(st.just("fold"), st.integers(1, 4), st.sampled_from(["done", "failed", "gone"])),
    ),
    max_size=30,
)


@given(STEPS)
def test_every_path_is_folded_and_no_cursor_overtakes_one(steps: list[tuple[str, object, object]]) -> None:
    """C18: whatever fails in between: in order, once at a time, never more than there is room for."""
    queue = Notifications("lineage", capacity=6)
    waiting: list[str] = []
    promised: dict[str, set[str]] = {}

    def forget(paths: Sequence[str]) -> None:
        del waiting[: len(paths)]
        for before in promised.values():
            before.difference_update(paths)

    def fold(size: int, how: str) -> None:
        batch = queue.take(size)
        if batch is None:
            assert not waiting
            return
        assert list(batch.paths) == waiting[: len(batch.paths)]
        if how == "done" or (how == "gone" and not batch.paths):
            forget(batch.paths)
            assert not any(promised[cursor] for cursor in promised if cursor <= (batch.cursor or ""))
            queue.settle(batch)
        elif how == "gone":
            queue.put_back(batch, gone=batch.paths[:1])
            forget(batch.paths[:1])
        else:
            queue.put_back(batch)

    highest = ""
    for step, first, second in steps:
        if step == "fold":
            assert isinstance(first, int)
            fold(first, str(second))
            continue
        assert isinstance(first, list)
        fresh = [path for path in dict.fromkeys(first) if path not in waiting]
        cursor = None if second is None or str(second) <= highest else str(second)
        if fresh and len(waiting) + len(fresh) > queue.capacity:
            with pytest.raises(QueueFull):
                queue.offer(first, cursor)
            continue
        assert queue.offer(first, cursor) == Offered(
            accepted=len(fresh), known=len(set(first)) - len(fresh), waiting=len(waiting) + len(fresh)
        )
        waiting += fresh
        if cursor is not None:
            highest = cursor
            promised[cursor] = set(waiting)
    for _ in range(len(waiting) + 1):
        fold(3, "done")
    assert not waiting
    assert queue.is_empty()
    assert len(queue) == 0


def test_a_cursor_comes_with_the_last_path_before_it() -> None:
    """C18: it is given out with the batch that completes it, and again if that failed."""
    queue = Notifications("lineage", capacity=10)
    queue.offer(["a", "b", "c"], "1")
    queue.offer([], "2")
    queue.offer(["d"], "3")
    assert queue.take(2) == Batch(paths=("a", "b"))
    batch = queue.take(1)
    assert batch == Batch(paths=("c",), cursor="2")
    queue.put_back(batch)
    assert queue.take(1) == batch
    assert queue.take(5) == Batch(paths=("d",), cursor="3")
    assert queue.take(5) is None
    with pytest.raises(BadInput, match="room"):
        Notifications("lineage", capacity=0)
