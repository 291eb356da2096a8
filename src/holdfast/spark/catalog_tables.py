"""`system.*` as DataFrames (C26), and the search index built by executors (C27). Read-only, at one snapshot.

    read_system_table(spark, workspace, "system.runs", at=yesterday).groupBy("status").count()
    register_system_tables(spark, workspace)
    spark.sql("SELECT namespace, count(*) FROM system_tables GROUP BY 1")

The functions that make them are those of `catalog.system_tables` and `catalog.search_index`, on the same Arrow tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from holdfast.catalog.domain_state import StateFile, read_table
from holdfast.catalog.fold import alive, fold_table
from holdfast.catalog.reading import commits_table, read_state
from holdfast.catalog.search import refresh_search
from holdfast.catalog.search_index import CATALOG_TABLES, SearchTables, documents_of, index_of, merge_indexes
from holdfast.catalog.sql import COMMITS, SCHEMA, system_names
from holdfast.catalog.system_tables import SYSTEM_TABLES
from holdfast.catalog.tables import state_table
from holdfast.catalog.workspace import Workspace
from holdfast.chain import Committed
from holdfast.errors import NotFound
from holdfast.spark.catalog_fold import require_reachable
from holdfast.spark.catalog_read import ROWS_PER_PART, made_on_spark, schema_sql
from holdfast.spark.catalog_task import of_ipc, to_ipc
from holdfast.spark.failures import SPARK_ERRORS, failure_of_job
from holdfast.storage.capabilities import Reader

__all__ = ["DRIVER_ROWS_MAX", "read_system_table", "refresh_search_index", "register_system_tables"]

DRIVER_ROWS_MAX = 10_000
"""A table that is made of so few rows is made by the driver: quicker than any job."""
VIEW_PREFIX = f"{SCHEMA}_"
_INDEX = pa.schema([("documents", pa.binary()), ("words", pa.binary()), ("postings", pa.binary())])


def read_system_table(
    spark: SparkSession,
    workspace: Workspace,
    name: str,
    *,
    at: datetime | None = None,
    driver_rows_max: int = DRIVER_ROWS_MAX,
    rows_per_part: int = ROWS_PER_PART,
) -> DataFrame:
    """One of the tables that SQL over a workspace knows; as of a time if one is given. It stays that snapshot.

    A large one is read by executors, when rows are asked for; a file that is damaged then stops the job.
    """
    plain = name.lower().removeprefix(f"{SCHEMA}.")
    if plain not in system_names():
        raise NotFound(f"there is no {name!r}; use one of {', '.join(system_names())}")
    if plain == COMMITS:
        return _of_arrow(spark, commits_table(workspace))
    wanted = SYSTEM_TABLES[plain]
    empty = {need: state_table(need).schema.empty_table() for need in wanted.needs}
    schema = wanted.make(empty).schema
    files: list[StateFile] = []
    for domain in wanted.domains:
        state, _ = read_state(workspace, domain, at=at)
        files += [file for file in state.files if file.table in wanted.needs]
    if sum(file.row_count for file in files) <= driver_rows_max:
        reader = Reader(workspace.store)
        there = {need: [read_table(reader, file) for file in files if file.table == need] for need in wanted.needs}
        made = wanted.make({need: alive(fold_table(state_table(need), rows)) for need, rows in there.items()})
        return _of_arrow(spark, made.cast(schema))
    require_reachable(workspace)
    return made_on_spark(
        spark, workspace.store, wanted.needs, files, SystemMaking(plain), schema=schema, rows_per_part=rows_per_part
    )


def register_system_tables(
    spark: SparkSession, workspace: Workspace, *, at: datetime | None = None, prefix: str = VIEW_PREFIX
) -> list[str]:
    """Make each of them a temporary view of the session, such as `system_tables`; the names of the views."""
    made = []
    for name in system_names():
        read_system_table(spark, workspace, name, at=at).createOrReplaceTempView(prefix + name)
        made.append(prefix + name)
    return made


def refresh_search_index(
    spark: SparkSession, workspace: Workspace, *, rows_per_part: int = ROWS_PER_PART
) -> Committed | None:
    """Build the search index anew on Spark if the catalog has moved since; None if it has not.

    Executors read the catalog and take its texts apart; the driver puts their indexes together and publishes. It is
    bit by bit the index that `refresh_search` builds.
    """
    require_reachable(workspace)
    return refresh_search(workspace, build=partial(_build_index, spark, rows_per_part))


def _build_index(spark: SparkSession, rows_per_part: int, workspace: Workspace, ref: str | None) -> SearchTables:
    if ref is None:
        return merge_indexes([])
    state, _ = read_state(workspace, "catalog", ref=ref)
    files = [file for file in state.files if file.table in CATALOG_TABLES]
    parts: list[SearchTables] = []
    # Data sets are joined with their snapshots; namespaces and tables have nothing to do with either.
    for needs in (("namespaces",), ("tables",), ("datasets", "snapshots")):
        mine = [file for file in files if file.table in needs]
        if not mine:
            continue
        made = made_on_spark(
            spark, workspace.store, needs, mine, IndexMaking(), schema=_INDEX, rows_per_part=rows_per_part, marked=True
        )
        try:
            rows = made.collect()
        except SPARK_ERRORS as error:
            raise failure_of_job(error) from None
        parts += [
            SearchTables(
                documents=of_ipc(pa.py_buffer(bytes(row.documents))),
                words=of_ipc(pa.py_buffer(bytes(row.words))),
                postings=of_ipc(pa.py_buffer(bytes(row.postings))),
            )
            for row in rows
        ]
    return merge_indexes(parts)


def _of_arrow(spark: SparkSession, table: pa.Table) -> DataFrame:
    return spark.createDataFrame(table, schema=schema_sql(table.schema))


# -- in an executor ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SystemMaking:
    """Makes a system table. Pickles: it knows its name only."""

    name: str

    def __call__(self, there: Mapping[str, pa.Table]) -> pa.Table:
        return SYSTEM_TABLES[self.name].make(there)


@dataclass(frozen=True)
class IndexMaking:
    """Makes the search index of a part of the catalog, as one row."""

    def __call__(self, there: Mapping[str, pa.Table]) -> pa.Table:
        empty = {name: state_table(name).schema.empty_table() for name in CATALOG_TABLES}
        index = index_of(documents_of(empty | dict(there)))
        tables = (index.documents, index.words, index.postings)
        return pa.table([pa.array([to_ipc(table)], pa.binary()) for table in tables], schema=_INDEX)
