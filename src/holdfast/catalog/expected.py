"""What will be there once some changes are told: the state as it is, and on top of it what each of them says.

Changes that are published together are checked one after the other, each against what the ones before it will have
made. Only the rows that a check asks for are folded, so a check costs the same in a batch as alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.catalog.event_rows import said_by
from holdfast.catalog.fold import alive, fold_table
from holdfast.catalog.payload import Payload
from holdfast.catalog.tables import DELETED, EVENT_ID, POSITION, state_table

__all__ = ["Expected"]


class Expected:
    """Tables of a domain, as a check sees them."""

    def __init__(self, tables: Mapping[str, Iterable[pa.Table]]) -> None:
        """`tables` are rows of the state by table, folded or not."""
        self._tables = {
            name: pa.concat_tables([state_table(name).schema.empty_table(), *parts]).combine_chunks()
            for name, parts in tables.items()
        }
        self._told: dict[str, dict[tuple[Any, ...], dict[str, Any]]] = {name: {} for name in self._tables}

    def tell(self, payload: Payload) -> None:
        """From now on this is told, after all that was."""
        for name, row, deleted in said_by(payload):
            if name in self._told:
                key = tuple(row[column] for column in state_table(name).key)
                self._told[name][key] = {**row, POSITION: 0, EVENT_ID: "", DELETED: deleted}

    def rows(self, name: str, **wanted: str) -> pa.Table:
        """The rows that have these values in columns of the key, without what is gone."""
        spec = state_table(name)
        found = fold_table(spec, [_where(self._tables[name], wanted)])
        told = [row for row in self._told[name].values() if all(row[one] == value for one, value in wanted.items())]
        if told:
            keys = {tuple(row[column] for column in spec.key) for row in told}
            there = zip(*(found.column(column).to_pylist() for column in spec.key), strict=True)
            found = found.filter(pa.array([key not in keys for key in there], pa.bool_()))
            found = pa.concat_tables([found, pa.Table.from_pylist(told, schema=spec.schema)])
        return alive(found)


def _where(table: pa.Table, wanted: Mapping[str, str]) -> pa.Table:
    """Most checks find nothing, and only look at columns of the key for it."""
    mask = None
    for column, value in wanted.items():
        equal = pc.equal(table.column(column), value)
        mask = equal if mask is None else pc.and_(mask, equal)
    if mask is None:
        return table
    return table.filter(mask) if pc.any(mask).as_py() else table.slice(0, 0)
