"""What is there once newer segments have hidden what older ones say (G16). Arrays only: no Python per record."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from holdfast.graph.encoding import encoded_column
from holdfast.graph.segment import segment_schema

__all__ = ["edge_numbers", "live_edges", "live_nodes", "newest_rows"]

Indices = npt.NDArray[np.int64]


def live_nodes(tables: Sequence[pa.Table], *, keep_tombstones: bool = False) -> pa.Table:
    """The nodes that are there, in the order of their ids; `tables` are segments' rows, the oldest first."""
    table = _joined(tables, "nodes")
    gone = _flags(table)
    if _in_order(tables) and not gone.any():
        return table
    table = table.take(
        pa.array(newest_rows(encoded_column(table, "semantic_id")[1].astype(np.int64), gone, keep_tombstones))
    )
    return table.sort_by("semantic_id")


def live_edges(tables: Sequence[pa.Table], *, keep_tombstones: bool = False) -> pa.Table:
    """The same for edges, in the order of their segments."""
    table = _joined(tables, "edges")
    gone = _flags(table)
    if len(tables) < 2 and not gone.any():
        return table
    return table.take(pa.array(newest_rows(edge_numbers(table), gone, keep_tombstones)))


def newest_rows(keys: Indices, gone: npt.NDArray[np.bool_], keep_tombstones: bool = False) -> Indices:
    """The rows that nothing newer hides, in their order."""
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    last = np.ones(len(order), dtype=bool)
    last[:-1] = ordered[1:] != ordered[:-1]
    rows: Indices = np.sort(order[last])
    if keep_tombstones:
        return rows
    there: Indices = rows[~gone[rows]]
    return there


def edge_numbers(table: pa.Table) -> Indices:
    """A number for each (source, target, type): the same for the same, and for no others."""
    sources, targets, types = (encoded_column(table, name)[1].astype(np.int64) for name in ("source", "target", "type"))
    spread_targets, spread_types = int(targets.max(initial=0)) + 1, int(types.max(initial=0)) + 1
    assert (int(sources.max(initial=0)) + 1) * spread_targets * spread_types < 1 << 63, "too many edges for one process"
    return (sources * spread_targets + targets) * spread_types + types


def _joined(tables: Sequence[pa.Table], kind: str) -> pa.Table:
    schema = segment_schema("nodes" if kind == "nodes" else "edges")
    if not tables:
        return schema.empty_table()
    if len(tables) == 1:
        return tables[0]
    return pa.concat_tables(tables, promote_options="permissive")


def _flags(table: pa.Table) -> npt.NDArray[np.bool_]:
    """Which rows are tombstones."""
    column = table.column("tombstone").combine_chunks()
    return np.asarray(column.to_numpy(zero_copy_only=False) if len(table) else [], np.bool_)


def _in_order(tables: Sequence[pa.Table]) -> bool:
    """Whether each segment begins behind the end of the one before: then no two have the same node."""
    columns = [table.column("semantic_id") for table in tables if len(table)]
    ends = [(column[0].as_py(), column[-1].as_py()) for column in columns]
    return all(before[1] < after[0] for before, after in pairwise(ends))
