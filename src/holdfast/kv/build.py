"""Building a data set from Arrow data or Python rows, without Spark (K1). The shards are written by the same code.

    publish_arrow(chain, table, key="id", shards=8)
    publish_rows(chain, [("alice", {"age": 31}), …], shards=2)

Rows are routed and sorted here by Arrow and numpy. What does not fit into memory waits in temporary files, one per
shard; then one shard at a time is sorted and written.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import chain as chained
from itertools import islice
from pathlib import Path
from typing import Self, TypeAlias

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.chain import Chain, InputPin
from holdfast.chain.handle import Progress, no_progress
from holdfast.errors import BadInput, BadRows
from holdfast.kv.dataset import ValueKind, shard_schema
from holdfast.kv.expression import Expression
from holdfast.kv.keys import Key, KeySchema
from holdfast.kv.plan import BuildPlan, ShardReceipt
from holdfast.kv.publish import Published, building
from holdfast.kv.routing import ExpressionRouting, HashRouting, RangeRouting, Routing, check_shard_count
from holdfast.kv.rows import BadRowReport, OnDuplicate, RowCheck
from holdfast.kv.shard_writer import SortedRows

__all__ = [
    "MEMORY_BYTES_DEFAULT",
    "ArrowRows",
    "Router",
    "Source",
    "check_rule",
    "publish_arrow",
    "publish_rows",
    "routing_for",
]

MEMORY_BYTES_DEFAULT = 512 << 20
_SORTED_BATCH_ROWS = 16_384
_ROW_CHUNK = 50_000

ArrowRows: TypeAlias = pa.Table | pa.RecordBatch | pa.RecordBatchReader | Iterable[pa.RecordBatch]


def publish_arrow(
    chain: Chain,
    data: ArrowRows,
    *,
    key: str | Sequence[str],
    shards: int | None = None,
    rows_per_shard: int | None = None,
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
    """Publish Arrow rows as the next snapshot. Route by `bounds` or by the expression `route` instead of the hash."""
    rule = OnDuplicate.parse(on_duplicate)
    with ExitStack() as stack:
        source = Source(data, stack, memory_bytes)
        names = [key] if isinstance(key, str) else list(key)
        schema = KeySchema.from_arrow(source.schema, names, key_types)
        stored = shard_schema(source.schema, schema, _value_kind(value))
        count = shards if shards is not None or rows_per_shard is None else source.shard_count(rows_per_shard)
        routing = routing_for(schema, shards=count, bounds=bounds, route=route)
        check_rule(rule, stored)
        with building(chain, run_id=run_id, operation="build from Arrow data") as build:
            plan = build.plan(schema=stored, key=schema, value=_value_kind(value), routing=routing, on_duplicate=rule)
            receipts = []
            with Router(plan, memory_bytes) as router:
                for batch in source:
                    build.check()
                    router.add(batch)
                for number in range(plan.shard_count):
                    build.check()
                    receipts.append(plan.write_shard(number, router.sorted_rows(number), writer=chain.by))
                    progress(number + 1, plan.shard_count)
                receipts.append(ShardReceipt(number=-1, report=router.report))
            bad = sum((receipt.report for receipt in receipts), BadRowReport())
            if bad:
                raise bad.error()
            return build.publish(plan, receipts[:-1], inputs=inputs, custom=custom, tags=tags, why=why)


def publish_rows(
    chain: Chain,
    rows: Iterable[tuple[Key, object]],
    *,
    value: str | None = None,
    key_names: Sequence[str] = ("key",),
    schema: pa.Schema | None = None,
    shards: int = 1,
    **options: object,
) -> Published:
    """Publish pairs of key and value: bytes, dicts (typed rows), or with value="json" anything JSON can spell.

    Types are taken from the first rows unless a `schema` is given. All options of `publish_arrow` can be given too.
    """
    iterator = iter(rows)
    first = list(islice(iterator, _ROW_CHUNK))
    if not first:
        raise BadInput("no rows: give at least one pair of key and value")
    kind = (
        _value_kind(value)
        if value is not None
        else (ValueKind.BINARY if isinstance(first[0][1], bytes) else ValueKind.ROW)
    )
    head = _pairs_to_batch(first, list(key_names), kind, schema)
    rest = iter(lambda: list(islice(iterator, _ROW_CHUNK)), [])
    batches = chained([head], (_pairs_to_batch(chunk, list(key_names), kind, head.schema) for chunk in rest))
    reader = pa.RecordBatchReader.from_batches(head.schema, batches)
    return publish_arrow(chain, reader, key=list(key_names), shards=shards, value=kind.value, **options)  # type: ignore[arg-type]


def routing_for(
    key: KeySchema, *, shards: int | None, bounds: Sequence[Key] | None = None, route: str | None = None
) -> Routing:
    """The routing that a caller's options mean."""
    if bounds is not None and route is not None:
        raise BadInput("give bounds or route, not both")
    if bounds is not None:
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


