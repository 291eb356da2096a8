"""Graph builds that fail, or nearly: nothing is published, what is left can be collected, one line says what failed."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from holdfast.chain import chain_on, graph_layout
from holdfast.errors import BuildFailed, HoldfastError, StoreFull, StoreUnavailable
from holdfast.graph.store import GraphStore
from holdfast.spark.graph import compact_graph, publish_graph
from holdfast.storage import LocalStore
from holdfast.testing.clock import VirtualClock
from tests.spark import faults
from tests.spark.graph_faults import segment_files
from tests.spark.graphs import contents

NODES = "SELECT 'n' || id AS semantic_id, 'T' AS type, 'f' || id % 5 AS file FROM range(400)"
EDGES = "SELECT 'n' || id AS source, 'n' || (id * 7) % 400 AS target, 'CALLS' AS type FROM range(400)"


@pytest.mark.parametrize(
    "fault, error, message",
    [
        pytest.param(faults.full_at_shard_2, StoreFull, r"nodes segment 2: no space is left", id="full"),
        pytest.param(faults.unavailable_at_shard_1, StoreUnavailable, r"nodes segment 1: the store did not", id="away"),
        pytest.param(faults.broken_at_shard_3, BuildFailed, r"nodes segment 3: OSError: .*Input/output", id="broken"),
    ],
)
def test_a_failed_build_names_the_segment_and_leaves_only_what_can_be_collected(
    spark: SparkSession,
    tmp_path: Path,
    clock: VirtualClock,
    fault: faults.Fault,
    error: type[HoldfastError],
    message: str,
) -> None:
    """G12, G17, G25: nothing is published, one line says what failed, and the collector can take every file."""
    root = tmp_path / "graph"
    good = GraphStore.create(LocalStore(root, durable=False), clock=clock)
    publish_graph(spark.sql(NODES), spark.sql(EDGES), good, segments=6)
    kept, before = segment_files(root), contents(good)
    failing = GraphStore(chain_on(faults.FailingStore(root, fault), graph_layout(), clock=clock))

    with pytest.raises(error, match=f"^nothing was published: {message}") as caught:
        publish_graph(spark.sql(NODES), spark.sql(EDGES), failing, segments=4)
    with pytest.raises(error, match=f"^nothing was published: {message}") as caught_too:
        compact_graph(spark, failing, segments=4)

    assert "\n" not in str(caught.value) + str(caught_too.value)
    assert good.current() == 2
    assert contents(good) == before
    assert good.chain.verify() == []
    assert len(segment_files(root)) > len(kept)
    clock.advance(400 * 86_400.0)  # ahead of the files' own times
    good.gc_collect(retention=1)
    clock.advance(60 * 86_400.0)
    good.gc_purge()
    assert segment_files(root) == kept


def test_a_task_that_fails_is_tried_again_under_another_key(spark: SparkSession, tmp_path: Path) -> None:
    """G10, G25: attempts never share a path; one receipt a range counts, and the losers' files stay unnamed."""
    root = tmp_path / "graph"
    store = GraphStore.create(faults.FailingStore(root, faults.unavailable_at_first))

    publish_graph(spark.sql(NODES), spark.sql(EDGES), store, segments=3)

    named = {segment.path.rpartition("/")[2] for segment in store.state().segments}
    assert (len(named), len(segment_files(root))) == (6, 12)
    assert named < set(segment_files(root))
    assert store.snapshot().node_count == 400
    assert store.chain.verify() == []
