"""The demo does what it says."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

from holdfast.chain import open_chain
from holdfast.graph.store import GraphStore
from holdfast.kv import ShardedReader
from tests.cli.support import environment
from tests.house.source import ROOT


def test_the_demo_runs_and_leaves_whole_chains_behind(tmp_path: Path) -> None:
    """C30, C31, K1, K9, S15, S28, S35, S39: pipelines, the catalog, a stale writer, damage, a rollback, collection."""
    folder = tmp_path / "demo"
    result = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "demo.py"), "--directory", str(folder)],
        capture_output=True, text=True, check=False, timeout=400, env=environment(),
    )  # fmt: skip

    assert (result.returncode, result.stderr) == (0, "")
    for expected in (
        "Run library-1 published 3 data sets",
        "Not there: no-such-module",
        "2  -IMPORTS->  token",
        "table    library.modules",
        "sizes:functions@0  aggregation",
        "nodes: ",
        "Run library-2 had succeeded before; nothing was done.",
        "data set 'modules' was not published: ",
        "rows have a lines outside of 0 or more: (module=",
        "error: there is no key csv",
        "1 published snapshot downstream was built from what was rolled back",
        "modules@1  letters@1  pinned",
        "slow-writer is refused: fencing token",
        "a new reader serves run quick-fix-1, ",
        "Restored: ",
        "It cannot be restored.",
        "Nothing is broken",
    ):
        assert expected in result.stdout
    datasets = folder / "lake" / "acme" / "demo" / "datasets"
    for name in ("modules", "imports", "sizes", "letters"):
        assert open_chain(str(datasets / name)).verify() == []
    with ShardedReader.open(str(datasets / "modules")) as reader:
        rows = reader.get_arrow(["csv", "ast"]).to_pylist()
    assert rows[0]["title"] == "CSV files"
    assert rows[1]["lines"] == source("ast").count("\n")
    imports = GraphStore.open(str(datasets / "imports")).snapshot()
    assert "tokenize" in imports.neighbors("inspect", "IMPORTS")
    assert "import tokenize" in source("inspect")


def source(module: str) -> str:
    """What anybody can check it against."""
    return Path(sysconfig.get_paths()["stdlib"], f"{module}.py").read_text(encoding="utf-8")
