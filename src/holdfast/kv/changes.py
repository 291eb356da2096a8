"""A set of changes to a data set: what its columns must be, and one change per key (K9).

A change is a row of the data set and a mark: upsert it, or delete its key. Of a delete only the key counts. Changes are
routed and sorted like the rows of a full build, and come here in the order of their hashes:

    null keys                               refused, counted where rows are routed
    a key that is upserted more than once   refused, or one is chosen: `on_duplicate`
    a key that is upserted and deleted      refused: which of the two was meant last is not known
    a key that is deleted more than once    is deleted
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.errors import BadInput, BadRows
from holdfast.kv.dataset import DataSet
from holdfast.kv.keys import KeyKind, KeySchema
from holdfast.kv.rows import SAMPLES_MAX, BadRowReport, OnDuplicate, key_at, plain
from holdfast.kv.shard_writer import SortedRows
from holdfast.xxh64 import Hashes

__all__ = [
    "DELETED",
    "ChangeCheck",
    "as_changes",
    "by_key",
    "cast",
    "change_schema",
    "check_delete_columns",
    "check_upsert_columns",
    "is_deleted",
    "upserted_rows",
]

DELETED = "holdfast:deleted"
"""The mark, a change's last column."""


# -- columns ----------------------------------------------------------------------------------------------------------


def change_schema(stored: pa.Schema, key: KeySchema) -> pa.Schema:
    """The columns of a change: the data set's, null where a delete has nothing to say, and the mark."""
    values = [column.with_nullable(True) for column in list(stored)[len(key.columns) :]]
    keys = [column.with_nullable(True) for column in list(stored)[: len(key.columns)]]
    return pa.schema([*keys, *values, pa.field(DELETED, pa.bool_(), nullable=False)])


def check_upsert_columns(found: pa.Schema, dataset: DataSet, *, key_types: bool = True) -> None:
    """BadInput unless these are the data set's columns, in any order, of types that can become the stored ones.

    Without `key_types` the caller looks at the types of the key's columns itself.
    """
    wanted = dataset.schema.names
    doubled = sorted({name for name in found.names if found.names.count(name) > 1})
    missing = [name for name in wanted if name not in found.names]
    unknown = [name for name in found.names if name not in wanted]
    if doubled:
        raise BadInput(f"upserts: column {doubled[0]!r} is there twice; rename one")
    if missing:
        raise BadInput(f"upserts: column {missing[0]!r} is missing; the data set has {', '.join(wanted)}")
    if unknown:
        raise BadInput(
            f"upserts: the data set has no column {unknown[0]!r} (it has {', '.join(wanted)}); "
            "drop it, or publish all rows with the new column"
        )
    if key_types:
        _check_key_columns("upserts", found, dataset.key)
    for column in dataset.value_schema:
        given = found.field(column.name).type
        if given != column.type and not _can_become(given, column.type):
            raise BadInput(f"upserts: column {column.name!r} is {given}, and {column.type} in the data set: cast it")


def check_delete_columns(found: pa.Schema, dataset: DataSet, *, key_types: bool = True) -> None:
    """BadInput unless these are the key's columns and no others: a whole row here is probably meant as an upsert."""
    wanted = dataset.key.names
    if sorted(found.names) != sorted(wanted):
        given = ", ".join(found.names) or "none"
        raise BadInput(f"deletes take the key's columns and no others ({', '.join(wanted)}), not {given}")
    if key_types:
        _check_key_columns("deletes", found, dataset.key)


def _check_key_columns(what: str, found: pa.Schema, key: KeySchema) -> None:
    """Numbers for numbers, text for text: a cast would turn the text "7" into the number."""
    given = KeySchema.from_arrow(found, key.names)
    for wanted, column in zip(key.columns, given.columns, strict=True):
        fits = (
            wanted.kind is column.kind
            or (wanted.kind.is_integer and column.kind.is_integer)
            or (wanted.kind is KeyKind.UUID and column.kind is KeyKind.BYTES)
        )
        if not fits:
            raise BadInput(
                f"{what}: key column {wanted.name!r} is {found.field(wanted.name).type}, "
                f"and {wanted.kind} in the data set: cast it"
            )


