"""The tables people ask of a workspace, made of its state: `system.*` (C26).

| table | a row is |
|---|---|
| `namespaces`, `tables`, `columns` | what the catalog knows |
| `datasets` | a data set, as it is visible |
| `dataset_snapshots`, `inputs` | a snapshot that was published; a snapshot that one was built from |
| `edges` | one thing that another was made from |
| `runs`, `tasks`, `materializations` | what ran, when, and how it ended |
| `pipelines`, `schedules` | what is to run |
| `quarantine` | an event that no release so far has understood |
| `commits` | a snapshot of a domain (made in `reading.py`: it is history, not state) |

Each is a function of Arrow tables, so SQL in this process and Spark give the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.catalog.layout import LEDGER_DOMAINS
from holdfast.catalog.tables import DELETED, EVENT_ID, POSITION, state_table

__all__ = ["SYSTEM_TABLES", "SystemTable"]

Tables = Mapping[str, pa.Table]


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemTable:
    """One of them: which tables of the state it is made of, and how."""

    name: str
    needs: tuple[str, ...]
    """Tables of the state."""
    make: Callable[[Tables], pa.Table]

    @property
    def domains(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(state_table(name).domain for name in self.needs))


def _plain(name: str) -> Callable[[Tables], pa.Table]:
    return lambda there: there[name].drop_columns([DELETED])


def _tables(there: Tables) -> pa.Table:
    rows = there["tables"]
    counts = pc.fill_null(pc.list_value_length(rows.column("columns")), 0).cast(pa.int64())
    return rows.drop_columns(["columns", DELETED]).append_column("column_count", counts)


def _columns(there: Tables) -> pa.Table:
    """One row a column, in the order of the table."""
    return _exploded(there["tables"], "columns", ["namespace", "table"])


def _inputs(there: Tables) -> pa.Table:
    """One row for each snapshot that a published one was built from."""
    rows = there["snapshots"].select(["dataset", "manifest_id", "inputs"])
    rows = rows.rename_columns(["dataset", "built_manifest_id", "inputs"])
    return _exploded(rows, "inputs", ["dataset", "built_manifest_id"])


def _exploded(rows: pa.Table, column: str, keys: Sequence[str]) -> pa.Table:
    lists = rows.column(column).combine_chunks()
    lists = lists if isinstance(lists, pa.Array) else pa.concat_arrays(lists.chunks)
    filled = pc.if_else(pc.is_null(lists), pa.scalar([], lists.type), lists) if lists.null_count else lists
    parents = pc.list_parent_indices(filled)
    inner = pc.list_flatten(filled)
    names = [field.name for field in lists.type.value_type]
    held = {key: rows.column(key).take(parents) for key in keys}
    ordinals = _ordinals(filled)
    flat = {name: pc.struct_field(inner, name) for name in names}
    return pa.table({**held, "ordinal": ordinals, **flat})


def _ordinals(lists: pa.Array) -> pa.Array:
    """The place of each value in its own list, from 1."""
    lengths = pc.list_value_length(lists).to_numpy(zero_copy_only=False).astype(np.int64)
    before = np.cumsum(lengths) - lengths
    return pa.array(np.arange(lengths.sum()) - np.repeat(before, lengths) + 1, pa.int64())


def _datasets(there: Tables) -> pa.Table:
    """What is visible, with what was said when it was published."""
    said = ["dataset", "manifest_id", "kind", "run_id", "row_count", "byte_size", "description"]
    details = there["snapshots"].select(said)
    visible = there["datasets"].drop_columns([DELETED])
    joined = visible.join(details, ["dataset", "manifest_id"], join_type="left outer", use_threads=False)
    return _sorted(joined, ["dataset"])


def _runs(there: Tables) -> pa.Table:
    return _both_halves(there["run_starts"], there["run_ends"], ["run_id", "attempt"])


def _tasks(there: Tables) -> pa.Table:
    return _both_halves(there["task_starts"], there["task_ends"], ["run_id", "task_id", "attempt"])


def _both_halves(starts: pa.Table, ends: pa.Table, keys: list[str]) -> pa.Table:
    """A beginning and an end of the same thing, either of which may not be known yet."""
    extra = [POSITION, EVENT_ID, DELETED]
    flat = [name for name in ends.column_names if name not in (*extra, "outputs")]
    joined = starts.drop_columns(extra).join(ends.select(flat), keys, join_type="full outer", use_threads=False)
    status = pc.fill_null(joined.column("status"), "running")
    joined = joined.set_column(joined.column_names.index("status"), "status", status)
    return _sorted(joined, keys)


def _quarantine(there: Tables) -> pa.Table:
    parts = [there[f"{domain}_quarantine"].drop_columns([DELETED]) for domain in LEDGER_DOMAINS]
    return pa.concat_tables(parts)


def _sorted(table: pa.Table, keys: Sequence[str]) -> pa.Table:
    return table.sort_by([(key, "ascending") for key in keys]).combine_chunks()


SYSTEM_TABLES = {
    table.name: table
    for table in (
        SystemTable(name="namespaces", needs=("namespaces",), make=_plain("namespaces")),
        SystemTable(name="tables", needs=("tables",), make=_tables),
        SystemTable(name="columns", needs=("tables",), make=_columns),
        SystemTable(name="datasets", needs=("datasets", "snapshots"), make=_datasets),
        SystemTable(
            name="dataset_snapshots",
            needs=("snapshots",),
            make=lambda there: there["snapshots"].drop_columns(["inputs", "columns", DELETED]),
        ),
        SystemTable(name="inputs", needs=("snapshots",), make=_inputs),
        SystemTable(name="edges", needs=("edges",), make=_plain("edges")),
        SystemTable(name="runs", needs=("run_starts", "run_ends"), make=_runs),
        SystemTable(name="tasks", needs=("task_starts", "task_ends"), make=_tasks),
        SystemTable(name="materializations", needs=("materializations",), make=_plain("materializations")),
        SystemTable(name="pipelines", needs=("pipelines",), make=_plain("pipelines")),
        SystemTable(name="schedules", needs=("schedules",), make=_plain("schedules")),
        SystemTable(name="pipeline_runs", needs=("pipeline_runs",), make=_plain("pipeline_runs")),
        SystemTable(name="pipeline_tasks", needs=("pipeline_tasks",), make=_plain("pipeline_tasks")),
        SystemTable(
            name="quarantine", needs=tuple(f"{domain}_quarantine" for domain in LEDGER_DOMAINS), make=_quarantine
        ),
    )
}
