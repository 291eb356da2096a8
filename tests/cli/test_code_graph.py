"""The example of a code graph does what it says, on a part of the library."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from holdfast.graph.store import GraphStore
from holdfast.graph.version_diff import diff
from tests.cli.support import environment
from tests.house.source import ROOT

OLD, NEW = "email.utils:parsedate_to_datetime", "email.utils:parse_date"
CALLER = "email.headerregistry:DateHeader.parse"


def test_the_code_graph_is_built_asked_changed_compared_and_taken_back(tmp_path: Path) -> None:
    """G15, G20, G22, G23, G25: the real use, from Python's own sources, on Spark."""
    folder = tmp_path / "code graph"
    result = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "code_graph.py"), "--packages", "json", "email",
         "--directory", str(folder)],
        capture_output=True, text=True, check=False, timeout=550, env=environment(),
    )  # fmt: skip

    assert (result.returncode, result.stderr) == (0, "")
    for expected in (
        f"refused: nothing was committed: 1 edges have an end that is not there: '{CALLER}' -CALLS-> '{OLD}'",
        "records changed in email/headerregistry.py, email/utils.py, json/tool.py",
        f"Not there: {OLD}",
        "readers see version 2 again",
        "nothing is broken: True",
    ):
        assert expected in result.stdout
    store = GraphStore.open(str(folder / "graphs" / "python"))
    first, second = store.snapshot(2), store.snapshot(3)
    sources = {path.relative_to(folder / "sources").as_posix() for path in folder.rglob("*.py")}
    assert set(first.nodes(type="MODULE").table.column("file").to_pylist()) == sources
    # Facts that anybody can check in the sources.
    assert first.node("json.decoder:JSONDecoder.decode").type == "METHOD"
    assert first.neighbors("json.decoder:JSONDecoder", "CONTAINS", direction="in") == ["json.decoder"]
    assert "json.decoder:JSONDecoder.raw_decode" in first.neighbors("json.decoder:JSONDecoder.decode", "CALLS")
    assert "json:loads" in first.neighbors("json:load", "CALLS")
    assert "json.decoder" in first.neighbors("json", "IMPORTS_FROM")
    assert first.incoming(OLD, "CALLS").to_dicts()[0]["source"] == CALLER
    line = int(str(first.node("json:load").metadata["line"]))
    source = (folder / "sources" / "json" / "__init__.py").read_text(encoding="utf-8").splitlines()
    assert re.match(r"def load\(", source[line - 1])
    # What changed is what was changed.
    found = diff(store, 2, 3)
    assert found.removed_nodes.ids() == [OLD]
    assert found.added_nodes.ids() == [NEW, "json.tool:count_keys"]
    assert "json:loads" in second.neighbors("json.tool:count_keys", "CALLS")
    assert {file for _, file, _ in found.report} == {"email/headerregistry.py", "email/utils.py", "json/tool.py"}
