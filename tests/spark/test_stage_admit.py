"""Whoever builds may ask once more, under the lock, whether it should: pipelines must not publish a task twice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from holdfast.chain import Chain, chain_on, graph_layout, kv_layout
from holdfast.errors import Conflict, NotAChain, RunIdInUse
from holdfast.spark import publish_kv
from holdfast.spark.graph import publish_graph
from holdfast.storage import LocalStore

NODES = "SELECT 'n' || id AS semantic_id, 'T' AS type FROM range(3)"
EDGES = "SELECT 'n0' AS source, 'n1' AS target, 'CALLS' AS type"

Publish = Callable[..., object]


def kv(spark: SparkSession, chain: Chain, **options: object) -> None:
    publish_kv(spark.range(3), chain, key="id", shards=2, **options)  # type: ignore[arg-type]


def graph(spark: SparkSession, chain: Chain, **options: object) -> None:
    publish_graph(spark.sql(NODES), spark.sql(EDGES), chain, **options)  # type: ignore[arg-type]


@pytest.fixture(params=[kv, graph])
def publish(request: pytest.FixtureRequest) -> Publish:
    found: Publish = request.param
    return found


@pytest.fixture
def place(publish: Publish, tmp_path: Path) -> Chain:
    layout = kv_layout() if publish is kv else graph_layout()
    return chain_on(LocalStore(tmp_path / "data", durable=False), layout)


def keys(chain: Chain) -> set[str]:
    housekeeping = {chain.layout.lock_key, chain.layout.probe_key}
    return {info.key for page in chain.store.list("") for info in page} - housekeeping


def test_a_build_that_is_not_admitted_leaves_nothing_behind(
    spark: SparkSession, publish: Publish, place: Chain
) -> None:
    """C31: what another runner published meanwhile is found under the lock, before anything is written."""
    held: list[bool] = []

    def refuse() -> None:
        held.append(place.store.head(place.layout.lock_key) is not None)
        raise Conflict("published already")

    with pytest.raises(Conflict, match="published already"):
        publish(spark, place, run_id="nightly-1", admit=refuse)

    assert held == [True]
    assert keys(place) == set()
    publish(spark, place, run_id="nightly-1")  # the id was not used up, and the lock is free
    assert place.find(run_id="nightly-1").run_id == "nightly-1"


def test_admission_is_asked_once_before_the_run_is_registered(
    spark: SparkSession, publish: Publish, place: Chain
) -> None:
    """C31: one question, whose answer holds for as long as the lock does."""
    seen: list[set[str]] = []

    publish(spark, place, run_id="nightly-1", admit=lambda: seen.append(keys(place)))

    assert seen == [set()]
    assert place.verify() == []
    with pytest.raises(RunIdInUse):
        publish(spark, place, run_id="nightly-1")


def test_a_chain_of_another_kind_is_refused_before_any_work(spark: SparkSession, tmp_path: Path) -> None:
    """C30: a data set of one kind never receives the files of another."""
    store = LocalStore(tmp_path / "data", durable=False)

    with pytest.raises(NotAChain, match="opened as a graph chain"):
        kv(spark, chain_on(store, graph_layout()))
    with pytest.raises(NotAChain, match="opened as a kv chain"):
        graph(spark, chain_on(store, kv_layout()))
