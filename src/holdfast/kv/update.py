"""Incremental publish: upserts and deletes rewrite the shards they touch, and the new snapshot shares the rest (K9).

    update_arrow(chain, upserts=table, deletes=keys)

The base is the visible snapshot. Its routing decides where a change goes, so the number of shards stays what it is.
While the update runs, its base is safe from the collector. If anybody publishes or rolls back meanwhile, nothing of the
update becomes visible and it ends in a `Conflict` (or in `Fenced`, if it had lost its lock): update again.

A shard is written anew if any of its rows changes. One whose changes come to nothing, because the rows are there
already or the deleted keys are not, is shared like one without changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

import pyarrow as pa

from holdfast.chain import Chain, InputPin, Manifest
from holdfast.chain.handle import Progress, no_progress
from holdfast.errors import BadInput, BadRows, Conflict, CorruptShard, SnapshotNotFound
from holdfast.kv.build import write_shards
from holdfast.kv.changes import ChangeCheck, as_changes, change_schema, check_delete_columns, check_upsert_columns
from holdfast.kv.dataset import DataSet, Shard
from holdfast.kv.merge import ShardMerge
from holdfast.kv.plan import BuildPlan, ShardReceipt
from holdfast.kv.publish import Build, Published, building
from holdfast.kv.router import Router, check_rule
from holdfast.kv.rows import OnDuplicate
from holdfast.kv.shard_writer import SortedRows
from holdfast.kv.source import MEMORY_BYTES_DEFAULT, ArrowRows, Source
from holdfast.kv.stored_rows import StoredRows

__all__ = ["Base", "Update", "update_arrow", "updating", "write_changed_shard"]


def update_arrow(
    chain: Chain,
    *,
    upserts: ArrowRows | None = None,
    deletes: ArrowRows | pa.Array | pa.ChunkedArray | None = None,
    on_duplicate: str = "error",
    run_id: str | None = None,
    inputs: Sequence[InputPin] = (),
    custom: Mapping[str, object] | None = None,
    tags: Mapping[str, str] | None = None,
    why: str = "",
    memory_bytes: int = MEMORY_BYTES_DEFAULT,
    progress: Progress = no_progress,
) -> Published:
    """Publish the visible snapshot with these changes as the next one.

    `upserts` have the data set's columns, `deletes` the key's. `on_duplicate` is about upserts of one key. `inputs` are
    what the changes were made from, and `custom` is added to what the base has there.
    """
    if upserts is None and deletes is None:
        raise BadInput("nothing to change: give upserts, deletes, or both")
    base = Base.visible(chain)
    with ExitStack() as stack:
        sources = []
        if upserts is not None:
            sources.append((Source(upserts, stack, memory_bytes), False))
            check_upsert_columns(sources[-1][0].schema, base.dataset)
        if deletes is not None:
            sources.append((Source(_named(deletes, base.dataset), stack, memory_bytes), True))
            check_delete_columns(sources[-1][0].schema, base.dataset)
        update = stack.enter_context(updating(chain, base, run_id=run_id, on_duplicate=on_duplicate))
        plan, schema = update.plan, change_schema(base.dataset.schema, base.dataset.key)
        router = stack.enter_context(Router(replace(plan, schema=schema), memory_bytes))
        for source, deleted in sources:
            for batch in source:
                update.build.check()
                router.add(as_changes(batch, schema, deleted=deleted))
        refused = [bool(router.report)]

        def write(number: int) -> ShardReceipt:
            changes, stored = router.sorted_rows(number), base.dataset.shards[number]
            write = not any(refused)  # else what is wrong with the rest is still counted
            receipt = write_changed_shard(plan, number, stored, changes, writer=chain.by, write=write)
            refused.append(bool(receipt.report))
            return receipt

        receipts = write_shards(update.build, plan.shard_count, write, progress)
        bad = sum((receipt.report for receipt in receipts), router.report)
        if bad:
            raise bad.error()
        return update.publish(receipts, inputs=inputs, custom=custom, tags=tags, why=why)


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """The snapshot that an update changes."""

    manifest: Manifest
    dataset: DataSet

    @classmethod
    def visible(cls, chain: Chain) -> Base:
        manifest = chain.load_current()
        if manifest is None:
            raise SnapshotNotFound("there is no snapshot to change yet: publish one first")
        return cls(manifest=manifest, dataset=DataSet.of_manifest(manifest))


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """A registered run that holds the chain's lock, and the snapshot that it changes."""

    build: Build
    plan: BuildPlan
    base: Base

    def publish(
        self,
        receipts: Sequence[ShardReceipt],
        *,
        inputs: Sequence[InputPin] = (),
        custom: Mapping[str, object] | None = None,
        statistics: Mapping[str, object] | None = None,
        tags: Mapping[str, str] | None = None,
        why: str = "",
    ) -> Published:
        """One receipt for each shard, in a manifest that shares the unchanged ones with the base."""
        found = {
            "base": self.base.manifest.manifest_id,
            "touched_shards": sum(bool(r.upserted_rows or r.deleted_rows or r.absent_rows) for r in receipts),
            "rewritten_shards": sum(not receipt.unchanged for receipt in receipts),
            "upserted_rows": sum(receipt.upserted_rows for receipt in receipts),
            "deleted_rows": sum(receipt.deleted_rows for receipt in receipts),
            "absent_rows": sum(receipt.absent_rows for receipt in receipts),
        }
        return self.build.publish(
            self.plan,
            receipts,
            inputs=inputs,
            custom={**self.base.dataset.custom, **(custom or {})},
            statistics={**found, **(statistics or {})},
            tags=tags,
            why=why,
            base=self.base.manifest,
        )


