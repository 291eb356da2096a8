"""Keys are spelled in one module. Whoever needs one asks it."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from itertools import pairwise

import pytest

from tests.house.source import Module, docstrings, parse, product

SPELLERS = {"holdfast.chain.layout", "holdfast.storage.scope", "holdfast.storage.url"}
CHECKED_LAYERS = {"chain", "cli", "fencing"}
FRAGMENTS = ("manifests/", "locks/", "_CURRENT", "current.json", ".pointer.json")


def joins(text: str) -> bool:
    """Whether a piece of text beside a value makes a path of it. `://` makes a URL, which is another matter."""
    return text.startswith("/") or (text.endswith("/") and not text.endswith("://"))


def spells(node: ast.AST) -> str | None:
    """How this expression spells a key, or None."""
    match node:
        case ast.Constant(value=str(text)) if any(fragment in text for fragment in FRAGMENTS):
            return f"the text {text!r}"
        case ast.JoinedStr(values=parts):
            for before, after in pairwise(parts):
                match before, after:
                    case (ast.Constant(value=str(text)), ast.FormattedValue()) if text.endswith("/") and joins(text):
                        return f"the f-string with {text!r}"
                    case (ast.FormattedValue(), ast.Constant(value=str(text))) if text.startswith("/"):
                        return f"the f-string with {text!r}"
                    case _:
                        pass
        case ast.BinOp(op=ast.Add(), left=ast.Constant(value=str(text))) if joins(text):
            return f"the sum with {text!r}"
        case ast.BinOp(op=ast.Add(), right=ast.Constant(value=str(text))) if joins(text):
            return f"the sum with {text!r}"
        case ast.Call(func=ast.Attribute(value=ast.Constant(value="/"), attr="join")):
            return "a join with '/'"
        case _:
            pass
    return None


def spelled_elsewhere(modules: Mapping[str, Module]) -> list[str]:
    """Every place outside the spellers that builds or names a key."""
    found = []
    for module in modules.values():
        if module.layer not in CHECKED_LAYERS or module.name in SPELLERS:
            continue
        exempt = docstrings(module.tree)
        found += [
            f"{module.name}:{getattr(node, 'lineno', 0)}: {how}"
            for node in ast.walk(module.tree)
            if id(node) not in exempt and (how := spells(node))
        ]
    return found


def test_no_module_but_the_layout_spells_a_key() -> None:
    """S6: the place of every object is spelled in `chain/layout.py`, which everybody else asks."""
    assert spelled_elsewhere(product()) == []


@pytest.mark.parametrize(
    "text",
    [
        'KEY = "manifests/7.json"',
        'KEY = f"{chain}/_CURRENT"',
        'def f(a: str, b: str) -> str:\n    return f"{a}/{b}"',
        'def f(a: str) -> str:\n    return f"tags/{a}"',
        'def f(a: str) -> str:\n    return a + "/x"',
        'def f(a: list[str]) -> str:\n    return "/".join(a)',
    ],
)
def test_a_key_spelled_elsewhere_is_found(text: str) -> None:
    assert spelled_elsewhere({"x": parse("holdfast.chain.commit", text)}) != []
    assert spelled_elsewhere({"x": parse("holdfast.chain.layout", text)}) == []


@pytest.mark.parametrize(
    "text",
    [
        '"""Reads manifests/7.json."""',
        'X = 1\n"""In locks/ of the chain."""',
        'def f(a: str) -> str:\n    return f"s3://{a}"',
    ],
)
def test_documentation_and_urls_are_no_keys(text: str) -> None:
    assert spelled_elsewhere({"x": parse("holdfast.chain.commit", text)}) == []
