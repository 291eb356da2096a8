"""Graphs by Spark from the command line: a session of its own, and DataFrames of files."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from holdfast.cli.graph_input import format_of
from holdfast.errors import BadInput

__all__ = ["frame_of", "quiet_start", "spark_session"]

# An object in JSON lines becomes text without spaces, as it does without Spark: the same file makes the same records.
_SETTINGS = {"spark.sql.json.enableExactStringParsing": "false"}

# Spark's own types stay in `holdfast.spark`: every command starts without it.
SparkSession = Any
DataFrame = Any


@contextmanager
def spark_session() -> Iterator[SparkSession]:
    """A local Spark for as long as the block lasts; HOLDFAST_DEBUG=1 lets its JVM speak."""
    try:
        from holdfast.spark.session import local_spark
    except ImportError as error:
        raise BadInput(f"--spark needs PySpark ({error}); install holdfast[spark], or leave --spark out") from None
    with quiet_start():
        spark = local_spark(settings=_SETTINGS)
    try:
        yield spark
    finally:
        spark.stop()


def frame_of(spark: SparkSession, files: Sequence[Path], columns: Sequence[str]) -> DataFrame:
    """The rows of some files as text; columns that only some files have are null in the others."""
    frames = [_read(spark, kind, [one for one in files if format_of(one) == kind], columns) for kind in _kinds(files)]
    if not frames:
        return spark.createDataFrame([], ", ".join(f"`{name}` string" for name in columns))
    whole = frames[0]
    for frame in frames[1:]:
        whole = whole.unionByName(frame, allowMissingColumns=True)
    return whole


def _kinds(files: Sequence[Path]) -> list[str]:
    return list(dict.fromkeys(map(format_of, files)))


def _read(spark: SparkSession, kind: str, files: Sequence[Path], columns: Sequence[str]) -> DataFrame:
    paths = [one.resolve().as_uri() for one in files]
    if kind == "parquet":
        return spark.read.option("mergeSchema", True).parquet(*paths)
    if kind == "csv":
        return spark.read.csv(paths, header=True, multiLine=True, escape='"', mode="FAILFAST")
    # Names first, so that a misspelt one is refused; then as text: an object stays the JSON that it is.
    names = spark.read.json(paths, mode="FAILFAST").columns
    unknown = [name for name in names if name not in columns]
    if unknown:
        raise BadInput(f"JSON lines have a field {unknown[0]!r}; the fields are {', '.join(columns)}")
    return spark.read.json(paths, schema=", ".join(f"`{name}` string" for name in names), mode="FAILFAST")


@contextmanager
def quiet_start() -> Iterator[None]:
    """A JVM's first words are about itself: while it starts, what it writes to standard error goes nowhere."""
    if os.environ.get("HOLDFAST_DEBUG") == "1":
        yield
        return
    sys.stderr.flush()
    kept = os.dup(2)
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
