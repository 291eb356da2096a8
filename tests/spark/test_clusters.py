"""Builds on executors that are processes of their own, and may die."""

from __future__ import annotations

import re
from pathlib import Path

import pyspark
import pytest

from holdfast.testing.servers import ServerUnavailable, start_ministack
from tests.spark.clusters import environment, run_script, standalone

SCRIPT = "tests.spark.builds_on_a_cluster"


@pytest.mark.slow
@pytest.mark.server
def test_a_standalone_cluster_builds_through_killed_executors_and_speculative_tasks(tmp_path: Path) -> None:
    """K1, K6, K7 and C31: executors need only the Python package, write to a bucket, may be killed, may race.

    A pipeline whose executors are killed until it fails is gone on with, and publishes nothing twice.
    """
    try:
        server = start_ministack(tmp_path / "bucket")
    except ServerUnavailable as error:
        pytest.skip(str(error))
    server.create_bucket("lake")
    variables = environment(**server.environment)
    try:
        with standalone(tmp_path, variables) as master:
            found = run_script(SCRIPT, tmp_path, variables, master, "s3://lake")
    finally:
        server.stop()

    run = found.pop("pipeline")
    assert run["error"].startswith("BuildFailed: nothing was published: Spark says: "), run
    assert (run["attempt"], run["states"], run["published"]) == (2, ["kept", "published"], [1, 1])
    assert (run["breaks"], run["rows"]) == ([], 1_000)

    for name, one in found.items():
        assert (one["breaks"], one["rows"]) == ([], 3_000), (name, one)
    assert found["bucket"]["error"] is None
    assert set(found["bucket"]["named"]) <= set(found["bucket"]["files"])

    racing = found["speculation"]
    assert racing["error"] is None
    assert sum(name.startswith("shard-00000-") for name in racing["files"]) == 2
    assert set(racing["named"]) < set(racing["files"])

    once = found["killed once"]
    assert once["error"] is None
    assert set(once["named"]) <= set(once["files"])
    assert (tmp_path / "killed.was-killed").exists()

    always = found["killed always"]
    assert always["error"].startswith("BuildFailed: nothing was published: Spark says: ")
    assert re.search("ExecutorLostFailure|failed the maximum allowable number of times", always["error"]), always
    assert "\n" not in always["error"]


@pytest.mark.slow
def test_a_shard_larger_than_a_workers_memory_is_written_in_bounded_memory(tmp_path: Path) -> None:
    """K1 and K25: an executor's memory does not grow with its shard, which is larger here."""
    work = Path(pyspark.__file__).parent / "work"
    before = set(work.iterdir()) if work.exists() else None
    try:
        found = run_script(SCRIPT, tmp_path, environment(), "local-cluster[2,1,1024]")["large"]
    finally:
        remove_leftovers(work, before)

    assert found["rows"] == 2_000_000
    assert found["breaks"] == []
    assert found["bytes"] > found["limit"]
    assert found["peak"] < found["bytes"] / 2


def remove_leftovers(work: Path, before: set[Path] | None) -> None:
    """Spark's own test cluster writes into the installed package, wherever it is told to write."""
    import shutil

    if not work.exists():
        return
    for folder in set(work.iterdir()) - (before or set()):
        shutil.rmtree(folder)
    if before is None:
        work.rmdir()
