"""`python -m bench [names…] [--quick] [--no-peers] [--json FILE] [--disk DIR]`."""

from __future__ import annotations

import argparse
import importlib
import os
import platform
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

import orjson

from bench.harness import Settings, stopwatch
from bench.peers import have_peers
from bench.places import scratch
from bench.report import Report, render, to_json

BENCHMARKS = (
    "commit_durable",
    "commit_memory_disk",
    "commit_growth",
    "history",
    "requests",
    "stores",
    "sql_chains",
    "kv_build",
    "kv_formats",
    "kv_lookups",
    "kv_direct",
    "kv_open",
    "kv_update",
    "graph_formats",
    "graph_queries",
    "graph_store",
    "catalog_fold",
    "catalog_changes",
    "catalog_questions",
)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description="Measure Holdfast beside what it is compared with."
    )
    parser.add_argument("names", nargs="*", choices=[*BENCHMARKS, []], metavar="name", help=", ".join(BENCHMARKS))
    parser.add_argument("--quick", action="store_true", help="fewer rounds and smaller sizes: under a minute in all")
    parser.add_argument("--no-peers", action="store_true", help="leave out deltalake and pyiceberg")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to FILE")
    parser.add_argument("--disk", type=Path, default=Path(".holdfast"), metavar="DIR", help="a folder on a real disk")
    options = parser.parse_args(arguments)
    reports = []
    missed = 0
    for name in options.names or BENCHMARKS:
        benchmark = cast("Callable[[Settings], Report]", importlib.import_module(f"bench.{name}").run)
        with scratch(options.disk) as (disk, memory_disk), stopwatch() as watch:
            peers = have_peers() and not options.no_peers
            report = benchmark(Settings(quick=options.quick, peers=peers, disk=disk, memory_disk=memory_disk))
        print("\n".join(render(report)), f"\n  ({watch.seconds:.0f} s)\n", flush=True)
        reports.append(report)
        missed += sum(not target.met for target in report.targets)
    if missed:
        print(f"{missed} target(s) missed; run again on a quiet machine before believing it")
    if options.json is not None:
        machine = {"python": platform.python_version(), "system": platform.system(), "cores": os.cpu_count()}
        found = {"quick": options.quick, "machine": machine, "reports": [to_json(report) for report in reports]}
        options.json.write_bytes(orjson.dumps(found, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
    return 0


if __name__ == "__main__":
    sys.exit(main())
