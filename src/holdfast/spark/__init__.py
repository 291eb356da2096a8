"""Building on Spark: the session is the caller's, executors need only this package; readers need none of it."""

from holdfast.spark.catalog_fold import compact_domain
from holdfast.spark.catalog_tables import read_system_table, refresh_search_index, register_system_tables
from holdfast.spark.graph import GraphFrames, PublishedGraph, compact_graph, publish_graph, read_graph
from holdfast.spark.kv import publish_kv
from holdfast.spark.kv_read import read_kv
from holdfast.spark.kv_update import update_kv
from holdfast.spark.progress import BuildProgress, ProgressTold, terminal_progress
from holdfast.spark.session import local_spark
from holdfast.spark.table import PublishedTable, publish_table, read_table

__all__ = [
    "BuildProgress",
    "GraphFrames",
    "ProgressTold",
    "PublishedGraph",
    "PublishedTable",
    "compact_domain",
    "compact_graph",
    "local_spark",
    "publish_graph",
    "publish_kv",
    "publish_table",
    "read_graph",
    "read_kv",
    "read_system_table",
    "read_table",
    "refresh_search_index",
    "register_system_tables",
    "terminal_progress",
    "update_kv",
]
