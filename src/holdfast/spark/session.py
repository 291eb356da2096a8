"""A local Spark for the demo, the command line and tests. Builds take the session that their DataFrame belongs to."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from pyspark.sql import SparkSession

from holdfast.spark.java import find_java_home

__all__ = ["local_settings", "local_spark"]

_QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"


_LOOPBACK = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}


def local_settings(*, cores: int | str = "*", quick: bool = True) -> dict[str, str]:
    """Settings of a session that listens on loopback only, shows nothing and starts fast."""
    settings = {
        "spark.master": f"local[{cores}]",
        "spark.app.name": "holdfast",
        **_LOOPBACK,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
    }
    if quick:  # worth it for minutes of work; for hours the second compiler pays
        settings["spark.driver.extraJavaOptions"] = _QUICK_START
    return settings


def local_spark(
    *, cores: int | str = "*", quick: bool = True, settings: Mapping[str, str] | None = None
) -> SparkSession:
    """A Spark session in this process. `settings` come last and win."""
    os.environ["PYSPARK_PYTHON"] = sys.executable  # else workers take another Python, without this package
    home = find_java_home()
    if home is not None:
        os.environ["JAVA_HOME"] = home
    builder = SparkSession.builder
    wanted = {**local_settings(cores=cores, quick=quick), **(settings or {})}
    if not wanted["spark.master"].startswith("local"):  # executors elsewhere could not call a driver on loopback
        wanted = {name: value for name, value in wanted.items() if name in (settings or {}) or name not in _LOOPBACK}
    for name, value in wanted.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()
