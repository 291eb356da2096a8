"""Pipelines: sources, Spark SQL and data sets, planned, run and resumed."""

from holdfast.pipeline.spec import (
    Check,
    DataSet,
    DatasetSource,
    FileSource,
    GraphDataset,
    KvDataset,
    NotNull,
    Pipeline,
    Range,
    RowChange,
    RowCount,
    Source,
    Step,
    TableDataset,
    Unique,
)

__all__ = [
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
