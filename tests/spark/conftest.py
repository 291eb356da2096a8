"""One Spark a test process, with two threads, and a data set on a file system that is whole in the end."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from holdfast.chain import Chain, chain_on, kv_layout
from holdfast.spark import local_spark
from holdfast.storage import LocalStore
from holdfast.testing.clock import VirtualClock

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The session that tests share. A task may fail once before its job does. Nobody may change its settings."""
    scratch = tmp_path_factory.mktemp("spark")
    settings = {
        "spark.master": "local[2, 2]",
        "spark.local.dir": str(scratch / "local"),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.shuffle.partitions": "2",
    }
    with pytest.MonkeyPatch.context() as patch:
        # Executors import the stores that fail on purpose.
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])))
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        session = local_spark(settings=settings)
    yield session
    session.stop()


@pytest.fixture
def chain(tmp_path: Path) -> Iterator[Chain]:
    """A data set to publish to, not synced to disk: no test here cuts the power."""
    opened = chain_on(LocalStore(tmp_path / "store", durable=False), kv_layout())
    yield opened
    assert opened.verify() == []


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()
