"""The product's source as syntax trees: what the house rules are checked on.

Nothing is imported to be checked, so a rule also holds for modules whose dependencies are not installed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src"
TESTS = ROOT / "tests"


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """One Python file, by its dotted name."""

    name: str
    tree: ast.Module
    is_package: bool = False

    @property
    def layer(self) -> str:
        """The part of the house it is in: `chain` for `holdfast.chain.commit`, empty for `holdfast` itself."""
        parts = self.name.split(".")
        return parts[1] if len(parts) > 1 else ""

    @property
    def package(self) -> str:
        """The package it is in, or is."""
        return self.name if self.is_package else self.name.rpartition(".")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    """One imported thing: `module` always, `name` where something is taken out of it."""

    module: str
    name: str | None
    line: int


def parse(name: str, text: str, *, is_package: bool = False) -> Module:
    """A module from its text."""
    return Module(name=name, tree=ast.parse(text), is_package=is_package)


@cache
def product() -> Mapping[str, Module]:
    """Every module of the product by name."""
    modules = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = list(path.relative_to(SOURCE).with_suffix("").parts)
        is_package = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if is_package else parts)
        modules[name] = parse(name, path.read_text(encoding="utf-8"), is_package=is_package)
    return modules


def imports(module: Module, known: Mapping[str, Module]) -> Iterator[Import]:
    """Everything a module imports, at the top, in functions and for types alike.

    `from package import module` is an import of that module, where `known` has it.
    """
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(module=alias.name, name=None, line=node.lineno)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                anchor = module.package.split(".")
                base = ".".join([*anchor[: len(anchor) - node.level + 1], *([base] if base else [])])
            for alias in node.names:
                submodule = f"{base}.{alias.name}"
                if submodule in known:
                    yield Import(module=submodule, name=None, line=node.lineno)
                else:
                    yield Import(module=base, name=alias.name, line=node.lineno)


def docstrings(tree: ast.Module) -> set[int]:
    """The ids of the nodes that are documentation: docstrings, and bare strings under a constant or a field."""
    return {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    }


def declared(tree: ast.Module) -> list[str] | None:
    """The module's `__all__`, or None where it has none."""
    for node in tree.body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
            assert isinstance(node, ast.Assign | ast.AnnAssign)
            assert node.value is not None
            return list(ast.literal_eval(node.value))
    return None
