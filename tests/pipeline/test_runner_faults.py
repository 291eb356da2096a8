"""Runs that die at any request, are paused past their leases, or are started twice: each data set is published once.

Spark is replaced here by a stage that writes one small file, because what is tried are hundreds of deaths of the
process that runs; `test_run.py` has the real one, and kills it.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import pytest

from holdfast.catalog import Workspace
from holdfast.chain import Artifact, Chain, InputPin, ManifestDraft
from holdfast.chain.building import building
from holdfast.errors import Conflict, Fenced, HoldfastError, LockLost, NotFound, StoreUnavailable
from holdfast.pipeline import FileSource, Pipeline, Step, TableDataset
from holdfast.pipeline.journal import last_attempt
from holdfast.pipeline.plan import Plan, plan
from holdfast.pipeline.report import RunReport
from holdfast.pipeline.runner import run_pipeline
from holdfast.storage import MemoryStore, ObjectStore
from holdfast.testing.clock import SeededRandomness, VirtualClock
from holdfast.testing.faulty import Crashed, Fault, FaultyStore, Operation

PIPELINE = Pipeline(
    name="nightly",
    sources=(FileSource(name="orders", path="orders.parquet"),),
    steps=(Step(name="totals", sql="SELECT id, id AS n FROM orders"),),
    datasets=(TableDataset(name="first", rows="orders"), TableDataset(name="second", rows="totals")),
)


def quiet(domain: str, paths: Sequence[str]) -> None:
    """Nobody folds: a run goes on from its ledger and its data sets alone."""


@dataclass(frozen=True)
class Named:
    name: str
    type: str = "bigint"
    nullable: bool = True


@dataclass
class SmallStage:
    """Publishes one file for a frame, as builds do: lock, admission, run, files, commit."""

    before: Callable[[str], None] = lambda _: None
    """Called before a build begins."""
    inside: Callable[[str], None] = lambda _: None
    """Called while one holds the data set's lock, with its file written."""
    built: list[str] = field(default_factory=list)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...

    def read_files(self, name: str, **_: object) -> None: ...

    def ask(self, name: str, sql: str, *, args: Mapping[str, object] | None = None) -> None: ...

    def columns(self, name: str) -> tuple[Named, ...]:
        return (Named("id"),) if name == "orders" else (Named("id"), Named("n"))

    def publish_table(
        self, name: str, chain: Chain, *, run_id: str, inputs: Sequence[InputPin], why: str, tags: Mapping[str, str],
        admit: Callable[[], None], **_: object,
    ) -> None:  # fmt: skip
        self.before(name)
        with building(chain, run_id=run_id, admit=admit) as build:
            data = f"{name} {run_id}".encode()
            path = build.run.artifact_key("part-0.parquet")
            chain.store.upload(path, [data])
            self.inside(name)
            checksum = f"sha256:{hashlib.sha256(data).hexdigest()}"
            artifact = Artifact(path=path, byte_size=len(data), row_count=1, checksum=checksum)
            build.publish(ManifestDraft(artifacts=(artifact,), inputs=tuple(inputs), tags=dict(tags)), why=why)
        self.built.append(name)


def workspace_on(store: ObjectStore, clock: VirtualClock, seed: int = 0) -> Workspace:
    return Workspace(
        root=store, tenant="acme", name="prod", by=f"runner-{seed}", clock=clock, randomness=SeededRandomness(seed)
    )


def start(workspace: Workspace, stage: SmallStage, planned: Plan | None = None, **options: Any) -> RunReport:
    asked = {"run": "r1", "notify": quiet, **options}
    return run_pipeline(planned or plan(PIPELINE), workspace, lambda: stage, **asked)  # type: ignore[arg-type, return-value]


def published(workspace: Workspace) -> dict[str, int]:
    """How often each data set was published."""
    found = {}
    for name in ("first", "second"):
        chain = workspace.dataset(name, "table")
        found[name] = len(chain.list_manifests(100))
        assert chain.verify() == []
    return found


def test_a_run_that_dies_at_any_request_goes_on_and_publishes_nothing_twice() -> None:
    """C31: killed after each request of the driver in turn; the same run key does what is left."""
    steps = 0
    for serial in range(1, 500):
        clock, inner = VirtualClock(), MemoryStore()
        plain = workspace_on(inner, clock)
        plain.initialize()
        begun = False

        def faults(operation: Operation, serial: int = serial) -> Fault:
            nonlocal begun
            begun = begun or operation.serial == serial
            return Fault.CRASH_AFTER if operation.serial == serial else Fault.PASS

        with contextlib.suppress(Crashed):
            start(workspace_on(FaultyStore(inner, faults), clock, seed=1), SmallStage())
        seen = published(plain)
        assert set(seen.values()) <= {0, 1}
        clock.advance(4_000)
        again = SmallStage()
        report = start(workspace_on(inner, clock, seed=2), again)
        assert published(plain) == {"first": 1, "second": 1}, serial
        assert len(again.built) == 2 - sum(seen.values()), "what was published is not built again"
        assert {task.dataset for task in report.tasks} == {"first", "second"}
        last = last_attempt(plain, "r1")
        assert last is not None
        assert last.state == "succeeded"
        if not begun:
            break
        steps += 1
    assert steps > 60


