"""docs/promises.md and the tests say the same: each promise has its proof, each proof its promise."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.house.source import ROOT, SOURCE, TESTS

PAGE = ROOT / "docs" / "promises.md"
ROW = re.compile(r"^\|\s*(?P<id>[SKGC]\d+[a-z]?)\s*\|(?P<promise>[^|]+)\|(?P<proof>[^|]*)\|\s*$", re.MULTILINE)
PROOF = re.compile(r"[\w./-]+\.py::\w+(?:::\w+)*")
PROMISE = re.compile(r"(?<![\w-])[SKGC]\d+[a-z]?(?![\w-])")
# A docstring that proves something leads with its ids ("S1, S4a: ...") or has them in brackets ("... (K2).").
LEAD = re.compile(r"^\s*((?:[SKGC]\d+[a-z]?(?:,\s*|\s+and\s+|:))+)", re.MULTILINE)
BRACKETS = re.compile(r"\(((?:[SKGC]\d+[a-z]?(?:,\s*|\s+and\s+)?)+)\)")


def named(text: str) -> set[str]:
    """The promises a docstring names. "S3" is usually the service, so that one counts only as a lead or in brackets."""
    marked = {one for block in [*LEAD.findall(text), *BRACKETS.findall(text)] for one in PROMISE.findall(block)}
    return marked | (set(PROMISE.findall(text)) - {"S3"})


def found_in(tree: ast.Module, path: str) -> Iterator[tuple[str, set[str]]]:
    """Each test of a file as `path::test` or `path::Class::test`, with the promises its docstring names."""

    def visit(body: list[ast.stmt], prefix: str) -> Iterator[tuple[str, set[str]]]:
        for node in body:
            if isinstance(node, ast.ClassDef):
                yield from visit(node.body, f"{prefix}::{node.name}")
                if any("RuleBasedStateMachine" in ast.dump(base) for base in node.bases):
                    yield f"{prefix}::{node.name}", named(ast.get_docstring(node) or "")
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                yield f"{prefix}::{node.name}", named(ast.get_docstring(node) or "")

    return visit(tree.body, path)


def proofs() -> dict[str, set[str]]:
    """Every test, with the promises it proves: those under tests/, and the contract that ships in holdfast.testing."""
    found: dict[str, set[str]] = {}
    for folder in (TESTS, SOURCE / "holdfast" / "testing"):
        for path in sorted(folder.rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            found.update(found_in(ast.parse(path.read_text(encoding="utf-8")), name))
    return found


def page() -> str:
    """The text of the page."""
    assert PAGE.exists(), "docs/promises.md is missing"
    return PAGE.read_text(encoding="utf-8")


def unproven(text: str, tests: dict[str, set[str]]) -> list[str]:
    """Every row that names no test, a test that does not exist, or one whose docstring does not name the promise."""
    found = []
    for row in ROW.finditer(text):
        names = PROOF.findall(row["proof"])
        if not names:
            found.append(f"{row['id']} names no test")
        for name in names:
            if name not in tests:
                found.append(f"{row['id']}: there is no {name}")
            elif row["id"] not in tests[name]:
                found.append(f"{row['id']}: the docstring of {name} does not name it")
    return found


def unlisted(text: str, tests: dict[str, set[str]]) -> list[str]:
    """Every promise that a test names and the page does not have."""
    listed = {row["id"] for row in ROW.finditer(text)}
    return [f"{test} names {one}" for test, ids in tests.items() for one in sorted(ids - listed)]


def test_every_promise_is_proved_by_the_tests_its_row_names() -> None:
    assert ROW.search(page()), "docs/promises.md has no row `| id | promise | proved by |`"
    assert unproven(page(), proofs()) == []


def test_every_promise_a_test_names_is_on_the_page() -> None:
    assert unlisted(page(), proofs()) == []


def test_no_promise_is_on_the_page_twice() -> None:
    ids = [row["id"] for row in ROW.finditer(page())]
    assert sorted(ids) == sorted(set(ids))


def test_every_row_of_the_page_is_understood() -> None:
    lines = [line for line in page().splitlines() if re.match(r"^\|\s*[SKGC]\d", line)]
    assert [line for line in lines if not ROW.match(line)] == []


# The checks themselves, each seen failing.


def known(text: str) -> dict[str, set[str]]:
    """The tests in a piece of Python that pretends to be tests/test_x.py."""
    return dict(found_in(ast.parse(text), "tests/test_x.py"))


@pytest.mark.parametrize(
    "proof",
    ["", "tests/test_x.py::test_missing", "tests/test_y.py::test_a", "tests/test_x.py::test_other"],
)
def test_a_promise_without_its_proof_is_found(proof: str) -> None:
    tests = known('def test_a() -> None:\n    "S1: holds."\n\n\ndef test_other() -> None:\n    "S2: holds."\n')
    assert unproven("| S1 | It holds. | `tests/test_x.py::test_a` |", tests) == []
    assert len(unproven(f"| S1 | It holds. | {proof} |", tests)) == 1


def test_a_promise_that_is_not_on_the_page_is_found() -> None:
    tests = known('class TestA:\n    def test_b(self) -> None:\n        "Readers wait (K7b)."\n')
    assert tests == {"tests/test_x.py::TestA::test_b": {"K7b"}}
    assert unlisted("| K7 | Another one. | |", tests) == ["tests/test_x.py::TestA::test_b names K7b"]


@pytest.mark.parametrize(
    "text, ids",
    [
        ("S1, S4a: both.", {"S1", "S4a"}),
        ("S3: the promise.", {"S3"}),
        ("Works on S3 and on Azure.", set()),
        ("Works on S3 too (S3, S12).", {"S3", "S12"}),
        ("Proves K2 on S3.", {"K2"}),
        ("CS1 and S1x2 are something else.", set()),
    ],
)
def test_a_docstring_names_its_promises(text: str, ids: set[str]) -> None:
    assert named(text) == ids
