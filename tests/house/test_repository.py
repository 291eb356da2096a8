"""What is committed works on any machine, and stays readable."""

from __future__ import annotations

import ast
import os
import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

from tests.house.source import ROOT, SOURCE, TESTS

LINES_MAX = 450
# Spelled in pieces, so that this file does not find itself.
HOSTS = [".".join(parts) for parts in (("pypi", "org"), ("pythonhosted", "org"), ("npmjs", "org"), ("debian", "org"))]
MACHINE_PATH = re.compile(r"(?<![\w.}~/-])/(?:work|root|home/\w+|Users/\w+)/")
NOTES = re.compile("|".join([r"\bTO" + r"DO\b", r"\bFIX" + r"ME\b", r"\bNotImpl" + r"ementedError\b"]))


@cache
def tracked() -> tuple[Path, ...]:
    """Every file that git has or would take, without those that are on their way out."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout: what is committed is unknown")
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True, timeout=30,
    )  # fmt: skip
    return tuple(path for name in listing.stdout.split("\0") if name and (path := ROOT / name).is_file())


@cache
def text_of(path: Path) -> str:
    """A file's text; empty for one that is not text."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return ""


def places(pattern: re.Pattern[str], paths: tuple[Path, ...]) -> list[str]:
    """Where a pattern occurs, as `file:line`."""
    return [
        f"{path.relative_to(ROOT)}:{number}"
        for path in paths
        if pattern.search(text_of(path))
        for number, line in enumerate(text_of(path).splitlines(), start=1)
        if pattern.search(line)
    ]


def sleeps(tree: ast.Module) -> list[int]:
    """The lines where `time.sleep` is called or imported."""
    return [
        node.lineno
        for node in ast.walk(tree)
        if (isinstance(node, ast.Attribute) and node.attr == "sleep" and ast.unparse(node.value) == "time")
        or (
            isinstance(node, ast.ImportFrom)
            and node.module == "time"
            and any(one.name == "sleep" for one in node.names)
        )
    ]


def test_no_file_names_a_package_registry() -> None:
    assert places(re.compile("|".join(map(re.escape, HOSTS))), tracked()) == []


def test_the_constraints_name_versions_and_no_addresses() -> None:
    assert re.findall(r"^.*(?:://|--).*$", text_of(ROOT / "constraints.txt"), re.MULTILINE) == []


def test_no_file_names_a_path_of_one_machine() -> None:
    assert places(MACHINE_PATH, tracked()) == []


def test_nothing_is_left_for_later() -> None:
    code = tuple(path for path in tracked() if path.suffix in {".py", ".toml"} or path.name == "Makefile")
    assert places(NOTES, code) == []


def test_no_file_holds_more_than_one_idea() -> None:
    lengths = {path: len(text_of(path).splitlines()) for folder in (SOURCE, TESTS) for path in folder.rglob("*.py")}
    assert {str(path.relative_to(ROOT)): lines for path, lines in lengths.items() if lines >= LINES_MAX} == {}


def test_no_test_sleeps() -> None:
    found = {str(path.relative_to(ROOT)): sleeps(ast.parse(text_of(path))) for path in TESTS.rglob("*.py")}
    assert {name: lines for name, lines in found.items() if lines} == {}


def test_the_gate_can_be_run() -> None:
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


def test_the_checks_see_what_they_look_for() -> None:
    assert MACHINE_PATH.search("see /" + "work/main and")
    assert MACHINE_PATH.search('"/' + 'home/ada/x"')
    assert not MACHINE_PATH.search("{spark}/" + "work/ and docs/" + "work/x")
    assert NOTES.search("# TO" + "DO: later")
    assert sleeps(ast.parse("import time\ntime.sleep(1)")) == [2]
    assert sleeps(ast.parse("from time import sleep")) == [1]
