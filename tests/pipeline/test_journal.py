"""Runs are begun once, gone on with by one runner at a time, and remembered by what they began with."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from holdfast.catalog import Workspace
from holdfast.catalog.compactor import Compactor
from holdfast.catalog.sql import query
from holdfast.errors import BadInput, Conflict, LockHeld, LockLost
from holdfast.pipeline.journal import Beginning, last_attempt, open_journal
from holdfast.storage import MemoryStore
from holdfast.testing.clock import SeededRandomness, VirtualClock

BEGINNING = Beginning(
    pipeline="nightly", fingerprint="f1", parameters={"day": "1"}, datasets=("a", "b"), pins={"users": "v3"}
)


@pytest.fixture
def workspace() -> Workspace:
    made = Workspace(
        root=MemoryStore(), tenant="acme", name="prod", by="one", clock=VirtualClock(), randomness=SeededRandomness()
    )
    made.initialize()
    return made


def quiet(domain: str, paths: Sequence[str]) -> None:
    """Nobody folds: what a runner needs is in the ledger."""


def folding(workspace: Workspace) -> object:
    return lambda domain, paths: Compactor(workspace, domain).compact(paths)


def clock_of(workspace: Workspace) -> VirtualClock:
    assert isinstance(workspace.clock, VirtualClock)
    return workspace.clock


def test_a_run_goes_on_with_what_it_began_with_whatever_is_folded(workspace: Workspace) -> None:
    """C31: the next attempt finds parameters and pinned snapshots by the run's name alone."""
    with open_journal(workspace, "r1", quiet) as journal:
        assert journal.last is None
        assert journal.begin(BEGINNING) == BEGINNING
        assert journal.run_id == "r1+1"
    later = Beginning(
        pipeline="nightly", fingerprint="f1", parameters={"day": "1"}, datasets=("a",), pins={"users": "v9"}
    )
    with open_journal(workspace, "r1", quiet) as journal:
        assert journal.run_id == "r1+2"
        assert journal.begin(later) == BEGINNING
        journal.succeed(["a", "b"], {"rows": 3})
    found = last_attempt(workspace, "r1")
    assert found is not None
    assert (found.state, found.attempt, found.pins) == ("succeeded", 2, {"users": "v3"})
    assert last_attempt(workspace, "r2") is None


@pytest.mark.parametrize(
    "fingerprint, parameters, error, says",
    [
        ("f2", {"day": "1"}, Conflict, "another definition"),
        ("f1", {"day": "2"}, BadInput, "began with day='1', not '2'"),
        ("f1", {"day": "1", "new": "x"}, BadInput, "new"),
    ],
)
def test_a_run_does_not_go_on_with_something_else(
    workspace: Workspace, fingerprint: str, parameters: dict[str, str], error: type[Exception], says: str
) -> None:
    """C31: another definition or other parameters are another run."""
    with open_journal(workspace, "r1", quiet) as journal:
        journal.begin(BEGINNING)
    other = Beginning(pipeline="nightly", fingerprint=fingerprint, parameters=parameters, datasets=(), pins={})
    with open_journal(workspace, "r1", quiet) as journal, pytest.raises(error, match=says):
        journal.begin(other)


def test_one_runner_at_a_time_and_a_stale_one_learns_it(workspace: Workspace) -> None:
    """C32: the lock keeps others out while it lives; whoever paused for longer is refused before it publishes."""
    other = Workspace(root=workspace.root, tenant="acme", name="prod", by="two", clock=workspace.clock)
    with open_journal(workspace, "r1", quiet) as stale:
        stale.begin(BEGINNING)
        with pytest.raises(LockHeld), open_journal(other, "r1", quiet):
            pass
        clock_of(workspace).advance(3_600)
        with open_journal(other, "r1", quiet) as fresh:
            fresh.begin(BEGINNING)
            fresh.require_held()
            with pytest.raises(LockLost):
                stale.require_held()
            stale.fail("too late")
            fresh.succeed([], {})
    found = last_attempt(workspace, "r1")
    assert found is not None
    assert (found.state, found.runner, found.attempt) == ("succeeded", "two", 2)


def test_where_runs_and_tasks_stand_is_in_the_orchestration_chain(workspace: Workspace) -> None:
    """C32: by attempt; and executions has what came of them."""
    with open_journal(workspace, "r1", folding(workspace)) as journal:  # type: ignore[arg-type]
        journal.begin(BEGINNING)
        journal.task_began("a", "kv")
        journal.task_succeeded("a", "kv", snapshot="v1", row_count=3, byte_size=99, counters={"rows": 3})
        journal.task_began("b", "graph")
        journal.task_failed("b", "graph", "x" * 5_000)
        journal.fail("b failed")
    runs = query(workspace, "SELECT run_id, state, pins, error FROM system.pipeline_runs").to_pylist()
    assert runs == [{"run_id": "r1", "state": "failed", "pins": '{"users":"v3"}', "error": "b failed"}]
    tasks = query(workspace, "SELECT task_id, state, snapshot, length(error) AS n FROM system.pipeline_tasks")
    assert tasks.to_pylist() == [
        {"task_id": "a", "state": "succeeded", "snapshot": "v1", "n": 0},
        {"task_id": "b", "state": "failed", "snapshot": "", "n": 2_000},
    ]
    assert query(workspace, "SELECT status FROM system.runs").to_pylist() == [{"status": "failed"}]
    made = query(workspace, "SELECT asset, snapshot, row_count FROM system.materializations").to_pylist()
    assert made == [{"asset": "a", "snapshot": "v1", "row_count": 3}]


@pytest.mark.parametrize("run", ["", "a+b", "../x", "a/b", "-x", "x" * 101])
def test_a_name_that_no_run_can_have_is_refused(workspace: Workspace, run: str) -> None:
    with pytest.raises(BadInput, match="use 1 to 100"), open_journal(workspace, run, quiet):
        pass
