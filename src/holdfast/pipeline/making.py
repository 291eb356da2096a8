"""How one data set of a pipeline is published: the same for each kind, as far as a run is concerned."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.chain import Chain, InputPin
from holdfast.pipeline.spec import DataSet, GraphDataset, KvDataset

if TYPE_CHECKING:
    from holdfast.spark.progress import BuildProgress
    from holdfast.spark.stage import Stage

__all__ = ["Making", "make"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Making:
    """What every kind is published with."""

    run_id: str
    inputs: Sequence[InputPin]
    why: str
    tags: Mapping[str, str]
    admit: Callable[[], None]
    """Asked once the data set's lock is held, before anything is written."""
    progress: Callable[[int, int], None]


def make(stage: Stage, dataset: DataSet, chain: Chain, making: Making) -> None:
    """Publish the next snapshot of a data set. Whatever fails, nothing half is visible."""

    def told(progress: BuildProgress) -> None:
        making.progress(progress.shards_done, progress.shards)

    shared = {
        "run_id": making.run_id,
        "inputs": making.inputs,
        "why": making.why,
        "tags": making.tags,
        "admit": making.admit,
        "progress": told,
    }
    if isinstance(dataset, KvDataset):
        stage.publish_kv(
            dataset.rows,
            chain,
            key=list(dataset.key),
            shards=dataset.shards,
            rows_per_shard=dataset.rows_per_shard,
            on_duplicate=dataset.on_duplicate,
            **shared,
        )
    elif isinstance(dataset, GraphDataset):
        stage.publish_graph(dataset.nodes, dataset.edges, chain, dangling=dataset.dangling, **shared)
    else:
        stage.publish_table(dataset.rows, chain, files=dataset.files, **shared)
