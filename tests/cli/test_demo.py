"""The demo does what it says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from holdfast.chain import open_chain
from tests.cli.support import environment
from tests.house.source import ROOT


def test_the_demo_runs_and_leaves_whole_chains_behind(tmp_path: Path) -> None:
    """K1, K9, S15, S28, S35, S39: a build on Spark, a stale writer, damage, a rollback, a collection, for real."""
    folder = tmp_path / "demo"
    result = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "demo.py"), "--directory", str(folder)],
        capture_output=True, text=True, check=False, timeout=400, env=environment(),
    )  # fmt: skip

    assert (result.returncode, result.stderr) == (0, "")
    for expected in (
        "run stdlib-1 is visible",
        "1 deleted; ",
        "looked at today",
        "version 2 is visible: ",
        "nothing is broken: True",
        "slow-writer is refused: fencing token",
        "a new reader serves run nightly-4",
        "1 published snapshot downstream was built from what was rolled back",
        "Restored: 2 snapshots",
        "It cannot be restored.",
        "Nothing is broken",
    ):
        assert expected in result.stdout
    for name in ("stdlib", "users", "scores"):
        assert open_chain(str(folder / "datasets" / name)).verify() == []
