"""A snapshot of a table as a DataFrame: Spark's own reader of Parquet on its files, in the JVM.

Where Spark cannot open the files, because it has no file system of that scheme or no way to it, tasks fetch them by the
store's own means, compare them with their checksums, and hand them over as Arrow.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import orjson
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from holdfast.chain import Chain
from holdfast.errors import BadInput
from holdfast.spark.failures import SPARK_ERRORS
from holdfast.spark.hadoop import hadoop_paths
from holdfast.spark.table_task import FileFetch
from holdfast.table.dataset import TableFile
from holdfast.table.reading import TableSnapshot, open_table

__all__ = ["frame_of_table", "read_table"]

_STRICT = {
    "parquet.page.verify-checksum.enabled": "true",
    # A session may be set to look away. A table never does.
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
    "mergeSchema": "false",
    "datetimeRebaseMode": "CORRECTED",
    "int96RebaseMode": "CORRECTED",
}


def read_table(
    spark: SparkSession,
    place: str | Chain,
    *,
    ref: str | None = None,
    tag: tuple[str, str] | None = None,
    at: datetime | None = None,
) -> DataFrame:
    """The rows of a snapshot: by ref, tag or time, or the visible one. It stays that snapshot. Every column may be
    null, as Spark has it of all files."""
    return frame_of_table(spark, open_table(place, ref=ref, tag=tag, at=at))


def frame_of_table(spark: SparkSession, table: TableSnapshot) -> DataFrame:
    """What an open snapshot holds."""
    schema = _nullable(from_arrow_schema(table.schema, prefer_timestamp_ntz=True))
    files = table.data.files
    if not files:
        return spark.createDataFrame([], schema)
    paths = hadoop_paths(table.store, [file.path for file in files])
    read = None if paths is None else _read_by_spark(spark, paths, schema)
    return read if read is not None else _read_by_tasks(spark, table, files, schema)


def _read_by_spark(spark: SparkSession, paths: Sequence[str], schema: StructType) -> DataFrame | None:
    try:
        read = spark.read.schema(schema).options(**_STRICT).parquet(*paths)
        read.schema  # noqa: B018 - over Spark Connect, only now are the files looked for
    except SPARK_ERRORS:
        return None  # no such file system here, or no way to it: tasks will say what is wrong, if it is more than that
    return read


def _read_by_tasks(
    spark: SparkSession, table: TableSnapshot, files: Sequence[TableFile], schema: StructType
) -> DataFrame:
    if table.store.url.startswith("memory:"):
        raise BadInput("executors are other processes and cannot reach memory://; use file:// or a bucket")
    listed = spark.createDataFrame(
        [(number, orjson.dumps(file.to_json())) for number, file in enumerate(files)], "number int, file binary"
    )
    one_each = listed.repartitionById(len(files), listed.number)
    return one_each.mapInArrow(FileFetch(table.store, table.schema), schema)


def _nullable(schema: StructType) -> StructType:
    """The same columns, each of which may be null."""
    for column in schema.fields:
        column.nullable = True
    return schema
