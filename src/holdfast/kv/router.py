"""Rows on their way to their shards: routed as they come, kept per shard, sorted when a shard is written (K1, K4).

Memory does not grow with the data. What is too much waits in one temporary file for all shards; a shard is sorted in
pieces, each a part of the space of hashes, so that no more than a piece of it is in memory at a time.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.errors import BadInput, BadRows
from holdfast.kv.plan import BuildPlan
from holdfast.kv.rows import BadRowReport, OnDuplicate, RowCheck
from holdfast.kv.shard_format import places
from holdfast.kv.shard_writer import SortedRows
from holdfast.xxh64 import Hashes

__all__ = ["Router", "check_rule"]

_SORTED_BATCH_ROWS = 16_384
_PIECE_BYTES = 32 << 20
_PIECES_MAX = 4096
_CONCAT_BYTES_MAX = 256 << 20

Indices = npt.NDArray[np.int64]


class Router:
    """Takes batches of any rows, gives the sorted rows of each shard."""

    def __init__(self, plan: BuildPlan, memory_bytes: int) -> None:
        self._plan = plan
        self._check = RowCheck(plan.key, plan.on_duplicate)
        self._spill = _Spill(plan.schema, memory_bytes)

    @property
    def report(self) -> BadRowReport:
        return self._check.report

    def add(self, batch: pa.RecordBatch) -> None:
        """Route some rows. Those with a null in their key are counted and left out."""
        plan = self._plan
        stored, hashes = plan.rows(self._check.null_keys(batch))
        shards = plan.routing.shards_of(stored.columns[: len(plan.key.columns)], hashes)
        _check_shards(plan, shards, stored)
        order = np.argsort(shards, kind="stable")
        edges = np.searchsorted(shards[order], np.arange(plan.shard_count + 1))
        moved = stored.take(pa.array(order))
        for number in np.flatnonzero(np.diff(edges)).tolist():
            self._spill.add(number, moved.slice(edges[number], edges[number + 1] - edges[number]))
        self._spill.bound()

    def sorted_rows(self, number: int) -> Iterator[SortedRows]:
        """The rows of one shard in the order a shard file has them; of equal keys, the one to keep comes last.

        Asked once for each shard, after all rows were added; by several threads, if need be.
        """
        for piece in self._pieces(number):
            hashes = self._hashes(piece)
            order = self._order(piece, hashes)
            rows, hashes = piece.take(pa.array(order)), hashes[order]
            for start in range(0, len(order), _SORTED_BATCH_ROWS):
                end = start + _SORTED_BATCH_ROWS
                yield SortedRows(rows.slice(start, _SORTED_BATCH_ROWS), hashes[start:end])

    def _hashes(self, batch: pa.RecordBatch) -> Hashes:
        return self._plan.key.hash_arrays(batch.columns[: len(self._plan.key.columns)])

    def _pieces(self, number: int) -> Iterator[pa.RecordBatch]:
        """A shard's rows, cut by their hashes into pieces that follow each other."""
        batches = self._spill.batches(number)
        count = min(_PIECES_MAX, -(-sum(batch.nbytes for batch in batches) // _PIECE_BYTES))
        if count <= 1:
            if batches:
                yield pa.concat_batches(batches)
            return
        cuts = [self._cut(batch, count) for batch in batches]
        for piece in range(count):
            parts = [
                batch.take(pa.array(order[edges[piece] : edges[piece + 1]]))
                for batch, (order, edges) in zip(batches, cuts, strict=True)
                if edges[piece] < edges[piece + 1]
            ]
            if parts:
                yield pa.concat_batches(parts)

    def _cut(self, batch: pa.RecordBatch, count: int) -> tuple[npt.NDArray[np.int32], Indices]:
        """The rows of a batch ordered by piece, and where each piece begins among them."""
        pieces, _ = places(self._hashes(batch), count)
        order = np.argsort(pieces, kind="stable")
        return order.astype(np.int32), np.searchsorted(pieces[order], np.arange(count + 1))

    def _order(self, batch: pa.RecordBatch, hashes: Hashes) -> Indices:
        rule, signed = self._plan.on_duplicate, hashes.view(np.int64)
        if rule.column is None:
            return np.argsort(signed, kind="stable")
        return np.lexsort((_ranks(batch.column(rule.column)), signed))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._spill.close()


def check_rule(rule: OnDuplicate, schema: pa.Schema) -> None:
    """BadInput unless rows can be compared by the rule's column."""
    if rule.column is None:
        return
    if schema.get_field_index(rule.column) < 0:
        raise BadInput(f"on_duplicate max({rule.column}): no such column; there are {', '.join(schema.names)}")
    kind = schema.field(rule.column).type
    try:
        _ranks(pa.nulls(0, kind))
        comparable = not pa.types.is_nested(kind)
    except pa.ArrowNotImplementedError:
        comparable = False
    if not comparable:
        raise BadInput(f"on_duplicate max({rule.column}): values of type {kind} cannot be compared")


def _ranks(array: pa.Array) -> npt.NDArray[np.int64]:
    """Nulls first, then by value, not-a-number last, as Spark orders them; equal values in the order they came."""
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    ordered = pc.array_sort_indices(array, order="ascending", null_placement="at_start")
    ranks = np.empty(len(array), np.int64)
    ranks[ordered.to_numpy()] = np.arange(len(array))
    if pa.types.is_floating(array.type):
        not_a_number = pc.is_nan(array).fill_null(False).to_numpy(zero_copy_only=False)
        ranks[not_a_number] += len(ranks)
    return ranks


def _check_shards(plan: BuildPlan, shards: Indices, batch: pa.RecordBatch) -> None:
    outside = np.flatnonzero((shards < 0) | (shards >= plan.shard_count))
    if len(outside):
        row = int(outside[0])
        raise BadRows(
            f"nothing was published: the routing gives shard {shards[row]} of {plan.shard_count} for row "
            f"{batch.slice(row, 1).to_pylist()[0]!r:.120}; change the expression or the number of shards"
        )


class _Spill:
    """Batches by shard: in memory, and all of them in one temporary file whenever they become too many."""

    def __init__(self, schema: pa.Schema, memory_bytes: int) -> None:
        self._schema = schema
        self._memory_bytes = memory_bytes
        self._held: dict[int, list[pa.RecordBatch]] = {}
        self._held_bytes = 0
        self._stored: dict[int, list[int]] = {}
        self._stored_count = 0
        self._directory: tempfile.TemporaryDirectory[str] | None = None
        self._writer: pa.RecordBatchFileWriter | None = None
        self._reader: pa.RecordBatchFileReader | None = None
        self._lock = threading.Lock()

    def add(self, number: int, batch: pa.RecordBatch) -> None:
        self._held.setdefault(number, []).append(batch)
        self._held_bytes += batch.nbytes

    def bound(self) -> None:
        """Go to disk if memory has too many. All of it: the batches of one shard are slices of what others hold."""
        if self._held_bytes <= self._memory_bytes:
            return
        if self._writer is None:
            self._directory = tempfile.TemporaryDirectory(prefix="holdfast-build-")
            self._writer = pa.ipc.new_file(str(self._path), self._schema)
        for number, batches in self._held.items():
            small = sum(batch.nbytes for batch in batches) < _CONCAT_BYTES_MAX
            for batch in [pa.concat_batches(batches)] if small else batches:
                self._writer.write_batch(batch)
                self._stored.setdefault(number, []).append(self._stored_count)
                self._stored_count += 1
        self._held.clear()
        self._held_bytes = 0

    @property
    def _path(self) -> Path:
        assert self._directory is not None
        return Path(self._directory.name) / "rows.arrow"

    def batches(self, number: int) -> list[pa.RecordBatch]:
        """The batches of one shard in the order they came; those on disk are mapped, not read."""
        with self._lock:
            if self._writer is not None and self._reader is None:
                self._writer.close()
                self._reader = pa.ipc.open_file(pa.memory_map(str(self._path)))
            stored = [] if self._reader is None else [self._reader.get_batch(n) for n in self._stored.pop(number, ())]
            return stored + self._held.pop(number, [])

    def close(self) -> None:
        self._held.clear()
        self._reader = None
        if self._writer is not None:
            self._writer.close()
        if self._directory is not None:
            self._directory.cleanup()
