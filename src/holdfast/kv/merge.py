"""Merging a stored shard with changes to it, in memory that depends on neither (K9).

Both come in the order of their hashes. Whatever lies below the smaller of the two last hashes that were read is there
completely, so it can be merged and passed on: of each key the change counts if there is one, and the stored row else.

A shard that its changes leave as it is need not be written. To know that before the first byte is, reading begins at
the block of the first change and goes on to the first change that makes a difference: mostly the very first. Only then
are the rows before it passed on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

import numpy as np
import pyarrow as pa

from holdfast.kv.changes import by_key, is_deleted, joined, upserted_rows
from holdfast.kv.keys import KeySchema
from holdfast.kv.shard_writer import SortedRows
from holdfast.kv.stored_rows import StoredRows

__all__ = ["ShardMerge"]

_KEPT_BYTES_MAX = 8 << 20
"""How many rows are kept while no change has made a difference; more than that are read again."""


class ShardMerge:
    """The next version of one shard, and what its changes came to."""

    def __init__(
        self, base: StoredRows | None, changes: Iterable[SortedRows], *, schema: pa.Schema, key: KeySchema
    ) -> None:
        """`changes` have one change per key: `ChangeCheck.one_per_key`. `base` is None for a shard without rows."""
        self._base = base
        self._changes = iter(changes)
        self._schema = schema
        self._key = key
        self._differs = False
        self.upserted = 0
        self.inserted = 0
        """Upserts of keys that were not there."""
        self.deleted = 0
        self.absent = 0
        """Deletes of keys that were not there."""

    def rows(self) -> Iterator[SortedRows] | None:
        """The merged rows in order; None if the changes leave every row as it is. The counts are right at the end."""
        first = next(self._changes, None)
        if first is None:
            return None
        start = 0 if self._base is None else self._base.block_of(int(first.hashes[0]))
        stored = iter(()) if self._base is None else self._base.rows(start)
        steps = _steps(stored, chain([first], self._changes))
        kept: list[SortedRows] = []
        same_below: int | None = None
        for step in steps:
            merged = self._merge(step)
            if self._differs:
                before = chain(self._stored_below(start, same_below), kept)
                return chain(before, [merged], (self._merge(later) for later in steps))
            kept.append(merged)
            if sum(rows.batch.nbytes for rows in kept) > _KEPT_BYTES_MAX:
                kept.clear()
                same_below = step.limit
        return None

    def _stored_below(self, start: int, limit: int | None) -> Iterator[SortedRows]:
        """The stored rows that were not kept: the blocks before `start`, then the rows below the limit."""
        if self._base is None:
            return
        yield from self._base.rows(0, start)
        if limit is None:
            return
        for batch, hashes in self._base.rows(start):
            count = int(np.searchsorted(hashes.view(np.int64), limit))
            yield SortedRows(batch.slice(0, count), hashes[:count])
            if count < len(hashes):
                return

    def _merge(self, step: _Step) -> SortedRows:
        if step.changes is None:
            assert step.stored is not None, "a step without rows"
            return step.stored
        changes, deleted = step.changes, is_deleted(step.changes.batch)
        upserts = SortedRows(upserted_rows(changes.batch, self._schema), changes.hashes)
        both = upserts if step.stored is None else joined(step.stored, upserts)
        stored_count = len(both.hashes) - len(deleted)
        columns = [both.batch.column(index) for index in range(len(self._key.columns))]
        order, is_new = by_key(columns, both.hashes)
        # One or two rows of each key: the stored one, then its change. The last one counts.
        counts = np.append(is_new[1:], True)
        replaced = order[:-1][~is_new[1:]]
        replacing = order[1:][~is_new[1:]]
        drops = np.concatenate((np.zeros(stored_count, dtype=bool), deleted))
        found = int(drops[replacing].sum())
        upserted = len(deleted) - int(deleted.sum())
        inserted = upserted - (len(replacing) - found)
        self.upserted += upserted
        self.inserted += inserted
        self.deleted += found
        self.absent += int(deleted.sum()) - found
        if not self._differs:
            self._differs = bool(found or inserted) or not self._equal(both.batch, replaced, replacing)
        kept = order[counts & ~drops[order]]
        return SortedRows(both.batch.take(pa.array(kept)), both.hashes[kept])

    def _equal(self, batch: pa.RecordBatch, some: np.ndarray[tuple[int], np.dtype[np.int64]], others: object) -> bool:
        """Whether rows have the same values as others; their keys are known to be the same."""
        left, right = pa.array(some), pa.array(others)
        return all(column.take(left).equals(column.take(right)) for column in batch.columns[len(self._key.columns) :])


@dataclass(frozen=True, slots=True)
class _Step:
    """All that there is below a hash, and not below that of the step before."""

    stored: SortedRows | None
    changes: SortedRows | None
    limit: int | None
    """As a signed number; None in the last step, which has all the rest."""


def _steps(stored: Iterator[SortedRows], changes: Iterator[SortedRows]) -> Iterator[_Step]:
    base, news = _Cursor(stored), _Cursor(changes)
    while True:  # each round takes rows, or reads on; both ends are reached
        base.fill()
        news.fill()
        lasts = [cursor.last for cursor in (base, news) if cursor.last is not None]
        limit = min(lasts, default=None)
        step = _Step(base.take(limit), news.take(limit), limit)
        if step.stored is not None or step.changes is not None:
            yield step
        elif limit is not None:
            for cursor in (base, news):
                if cursor.last == limit:
                    cursor.extend()
        if limit is None:
            return


class _Cursor:
    """Rows in order, read as far as they are needed."""

    def __init__(self, rows: Iterator[SortedRows]) -> None:
        self._rows = rows
        self._held: SortedRows | None = None
        self._ended = False

    @property
    def last(self) -> int | None:
        """The last hash that was read, of which there may be more; None once all is read."""
        return None if self._ended or self._held is None else int(self._held.hashes.view(np.int64)[-1])

    def fill(self) -> None:
        """Read on if nothing is left of what was read."""
        if self._held is None and not self._ended:
            self.extend()

    def extend(self) -> None:
        following = next((rows for rows in self._rows if len(rows.hashes)), None)
        if following is None:
            self._ended = True
        else:
            self._held = following if self._held is None else joined(self._held, following)

    def take(self, limit: int | None) -> SortedRows | None:
        """The rows below the limit, or all."""
        held = self._held
        if held is None:
            return None
        count = len(held.hashes) if limit is None else int(np.searchsorted(held.hashes.view(np.int64), limit))
        if count == 0:
            return None
        rest = len(held.hashes) - count
        self._held = SortedRows(held.batch.slice(count), held.hashes[count:]) if rest else None
        return SortedRows(held.batch.slice(0, count), held.hashes[:count])
