"""The frames of one pipeline run, by name: all that a pipeline needs of Spark, so that it never meets a DataFrame.

    with Stage.local() as stage:
        stage.read_files("orders", format="parquet", path="data/orders")
        stage.ask("totals", "SELECT user_id, sum(price) AS total FROM orders GROUP BY user_id")
        stage.publish_kv("totals", chain, key="user_id", shards=8)

Names are temporary views of a session of its own, beside the one that was given: that one keeps its views and its
settings, and none of its views is taken for a source. Nothing is computed before something is counted, checked or
published.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from pyspark import SparkContext, StorageLevel
from pyspark.sql import DataFrame, SparkSession

from holdfast.chain import Chain, InputPin
from holdfast.errors import BadInput
from holdfast.kv.publish import Published
from holdfast.spark.failures import SPARK_ERRORS, failure_of_job
from holdfast.spark.graph import PublishedGraph, publish_graph
from holdfast.spark.graph_read import frame_of
from holdfast.spark.graph_write import store_at
from holdfast.spark.kv import publish_kv
from holdfast.spark.kv_read import frame_of_kv
from holdfast.spark.quality import Broken, Rule, broken_rules
from holdfast.spark.session import local_spark
from holdfast.spark.stage_sql import asked, said, untold
from holdfast.spark.table import PublishedTable, publish_table
from holdfast.spark.table_read import frame_of_table
from holdfast.table import open_table

__all__ = ["Stage", "StageColumn"]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")


@dataclass(frozen=True, slots=True, kw_only=True)
class StageColumn:
    """One column of a frame; its type as Spark's SQL spells it."""

    name: str
    type: str
    nullable: bool


