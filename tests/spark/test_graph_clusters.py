"""Graphs on executors that are processes of their own, and may die; and over Spark Connect."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from holdfast.testing.servers import ServerUnavailable, start_ministack
from tests.spark.clusters import environment, run_script, standalone


@pytest.mark.slow
@pytest.mark.server
def test_a_standalone_cluster_builds_graphs_through_killed_executors_and_speculative_tasks(tmp_path: Path) -> None:
    """G17, G24, G25: executors need only the Python package, may be killed, may race, and have little memory."""
    try:
        server = start_ministack(tmp_path / "bucket")
    except ServerUnavailable as error:
        pytest.skip(str(error))
    server.create_bucket("lake")
    variables = environment(**server.environment)
    try:
        with standalone(tmp_path, variables) as master:
            found = run_script("tests.spark.graphs_on_a_cluster", tmp_path, variables, master, "s3://lake")
    finally:
        server.stop()

    large = found.pop("large")
    for name, one in found.items():
        assert (one["breaks"], one["counts"]) == ([], [2_000, 2_000]), (name, one)
        assert set(one["named"]) <= set(one["files"])
        assert len(one["named"]) == 6
    assert found["bucket"]["error"] is None
    assert (found["bucket"]["read"], found["bucket"]["compacted"]) == (True, True)

    racing = found["speculation"]
    assert racing["error"] is None
    assert len(racing["files"]) == 8  # of the first range of each kind, two

    assert found["killed once"]["error"] is None
    assert (tmp_path / "killed.was-killed").exists()

    always = found["killed always"]
    assert always["error"].startswith("BuildFailed: nothing was published: Spark says: ")
    assert re.search("ExecutorLostFailure|failed the maximum allowable number of times", always["error"]), always
    assert "\n" not in always["error"]

    assert (large["rows"], large["segments"], large["breaks"]) == (400_000, 1, [])
    assert large["bytes"] > large["limit"]
    assert large["peak"] < large["bytes"] / 2


@pytest.mark.slow
def test_graphs_work_over_spark_connect(tmp_path: Path) -> None:
    """G17, G24, G25: the same calls over Spark Connect: builds, reads, compaction, one line for each failure."""
    found = run_script("tests.spark.graphs_over_connect", tmp_path, environment())

    assert found["session"].startswith("pyspark.sql.connect.")
    assert found["counts"] == [900, 900, 2, 2]
    assert [shards for shards, _ in found["told"]] == [0, 1, 2, 3, 4]
    assert found["told"][-1] == [4, 1_800]
    assert found["dangling"].startswith(
        "BadRows: nothing was published: 1 edges have an end that is not there: 'n0' -T-> 'x'"
    )
    assert found["twice"].startswith("BadRows: nothing was published: 1 nodes have the id of another")
    assert "DIVIDE_BY_ZERO" in found["source"]
    assert (found["read"], found["fetched"], found["answer"]) == (True, True, "n1")
    assert (found["compacted"], found["same"], found["breaks"]) == (4, True, [])
