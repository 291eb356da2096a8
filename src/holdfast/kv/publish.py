"""From receipts to a visible snapshot: the lock, the run, and the one commit (K6, K7, K8).

    with building(chain, run_id=…) as build:
        plan = build.plan(schema=…, key=…, …)
        receipts = …                       # by Spark, or in this process
        published = build.publish(plan, receipts)

Whatever goes wrong before the commit leaves a run marked as failed, files that the collector may take, and a pointer
that nobody moved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import pyarrow as pa

from holdfast.chain import Chain, Committed, InputPin, Manifest, ManifestDraft, Run, Superseded, Unknown
from holdfast.errors import BuildFailed, Conflict, StoreUnavailable
from holdfast.fencing import KeepAlive, LockGuard
from holdfast.kv.dataset import DataSet, Shard, ValueKind
from holdfast.kv.keys import KeySchema
from holdfast.kv.plan import BuildPlan, ShardReceipt
from holdfast.kv.routing import Routing
from holdfast.kv.rows import BadRowReport, OnDuplicate

__all__ = ["Build", "Published", "building"]

LOCK_TTL_S = 60.0
LEASE_S = 3600.0


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
    """A registered run that holds the chain's lock."""

    def __init__(
        self, chain: Chain, run: Run, guard: LockGuard, leases: ExitStack, checks: Sequence[KeepAlive]
    ) -> None:
        self._chain = chain
        self._run = run
        self._guard = guard
        self._leases = leases
        self._checks = checks

        self.is_undecided = False
        """Whether the commit may or may not have happened: then the run must not be called failed."""

    @property
    def run_id(self) -> str:
        return self._run.run_id

    def check(self) -> None:
        """LockLost once this build can no longer be published; costs no request. Ask it between steps of long work."""
        for lease in self._checks:
            lease.check()

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
            store=self._chain.store,
            layout=self._chain.layout,
            run_id=self._run.run_id,
            attempt=self._run.record.attempt,
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
        self.check()
        self._leases.close()  # a lease that is renewed by another thread could move under the commit's feet
        outcome = self._chain.publish(draft, run=self._run, permit=self._chain.permit(self._guard), why=why, base=base)
        match outcome:
            case Committed():
                return Published(
                    commit=outcome,
                    dataset=dataset,
                    written_shards=len(fresh),
                    written_bytes=sum(shard.byte_size for shard in fresh),
                    dropped_rows=dropped,
                    upserted_rows=sum(receipt.upserted_rows for receipt in receipts),
                    deleted_rows=sum(receipt.deleted_rows for receipt in receipts),
                    absent_rows=sum(receipt.absent_rows for receipt in receipts),
                )
            case Superseded(winner=winner):
                raise Conflict(
                    f"another writer published first ({winner}); nothing of this build is visible: build again"
                )
            case Unknown(commit_ulid=ulid, reason=reason):
                self.is_undecided = True
                raise StoreUnavailable(
                    f"whether the commit happened is not known yet ({reason}); ask `holdfast status {ulid}` "
                    "before building again"
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
    """Hold the chain's lock and a registered run for the length of a build.

    `admit` is asked once the lock is held and before anything is registered; if it raises, nothing has begun.
    """
    with chain.lock(operation=operation, ttl_s=LOCK_TTL_S) as guard:
        if admit is not None:
            admit()
        run = chain.begin_run(run_id, base=base, lease_s=LEASE_S)
        with ExitStack() as leases:
            checks = [
                leases.enter_context(KeepAlive(lambda: guard.extend(LOCK_TTL_S), every_s=LOCK_TTL_S / 3)),
                leases.enter_context(KeepAlive(run.renew, every_s=LEASE_S / 3)),
            ]
            build = Build(chain, run, guard, leases, checks)
            try:
                yield build
            except BaseException as error:
                leases.close()
                if not build.is_undecided:
                    run.give_up(error)
                raise


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
