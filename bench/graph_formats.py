"""The segment file: row groups of several sizes, with the index inside, beside plain Parquet and Arrow files."""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bench.graph_rows import graph
from bench.harness import Settings, timed
from bench.report import Report, duration
from holdfast.graph.records import canonical_edges, hash_texts
from holdfast.graph.segment import read_segment, sorted_edges
from holdfast.graph.segment_reader import RowGroupCache, SegmentReader
from holdfast.graph.segment_writer import SegmentWriter
from holdfast.storage.local import LocalStore

ROW_GROUPS = (4_096, 16_384, 65_536)


@dataclass(frozen=True, slots=True)
class Found:
    """What one way of storing edges costs."""

    size: int
    write: float
    whole: float
    """Reading all of it."""
    source: float
    """The edges that start at a node, cold."""
    target: float
    """The edges that end at a node, cold."""


def run(settings: Settings) -> Report:
    nodes = settings.pick(300_000, 4_000)
    table, edges = graph(nodes)
    ids = table.column("semantic_id")
    asked = [ids[int(n)].as_py() for n in np.random.default_rng(3).integers(0, nodes, settings.pick(30, 3))]
    rows = canonical_edges(edges)
    rows = sorted_edges(rows.append_column("tombstone", pa.array(np.zeros(len(rows), np.bool_))))
    report = Report(
        name="graph_formats",
        about=f"one file of {len(rows):,} edges; cold: each question opens the file anew",
        columns=("", "MB", "write", "read all", "by source", "by target"),
    )
    ways: dict[str, Callable[[], Found]] = {
        f"segment, row groups of {size:,}": lambda size=size: _segment(settings.disk, rows, asked, size)  # type: ignore[misc]
        for size in ROW_GROUPS
    }
    ways |= {
        "Parquet, no index": lambda: _parquet(settings.disk, rows, asked),
        "Arrow file, zstd": lambda: _arrow(settings.disk, rows, asked),
    }
    for name, measure in ways.items():
        found = measure()
        seconds = (found.write, found.whole, found.source, found.target)
        report.rows.append((name, f"{found.size / 1e6:.1f}", *map(duration, seconds)))
        report.figures[f"{name}: MB"] = found.size / 1e6
        report.figures |= {
            f"{name}: {what} s": value
            for what, value in zip(("write", "read all", "by source", "by target"), seconds, strict=True)
        }
    return report


def _segment(folder: Path, rows: pa.Table, asked: list[str], size: int) -> Found:
    store, path = LocalStore(folder), f"segments/of-{size}"
    sink = io.BytesIO()
    started = time.perf_counter()
    with SegmentWriter("edges", sink, row_group_rows=size) as writer:
        writer.write(rows)
        descriptor = writer.finish(segment_id=1, path=path, hidden_count=0)
    write = time.perf_counter() - started
    store.upload(path, [sink.getvalue()])

    def by(column: str, groups: Callable[[SegmentReader, str], list[int]]) -> float:
        def ask(id_: str) -> None:
            reader = SegmentReader(store, descriptor, RowGroupCache())
            for found in reader.read(groups(reader, id_)):
                found.filter(pc.equal(found.column(column).cast(pa.string()), id_))

        return _mean(ask, asked)

    return Found(
        size=descriptor.byte_size,
        write=write,
        whole=_whole(lambda: read_segment(store, descriptor)),
        source=by("source", lambda reader, id_: reader.groups_of_ids([id_])),
        target=by("target", lambda reader, id_: reader.groups_of_hashes(hash_texts(pa.array([id_])))),
    )


def _parquet(folder: Path, rows: pa.Table, asked: list[str]) -> Found:
    file = folder / "plain.parquet"
    write = timed(lambda: pq.write_table(rows, file, compression="zstd"))
    return Found(
        size=file.stat().st_size,
        write=write,
        whole=_whole(lambda: pq.read_table(file)),
        source=_mean(lambda id_: pq.read_table(file, filters=[("source", "==", id_)]), asked),
        target=_mean(lambda id_: pq.read_table(file, filters=[("target", "==", id_)]), asked),
    )


def _arrow(folder: Path, rows: pa.Table, asked: list[str]) -> Found:
    file = folder / "plain.arrow"

    def write() -> None:
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, rows.schema, options=options) as writer:
            writer.write_table(rows, max_chunksize=16_384)

    def read() -> Any:
        with pa.memory_map(str(file)) as source:
            return pa.ipc.open_file(source).read_all()

    def ask(column: str) -> Callable[[str], object]:
        return lambda id_: read().filter(pc.equal(pc.field(column), id_))

    seconds = timed(write)
    return Found(
        size=file.stat().st_size,
        write=seconds,
        whole=_whole(read),
        source=_mean(ask("source"), asked[:3]),
        target=_mean(ask("target"), asked[:3]),
    )


def _whole(read: Callable[[], object]) -> float:
    read()
    return min(timed(read) for _ in range(3))


def _mean(ask: Callable[[str], object], asked: list[str]) -> float:
    ask(asked[0])
    return timed(lambda: [ask(id_) for id_ in asked]) / len(asked)
