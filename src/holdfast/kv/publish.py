"""From receipts to a visible snapshot (K6, K7, K8). The lock, the run and the commit are `holdfast.chain.building`.

    with building(chain, run_id=…) as build:
        plan = build.plan(schema=…, key=…, …)
        receipts = …                       # by Spark, or in this process
        published = build.publish(plan, receipts)

Whatever goes wrong before the commit leaves a run marked as failed, files that the collector may take, and a pointer
that nobody moved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa

from holdfast.chain import Chain, Committed, InputPin, Manifest, ManifestDraft
from holdfast.chain.building import ChainBuild
from holdfast.chain.building import building as chain_building
from holdfast.errors import BuildFailed
from holdfast.kv.dataset import DataSet, Shard, ValueKind
from holdfast.kv.keys import KeySchema
from holdfast.kv.plan import BuildPlan, ShardReceipt
from holdfast.kv.routing import Routing
from holdfast.kv.rows import BadRowReport, OnDuplicate

__all__ = ["Build", "Published", "building"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """A snapshot that is visible now."""

    commit: Committed
    dataset: DataSet
    written_shards: int
    written_bytes: int
    """What this build stored; shards that it shares with its base are not counted."""
    dropped_rows: int
    """Rows that gave way to another with the same key."""
    upserted_rows: int = 0
    deleted_rows: int = 0
    absent_rows: int = 0
    """Deletes of keys that were not there."""

    @property
    def ref(self) -> str:
        return self.commit.ref


class Build:
    """A build of the chain, in terms of shards."""

    def __init__(self, build: ChainBuild) -> None:
        self._build = build

    @property
    def run_id(self) -> str:
        return self._build.run.run_id

    def check(self) -> None:
        """LockLost once this build can no longer be published; costs no request. Ask it between steps of long work."""
        self._build.check()

    def plan(
        self,
        *,
        schema: pa.Schema,
        key: KeySchema,
        value: ValueKind,
        routing: Routing,
        on_duplicate: OnDuplicate | None = None,
    ) -> BuildPlan:
        """What the writers of shards are given. `schema` is the stored one: `holdfast.kv.dataset.shard_schema`."""
        return BuildPlan(
            store=self._build.chain.store,
            layout=self._build.chain.layout,
            run_id=self.run_id,
            attempt=self._build.run.record.attempt,
            key=key,
            schema=schema,
            value=value,
            routing=routing,
            on_duplicate=on_duplicate or OnDuplicate(),
        )

    def publish(
        self,
        plan: BuildPlan,
        receipts: Sequence[ShardReceipt],
        *,
        inputs: Sequence[InputPin] = (),
        custom: Mapping[str, object] | None = None,
        statistics: Mapping[str, object] | None = None,
        tags: Mapping[str, str] | None = None,
        why: str = "",
        base: Manifest | None = None,
    ) -> Published:
        """Check that there is exactly one good receipt for each shard, then commit."""
        shards = _one_per_shard(plan, receipts, None if base is None else DataSet.of_manifest(base))
        fresh = [r.shard for r in receipts if r.shard is not None and not r.unchanged]
        dropped = sum(receipt.dropped_rows for receipt in receipts)
        dataset = DataSet(
            key=plan.key,
            schema=plan.schema,
            value=plan.value,
            routing=plan.routing,
            shards=shards,
            statistics=_skew(shards)
            | {"dropped_rows": dropped, "on_duplicate": str(plan.on_duplicate)}
            | dict(statistics or {}),
            custom=dict(custom or {}),
        )
        draft = ManifestDraft(
            artifacts=dataset.artifacts(), inputs=tuple(inputs), tags=dict(tags or {}), payload=dataset.payload()
        )
        return Published(
            commit=self._build.publish(draft, why=why, base=base),
            dataset=dataset,
            written_shards=len(fresh),
            written_bytes=sum(shard.byte_size for shard in fresh),
            dropped_rows=dropped,
            upserted_rows=sum(receipt.upserted_rows for receipt in receipts),
            deleted_rows=sum(receipt.deleted_rows for receipt in receipts),
            absent_rows=sum(receipt.absent_rows for receipt in receipts),
        )


@contextmanager
def building(
    chain: Chain,
    *,
    run_id: str | None = None,
    operation: str = "build",
    base: Manifest | None = None,
    admit: Callable[[], None] | None = None,
) -> Iterator[Build]:
    """`holdfast.chain.building`, in terms of shards."""
    with chain_building(chain, run_id=run_id, operation=operation, base=base, admit=admit) as build:
        yield Build(build)


def _one_per_shard(plan: BuildPlan, receipts: Sequence[ShardReceipt], base: DataSet | None) -> tuple[Shard | None, ...]:
    report = sum((receipt.report for receipt in receipts), BadRowReport())
    if report:
        raise report.error()
    by_number = {receipt.number: receipt for receipt in receipts}
    if len(by_number) != len(receipts) or sorted(by_number) != list(range(plan.shard_count)):
        missing = sorted(set(range(plan.shard_count)) - set(by_number))
        raise BuildFailed(
            f"nothing was published: {len(receipts)} receipts for {plan.shard_count} shards (missing: {missing[:10]})"
        )
    shards: list[Shard | None] = []
    for number in range(plan.shard_count):
        receipt = by_number[number]
        if receipt.unchanged:
            if base is None:
                raise BuildFailed(f"nothing was published: shard {number} is unchanged, but from what?")
            shards.append(base.shards[number])
        else:
            shards.append(receipt.shard)
    return tuple(shards)


def _skew(shards: Sequence[Shard | None]) -> dict[str, object]:
    """How evenly the rows are spread (K5)."""
    rows = [0 if shard is None else shard.row_count for shard in shards]
    mean = sum(rows) / len(rows)
    return {
        "rows_min": min(rows),
        "rows_max": max(rows),
        "skew": round(max(rows) / mean, 3) if mean else 0.0,
        "largest_shard": rows.index(max(rows)),
    }
