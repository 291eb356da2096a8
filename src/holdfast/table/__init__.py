"""Tables: rows as Parquet files under a chain. Built on Spark or from Arrow, read anywhere."""

from holdfast.table.dataset import TableData, TableFile
from holdfast.table.publish import PublishedTable, publish_arrow
from holdfast.table.reading import TableSnapshot, open_table

__all__ = ["PublishedTable", "TableData", "TableFile", "TableSnapshot", "open_table", "publish_arrow"]
