"""The explorer on a chain whose records are in a database: the same actors, faults and invariants, on real SQL."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from holdfast.chain.commit import Committed
from holdfast.chain.layout import Layout
from holdfast.chain.sql import migrate
from holdfast.chain.sql.database import database_at
from holdfast.chain.sql.records import SqlRecords
from holdfast.chain.sql.url import parse_sql_url
from holdfast.errors import ObjectNotFound
from holdfast.storage.objects import ObjectInfo, StoredObject, Version
from holdfast.testing.exploration.explorer import Run, exhaust, format_schedule
from holdfast.testing.exploration.invariants import InvariantWatcher, truth_of
from holdfast.testing.exploration.mutants import MUTANTS
from holdfast.testing.exploration.scenarios import SCENARIOS, Scenario, Stage, publish
from holdfast.testing.exploration.world import JUMP_S, Actor, Objects, Operation, Watcher, World


class Everything(Mapping[str, tuple[bytes, int]]):
    """Artifacts in memory and records in the database, as the watcher of invariants looks at them."""

    def __init__(self, artifacts: Objects, records: SqlRecords) -> None:
        self._artifacts = artifacts
        self._records = records

    def __getitem__(self, key: str) -> tuple[bytes, int]:
        if key in self._artifacts:
            return self._artifacts[key]
        try:
            return self._records.get(key).data, 0
        except ObjectNotFound:
            raise KeyError(key) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._artifacts)

    def __len__(self) -> int:
        return len(self._artifacts)


class SqlWorld(World):
    """A world whose records are in a database. Each actor has records, and staged manifests, of its own."""

    def __init__(self, layout: Layout, url: str, artifacts: Objects, watcher: Watcher, *, first_number: int) -> None:
        super().__init__(layout, artifacts, watcher, first_number=first_number)
        self._url = url
        self._connected: dict[str, SqlRecords] = {}
        self._acting = ""

    def turn(self, actor: Actor, operation: Operation) -> object:
        real = operation.effect

        def effect() -> object:
            self._acting = actor.name
            return real()

        operation.effect = effect
        return super().turn(actor, operation)

    def _records(self, actor: str) -> SqlRecords:
        return self._connected.setdefault(actor, SqlRecords(self._url, self.layout))

    def _is_artifact(self, key: str) -> bool:
        return key.startswith(self.layout.artifact_prefixes)

    def _before(self, key: str) -> bytes | None:
        try:
            return SqlRecords(self._url, self.layout).get(key).data
        except ObjectNotFound:
            return None

    def do_put_new(self, actor: str, key: str, data: bytes) -> object:  # type: ignore[override]
        if self._is_artifact(key):
            return super().do_put_new(actor, key, data)
        version = self._records(actor).put_new(key, data)
        self._tell(actor, key, None, data)
        return version

    def do_swap(self, actor: str, key: str, data: bytes, expected: Version) -> object:  # type: ignore[override]
        before = self._before(key)
        version = self._records(actor).swap(key, data, expected=expected)
        self._tell(actor, key, before, data)
        return version

    def _tell(self, actor: str, key: str, before: bytes | None, after: bytes) -> None:
        if (
            self.layout.parse_manifest_key(key) is None
        ):  # a manifest is only staged: it is there with the pointer or not at all
            self.watcher.wrote(actor, key, before, after)

    def do_get(self, key: str) -> StoredObject:
        return super().do_get(key) if self._is_artifact(key) else self._records(self._acting).get(key)

    def do_list(self, prefix: str, after: str | None) -> list[ObjectInfo]:
        if self._is_artifact(prefix):
            return super().do_list(prefix, after)
        return [info for page in self._records(self._acting).list(prefix, after=after) for info in page]

    def do_delete(self, actor: str, key: str) -> None:
        if self._is_artifact(key):
            super().do_delete(actor, key)
            return
        before = self._before(key)
        self._records(actor).delete([key])
        self.watcher.deleted(actor, key, before)


class Recorder(Watcher):
    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self.pointers: list[bytes] = []

    def wrote(self, actor: str, key: str, before: bytes | None, after: bytes) -> None:
        if key == self._layout.pointer_key:
            self.pointers.append(after)


class SqlStage(Stage):
    """A scenario on a chain of its own, in one database, for every run."""

    def __init__(self, scenario: Scenario, url: str) -> None:
        self.scenario = scenario
        self._url = url
        self._runs = 0

    def set_up(self) -> tuple[World, InvariantWatcher]:
        layout = self.scenario.layout
        self._runs += 1
        url = f"{self._url}?chain=explored-{self._runs}"
        artifacts: Objects = {}
        recorder = Recorder(layout)
        before = SqlWorld(layout, url, artifacts, recorder, first_number=1)
        for number in range(3):
            actor = before.add(f"setup-{number}", publish, skew_s=number * JUMP_S - 10 * JUMP_S)
            assert isinstance(publish(actor), Committed)
        everything = Everything(artifacts, SqlRecords(url, layout))
        truth = truth_of(layout, everything, recorder.pointers)
        collectors = frozenset(name for name, role in self.scenario.roles.items() if role.collects)
        watcher = InvariantWatcher(layout, everything, truth, collectors)
        world = SqlWorld(layout, url, artifacts, watcher, first_number=100)
        for name, role in self.scenario.roles.items():
            world.add(name, role.program, skew_s=role.skew_s)
        return world, watcher


@pytest.fixture
def fast_url(tmp_path: Path) -> Iterator[str]:
    """A SQLite file with tables. Nothing is killed here, so nothing needs to wait for a disk."""
    url = f"sqlite:///{tmp_path}/explored.db"
    migrate(url)
    yield url
    database_at(parse_sql_url(url)).close()


def explain(run: Run) -> str:
    return f"{run.violation}: {format_schedule(run.deviations)}"


@pytest.mark.parametrize(
    "name", ["two-publishers", "publish-collect", "rollback-collect", "tag-collect", "base-collect"]
)
def test_every_single_interruption_and_every_single_fault_keeps_every_invariant_in_sql(
    fast_url: str, name: str
) -> None:
    """S33, S34, S42: I1 to I10 on SQLite, with the actors and the faults of the explorer."""
    stage = SqlStage(SCENARIOS[name], fast_url)
    for preemptions, faults in ((1, 0), (0, 1)):
        for run in exhaust(stage, preemptions=preemptions, faults=faults, thorough_every=8):
            assert run.violation is None, explain(run)


@pytest.mark.parametrize("mutant", ["trust the first error", "skip the fence", "tag without touching the pointer"])
def test_a_kernel_with_one_mistake_is_caught_in_sql_too(fast_url: str, mutant: str) -> None:
    """S33: what proves a chain in a database must be able to disprove it."""
    mistake, scenarios = MUTANTS[mutant]
    stage = SqlStage(SCENARIOS[scenarios[0]], fast_url)
    with mistake():
        runs = (run for bound in ((1, 0), (0, 1)) for run in exhaust(stage, preemptions=bound[0], faults=bound[1]))
        assert any(run.violation is not None for run in runs)
