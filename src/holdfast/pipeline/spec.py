"""What a pipeline is: sources, steps of SQL, and data sets made of them. The same from a file or in Python.

    Pipeline(
        name="nightly",
        sources=[FileSource(name="orders", path="data/orders.parquet")],
        steps=[Step(name="totals", sql="SELECT user_id, sum(price) AS total FROM orders GROUP BY user_id")],
        datasets=[KvDataset(name="totals_by_user", rows="totals", key=("user_id",), shards=8)],
    )

These are only values: `holdfast.pipeline.plan` says whether they fit together and in which order they are made, and
`holdfast.pipeline.run` makes them. Names of sources and steps are what the SQL calls them; they share one space of
names, as data sets do another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import TypeAlias

__all__ = [
    "Argument",
    "Check",
    "DataSet",
    "DatasetSource",
    "FileSource",
    "GraphDataset",
    "KvDataset",
    "NotNull",
    "Pipeline",
    "Range",
    "RowChange",
    "RowCount",
    "Source",
    "Step",
    "TableDataset",
    "Unique",
]


# -- what is read ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSource:
    """Files that Spark reads: Parquet, CSV, JSON, or any other format that it has."""

    name: str
    path: str
    """A file, a folder, a pattern or a URL; a relative one is found beside the pipeline's file."""
    format: str = "parquet"
    options: Mapping[str, str] = field(default_factory=dict)
    schema: str = ""
    """Columns as Spark's DDL, `id BIGINT, name STRING`; empty where the files say it themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetSource:
    """A data set of the workspace, as it is when the run begins: that very snapshot is pinned by what is made of it."""

    name: str
    dataset: str
    ref: str = ""
    """One snapshot by its name; `version` by its number; `tag`, `key=value`, by a tag. The visible one without all."""
    version: int | None = None
    tag: str = ""
    part: str = ""
    """Of a graph: `nodes` or `edges`."""


Source: TypeAlias = FileSource | DatasetSource

Argument: TypeAlias = str | int | float | bool | date


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A question in Spark's SQL to sources and other steps. Which ones is found from the SQL."""

    name: str
    sql: str
    description: str = ""
    arguments: Mapping[str, Argument] = field(default_factory=dict)
    """What `:name` in the SQL stands for: bound by Spark as values, `spark.sql(sql, args=arguments)`, never as text."""


# -- what must hold before anything is published -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class NotNull:
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unique:
    """No two rows have the same values in all of these columns."""

    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Values lie between both ends, which are included; nulls are not looked at."""

    column: str
    least: float | str | None = None
    most: float | str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RowCount:
    least: int | None = None
    most: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RowChange:
    """Against the last snapshot: 0.2 allows a fifth fewer or more. Nothing is asked of the first snapshot."""

    fewer: float | None = None
    more: float | None = None


Check: TypeAlias = NotNull | Unique | Range | RowCount | RowChange


# -- what is made ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Described:
    name: str
    description: str = ""
    owner: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    """Tags of every snapshot that is published."""
    checks: tuple[Check, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class KvDataset(_Described):
    """Key-value: look up rows by key."""

    rows: str
    """The step or source whose rows it has."""
    key: tuple[str, ...]
    shards: int | None = None
    """The number of shards; or how many rows one should have."""
    rows_per_shard: int | None = None
    on_duplicate: str = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphDataset(_Described):
    """Nodes and edges, with the columns that `holdfast.graph` names. Checks are of the nodes."""

    nodes: str
    edges: str
    dangling: str = "refuse"
    edge_checks: tuple[Check, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDataset(_Described):
    """Rows as Parquet files: for Spark, DuckDB and whoever reads Parquet."""

    rows: str
    files: int | None = None


DataSet: TypeAlias = KvDataset | GraphDataset | TableDataset


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """All of it."""

    name: str
    sources: tuple[Source, ...] = ()
    steps: tuple[Step, ...] = ()
    datasets: tuple[DataSet, ...] = ()
    description: str = ""
    owner: str = ""
    namespace: str = ""
    """Where its data sets are registered as tables of the catalog; the pipeline's name if empty."""
    workspace: str = ""
    parameters: Mapping[str, Argument] = field(default_factory=dict)
    """Names and values. `file_parameters.fill` puts them where `${name}` and `:name` stand."""
    is_filled: bool = False
    """Whether that was done: by the reader of a file, and else by `plan`."""
    spark: Mapping[str, str] = field(default_factory=dict)
    folder: Path = field(default_factory=Path)
    """Where relative paths begin."""