@contextmanager
def updating(chain: Chain, base: Base, *, run_id: str | None = None, on_duplicate: str = "error") -> Iterator[Update]:
    """Hold the chain's lock and a run on this base, for the length of an update."""
    found = base.dataset
    rule = OnDuplicate.parse(on_duplicate)
    check_rule(rule, found.schema)
    with building(chain, run_id=run_id, operation="update", base=base.manifest) as build:
        # The run was registered on the pointer as it is now. Had that left the base in between, sharing with the base
        # would silently take back what somebody else has just published.
        now = chain.current()
        if now is None or now.manifest_id != base.manifest.manifest_id:
            raise Conflict(f"snapshot {base.manifest.manifest_id} was replaced as this update began: update again")
        plan = build.plan(
            schema=found.schema, key=found.key, value=found.value, routing=found.routing, on_duplicate=rule
        )
        yield Update(build=build, plan=plan, base=base)


def write_changed_shard(
    plan: BuildPlan,
    number: int,
    base: Shard | None,
    changes: Iterable[SortedRows],
    *,
    writer: str,
    write: bool = True,
) -> ShardReceipt:
    """Write one shard with its changes, which come in the order of their hashes, and say what became of it.

    Nothing is read if there are no changes, and nothing is written if they come to nothing. Without `write` the changes
    are only looked at. Executors call this.
    """
    check = ChangeCheck(plan.key, plan.schema, plan.on_duplicate)
    if not write:
        return ShardReceipt(number=number, report=check.everything(changes))
    stored = None if base is None else StoredRows(plan.store, base, schema=plan.schema, key=plan.key)
    merge = ShardMerge(stored, check.one_per_key(changes), schema=plan.schema, key=plan.key)
    try:
        rows = merge.rows()
        receipt = (
            ShardReceipt(number=number, unchanged=True)
            if rows is None
            else plan.write_shard(number, rows, writer=writer)
        )
    except BadRows:
        if not check.report:
            raise
        return ShardReceipt(number=number, report=check.report)
    if rows is not None and not receipt.report:
        _require_every_row(number, base, receipt, merge)
    return replace(
        receipt,
        dropped_rows=check.dropped,
        upserted_rows=merge.upserted,
        deleted_rows=merge.deleted,
        absent_rows=merge.absent,
    )


def _require_every_row(number: int, base: Shard | None, receipt: ShardReceipt, merge: ShardMerge) -> None:
    """What went in came out: rows cannot get lost between the base and its next version."""
    before = 0 if base is None else base.row_count
    after = 0 if receipt.shard is None else receipt.shard.row_count
    if before + merge.inserted - merge.deleted != after:
        where = f"shard {number}" if base is None else base.path
        raise CorruptShard(
            where, f"of its {before} rows, {merge.deleted} deleted and {merge.inserted} added leave {after}"
        )


def _named(deletes: ArrowRows | pa.Array | pa.ChunkedArray, base: DataSet) -> ArrowRows:
    """Deletes as rows: a single column of keys needs no name."""
    if not isinstance(deletes, pa.Array | pa.ChunkedArray):
        return deletes
    if base.key.is_composite:
        raise BadInput(f"keys are ({', '.join(base.key.names)}): give deletes as a table with these columns")
    return pa.table([deletes], names=list(base.key.names))