def check_rule(rule: OnDuplicate, schema: pa.Schema) -> None:
    if rule.column is not None and schema.get_field_index(rule.column) < 0:
        raise BadInput(f"on_duplicate max({rule.column}): no such column; there are {', '.join(schema.names)}")


def _pairs_to_batch(
    pairs: Sequence[tuple[Key, object]], names: list[str], kind: ValueKind, schema: pa.Schema | None
) -> pa.RecordBatch:
    keys = [key if isinstance(key, tuple) else (key,) for key, _ in pairs]
    if any(len(key) != len(names) for key in keys):
        raise BadInput(f"each key should have {len(names)} parts: {', '.join(names)}")
    columns: dict[str, list[object]] = {name: [key[index] for key in keys] for index, name in enumerate(names)}
    match kind:
        case ValueKind.BINARY:
            columns["value"] = [value for _, value in pairs]
        case ValueKind.JSON:
            columns["value"] = [orjson.dumps(value).decode() for _, value in pairs]
        case ValueKind.ROW:
            fields = list(dict.fromkeys(chained.from_iterable(_row(value) for _, value in pairs)))
            for name in fields if schema is None else [n for n in schema.names if n not in names]:
                columns[name] = [_row(value).get(name) for _, value in pairs]
    try:
        arrays = {
            name: pa.array(values, None if schema is None else schema.field(name).type)
            for name, values in columns.items()
        }
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
        raise BadRows(f"nothing was published: values of different types in one column ({error})") from None
    return pa.RecordBatch.from_pydict(arrays, schema=schema)


def _row(value: object) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise BadInput(f"a value is bytes, or a dict of columns, not {type(value).__name__}; or say value='json'")
    return value


