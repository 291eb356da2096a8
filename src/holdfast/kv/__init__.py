"""Key-value data sets: built from Arrow data (or by Spark, see `holdfast.spark`), served from memory or by range requests."""

from holdfast.kv.build import publish_arrow, publish_rows, routing_for
from holdfast.kv.dataset import DataSet, Shard, ValueKind, shard_schema
from holdfast.kv.expression import Expression
from holdfast.kv.keys import Key, KeyColumn, KeyKind, KeyPart, KeySchema
from holdfast.kv.plan import BuildPlan, ShardReceipt
from holdfast.kv.publish import Build, Published, building
from holdfast.kv.request import Missing
from holdfast.kv.routing import ExpressionRouting, HashRouting, RangeRouting, Routing
from holdfast.kv.rows import BadRowReport, OnDuplicate
from holdfast.kv.shard_writer import ShardStream, ShardSummary, SortedRows
from holdfast.kv.update import update_arrow

__all__ = [
    "BadRowReport",
    "Build",
    "BuildPlan",
    "DataSet",
    "Expression",
    "ExpressionRouting",
    "HashRouting",
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
    "ShardReceipt",
    "ShardStream",
    "ShardSummary",
    "SortedRows",
    "ValueKind",
    "building",
    "publish_arrow",
    "publish_rows",
    "routing_for",
    "shard_schema",
    "update_arrow",
]
