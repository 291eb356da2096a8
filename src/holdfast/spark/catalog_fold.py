"""Folding a domain's ledger on Spark: the same fold, in executors (C19). One job:

    paths and files of the state → read by executors → rows to their slots → `fold_table` → Parquet, receipts

Only receipts come back. The driver publishes them as the compactor does, under the domain's lock, which is taken for
the commit alone: whoever changes something meanwhile waits for nobody.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql import SparkSession

from holdfast.catalog.bulk import EVENTS_AT_A_TIME, in_batches
from holdfast.catalog.domain_state import DomainState, StateFile
from holdfast.catalog.event_batch import later
from holdfast.catalog.publishing import Compaction, Rebuilt, rebuild_domain
from holdfast.catalog.watermark import Watermark
from holdfast.catalog.workspace import Workspace
from holdfast.chain import Run
from holdfast.errors import BadInput, InvariantViolation
from holdfast.spark.catalog_task import (
    GATHERED_SCHEMA,
    RECEIPT_SCHEMA,
    FoldTask,
    GatherTask,
    Receipt,
    Slots,
    Work,
    error_of,
)
from holdfast.spark.failures import SPARK_ERRORS, failure_of_job
from holdfast.storage.capabilities import Reader, StatePut

__all__ = ["ROWS_PER_FILE", "compact_domain", "ledger_paths"]

ROWS_PER_FILE = 1 << 20
"""About so many rows of a table are folded by one task and become one file."""


def ledger_paths(workspace: Workspace, domain: str, *, after: str | None = None) -> list[str]:
    """Every event of a domain's ledger, or those after a cursor. Lists: for whoever may."""
    return [path for page in workspace.ledger_lister(domain).pages(after=after) for path in page.paths]


def compact_domain(
    spark: SparkSession,
    workspace: Workspace,
    domain: str,
    paths: Iterable[str] | None = None,
    *,
    rows_per_file: int = ROWS_PER_FILE,
    events_per_task: int = EVENTS_AT_A_TIME,
) -> Compaction:
    """Fold the events at these paths, or all of the ledger, into a domain's state, and publish it once.

    What was folded before changes nothing. Conflict if the state was merged or rolled back meanwhile: then nothing
    happened, and it may be repeated. Executors read and write with the workspace's own store.
    """
    require_reachable(workspace)
    if rows_per_file < 1 or not 1 <= events_per_task <= 10_000:
        raise BadInput("give at least one row a file, and 1 to 10,000 events a task")
    ledger = workspace.ledger_reader(domain)
    told = ledger_paths(workspace, domain) if paths is None else [ledger.check_path(path) for path in paths]
    job = _Job(spark, workspace, told, rows_per_file, events_per_task)
    return rebuild_domain(workspace, domain, job.fold, why="compacted on Spark")


def require_reachable(workspace: Workspace) -> None:
    """BadInput for a store that other processes have no way to."""
    if workspace.store.url.startswith("memory:"):
        raise BadInput("executors are other processes and cannot reach memory://; use file:// or a bucket")


@dataclass(frozen=True, slots=True)
class _Job:
    spark: SparkSession
    workspace: Workspace
    paths: Sequence[str]
    rows_per_file: int
    events_per_task: int

    def fold(self, run: Run, state: DomainState) -> Rebuilt:
        if not self.paths:
            return Rebuilt(tables={}, watermark=Watermark(), events=0, quarantined=0)
        slots = Slots(domain=state.domain, parts=self._parts(state))
        receipts = self._run(run, state, slots)
        failures = [receipt.failure for receipt in receipts if receipt.failure]
        if failures:
            raise error_of(failures[0])
        self._check(state, slots, receipts)
        watermark = Watermark()
        for receipt in receipts:
            watermark = later(watermark, Watermark(position=receipt.position, event_id=receipt.event_id))
        return Rebuilt(
            tables=_bases(slots, receipts),
            watermark=watermark,
            events=sum(receipt.events for receipt in receipts),
            quarantined=sum(receipt.quarantined for receipt in receipts),
        )

    def _parts(self, state: DomainState) -> int:
        """As many as the largest table might need: nobody has read the events yet."""
        known = max((sum(file.row_count for file in state.files_of(name)) for name in _tables(state)), default=0)
        return -(-(known + len(self.paths)) // self.rows_per_file)

    def _run(self, run: Run, state: DomainState, slots: Slots) -> list[Receipt]:
        store = self.workspace.store
        gather = GatherTask(slots=slots, read=Reader(store))
        fold = FoldTask(
            slots=slots,
            write=StatePut(store),
            layout=self.workspace.domain(state.domain).layout,
            run_id=run.run_id,
            attempt=run.record.attempt,
        )
        work = [Work(file=file).encode() for file in state.files]
        work += [Work(paths=tuple(some)).encode() for some in in_batches(self.paths, self.events_per_task)]
        told = pa.table({"number": pa.array(range(len(work)), pa.int32()), "work": pa.array(work, pa.binary())})
        try:
            listed = self.spark.createDataFrame(told)
            gathered = listed.repartitionById(len(work), listed.number).mapInArrow(gather, GATHERED_SCHEMA)
            folded = gathered.repartitionById(slots.counts + 1, gathered.slot).mapInArrow(fold, RECEIPT_SCHEMA)
            return [Receipt.decode(bytes(row.receipt)) for row in folded.collect()]
        except SPARK_ERRORS as error:
            raise failure_of_job(error) from None

    def _check(self, state: DomainState, slots: Slots, receipts: Sequence[Receipt]) -> None:
        """Whatever Spark did with rows on their way: all of the state and all of the events were folded (C22)."""
        events = sum(receipt.events for receipt in receipts)
        if events != len(self.paths):
            raise InvariantViolation(
                f"nothing was published: {len(self.paths):,} events were told, {events:,} were read"
            )
        for name in _tables(state):
            expected = sum(file.row_count for file in state.files_of(name))
            found = sum(
                one.state_rows for one in receipts if one.slot < slots.counts and slots.spec(one.slot).name == name
            )
            if found != expected:
                raise InvariantViolation(
                    f"nothing was published: the state has {expected:,} rows of {name}, and {found:,} were folded"
                )


def _tables(state: DomainState) -> list[str]:
    return list(dict.fromkeys(file.table for file in state.files))


def _bases(slots: Slots, receipts: Sequence[Receipt]) -> dict[str, tuple[StateFile, ...]]:
    """The files of the tables that have changed; parts without any row have none."""
    found: dict[str, list[Receipt]] = {}
    for receipt in sorted(receipts, key=lambda one: one.slot):
        if receipt.file is not None:
            found.setdefault(slots.spec(receipt.slot).name, []).append(receipt)
    return {
        name: tuple(
            replace(one.file, part=part, parts=len(parts)) for part, one in enumerate(parts) if one.file is not None
        )
        for name, parts in found.items()
        if any(one.changed for one in parts)
    }
