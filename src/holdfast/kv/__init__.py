"""Key-value data sets: built from Arrow data (or by Spark, see `holdfast.spark`), served from files or by ranges."""

from holdfast.kv.async_reader import AsyncShardedReader
from holdfast.kv.build import publish_arrow, publish_rows, routing_for
from holdfast.kv.cache import ShardCache
from holdfast.kv.dataset import DataSet, Shard, ValueKind, shard_schema
from holdfast.kv.expression import Expression
from holdfast.kv.info import ColumnInfo, Health, SnapshotInfo, describe_snapshot
from holdfast.kv.keys import Key, KeyColumn, KeyKind, KeyPart, KeySchema
from holdfast.kv.plan import BuildPlan, ShardReceipt
from holdfast.kv.publish import Build, Published, building
from holdfast.kv.reader import ConcurrentShardedReader, ShardedReader
from holdfast.kv.request import Missing
from holdfast.kv.routing import ExpressionRouting, HashRouting, RangeRouting, Routing
from holdfast.kv.rows import BadRowReport, OnDuplicate
from holdfast.kv.shard_writer import ShardStream, ShardSummary, SortedRows
from holdfast.kv.update import update_arrow

__all__ = [
    "AsyncShardedReader",
    "BadRowReport",
    "Build",
    "BuildPlan",
    "ColumnInfo",
    "ConcurrentShardedReader",
    "DataSet",
    "Expression",
    "ExpressionRouting",
    "HashRouting",
    "Health",
    "Key",
    "KeyColumn",
    "KeyKind",
    "KeyPart",
    "KeySchema",
    "Missing",
    "OnDuplicate",
    "Published",
    "RangeRouting",
    "Routing",
    "Shard",
    "ShardCache",
    "ShardReceipt",
    "ShardStream",
    "ShardSummary",
    "ShardedReader",
    "SnapshotInfo",
    "SortedRows",
    "ValueKind",
    "building",
    "describe_snapshot",
    "publish_arrow",
    "publish_rows",
    "routing_for",
    "shard_schema",
    "update_arrow",
]
