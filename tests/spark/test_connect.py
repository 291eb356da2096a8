"""Builds over Spark Connect."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spark.clusters import environment, run_script


@pytest.mark.slow
def test_builds_work_over_spark_connect(tmp_path: Path) -> None:
    """K1 and K10: the same call over Spark Connect: rows, rules, progress, one line for each failure."""
    found = run_script("tests.spark.builds_over_connect", tmp_path, environment())

    assert found["session"].startswith("pyspark.sql.connect.")
    assert found["rows"] == 3_000
    assert found["sample"] == {"v": 6_007, "l": [6_007]}
    assert found["dropped"] == 6_000
    assert [shards for shards, _ in found["told"]] == [0, 1, 2, 3, 4, 5]
    assert found["told"][-1] == [5, 3_000]
    assert (found["derived"], found["composite"], found["empty"]) == (4, 8, 0)
    assert found["nulls"].startswith("BadRows: nothing was published: there are rows 1 with a null in the key")
    assert found["outside"].startswith("BadRows: nothing was published: shard")
    assert "DIVIDE_BY_ZERO" in found["source"]
    assert found["store"] == "StoreUnavailable: nothing was published: shard 1: the store did not answer within 60 s"
    assert found["breaks"] == []