def test_a_lost_answer_at_any_request_is_no_reason_to_publish_twice() -> None:
    """C31: whatever such a run says, going on with it ends with each data set published once."""
    for serial in range(1, 500):
        clock, inner = VirtualClock(), MemoryStore()
        plain = workspace_on(inner, clock)
        plain.initialize()
        begun = False

        def faults(operation: Operation, serial: int = serial) -> Fault:
            nonlocal begun
            begun = begun or operation.serial == serial
            return Fault.ERROR_AFTER if operation.serial == serial else Fault.PASS

        with contextlib.suppress(StoreUnavailable, Conflict):
            start(workspace_on(FaultyStore(inner, faults), clock, seed=1), SmallStage())
        clock.advance(4_000)
        start(workspace_on(inner, clock, seed=2), SmallStage())
        assert published(plain) == {"first": 1, "second": 1}, serial
        if not begun:
            break


@pytest.mark.parametrize("where", ["before", "inside"])
def test_a_runner_that_was_paused_past_its_leases_is_fenced(where: str) -> None:
    """C32: another one takes over the run and finishes it; whatever the stale one does then publishes nothing."""
    clock, inner = VirtualClock(), MemoryStore()
    stale = workspace_on(inner, clock, seed=1)
    stale.initialize()
    paused = False

    def pause(name: str) -> None:
        nonlocal paused
        if name == "totals" and not paused:
            paused = True
            clock.advance(4_000)
            report = start(workspace_on(inner, clock, seed=2), SmallStage())
            assert [task.state for task in report.tasks] == ["kept", "published"]

    with pytest.raises(Fenced):
        start(stale, SmallStage(**{where: pause}))  # type: ignore[arg-type]
    assert paused
    assert published(stale) == {"first": 1, "second": 1}
    last = last_attempt(stale, "r1")
    assert last is not None
    assert (last.state, last.attempt, last.runner) == ("succeeded", 2, "runner-2")


def test_a_runner_whose_run_was_taken_over_and_finished_stops_before_it_writes() -> None:
    """C32: even with the data set's own lock free again, a stale runner has no business there."""
    clock, inner = VirtualClock(), MemoryStore()
    stale, other = workspace_on(inner, clock, seed=1), workspace_on(inner, clock, seed=2)
    stale.initialize()

    def pause(name: str) -> None:
        if name == "orders":
            clock.advance(4_000)
            start(other, SmallStage())

    stage = SmallStage(before=pause)
    with pytest.raises(LockLost):
        start(stale, stage)
    assert stage.built == []
    assert published(stale) == {"first": 1, "second": 1}


def test_a_failed_task_fails_the_run_and_the_next_attempt_does_what_is_left() -> None:
    """C31, C32: what was published stays; the state says which task failed and why."""
    clock, inner = VirtualClock(), MemoryStore()
    workspace = workspace_on(inner, clock)
    workspace.initialize()

    def fail(name: str) -> None:
        if name == "totals":
            raise StoreUnavailable("the disk is full")

    with pytest.raises(StoreUnavailable, match="the disk is full"):
        start(workspace, SmallStage(inside=fail))
    last = last_attempt(workspace, "r1")
    assert last is not None
    assert (last.state, last.error) == ("failed", "the disk is full")
    again = SmallStage()
    report = start(workspace, again)
    assert again.built == ["totals"]
    assert [(task.dataset, task.state) for task in report.tasks] == [("first", "kept"), ("second", "published")]
    done = start(workspace, SmallStage(before=lambda _: pytest.fail("nothing is left to do")))
    assert done.was_done
    assert published(workspace) == {"first": 1, "second": 1}


def test_what_was_rolled_back_is_not_published_again_by_going_on() -> None:
    """C31: a run has published it once; taking it back was somebody's decision."""
    workspace = workspace_on(MemoryStore(), VirtualClock())
    workspace.initialize()
    start(workspace, SmallStage(), run="r0")

    def fail(name: str) -> None:
        if name == "totals":
            raise StoreUnavailable("no answer")

    with contextlib.suppress(StoreUnavailable):
        start(workspace, SmallStage(inside=fail))
    chain = workspace.dataset("first", "table")
    chain.rollback(why="not good")
    report = start(workspace, SmallStage())
    assert [task.state for task in report.tasks] == ["kept", "published"]
    current = chain.current()
    assert current is not None
    assert current.run_id == "r0+1"


def test_only_some_data_sets_and_only_what_exists_can_be_gone_on_with() -> None:
    """C30, C31: `only` prunes the plan; a run that was never begun cannot be resumed."""
    workspace = workspace_on(MemoryStore(), VirtualClock())
    workspace.initialize()
    with pytest.raises(NotFound, match="there is no run 'r9'"):
        start(workspace, SmallStage(), run="r9", must_exist=True)
    stage = SmallStage()
    start(workspace, stage, plan(PIPELINE, only=["second"]))
    assert stage.built == ["totals"]
    assert published(workspace) == {"first": 0, "second": 1}
    again = start(workspace, SmallStage(before=lambda _: pytest.fail("it is done")))
    assert [task.dataset for task in again.tasks] == ["second"], "a run is of what it began with"


def test_a_pipeline_that_was_changed_is_another_run() -> None:
    """C31: going on with half of one definition and half of another would be neither."""
    workspace = workspace_on(MemoryStore(), VirtualClock())
    workspace.initialize()

    def fail(name: str) -> None:
        raise StoreUnavailable(name)

    with contextlib.suppress(HoldfastError):
        start(workspace, SmallStage(inside=fail))
    changed = Pipeline(
        name="nightly", sources=PIPELINE.sources, steps=(Step(name="totals", sql="SELECT id, 1 AS n FROM orders"),),
        datasets=PIPELINE.datasets,
    )  # fmt: skip
    with pytest.raises(Conflict, match="another definition"):
        start(workspace, SmallStage(), plan(changed))