class Source:
    """Batches, whatever they were given as."""

    def __init__(self, data: ArrowRows, stack: ExitStack, memory_bytes: int) -> None:
        self._stack = stack
        self._memory_bytes = memory_bytes
        if isinstance(data, pa.Table):
            self.schema: pa.Schema = data.schema
            self._batches: Iterable[pa.RecordBatch] = data.to_batches(max_chunksize=65_536)
            self._rows: int | None = data.num_rows
        elif isinstance(data, pa.RecordBatch):
            self.schema, self._batches, self._rows = data.schema, [data], data.num_rows
        elif isinstance(data, pa.RecordBatchReader):
            self.schema, self._batches, self._rows = data.schema, data, None
        else:
            iterator: Iterator[pa.RecordBatch] = iter(data)
            first = next(iterator, None)
            if not isinstance(first, pa.RecordBatch):
                raise BadInput("give an Arrow table, a record batch reader, or record batches; rows go to publish_rows")
            self.schema, self._batches, self._rows = first.schema, chained([first], iterator), None

    def shard_count(self, rows_per_shard: int) -> int:
        """How many shards of this size there would be; a stream is first read into memory or a file."""
        if rows_per_shard < 1:
            raise BadInput(f"rows_per_shard is {rows_per_shard}: at least 1")
        if self._rows is None:
            spool = self._stack.enter_context(_Spill(self.schema, self._memory_bytes))
            for batch in self._batches:
                spool.add(batch)
            self._batches, self._rows = spool.batches(), spool.row_count
        return max(1, -(-self._rows // rows_per_shard))

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._batches:
            if not batch.schema.equals(self.schema):
                raise BadRows("nothing was published: a later batch has other columns than the first")
            yield batch


class Router:
    """Rows on their way to their shards: routed as they come, kept per shard, sorted when a shard is written."""

    def __init__(self, plan: BuildPlan, memory_bytes: int) -> None:
        self._plan = plan
        self._check = RowCheck(plan.key, plan.on_duplicate)
        self._spills: dict[int, _Spill] = {}
        self._memory_bytes = max(1, memory_bytes // plan.shard_count)
        self._stack = ExitStack()

    @property
    def report(self) -> BadRowReport:
        return self._check.report

    def add(self, batch: pa.RecordBatch) -> None:
        plan = self._plan
        batch = self._check.null_keys(batch)
        stored, hashes = plan.rows(batch)
        arrays = [stored.column(index) for index in range(len(plan.key.columns))]
        shards = plan.routing.shards_of(arrays, hashes)
        _check_shards(plan, shards, stored)
        order = np.argsort(shards, kind="stable")
        edges = np.searchsorted(shards[order], np.arange(plan.shard_count + 1))
        moved = stored.take(pa.array(order))
        for number in np.flatnonzero(np.diff(edges)).tolist():
            spill = self._spills.get(number)
            if spill is None:
                spill = self._spills[number] = self._stack.enter_context(_Spill(plan.schema, self._memory_bytes))
            spill.add(moved.slice(edges[number], edges[number + 1] - edges[number]))

    def sorted_rows(self, number: int) -> Iterator[SortedRows]:
        """The rows of one shard in the order a shard file has them."""
        spill = self._spills.get(number)
        if spill is None:
            return
        table = pa.Table.from_batches(list(spill.batches()), self._plan.schema)
        spill.close()
        columns = [table.column(name).combine_chunks() for name in self._plan.key.names]
        hashes = self._plan.key.hash_arrays([pa.concat_arrays([column]) for column in columns])
        order = self._order(table, hashes)
        for start in range(0, len(order), _SORTED_BATCH_ROWS):
            some = order[start : start + _SORTED_BATCH_ROWS]
            for batch in table.take(pa.array(some)).combine_chunks().to_batches():
                yield SortedRows(batch, hashes[some])

    def _order(
        self, table: pa.Table, hashes: np.ndarray[tuple[int], np.dtype[np.uint64]]
    ) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """By hash; of equal keys the one to keep comes last."""
        rule = self._plan.on_duplicate
        if rule.column is None:
            return np.argsort(hashes.view(np.int64), kind="stable")
        ranked = pc.rank(table.column(rule.column).combine_chunks(), sort_keys="ascending", null_placement="at_start")
        return np.lexsort((ranked.to_numpy(), hashes.view(np.int64)))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()


def _check_shards(plan: BuildPlan, shards: np.ndarray[tuple[int], np.dtype[np.int64]], batch: pa.RecordBatch) -> None:
    outside = np.flatnonzero((shards < 0) | (shards >= plan.shard_count))
    if len(outside):
        row = int(outside[0])
        raise BadRows(
            f"nothing was published: the routing gives shard {shards[row]} of {plan.shard_count} for row "
            f"{batch.slice(row, 1).to_pylist()[0]!r:.120}; change the expression or the number of shards"
        )


class _Spill:
    """Batches in memory, and in a temporary file once they are too many."""

    def __init__(self, schema: pa.Schema, memory_bytes: int) -> None:
        self._schema = schema
        self._memory_bytes = memory_bytes
        self._batches: list[pa.RecordBatch] = []
        self._held_bytes = 0
        self._directory: tempfile.TemporaryDirectory[str] | None = None
        self._writer: pa.RecordBatchFileWriter | None = None
        self.row_count = 0

    def add(self, batch: pa.RecordBatch) -> None:
        self.row_count += batch.num_rows
        self._batches.append(batch)
        self._held_bytes += batch.nbytes
        if self._held_bytes > self._memory_bytes:
            self._flush()

    def _flush(self) -> None:
        if self._writer is None:
            self._directory = tempfile.TemporaryDirectory(prefix="holdfast-build-")
            self._writer = pa.ipc.new_file(str(self._path), self._schema)
        for batch in self._batches:
            self._writer.write_batch(batch)
        self._batches.clear()
        self._held_bytes = 0

    @property
    def _path(self) -> Path:
        assert self._directory is not None
        return Path(self._directory.name) / "rows.arrow"

    def batches(self) -> Iterator[pa.RecordBatch]:
        if self._writer is not None:
            self._flush()
            self._writer.close()
            self._writer = None
            reader = pa.ipc.open_file(pa.memory_map(str(self._path)))
            for index in range(reader.num_record_batches):
                yield reader.get_batch(index)
        yield from self._batches

    def close(self) -> None:
        self._batches.clear()
        if self._directory is not None:
            self._directory.cleanup()
            self._directory = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
