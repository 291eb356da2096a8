"""The fold: from a state and rows of events to the next state (C19). Pure, over Arrow tables.

Of all rows of one key the one with the highest position stays, by event id where positions are equal. That is all, and
everything follows from it: the order in which events come does not matter, an event may come twice, a late replay
changes nothing that is newer, and batches may be folded one by one or together, here or on Spark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.catalog.tables import DELETED, EVENT_ID, POSITION, TableSpec, state_table
from holdfast.errors import BadInput

__all__ = ["alive", "fold", "fold_table"]

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
    rows = pa.concat_tables([schema.empty_table(), *tables]).combine_chunks()
    if len(rows) < 2:
        return rows
    keys = _key_codes(rows, spec.key)
    order = np.lexsort((_ranks(rows.column(EVENT_ID)), rows.column(POSITION).to_numpy(), keys))
    ordered = keys[order]
    newest = np.ones(len(order), np.bool_)
    newest[:-1] = ordered[1:] != ordered[:-1]
    kept = rows.take(pa.array(order[newest]))
    return kept.sort_by([(name, "ascending") for name in spec.key]).combine_chunks()


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
