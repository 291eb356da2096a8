"""One Spark a test process, with two threads, and a data set on a file system that is whole in the end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from holdfast.chain import Chain, chain_on, kv_layout
from holdfast.spark import local_spark
from holdfast.storage import LocalStore


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The session that tests share. Nothing may change its settings; a build must not either."""
    scratch = tmp_path_factory.mktemp("spark")
    session = local_spark(
        cores=2,
        settings={
            "spark.local.dir": str(scratch / "local"),
            "spark.sql.warehouse.dir": str(scratch / "warehouse"),
            "spark.sql.shuffle.partitions": "2",
        },
    )
    yield session
    session.stop()


@pytest.fixture
def chain(tmp_path: Path) -> Iterator[Chain]:
    """A data set to publish to, not synced to disk: no test here cuts the power."""
    opened = chain_on(LocalStore(tmp_path / "store", durable=False), kv_layout())
    yield opened
    assert opened.verify() == []
