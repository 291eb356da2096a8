"""Building on Spark: the session is the caller's, executors need only this package; readers need none of it."""

from holdfast.spark.kv import publish_kv
from holdfast.spark.kv_update import update_kv
from holdfast.spark.progress import BuildProgress, ProgressTold, terminal_progress
from holdfast.spark.session import local_spark

__all__ = ["BuildProgress", "ProgressTold", "local_spark", "publish_kv", "terminal_progress", "update_kv"]
