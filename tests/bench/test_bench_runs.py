"""The benchmarks run: what nobody runs, rots. Nothing here looks at a clock."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from bench.__main__ import BENCHMARKS, main
from bench.harness import Samples, exponent, interleave
from bench.report import WIDTH_MAX, Report, Target, render
from tests.house.source import ROOT


def test_the_cheap_benchmarks_run_without_the_peers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    disk, file = tmp_path / "disk", tmp_path / "report.json"
    main(["commit_memory_disk", "requests", "--quick", "--no-peers", "--disk", str(disk), "--json", str(file)])
    report = orjson.loads(file.read_bytes())
    found = {each["name"]: each for each in report["reports"]}
    assert report["quick"] is True
    assert found["commit_memory_disk"]["figures"]["ours: publish, 100 artifacts median_s"] > 0
    assert [target for target in found["requests"]["targets"] if not target["met"]] == []
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= WIDTH_MAX
    assert list(disk.iterdir()) == []


def test_every_benchmark_is_a_module_that_make_bench_runs() -> None:
    helpers = {"__init__", "__main__", "chains", "harness", "peers", "places", "report"}
    helpers |= {"kv_engines", "kv_processes", "kv_rows", "kv_spark", "graph_engines", "graph_rows"}
    assert {path.stem for path in (ROOT / "bench").glob("*.py")} - helpers == set(BENCHMARKS)


def test_compared_things_take_turns_and_the_first_rounds_do_not_count() -> None:
    order: list[str] = []

    def action(name: str) -> dict[str, float]:
        order.append(name)
        return {name: float(len(order))}

    samples = interleave(2, [lambda: action("a"), lambda: action("b")], warm_up=1)
    assert order == ["a", "b", "b", "a", "a", "b"]
    assert samples == {"a": Samples((4.0, 5.0)), "b": Samples((3.0, 6.0))}


@pytest.mark.parametrize("power", [0, 1, 2])
def test_growth_is_told_by_its_exponent(power: int) -> None:
    assert exponent([(10, 1.0), (1_000, 3.0 * 1_000**power), (100, 3.0 * 100**power)]) == pytest.approx(power)


def test_a_missed_target_says_so() -> None:
    report = Report(
        name="x", about="y", columns=("", "n"), rows=[("a", "1")], targets=[Target(claim="z", value=2, limit=1)]
    )
    assert "  MISSED z: 2.00 (at most 1)" in list(render(report))
    assert Target(claim="z", value=2, limit=1, at_least=True).met
