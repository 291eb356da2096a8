"""The shard file beside other containers: the same sorted rows, one file each, one process, one thread.

Each gets its rows in the order that it likes best, and that order is not part of what is measured.
"""

from __future__ import annotations

import gc
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.harness import Settings, cpu_timed, interleave
from bench.kv_engines import Key, LmdbEngine, SqliteEngine, have
from bench.kv_rows import KEY, VALUE, KeyType, pick, table
from bench.report import Report, duration, rate
from holdfast.kv import DataSet, HashRouting, KeySchema, Shard, ShardStream, SortedRows, ValueKind, shard_schema
from holdfast.kv.mapped_snapshot import MappedSnapshot

_T = TypeVar("_T")

GROUP_ROWS = 4096
TOGETHER = 1000


class Container(Protocol):
    """A file with rows in it."""

    name: str

    @property
    def byte_size(self) -> int: ...

    def open(self) -> object: ...

    def get(self, key: Key) -> object: ...

    def multi_get(self, keys: Sequence[Key]) -> object: ...


class KeyOrdered(Container, Protocol):
    """One whose rows are in the order of their keys."""

    def build_sorted(self, rows: pa.Table) -> None: ...


class ShardFile:
    """Ours. Rows come in the order of their hashes, as Spark sorts them."""

    name = "Holdfast shard"

    def __init__(self, file: Path, schema: pa.Schema) -> None:
        self._file = file
        self._key = KeySchema.from_arrow(schema, [KEY], None)
        self._schema = shard_schema(schema, self._key, ValueKind.BINARY)

    @property
    def byte_size(self) -> int:
        return self._file.stat().st_size

    def prepared(self, rows: pa.Table) -> list[SortedRows]:
        """What the JVM would hand over: rows with their hashes, in batches."""
        keys = [column.canonical(rows.column(KEY).combine_chunks()) for column in self._key.columns]
        hashes = self._key.hash_arrays(keys)
        order = np.argsort(hashes.view(np.int64), kind="stable")
        moved = rows.take(pa.array(order)).cast(self._schema).combine_chunks()
        batches = moved.to_batches(max_chunksize=10_000)
        edges = np.cumsum([0, *(batch.num_rows for batch in batches)])
        starts = edges[:-1].tolist()
        return [
            SortedRows(batch, hashes[order[start : start + batch.num_rows]])
            for batch, start in zip(batches, starts, strict=True)
        ]

    def build_prepared(self, rows: Sequence[SortedRows]) -> None:
        stream = ShardStream(rows, schema=self._schema, key=self._key)
        with self._file.open("wb") as out:
            out.writelines(stream)
        assert stream.summary is not None
        self._shard = Shard.of_summary(0, self._file.name, stream.summary, writer="bench")

    def open(self) -> object:
        dataset = DataSet(
            key=self._key,
            schema=self._schema,
            value=ValueKind.BINARY,
            routing=HashRouting(1),
            shards=(self._shard,),
        )
        self._snapshot = MappedSnapshot(dataset, [self._file])
        self._get = self._snapshot.get
        return self

    def get(self, key: Key) -> object:
        return self._get(key, None)

    def multi_get(self, keys: Sequence[Key]) -> object:
        return self._snapshot.multi_get(keys)


class ParquetFile:
    """Row groups of some thousand rows, found by the keys they begin with; with a page index."""

    name = "Parquet, page index"

    def __init__(self, file: Path) -> None:
        self._file = file

    @property
    def byte_size(self) -> int:
        return self._file.stat().st_size

    def build_sorted(self, rows: pa.Table) -> None:
        pq.write_table(rows, self._file, row_group_size=GROUP_ROWS, write_page_index=True)

    def open(self) -> object:
        self._reader = pq.ParquetFile(self._file, memory_map=True)
        groups = (self._reader.metadata.row_group(number) for number in range(self._reader.num_row_groups))
        self._ends = [group.column(0).statistics.max for group in groups]
        return self

    def get(self, key: Key) -> object:
        return self.multi_get([key]).get(key)

    def multi_get(self, keys: Sequence[Key]) -> dict[Key, bytes]:
        by_group: dict[int, list[Key]] = {}
        for key in keys:
            by_group.setdefault(bisect_left(self._ends, key), []).append(key)
        found: dict[Key, bytes] = {}
        for number, some in by_group.items():
            if number < len(self._ends):
                group = self._reader.read_row_group(number)
                hits = group.filter(pa.compute.is_in(group.column(KEY), pa.array(some, group.schema.field(KEY).type)))
                found.update(zip(hits.column(KEY).to_pylist(), hits.column(VALUE).to_pylist(), strict=True))
        return found


