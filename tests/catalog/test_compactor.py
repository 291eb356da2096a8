"""The compactor: events become published state, once each, whatever fails."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import pytest

from holdfast.catalog import payloads as p
from holdfast.catalog.compactor import Compaction, Compactor, MergeLimits
from holdfast.catalog.domain_state import BASE, DELTA, DomainState
from holdfast.catalog.fold import alive
from holdfast.catalog.payload import Payload
from holdfast.catalog.workspace import Workspace
from holdfast.errors import BadInput, Conflict, CorruptShard, LockLost, ScopeEscape, StoreUnavailable
from holdfast.fencing import borrow_lock, read_lock
from holdfast.storage.capabilities import Reader
from holdfast.storage.memory import MemoryStore
from holdfast.storage.objects import ObjectStore
from holdfast.testing.clock import SeededRandomness, VirtualClock
from holdfast.testing.faulty import CountingStore, Crashed, Fault, FaultyStore, Operation


def workspace_on(store: ObjectStore, clock: VirtualClock | None = None, seed: int = 1) -> Workspace:
    return Workspace(
        root=store, tenant="acme", name="prod", by="test", clock=clock or VirtualClock(),
        randomness=SeededRandomness(seed),
    )  # fmt: skip


@pytest.fixture
def workspace() -> Workspace:
    found = workspace_on(MemoryStore())
    found.initialize()
    return found


def table(name: str, description: str = "") -> p.TableRegistered:
    return p.TableRegistered(namespace="n", table=name, description=description)


def tell(workspace: Workspace, *said: Payload) -> list[str]:
    """The paths of these events."""
    return [workspace.ledger(one.DOMAIN).append(one).path for one in said]


def state_of(workspace: Workspace, domain: str = "catalog") -> DomainState:
    return DomainState.of_manifest(domain, workspace.domain(domain).load_current())


def tables_of(workspace: Workspace) -> list[str]:
    rows = state_of(workspace).read(Reader(workspace.store), ["tables"])["tables"]
    return [str(name) for name in alive(rows).column("table").to_pylist()]


def compact(workspace: Workspace, paths: Sequence[str], **limits: Any) -> Compaction:
    return Compactor(workspace, "catalog", limits=MergeLimits(**limits)).compact(paths)


def test_a_change_is_published_under_the_lock_of_who_waits_for_it(workspace: Workspace) -> None:
    """C17, C6: lock, event, compaction by paths and ticket, release; the manifest says how far it is folded."""
    chain = workspace.domain("catalog")
    with chain.lock(operation="register") as guard:
        (path,) = tell(workspace, table("users"))
        done = Compactor(workspace, "catalog").compact([path], ticket=guard.ticket)
        assert guard.record.expires_at > guard.clock.now(), "what was borrowed is not released"
    assert (done.published, done.watermark.position, done.snapshot_version) == (True, 1, 1)
    assert tables_of(workspace) == ["users"]
    (file,) = state_of(workspace).files
    assert (file.table, file.level, file.row_count, file.first_position) == ("tables", DELTA, 1, 1)
    assert file.path.startswith("l0/catalog/")
    assert state_of(workspace).payload()["totals"] == {"files": 1, "rows": 1, "bytes": file.byte_size}
    assert chain.verify() == []


def test_a_stale_or_forged_ticket_publishes_nothing(workspace: Workspace) -> None:
    """C17: the token is compared with who holds the lock now."""
    (path,) = tell(workspace, table("users"))
    compactor, chain = Compactor(workspace, "catalog"), workspace.domain("catalog")
    with chain.lock() as guard:
        stale, sequence = guard.ticket, guard.record.sequence
        for forged in (f"{sequence}.0", f"{sequence + 1}.{guard.record.attempt}", "", "nonsense"):
            with pytest.raises(LockLost, match="not that of who holds"):
                compactor.compact([path], ticket=forged)
    with pytest.raises(LockLost, match="not that of who holds"):
        compactor.compact([path], ticket=stale)
    assert workspace.domain("catalog").load_current() is None
    with chain.lock() as guard:
        borrowed = borrow_lock(chain.handle.records, chain.layout.lock_key, ticket=guard.ticket, clock=workspace.clock)
        with pytest.raises(LockLost, match="borrowed"):
            borrowed.extend(60)
        borrowed.release()
        record = read_lock(chain.handle.records, chain.layout.lock_key)
        assert record is not None
        assert record.is_live(workspace.clock.now()), "what is borrowed is not given back for its holder"
        guard.extend(60)


def test_what_was_folded_before_changes_nothing(workspace: Workspace) -> None:
    """C19, C18: a duplicate, and a late replay of an older event, make no snapshot and bring nothing back."""
    paths = tell(workspace, table("a"), table("b"), p.TableDropped(namespace="n", table="a"))
    compact(workspace, paths)
    again = [compact(workspace, paths), compact(workspace, paths[:1]), compact(workspace, [])]
    assert [done.published for done in again] == [False] * 3
    assert {done.manifest_id for done in again} == {state_of(workspace).snapshot_version - 1}
    assert tables_of(workspace) == ["b"]


def test_events_out_of_order_end_in_the_same_state(workspace: Workspace) -> None:
    """C19: the watermark is the highest position, and what came before it late is folded all the same."""
    paths = tell(workspace, table("a", "old"), table("b"), p.TableUpdated(namespace="n", table="a", description="new"))
    compact(workspace, paths[2:])
    done = compact(workspace, paths[:2])
    assert (done.published, done.watermark.position) == (True, 3)
    rows = alive(state_of(workspace).read(Reader(workspace.store), ["tables"])["tables"]).to_pylist()
    assert [(row["table"], row["description"]) for row in rows] == [("a", "new"), ("b", "")]


def test_deltas_are_merged_by_count_and_by_rows(workspace: Workspace) -> None:
    """C21: the manifest names a base and the deltas on top of it."""
    levels = []
    for number in range(7):
        compact(workspace, tell(workspace, table(f"t{number}")), files_max=3)
        levels.append([file.level for file in state_of(workspace).files])
    assert levels[2:5] == [[DELTA] * 3, [BASE], [BASE, DELTA]]
    assert tables_of(workspace) == [f"t{number}" for number in range(7)]
    done = compact(workspace, tell(workspace, *(table(f"m{number}") for number in range(5))), rows_max=4)
    assert done.merged == ("tables",)
    assert workspace.domain("catalog").verify() == []
    with pytest.raises(BadInput, match="at least 1"):
        MergeLimits(files_max=0)


def test_deltas_are_merged_by_age(workspace: Workspace) -> None:
    """C21: a delta that has waited for a day becomes part of the base with the next change, however few there are."""
    compact(workspace, tell(workspace, table("a")))
    assert isinstance(workspace.clock, VirtualClock)
    workspace.clock.advance(23 * 3600)
    assert compact(workspace, tell(workspace, table("b"))).merged == ()
    workspace.clock.advance(2 * 3600)
    assert compact(workspace, tell(workspace, table("c"))).merged == ("tables",)
    assert [file.level for file in state_of(workspace).files] == [BASE]
    assert tables_of(workspace) == ["a", "b", "c"]
    compact(workspace, tell(workspace, table("d")), age_max_s=60)
    workspace.clock.advance(61)
    assert compact(workspace, tell(workspace, table("e")), age_max_s=60).merged == ("tables",)


def test_domains_do_not_wait_for_each_other(workspace: Workspace) -> None:
    """C2: a held catalog lock delays no lineage write."""
    edge = p.LineageEdgesAdded(edges=(p.Edge(source="a", target="b"),))
    with workspace.domain("catalog").lock():
        done = Compactor(workspace, "lineage").compact(tell(workspace, edge))
        with pytest.raises(Conflict):
            compact(workspace, tell(workspace, table("a")))
    assert done.published


def test_missing_or_damaged_state_stops_the_compaction(workspace: Workspace) -> None:
    """C22: closed; an emptied table is never published."""
    compact(workspace, tell(workspace, table("a")))
    (file,) = state_of(workspace).files
    later = tell(workspace, table("b"))
    good = workspace.store.get(file.path).data
    workspace.store.delete([file.path])
    with pytest.raises(CorruptShard, match="missing"):
        compact(workspace, later)
    workspace.store.put_new(file.path, good[:-1] + b"x")
    with pytest.raises(CorruptShard, match="checksum"):
        compact(workspace, later)
    assert state_of(workspace).snapshot_version == 1


def test_paths_outside_of_the_ledger_are_refused(workspace: Workspace) -> None:
    """C11, C17: another domain's, another tenant's, or no event at all."""
    for path in (
        "ledger/lineage/01M7H8H6Z2G4GEWKD5CBMBR2J5.json",
        "../other/ledger/catalog/x.json",
        "manifests/root.json",
    ):
        with pytest.raises(ScopeEscape):
            compact(workspace, [path])


def test_after_a_rollback_versions_go_on_growing(workspace: Workspace) -> None:
    """C6: `snapshot_version` never regresses; the next compaction starts from what is visible."""
    for name in ("a", "b"):
        compact(workspace, tell(workspace, table(name)))
    workspace.domain("catalog").rollback()
    assert tables_of(workspace) == ["a"]
    done = compact(workspace, tell(workspace, table("c")))
    assert done.snapshot_version == 3
    assert tables_of(workspace) == ["a", "c"]


def test_no_compaction_lists_and_the_root_is_current() -> None:
    """C17, C24, C3: a few reads and writes, no listing; outside readers find the domain by the root."""
    clock, counting = VirtualClock(), CountingStore(MemoryStore())
    workspace = workspace_on(counting, clock)
    workspace.initialize()
    paths = tell(workspace, table("a"))
    counting.reset()
    compact(workspace, paths)
    assert "list" not in counting.counts
    assert counting.total < 25
    root = workspace.read_root().paths["catalog_manifest_path"]
    assert workspace.store.head(root).size > 0


def test_a_crash_or_a_lost_answer_at_any_step_loses_nothing() -> None:
    """C23, C17: killed or without an answer at every request of a compaction in turn; the next attempt completes."""
    steps = 0
    for kind in (Fault.CRASH_BEFORE, Fault.CRASH_AFTER, Fault.ERROR_BEFORE, Fault.ERROR_AFTER):
        for serial in range(1, 100):
            clock, inner = VirtualClock(), MemoryStore()
            plain = workspace_on(inner, clock)
            plain.initialize()
            compact(plain, tell(plain, table("a")))
            paths = tell(plain, table("b"))
            begun = False

            def plan(operation: Operation, kind: Fault = kind, serial: int = serial) -> Fault:
                nonlocal begun
                begun = begun or operation.serial == serial
                return kind if operation.serial == serial else Fault.PASS

            faulty = workspace_on(FaultyStore(inner, plan), clock, seed=2)
            with contextlib.suppress(Crashed, StoreUnavailable, Conflict):
                compact(faulty, paths)
            assert set(tables_of(plain)) <= {"a", "b"}
            clock.advance(3600)
            compact(workspace_on(inner, clock, seed=3), paths)
            assert tables_of(plain) == ["a", "b"]
            assert plain.domain("catalog").verify() == []
            if not begun:
                break
            steps += 1
    assert steps > 40