class Stage:
    """Frames by name. For one thread; use it in a `with`, or close it."""

    def __init__(self, spark: SparkSession) -> None:
        """A stage beside a session that was given, which is left as it is."""
        self._session = _beside(spark)
        self._frames: dict[str, DataFrame] = {}
        self._cached: set[str] = set()
        self._owned: SparkSession | None = None

    @classmethod
    def local(cls, settings: Mapping[str, str] | None = None) -> Stage:
        """A stage on a Spark in this process, which ends with it. One that runs here already is used, and stays."""
        runs = SparkContext._active_spark_context is not None  # noqa: SLF001 - a session may be another thread's
        if runs and (active := SparkSession.getActiveSession()) is not None:
            return cls(active)
        spark = local_spark(settings=settings)
        stage = cls(spark)
        stage._owned = None if runs else spark
        return stage

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._frames)

    # -- frames ------------------------------------------------------------------------------------------------------

    def read_files(
        self,
        name: str,
        *,
        path: str,
        format: str = "parquet",  # noqa: A002 - Spark's name for it
        options: Mapping[str, str] | None = None,
        schema: str | None = None,
    ) -> None:
        """Files that Spark reads. `schema` is Spark's DDL; without it the files say it, which may take a look."""
        self._check_new(name)
        try:
            with untold():
                reader = self._session.read.format(format).options(**dict(options or {}))
                frame = (reader.schema(schema) if schema else reader).load(path)
                frame.schema  # noqa: B018 - over Spark Connect, only now is it looked at
        except SPARK_ERRORS as error:
            raise BadInput(f"{name}: Spark cannot read {path!r} as {format}: {_cause(error)}") from None
        self._keep(name, frame)

    def read_dataset(self, name: str, chain: Chain, *, ref: str | None = None, part: str | None = None) -> InputPin:
        """A snapshot of a data set: the one with this ref, or the visible one. Of a graph, a `part`: nodes or edges.

        Returns what pins that very snapshot.
        """
        self._check_new(name)
        kind = chain.layout.name
        if (kind == "graph") != (part in {"nodes", "edges"}) or (kind != "graph" and part):
            raise BadInput(
                f"{name}: part={part!r} of a {kind} data set; say nodes or edges of a graph, and else nothing"
            )
        move = chain.find(ref=ref)
        found = chain.layout.ref_of(move.manifest_path)
        if kind == "kv":
            frame = frame_of_kv(self._session, chain.store, chain.load_manifest(found))
        elif kind == "table":
            frame = frame_of_table(self._session, open_table(chain, ref=found))
        elif kind == "graph":
            graph = store_at(chain)
            state = graph.state(move.target_id)
            frame = frame_of(self._session, graph, state, "nodes" if part == "nodes" else "edges")
        else:
            raise BadInput(f"{name}: a {kind} chain has no rows for Spark; give a kv, graph or table data set")
        self._keep(name, frame)
        return InputPin(
            chain=chain.handle.identity, manifest_id=move.target_id, manifest_hash=move.manifest_hash, ref=found
        )

    def ask(self, name: str, sql: str, *, args: Mapping[str, object] | None = None) -> None:
        """A question in SQL to other frames of the stage. It is only understood, not answered; BadSql if it is not.

        `args` are what `:name` stands for in it, as values.
        """
        self._check_new(name)
        self._keep(name, asked(self._session, sql, args, self.names))

    def columns(self, name: str) -> tuple[StageColumn, ...]:
        """What a frame has, in its order. Computes nothing."""
        return tuple(
            StageColumn(name=column.name, type=column.dataType.simpleString(), nullable=column.nullable)
            for column in self._frame(name).schema.fields
        )

    def count(self, name: str) -> int:
        """How many rows there are. Computes the frame."""
        frame = self._frame(name)
        try:
            return frame.count()
        except SPARK_ERRORS as error:
            raise failure_of_job(error) from error

    def check(self, name: str, rules: Sequence[Rule]) -> tuple[Broken, ...]:
        """The rules that a frame breaks: see `holdfast.spark.quality`."""
        return broken_rules(self._frame(name), rules)

    def cache(self, name: str) -> None:
        """Keep a frame once it is computed, for those who read it after. Until `uncache`, or the end."""
        self._frame(name).persist(StorageLevel.MEMORY_AND_DISK)
        self._cached.add(name)

    def uncache(self, name: str) -> None:
        """Let go of what `cache` keeps; nothing where it keeps nothing."""
        frame = self._frame(name)
        if name in self._cached:
            frame.unpersist()
            self._cached.discard(name)

    # -- publishing --------------------------------------------------------------------------------------------------

    def publish_kv(self, name: str, chain: Chain, **options: Any) -> Published:
        """`holdfast.spark.publish_kv` of a frame."""
        return publish_kv(self._frame(name), chain, **options)

    def publish_graph(self, nodes: str, edges: str, chain: Chain, **options: Any) -> PublishedGraph:
        """`holdfast.spark.publish_graph` of two frames."""
        return publish_graph(self._frame(nodes), self._frame(edges), chain, **options)

    def publish_table(self, name: str, chain: Chain, **options: Any) -> PublishedTable:
        """`holdfast.spark.table.publish_table` of a frame."""
        return publish_table(self._frame(name), chain, **options)

    # -- the end -----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Let go of everything; end the Spark that was started for this stage. Twice does nothing."""
        for name in list(self._cached):
            self.uncache(name)
        for name in list(self._frames):
            self._session.catalog.dropTempView(name)
            del self._frames[name]
        if self._owned is not None:
            owned, self._owned = self._owned, None
            owned.stop()

    # -- inside ------------------------------------------------------------------------------------------------------

    def _check_new(self, name: str) -> None:
        if not _NAME.fullmatch(name):
            raise BadInput(f"{name!r} is no name for SQL; use letters, digits and _, and begin with no digit")
        if name.lower() in {known.lower() for known in self._frames}:
            raise BadInput(f"there is a frame {name!r} already; SQL does not tell upper case from lower")

    def _keep(self, name: str, frame: DataFrame) -> None:
        frame.createTempView(name)
        self._frames[name] = frame

    def _frame(self, name: str) -> DataFrame:
        if name not in self._frames:
            raise BadInput(f"there is no frame {name!r}; there are {', '.join(self._frames) or 'none'}")
        return self._frames[name]


def _beside(spark: SparkSession) -> SparkSession:
    """A session with the same settings and catalogs, and none of the temporary views."""
    fresh = spark.newSession()
    for name, value in spark.conf.getAll.items():
        if spark.conf.isModifiable(name) and fresh.conf.get(name, None) != value:
            fresh.conf.set(name, value)
    return fresh


def _cause(error: BaseException) -> str:
    """The line that tells most: of an error of the JVM, the one behind py4j's own."""
    text = str(error)
    lines = [line.strip().removeprefix(": ") for line in text.splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith("An error occurred while calling")]
    return said(Exception(re.sub(r"^[\w.$]+(Exception|Error): ", "", lines[0] if lines else "nothing")))
