"""A dict beside a data set: whatever is published, updated, rolled back and collected, each snapshot keeps its rows."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from holdfast.chain import Chain
from holdfast.errors import HoldfastError
from holdfast.kv import DataSet, publish_arrow, update_arrow
from holdfast.testing.faulty import Crashed, Fault, FaultyStore, Operation
from tests.kv.updating import ids_of, local_factory, manifest_of, stored_rows, table_of

ids = st.integers(min_value=0, max_value=60)
names = st.sampled_from(["a", "b", None])
rows = st.dictionaries(ids, names, max_size=12)
picks = st.integers(min_value=0, max_value=30)
routings = st.sampled_from([{"shards": 1}, {"shards": 5}, {"bounds": [10, 20, 30]}, {"shards": 3, "route": "id % 3"}])

Rows = dict[int, str | None]


@dataclass
class Model:
    """What a person would keep on paper."""

    history: list[tuple[str, Rows]] = field(default_factory=list)
    """Run ids and rows, oldest first."""
    current: tuple[str, Rows] = ("", {})

    def publish(self, run_id: str, found: Rows) -> None:
        self.current = (run_id, found)
        self.history.append(self.current)


class UpdateMachine(RuleBasedStateMachine):
    """K9: publishes, updates, rollbacks, updates of what was rolled back to, collections and crashes, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        self.model = Model()
        self.runs = 0

    def teardown(self) -> None:
        self.stack.close()

    @initialize(routing=routings, found=rows)
    def begin(self, routing: dict[str, object], found: Rows) -> None:
        folder = self.stack.enter_context(tempfile.TemporaryDirectory())
        self.factory = local_factory(Path(folder))
        self.chain = self.factory()
        self.publish(routing, found)

    def _run_id(self) -> str:
        self.runs += 1
        return f"run-{self.runs}"

    # -- what is done ------------------------------------------------------------------------------------------------

    @rule(routing=routings, found=rows)
    def publish(self, routing: dict[str, object], found: Rows) -> None:
        run_id = self._run_id()
        publish_arrow(self.chain, table_of(found), key="id", run_id=run_id, **routing)  # type: ignore[arg-type]
        self.model.publish(run_id, found)

    @rule(upserts=rows, deletes=st.sets(ids, max_size=12))
    def update(self, upserts: Rows, deletes: set[int]) -> None:
        self._update(self.chain, upserts, deletes - upserts.keys())

    def _update(self, chain: Chain, upserts: Rows, deletes: set[int]) -> None:
        run_id, before = self._run_id(), self.model.current[1]
        shared = {shard for shard in DataSet.of_manifest(manifest_of(self.chain)).shards if shard is not None}
        published = update_arrow(chain, upserts=table_of(upserts), deletes=ids_of(*deletes), run_id=run_id)
        self.model.publish(run_id, {key: name for key, name in (before | upserts).items() if key not in deletes})
        now = {shard for shard in published.dataset.shards if shard is not None}
        assert published.upserted_rows == len(upserts)
        assert published.deleted_rows == len(deletes & before.keys())
        assert published.absent_rows == len(deletes - before.keys())
        assert published.written_bytes == sum(shard.byte_size for shard in now - shared)
        if before == self.model.current[1]:
            assert now == shared

    @rule(upserts=rows, deletes=st.sets(ids, max_size=4), serial=st.integers(1, 40), fault=st.sampled_from(list(Fault)))
    def update_with_a_fault(self, upserts: Rows, deletes: set[int], serial: int, fault: Fault) -> None:
        """A writer that crashes, or whose answers are lost: it was published as a whole or not at all."""

        def plan(operation: Operation) -> Fault:
            return fault if operation.serial == serial else Fault.PASS

        doomed = self.factory(by="doomed", store=FaultyStore(self.factory.store, plan))
        before = self.model.current[1]
        deletes = deletes - upserts.keys()
        try:
            self._update(doomed, upserts, deletes)
        except (HoldfastError, Crashed):
            self.factory.clock.advance(120)
            self.chain = self.factory()
            if manifest_of(self.chain).run_id == f"run-{self.runs}" != self.model.current[0]:
                after = {key: name for key, name in (before | upserts).items() if key not in deletes}
                self.model.publish(f"run-{self.runs}", after)
        self.chain = self.factory()
        self.chain.reconcile(enforce=True)

    @rule(pick=picks)
    def rollback(self, pick: int) -> None:
        target = self.model.history[pick % len(self.model.history)]
        self.chain.rollback(run_id=target[0])
        self.model.current = target

    @rule(retention=st.integers(min_value=1, max_value=4))
    def collect(self, retention: int) -> None:
        collector = self.factory(by="collector")
        collector.collect(retention=retention)
        collector.purge(grace_s=0)
        kept = self.model.history[-retention:]
        self.model.history = [each for each in self.model.history if each in kept or each is self.model.current]

    # -- what must hold ----------------------------------------------------------------------------------------------

    @invariant()
    def every_snapshot_reads_back(self) -> None:
        if not self.runs:
            return
        assert manifest_of(self.chain).run_id == self.model.current[0]
        for run_id, found in self.model.history:
            manifest = self.chain.load_manifest(self.chain.find(run_id=run_id).manifest_path)
            assert stored_rows(self.chain, manifest) == found

    @invariant()
    def nothing_is_broken(self) -> None:
        if self.runs:
            assert self.factory.breaks() == []


TestUpdateMachine = UpdateMachine.TestCase
TestUpdateMachine.settings = settings(max_examples=30, stateful_step_count=20, deadline=None)
