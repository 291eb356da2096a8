"""The benchmarks of key-value data sets run, and are fed what they say. Nothing here looks at a clock."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import orjson
import pyarrow as pa
import pytest

from bench.__main__ import main
from bench.kv_engines import LmdbEngine, SlateEngine, SqliteEngine, have
from bench.kv_processes import measured
from bench.kv_rows import KEY, VALUE, VALUE_BYTES, KeyType, keys_of, packed, pick, table
from bench.report import WIDTH_MAX, rate


def run(tmp_path: Path, *names: str) -> dict[str, dict[str, object]]:
    disk, file = tmp_path / "disk", tmp_path / "report.json"
    main([*names, "--quick", "--no-peers", "--disk", str(disk), "--json", str(file)])
    assert list(disk.iterdir()) == [], "what a benchmark writes is gone afterwards"
    return {each["name"]: each for each in orjson.loads(file.read_bytes())["reports"]}


def figures(report: dict[str, object]) -> dict[str, float]:
    found = report["figures"]
    assert isinstance(found, dict)
    return found


def test_formats_look_ups_and_updates_are_measured_without_the_peers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = run(tmp_path, "kv_formats", "kv_lookups", "kv_update")
    assert figures(found["kv_formats"])["text: Holdfast shard multi_get per s"] > 0
    assert figures(found["kv_lookups"])["0.02M int64: Holdfast / SQLite get"] > 0
    assert figures(found["kv_update"])["by range, clustered: bytes / rebuild"] < 0.1
    assert max(map(len, capsys.readouterr().out.splitlines())) <= WIDTH_MAX


@pytest.mark.server
def test_opening_and_look_ups_by_range_requests_are_measured_on_a_server(tmp_path: Path) -> None:
    found = run(tmp_path, "kv_open", "kv_direct")
    assert figures(found["kv_open"])["S3, 0.002M rows, 4 shards: cold open s"] > 0
    assert figures(found["kv_direct"])["S3 server, 0.005M rows: first get of a reader requests"] <= 2


@pytest.mark.slow
def test_builds_on_spark_are_measured_beside_an_empty_pass_and_beside_builds_row_by_row(tmp_path: Path) -> None:
    pytest.importorskip("pyspark", reason="pyspark is not installed")
    found = figures(run(tmp_path, "kv_build")["kv_build"])
    assert found["20k × 4: / empty"] > 0
    assert found["20k × 4: times row by row"] > 0
    assert found["20k × 4: Holdfast on Spark: bytes"] > 20_000 * VALUE_BYTES


@pytest.mark.parametrize("kind", KeyType)
def test_the_rows_have_unique_keys_and_half_of_a_value_compresses(kind: KeyType) -> None:
    rows = table(30_000, kind)
    keys = rows.column(KEY).to_pylist()
    assert len(set(keys)) == len(keys)
    assert set(pick(1000, 30_000, kind).to_pylist()) <= set(keys)
    assert not set(pick(1000, 30_000, kind, missing=True).to_pylist()) & set(keys)
    assert {len(value) for value in rows.column(VALUE).to_pylist()} == {VALUE_BYTES}
    packed_size = pa.compress(b"".join(rows.column(VALUE).to_pylist()[:1000]), codec="zstd", asbytes=True)
    assert 0.4 < len(packed_size) / (1000 * VALUE_BYTES) < 0.6
    if kind is KeyType.TEXT:
        assert {len(key) for key in keys} == set(range(12, 41))


def test_keys_as_bytes_sort_like_the_keys() -> None:
    keys = [*keys_of(np.arange(1000)).to_pylist(), -1, 0, -(1 << 63), (1 << 63) - 1]
    assert sorted(keys, key=packed) == sorted(keys)


@pytest.mark.parametrize("engine", ["sqlite", "lmdb", "slatedb"])
def test_every_engine_answers_with_the_rows_it_was_given(tmp_path: Path, engine: str) -> None:
    rows = table(500, KeyType.TEXT)
    if engine != "sqlite" and not have(engine):
        pytest.skip(f"{engine} is not installed: it is in the extra bench")
    made: SqliteEngine | LmdbEngine | SlateEngine
    match engine:
        case "sqlite":
            made = SqliteEngine(tmp_path, 3, rows.schema)
        case "lmdb":
            made = LmdbEngine(tmp_path / "rows.lmdb")
        case _:
            made = SlateEngine(tmp_path / "slate")
    made.build(rows)
    opened = made.open()
    wanted = dict(zip(rows.column(KEY).to_pylist(), rows.column(VALUE).to_pylist(), strict=True))
    assert opened.multi_get([*wanted, "nowhere"]) == wanted
    assert [opened.get(key) for key in list(wanted)[:50]] == list(wanted.values())[:50]
    assert opened.get("nowhere") is None
    opened.close()


def test_processor_time_counts_children_that_ended() -> None:
    # Busy until it has used so much; then it waits to be told to end, so that it has been seen.
    work = "import time\nwhile time.process_time() < 0.5: pass\nprint(flush=True)\ninput()"
    with measured() as usage:
        child = subprocess.Popen([sys.executable, "-c", work], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert child.stdout is not None
        child.stdout.readline()
        child.communicate(b"\n")
    assert usage.cpu_s > 0.2
    assert usage.wall_s > 0


def test_rates_have_three_digits() -> None:
    assert [rate(153), rate(1530), rate(2_345_678)] == ["153", "1.53k", "2.35M"]
