"""What the pages name exists: tests, functions, fields of records; and their examples are real bytes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from tests.docs.pages import PAGES, blocks, name_of
from tests.golden.make import GOLDEN
from tests.golden.make_graph import ANSWERS
from tests.house.source import ROOT, SOURCE
from tests.house.test_promises import proofs

FORMAT = ROOT / "docs" / "format.md"
TEST = re.compile(r"`((?:tests|src)/[\w./-]+\.py::\w+(?:::\w+)*)`")
FUNCTION = re.compile(r"`([\w/]+\.py):(\w+)`")
FILE = re.compile(r"`((?:src|tests|examples|tools)/[\w./-]+)`")

# Of the stories in the golden files, not of the format: a counter, tags, and what the models put in.
NOT_OURS = frozenset(
    {"events", "release", "stage", "reviewed", "model", "turn", "name", "tables", "catalog_manifest_path"}
)


def defined(path: Path) -> set[str]:
    """Every function, class and constant of a module, however deep."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = {
        node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    }
    return names | {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def records() -> Iterator[object]:
    """Every JSON record of the golden files. The ledger has a page of its own, and a test beside it; answers
    to questions are no records."""
    for path in sorted((GOLDEN / "v1").rglob("*")):
        if path.is_file() and path.name != ANSWERS and not path.is_relative_to(GOLDEN / "v1" / "ledger"):
            data = path.read_bytes()
            if data.startswith(b"{"):
                yield orjson.loads(data)


def field_names(value: object) -> Iterator[str]:
    """The fields of a record and of the records inside it; ids, columns and tags that serve as names are values."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if not name.isdigit():
                yield name
            is_keyed = name in {"columns", "tags"} and isinstance(inner, dict)
            yield from field_names(list(inner.values()) if is_keyed else inner)
    elif isinstance(value, list):
        for inner in value:
            yield from field_names(inner)


def texts(value: object) -> Iterator[str]:
    """Every text in a record that is not a name."""
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from texts(inner)
    elif isinstance(value, str):
        yield value


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_test_a_page_names_exists(page: Path) -> None:
    """A page that says what proves something names a test that is there."""
    known = proofs()
    assert [name for name in TEST.findall(page.read_text(encoding="utf-8")) if name not in known] == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_function_and_file_a_page_names_exists(page: Path) -> None:
    """`chain/commit.py:move_pointer` is a module of the product and something that it defines."""
    text = page.read_text(encoding="utf-8")
    missing = [
        f"{module}:{name}"
        for module, name in FUNCTION.findall(text)
        if not (path := SOURCE / "holdfast" / module).exists() or name not in defined(path)
    ]
    missing += [name for name in FILE.findall(text) if not (ROOT / name).exists()]
    assert missing == []


def test_every_field_of_every_record_is_on_the_page() -> None:
    """S7, S8: docs/format.md has each field that any record in the golden files has."""
    page = FORMAT.read_text(encoding="utf-8")
    found = {name for record in records() for name in field_names(record)} - NOT_OURS
    assert len(found) > 40
    assert sorted(name for name in found if f"`{name}`" not in page) == []


def test_the_examples_of_the_format_are_real() -> None:
    """Every JSON block of docs/format.md parses, and its ids, hashes, keys and times are those of a golden file."""
    golden = {text for record in records() for text in texts(record)}
    found = blocks(FORMAT, "json")
    assert len(found) > 8
    for block in found:
        assert [text for text in texts(orjson.loads(block.text)) if text not in golden] == []
