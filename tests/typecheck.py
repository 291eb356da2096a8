"""Must-fail checks for the type checker.

A file under `tests/types/` is code that must not type-check. Each line that must be rejected ends with a comment
`# expect: code`, the type checker's own code of the error. `assert_mypy_rejects` runs it and demands exactly those
errors, on exactly those lines: a file without an expectation must be clean.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

__all__ = ["assert_mypy_rejects"]

_SOURCE = Path(__file__).parent.parent / "src"
_EXPECTED = re.compile(r"# expect: ([a-z-]+(?:, [a-z-]+)*)\s*$")
_REPORTED = re.compile(r"^(?P<file>[^:]+):(?P<line>\d+): error: .*\[(?P<code>[a-z-]+)\]$")
_WAIT_MAX_S = 300


def assert_mypy_rejects(path: Path, cache: Path) -> None:
    """Demand that strict type checking of `path` reports the expected errors and no others."""
    expected = {
        (number, code)
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if (found := _EXPECTED.search(line)) is not None
        for code in found.group(1).split(", ")
    }
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--no-error-summary", "--hide-error-context"]
    command += ["--no-pretty", "--follow-imports=silent", f"--cache-dir={cache}", str(path)]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=_WAIT_MAX_S,
        check=False,
        cwd=path.parent,
        env={"MYPYPATH": str(_SOURCE), "PATH": ""},
    )
    reported = set()
    for line in done.stdout.splitlines():
        if (found := _REPORTED.match(line)) is not None and Path(found["file"]).name == path.name:
            reported.add((int(found["line"]), found["code"]))
    assert done.returncode in {0, 1}, done.stderr or done.stdout
    assert reported == expected, f"expected {sorted(expected)}, reported {sorted(reported)}:\n{done.stdout}"