def _can_become(given: pa.DataType, wanted: pa.DataType) -> bool:
    try:
        pa.array([], given).cast(wanted)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
        return False
    return True


def as_changes(batch: pa.RecordBatch, schema: pa.Schema, *, deleted: bool) -> pa.RecordBatch:
    """Rows to upsert, or keys to delete, as changes. Columns were checked before; values may still not fit."""
    arrays = []
    for column in list(schema)[:-1]:
        if column.name not in batch.schema.names:
            arrays.append(pa.nulls(batch.num_rows, column.type))
        else:
            arrays.append(cast(batch.column(column.name), column, what="deletes" if deleted else "upserts"))
    marks = pa.repeat(pa.scalar(deleted), batch.num_rows)
    return pa.RecordBatch.from_arrays([*arrays, marks], schema=schema)


def cast(array: pa.Array, column: pa.Field, *, what: str) -> pa.Array:
    """A column in the data set's type; BadRows names it if a value does not fit."""
    if array.type == column.type:
        return array
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    try:
        if column.type == pa.uuid():
            return pa.ExtensionArray.from_storage(column.type, array.cast(pa.binary(16)))
        return array.cast(column.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise BadRows(
            f"nothing was published: {what}: column {column.name!r} has values that do not fit {column.type} ({error})"
        ) from None


def is_deleted(changes: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    marks: npt.NDArray[np.bool_] = changes.column(changes.num_columns - 1).to_numpy(zero_copy_only=False)
    return marks


def upserted_rows(changes: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Changes without their marks, as a shard stores rows; of deletes nothing but the key is there."""
    return pa.RecordBatch.from_arrays(changes.columns[:-1], schema=schema)


# -- keys -------------------------------------------------------------------------------------------------------------


def by_key(columns: Sequence[pa.Array], hashes: Hashes) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """An order by hash in which equal keys are neighbours and else keep their order, and where in it a key is new."""
    signed = hashes.view(np.int64)
    order = np.argsort(signed, kind="stable")
    twins = _twins(signed, order)
    is_new = np.ones(len(order), dtype=bool)
    if len(twins):
        arrays = [plain(column) for column in columns]
        same = _same(arrays, order, twins)
        if not same.all():  # two keys with one hash: now the keys decide too
            table = pa.table([pa.array(signed), *arrays, pa.array(np.arange(len(order)))], _names(len(arrays) + 2))
            order = pc.sort_indices(table, [(name, "ascending") for name in table.schema.names]).to_numpy()
            order = order.astype(np.int64)
            twins = _twins(signed, order)
            same = _same(arrays, order, twins)
        is_new[twins[same] + 1] = False
    return order, is_new


def _names(count: int) -> list[str]:
    return [str(index) for index in range(count)]


def _twins(signed: npt.NDArray[np.int64], order: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    ordered = signed[order]
    return np.flatnonzero(ordered[1:] == ordered[:-1])


def _same(
    arrays: Sequence[pa.Array], order: npt.NDArray[np.int64], twins: npt.NDArray[np.int64]
) -> npt.NDArray[np.bool_]:
    """Whether each of these rows has the key of the row after it."""
    left, right = pa.array(order[twins]), pa.array(order[twins + 1])
    same = np.ones(len(twins), dtype=bool)
    for array in arrays:
        same &= pc.equal(array.take(left), array.take(right)).to_numpy(zero_copy_only=False)
    return same


@dataclass(slots=True)
class ChangeCheck:
    """Looks at the changes of one shard. What is wrong is counted to the end, and nothing goes on after the first."""

    key: KeySchema
    schema: pa.Schema
    """As shards store rows."""
    on_duplicate: OnDuplicate
    report: BadRowReport = field(default_factory=BadRowReport)
    dropped: int = 0
    """Upserts that gave way to another of the same key."""

    def one_per_key(self, changes: Iterable[SortedRows]) -> Iterator[SortedRows]:
        """The changes that count. BadRows at the end if there was anything wrong with them."""
        held: SortedRows | None = None
        try:
            for given in changes:
                if given.batch.num_rows == 0:
                    continue
                self._null_values(given.batch)
                rows = given if held is None else joined(held, given)
                # Rows with the last hash wait: the next batch may have more of them.
                cut = int(np.searchsorted(rows.hashes.view(np.int64), rows.hashes.view(np.int64)[-1]))
                held = SortedRows(rows.batch.slice(cut), rows.hashes[cut:])
                clean = self._unique(SortedRows(rows.batch.slice(0, cut), rows.hashes[:cut]))
                if clean is not None and not self.report:
                    yield clean
        except BadRows:  # something else is wrong with the rows; what is wrong with these counts all the same
            if held is not None:
                self._unique(held)
            raise
        clean = None if held is None else self._unique(held)
        if self.report:
            raise self.report.error()
        if clean is not None:
            yield clean

    def everything(self, changes: Iterable[SortedRows]) -> BadRowReport:
        """What is wrong with them, and nothing else."""
        with suppress(BadRows):  # that is the report
            for _ in self.one_per_key(changes):
                pass
        return self.report

    def _unique(self, rows: SortedRows) -> SortedRows | None:
        if not len(rows.hashes):
            return None
        columns = [rows.batch.column(index) for index in range(len(self.key.columns))]
        order, is_new = by_key(columns, rows.hashes)
        if is_new.all():
            return rows if (order[1:] > order[:-1]).all() else _taken(rows, order)
        starts = np.flatnonzero(is_new)
        ends = np.append(starts[1:], len(order)) - 1
        deleted = is_deleted(rows.batch)[order]
        deletes = np.add.reduceat(deleted, starts, dtype=np.int64)
        upserts = ends + 1 - starts - deletes
        self._contradicted(rows.batch, order[starts[(deletes > 0) & (upserts > 0)]])
        surplus = int(np.maximum(upserts - 1, 0).sum())
        if self.on_duplicate.rule == "error":
            self._duplicated(rows.batch, order[starts[upserts > 1]], surplus)
        else:
            self.dropped += surplus
        return _taken(rows, order[ends])

    def _contradicted(self, batch: pa.RecordBatch, rows: npt.NDArray[np.int64]) -> None:
        self.report += BadRowReport(contradicted_count=len(rows), contradicted_samples=self._keys(batch, rows))

    def _duplicated(self, batch: pa.RecordBatch, rows: npt.NDArray[np.int64], surplus: int) -> None:
        self.report += BadRowReport(duplicate_count=surplus, duplicate_samples=self._keys(batch, rows))

    def _keys(self, batch: pa.RecordBatch, rows: npt.NDArray[np.int64]) -> tuple[str, ...]:
        return tuple(repr(key_at(self.key, batch, int(row))) for row in rows[:SAMPLES_MAX])

    def _null_values(self, batch: pa.RecordBatch) -> None:
        upserted = ~is_deleted(batch)
        for index, column in enumerate(self.schema):
            if column.nullable or index < len(self.key.columns) or not batch.column(index).null_count:
                continue
            bad = np.flatnonzero(batch.column(index).is_null().to_numpy(zero_copy_only=False) & upserted)
            samples = tuple(f"{key}: {column.name}" for key in self._keys(batch, bad))
            self.report += BadRowReport(null_value_count=len(bad), null_value_samples=samples)


def joined(first: SortedRows, second: SortedRows) -> SortedRows:
    return SortedRows(pa.concat_batches([first.batch, second.batch]), np.concatenate((first.hashes, second.hashes)))


def _taken(rows: SortedRows, indices: npt.NDArray[np.int64]) -> SortedRows:
    return SortedRows(rows.batch.take(pa.array(indices)), rows.hashes[indices])