class ArrowFile:
    """One record batch in the order of its keys, mapped, and bisected."""

    name = "Arrow IPC, bisected"

    def __init__(self, file: Path) -> None:
        self._file = file

    @property
    def byte_size(self) -> int:
        return self._file.stat().st_size

    def build_sorted(self, rows: pa.Table) -> None:
        with pa.ipc.new_file(str(self._file), rows.schema) as writer:
            writer.write_table(rows.combine_chunks())

    def open(self) -> object:
        batch = pa.ipc.open_file(pa.memory_map(str(self._file))).get_batch(0)
        self._keys, self._values = batch.column(KEY), batch.column(VALUE)
        self._numbers = self._keys.to_numpy()
        self._view = memoryview(self._numbers)
        _, offsets, data = self._values.buffers()
        self._offsets, self._data = memoryview(offsets).cast("i"), memoryview(data)
        return self

    def get(self, key: Key) -> object:
        at = bisect_left(self._view, key)
        if at == len(self._view) or self._view[at] != key:
            return None
        return bytes(self._data[self._offsets[at] : self._offsets[at + 1]])

    def multi_get(self, keys: Sequence[Key]) -> object:
        wanted = np.array(keys)
        at = np.minimum(np.searchsorted(self._numbers, wanted), len(self._numbers) - 1)
        hit = self._numbers[at] == wanted
        return dict(zip(wanted[hit].tolist(), self._values.take(pa.array(at[hit])).to_pylist(), strict=True))


def run(settings: Settings) -> Report:
    rows = settings.pick(1_000_000, 20_000)
    report = Report(
        name="kv_formats",
        about=f"one file of {rows:,} sorted rows, one thread, warm; keys per processor second",
        columns=("", "build CPU", "B / row", "get", "miss", f"multi_get {TOGETHER:,}"),
    )
    for kind in KeyType:
        _compare(report, settings, rows, kind)
    return report


def _compare(report: Report, settings: Settings, rows: int, kind: KeyType) -> None:
    folder = settings.disk / kind
    folder.mkdir()
    source = table(rows, kind)
    ours = ShardFile(folder / "rows.shard", source.schema)
    others: list[KeyOrdered] = [SqliteEngine(folder, 1, source.schema)]
    if settings.peers and have("lmdb"):
        others.append(LmdbEngine(folder / "rows.lmdb"))
    if kind is KeyType.INT64:
        others.append(ArrowFile(folder / "rows.arrow"))
    others.append(ParquetFile(folder / "rows.parquet"))
    in_order = source.sort_by(KEY).combine_chunks()
    prepared = ours.prepared(source)
    del source
    built = {ours.name: _cpu(partial(ours.build_prepared, prepared))}
    built |= {other.name: _cpu(partial(other.build_sorted, in_order)) for other in others}
    del in_order, prepared
    contestants: dict[str, Container] = {ours.name: ours, **{other.name: other for other in others}}
    for each in contestants.values():
        each.open()
    rates = _rates(settings, rows, kind, contestants)
    for name, each in contestants.items():
        verbs = {verb: rates[f"{name} {verb}"] for verb in ("get", "miss", "multi_get")}
        size = each.byte_size / rows
        cells = (f"{kind}: {name}", duration(built[name]), f"{size:.0f}", *map(rate, verbs.values()))
        report.rows.append(cells)
        report.figures |= {f"{kind}: {name} {verb} per s": found for verb, found in verbs.items()}
        report.figures |= {f"{kind}: {name} build CPU s": built[name], f"{kind}: {name} bytes per row": size}


def _cpu(work: Callable[[], object]) -> float:
    gc.collect()
    return cpu_timed(work)


def _rates(settings: Settings, rows: int, kind: KeyType, contestants: Mapping[str, Container]) -> dict[str, float]:
    """Keys a second by contestant and verb, the best of some rounds in which all take turns."""
    count = settings.pick(10_000, 500)
    hits = pick(count, rows, kind).to_pylist()
    misses = pick(count, rows, kind, missing=True).to_pylist()
    many = [hits[start : start + TOGETHER] for start in range(0, len(hits), TOGETHER)]

    def action(name: str, each: Container) -> dict[str, float]:
        share = 50 if isinstance(each, ParquetFile) else 1  # slow: fewer keys, which are scaled
        some = many[: max(1, len(many) // share)]
        return {
            f"{name} get": share * cpu_timed(partial(_each, each.get, hits[: count // share])),
            f"{name} miss": share * cpu_timed(partial(_each, each.get, misses[: count // share])),
            f"{name} multi_get": len(many) / len(some) * cpu_timed(partial(_each, each.multi_get, some)),
        }

    samples = interleave(settings.pick(7, 1), [partial(action, name, each) for name, each in contestants.items()])
    return {name: count / found.best for name, found in samples.items()}


def _each(call: Callable[[_T], object], arguments: Sequence[_T]) -> None:
    for argument in arguments:
        call(argument)
