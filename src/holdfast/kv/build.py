"""Building a data set from Arrow data or Python rows, without Spark (K1). The shards are written by the same code.

    publish_arrow(chain, table, key="id", shards=8)
    publish_rows(chain, [("alice", {"age": 31}), …], shards=2)

Rows are routed and sorted here by Arrow and numpy, in memory that does not grow with the data (`holdfast.kv.router`);
shards are written a few at a time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from typing import Any

import pyarrow as pa

from holdfast.chain import Chain, InputPin
from holdfast.chain.handle import Progress, no_progress
from holdfast.errors import BadInput, BuildFailed, CorruptShard, HoldfastError
from holdfast.kv.dataset import ValueKind, shard_schema
from holdfast.kv.expression import Expression
from holdfast.kv.keys import Key, KeySchema
from holdfast.kv.pairs import pairs_to_batches
from holdfast.kv.plan import ShardReceipt
from holdfast.kv.publish import Build, Published, building
from holdfast.kv.router import Router, check_rule
from holdfast.kv.routing import ExpressionRouting, HashRouting, RangeRouting, Routing, check_shard_count
from holdfast.kv.rows import OnDuplicate
from holdfast.kv.source import MEMORY_BYTES_DEFAULT, ArrowRows, Source

__all__ = ["publish_arrow", "publish_rows", "routing_for", "write_shards"]

_WRITERS_MAX = 4


def publish_arrow(
    chain: Chain,
    data: ArrowRows,
    *,
    key: str | Sequence[str],
    shards: int | None = None,
    rows_per_shard: int | None = None,
    bytes_per_shard: int | None = None,
    value: str = "row",
    key_types: Mapping[str, str] | None = None,
    bounds: Sequence[Key] | None = None,
    route: str | None = None,
    on_duplicate: str = "error",
    run_id: str | None = None,
    inputs: Sequence[InputPin] = (),
    custom: Mapping[str, object] | None = None,
    tags: Mapping[str, str] | None = None,
    why: str = "",
    memory_bytes: int = MEMORY_BYTES_DEFAULT,
    progress: Progress = no_progress,
) -> Published:
    """Publish Arrow rows as the next snapshot. Whatever fails, nothing half is visible.

    Give the number of `shards`, or how many rows or bytes one should have. Route by `bounds` or by the expression
    `route` instead of the hash.
    """
    rule, kind = OnDuplicate.parse(on_duplicate), _value_kind(value)
    sizes = sum(option is not None for option in (shards, rows_per_shard, bytes_per_shard))
    if sizes > 1 or (bounds is not None and shards is None and sizes):
        raise BadInput("give one of shards, rows_per_shard, bytes_per_shard and bounds")
    with ExitStack() as stack:
        source = Source(data, stack, memory_bytes)
        schema = KeySchema.from_arrow(source.schema, [key] if isinstance(key, str) else list(key), key_types)
        stored = shard_schema(source.schema, schema, kind)
        check_rule(rule, stored)
        count = shards
        if sizes and shards is None:
            count = source.shard_count(rows=rows_per_shard, size=bytes_per_shard)
        routing = routing_for(schema, shards=count, bounds=bounds, route=route)
        with building(chain, run_id=run_id, operation="build from Arrow data") as build:
            plan = build.plan(schema=stored, key=schema, value=kind, routing=routing, on_duplicate=rule)
            router = stack.enter_context(Router(plan, memory_bytes))
            for batch in source:
                build.check()
                router.add(batch)

            def write(number: int) -> ShardReceipt:
                return plan.write_shard(number, router.sorted_rows(number), writer=chain.by)

            receipts = write_shards(build, plan.shard_count, write, progress)
            bad = sum((receipt.report for receipt in receipts), router.report)
            if bad:
                raise bad.error()
            return build.publish(plan, receipts, inputs=inputs, custom=custom, tags=tags, why=why)


def publish_rows(
    chain: Chain,
    rows: Iterable[tuple[Key, object]],
    *,
    value: str | None = None,
    key_names: Sequence[str] = ("key",),
    schema: pa.Schema | None = None,
    shards: int | None = None,
    **options: Any,
) -> Published:
    """Publish pairs of key and value: bytes, dicts (typed rows), or with value="json" anything JSON can spell.

    Types are taken from the first rows unless a `schema` is given. There is one shard unless another number, or one of
    the other options of `publish_arrow`, says otherwise.
    """
    names = [key_names] if isinstance(key_names, str) else list(key_names)
    kind, batches = pairs_to_batches(
        rows, key_names=names, value=None if value is None else _value_kind(value), schema=schema
    )
    if shards is None and not options.keys() & {"rows_per_shard", "bytes_per_shard", "bounds"}:
        shards = 1
    return publish_arrow(chain, batches, key=names, shards=shards, value=kind.value, **options)


def routing_for(
    key: KeySchema, *, shards: int | None, bounds: Sequence[Key] | None = None, route: str | None = None
) -> Routing:
    """The routing that a caller's options mean."""
    if bounds is not None and route is not None:
        raise BadInput("give bounds or route, not both")
    if bounds is not None:
        if isinstance(bounds, str | bytes) or not isinstance(bounds, Sequence):
            raise BadInput("bounds is a list of keys, each the smallest of its shard")
        routing: Routing = RangeRouting(key, tuple(bounds))
        if shards is not None and shards != routing.shard_count:
            raise BadInput(f"{len(bounds)} bounds make {routing.shard_count} shards, not {shards}")
        return routing
    if shards is None:
        raise BadInput("say how many shards: shards=8, or rows_per_shard=1_000_000")
    if route is not None:
        return ExpressionRouting(Expression(route, key), check_shard_count(shards))
    return HashRouting(check_shard_count(shards))


def _value_kind(value: str) -> ValueKind:
    if value not in ValueKind.__members__.values():
        raise BadInput(f"value {value!r}: use {', '.join(ValueKind)}")
    return ValueKind(value)


def write_shards(
    build: Build, count: int, write: Callable[[int], ShardReceipt], progress: Progress
) -> list[ShardReceipt]:
    """All shards, a few at a time: while one is sent, others are sorted. The first failure ends it."""

    def checked(number: int) -> ShardReceipt:
        build.check()
        try:
            return write(number)
        except CorruptShard:
            raise  # it names the file
        except HoldfastError as error:
            raise _in_shard(number, error) from error

    workers = max(1, min(_WRITERS_MAX, os.cpu_count() or 1, count))
    with ThreadPoolExecutor(workers, "holdfast-build") as pool:
        futures = [pool.submit(checked, number) for number in range(count)]
        try:
            return _results(futures, progress)
        finally:
            for future in futures:
                future.cancel()


def _results(futures: Sequence[Future[ShardReceipt]], progress: Progress) -> list[ShardReceipt]:
    """What came of each; progress is told in the caller's thread."""
    pending = set(futures)
    while pending:
        done, pending = wait(pending, return_when=FIRST_COMPLETED)
        for future in done:
            future.result()
        progress(len(futures) - len(pending), len(futures))
    return [future.result() for future in futures]


def _in_shard(number: int, error: HoldfastError) -> HoldfastError:
    """The same error, which says where it was met (K7); BuildFailed for one that does not take a message."""
    text = str(error)
    text = f"nothing was published: shard {number}: {text.removeprefix('nothing was published: ')}"
    return BuildFailed(text) if "__init__" in vars(type(error)) else type(error)(text)
