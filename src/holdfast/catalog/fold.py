"""The fold: from a state and rows of events to the next state (C19). Pure, over Arrow tables.

Of all rows of one key the one with the highest position stays, by event id where positions are equal. That is all, and
everything follows from it: the order in which events come does not matter, an event may come twice, a late replay
changes nothing that is newer, and batches may be folded one by one or together, here or on Spark.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.catalog.tables import DELETED, EVENT_ID, POSITION, TableSpec, state_table
from holdfast.errors import BadInput

__all__ = ["alive", "fold", "fold_onto", "fold_table", "rows_near"]

Codes = npt.NDArray[np.int64]


def fold(state: Mapping[str, pa.Table], *batches: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    """The next state of a domain's tables, by name, each in the order of its key."""
    names = sorted({name for tables in (state, *batches) for name in tables})
    return {
        name: fold_table(state_table(name), [tables[name] for tables in (state, *batches) if name in tables])
        for name in names
    }


def fold_table(spec: TableSpec, tables: Sequence[pa.Table]) -> pa.Table:
    """One table: of each key the newest row, in the order of the key."""
    schema = spec.schema
    for table in tables:
        if not table.schema.equals(schema):
            raise BadInput(f"rows of {spec.name!r} have other columns than its state; fold what `rows_of` gives")
    said = [table for table in tables if len(table)]
    if sum(map(len, said)) < 2:
        return said[0] if said else schema.empty_table()
    rows = pa.concat_tables(said).combine_chunks()
    keys = _key_codes(rows, spec.key)
    order = np.lexsort((_ranks(rows.column(EVENT_ID)), rows.column(POSITION).to_numpy(), keys))
    ordered = keys[order]
    newest = np.ones(len(order), np.bool_)
    newest[:-1] = ordered[1:] != ordered[:-1]
    kept = rows.take(pa.array(order[newest]))
    return kept.sort_by([(name, "ascending") for name in spec.key]).combine_chunks()


def fold_onto(spec: TableSpec, base: pa.Table, deltas: Sequence[pa.Table]) -> pa.Table:
    """The same as `fold_table` of all, where `base` is folded: rows that no delta speaks of stay in their place.

    Costs a look at the keys of the base, and the rest by the rows of the deltas.
    """
    told = [delta for delta in deltas if len(delta)]
    if not told or sum(map(len, told)) * 8 > len(base):
        return fold_table(spec, [base, *told]) if told else base
    delta = fold_table(spec, told)
    near = _near(spec, base, delta)
    touched = fold_table(spec, [base.filter(near), delta])
    rest = base.filter(pc.invert(near))
    places = _places(rest, touched, spec.key)
    order = np.insert(np.arange(len(rest)), places, np.arange(len(touched)) + len(rest))
    return pa.concat_tables([rest, touched]).combine_chunks().take(pa.array(order))


def _places(sorted_rows: pa.Table, wanted: pa.Table, names: Sequence[str]) -> list[int]:
    """Where rows belong among others that are in the order of their keys."""
    columns = [sorted_rows.column(name).combine_chunks() for name in names]

    class _Keys(Sequence[tuple[object, ...]]):
        def __len__(self) -> int:
            return len(sorted_rows)

        def __getitem__(self, place: int) -> tuple[object, ...]:  # type: ignore[override]
            return tuple(column[place].as_py() for column in columns)

    keys = zip(*(wanted.column(name).to_pylist() for name in names), strict=True)
    known, places, low = _Keys(), list[int](), 0
    for key in keys:
        low = bisect_left(known, key, low)
        places.append(low)
    return places


def rows_near(spec: TableSpec, tables: Sequence[pa.Table], said: pa.Table) -> pa.Table:
    """Of a state's rows, not folded yet, those that may have a key of `said`: all that its rows can change."""
    return fold_table(spec, [table.filter(_near(spec, table, said)) for table in tables])


def _near(spec: TableSpec, table: pa.Table, said: pa.Table) -> pa.ChunkedArray:
    """Which rows have, in each column of the key, a value that `said` has there too."""
    mask: pa.ChunkedArray | None = None
    for name in spec.key:
        found = pc.is_in(table.column(name), value_set=said.column(name).combine_chunks())
        mask = found if mask is None else pc.and_(mask, found)
    assert mask is not None
    return mask


def alive(table: pa.Table) -> pa.Table:
    """What is there: without rows that say that something is gone."""
    return table.filter(pc.invert(table.column(DELETED)))


def _key_codes(rows: pa.Table, names: Sequence[str]) -> Codes:
    """A number for each row: the same for the same key, and for no others."""
    codes = np.zeros(len(rows), np.int64)
    for name in names:
        column = rows.column(name).combine_chunks().dictionary_encode()
        values = column.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        # Dense again after every column: the product of two counts of rows fits, that of six might not.
        codes = np.unique(codes * len(column.dictionary) + values, return_inverse=True)[1].astype(np.int64)
    return codes


def _ranks(column: pa.ChunkedArray) -> Codes:
    order = pc.sort_indices(column).to_numpy()
    ordered = column.take(pa.array(order)).combine_chunks().dictionary_encode().indices.to_numpy(zero_copy_only=False)
    ranks = np.empty(len(order), np.int64)
    ranks[order] = ordered  # equal ids have equal ranks
    return ranks
