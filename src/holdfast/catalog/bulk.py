"""Folding a long ledger in one go, in this process and in bounded memory (C18, C19).

    compact_in_bulk(workspace, "executions", paths)      # any number of them: published once

Events are read some thousand at a time, and of each batch only the newest row of a key is kept. So memory is what the
state takes, a few times, and a batch; it does not grow with the number of events. What the state itself does not
leave room for, `holdfast.spark.compact_domain` folds in the same way elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

import pyarrow as pa

from holdfast.catalog.domain_state import BASE, DomainState, StateFile, encode_table, read_table, state_file
from holdfast.catalog.event_batch import batch_of, later
from holdfast.catalog.fold import fold_table
from holdfast.catalog.publishing import Compaction, Rebuilt, rebuild_domain
from holdfast.catalog.tables import TableSpec, state_table
from holdfast.catalog.watermark import Watermark
from holdfast.catalog.workspace import Workspace
from holdfast.chain import Run
from holdfast.storage.capabilities import Reader, StatePut

__all__ = ["EVENTS_AT_A_TIME", "Folding", "compact_in_bulk", "in_batches"]

EVENTS_AT_A_TIME = 5_000
_ROWS_MIN = 100_000


class Folding:
    """Folds tables that come one after the other. A row is looked at again only when as many new ones have come."""

    def __init__(self, spec: TableSpec) -> None:
        self._spec = spec
        self._folded: pa.Table = spec.schema.empty_table()
        self._waiting: list[pa.Table] = []
        self._waiting_rows = 0

    def add(self, rows: pa.Table) -> None:
        self._waiting.append(rows)
        self._waiting_rows += len(rows)
        if self._waiting_rows > max(_ROWS_MIN, len(self._folded)):
            self.result()

    def result(self) -> pa.Table:
        """Of everything that was added, the newest row of each key."""
        if self._waiting:
            self._folded = fold_table(self._spec, [self._folded, *self._waiting])
            self._waiting, self._waiting_rows = [], 0
        return self._folded


def in_batches(paths: Iterable[str], size: int = EVENTS_AT_A_TIME) -> Iterator[list[str]]:
    """Lists of at most `size` of them."""
    rest = iter(paths)
    while batch := list(islice(rest, size)):
        yield batch


def compact_in_bulk(workspace: Workspace, domain: str, paths: Iterable[str]) -> Compaction:
    """Fold the events at these paths, and publish once. What was folded before changes nothing.

    Conflict if the state was merged or rolled back meanwhile: nothing happened, and it may be repeated.
    """
    return rebuild_domain(workspace, domain, lambda run, state: _fold(workspace, run, state, paths))


def _fold(workspace: Workspace, run: Run, state: DomainState, paths: Iterable[str]) -> Rebuilt:
    ledger = workspace.ledger_reader(state.domain)
    said: dict[str, Folding] = {}
    watermark, events, quarantined = Watermark(), 0, 0
    for some in in_batches(paths):
        batch = batch_of(zip(some, ledger.read_bytes(some), strict=True), domain=state.domain)
        for name, rows in batch.rows.items():
            said.setdefault(name, Folding(state_table(name))).add(rows)
        watermark = later(watermark, batch.watermark)
        events, quarantined = events + batch.events, quarantined + batch.quarantined
    changed = {name: files for name in sorted(said) if (files := _write(workspace, run, state, name, said.pop(name)))}
    return Rebuilt(tables=changed, watermark=watermark, events=events, quarantined=quarantined)


def _write(workspace: Workspace, run: Run, state: DomainState, name: str, said: Folding) -> tuple[StateFile, ...]:
    """A new base of one table; nothing where all of it was known."""
    spec, reader = state_table(name), Reader(workspace.store)
    known = fold_table(spec, [read_table(reader, file) for file in state.files_of(name)])
    after = fold_table(spec, [known, said.result()])
    if after.equals(known):
        return ()
    path, data = run.artifact_key(f"{name}.parquet"), encode_table(after)
    StatePut(workspace.store).upload_state(path, [data])
    return (state_file(spec, BASE, path, after, data),)
