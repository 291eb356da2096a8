"""Pipelines: sources, Spark SQL and data sets, planned, run and resumed."""

from holdfast.pipeline.spec import (
    Argument,
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
