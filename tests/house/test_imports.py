"""Imports point down only; who lives where is said in CONTRIBUTING.md."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter

import pytest

from tests.house.source import Module, declared, imports, parse, product

# From the bottom. `holdfast` itself, the empty name, offers what lies below Spark, so that a reader never meets a JVM.
STOREYS: list[set[str]] = [
    {"arrow_memory", "clock", "errors", "parquet_bytes", "xxh64"},
    {"codec"},
    {"storage"},
    {"fencing"},
    {"chain"},
    {"kv", "graph", "table", "catalog"},
    {""},
    {"spark"},
    {"pipeline"},
    {"testing"},
    {"service"},
    {"cli"},
]
HEIGHT = {layer: height for height, storey in enumerate(STOREYS) for layer in storey}
JVM = {"pyspark", "py4j"}


def upward_imports(modules: Mapping[str, Module]) -> list[str]:
    """Every import that does not point down, and every module that has no place in the house."""
    found = []
    for module in modules.values():
        if module.layer not in HEIGHT:
            found.append(f"{module.name}: {module.layer!r} has no storey: give it one in {__name__}")
            continue
        for one in imports(module, modules):
            if one.module.split(".")[0] != "holdfast":
                continue
            target = [*one.module.split("."), ""][1]
            if target == module.layer:
                continue
            if target == "testing":
                found.append(f"{module.name}:{one.line} imports {one.module}: the product does not know its tests")
            elif HEIGHT.get(target, len(STOREYS)) >= HEIGHT[module.layer]:
                found.append(f"{module.name}:{one.line} imports {one.module}, which is not below it")
    return found


def cycle(modules: Mapping[str, Module]) -> list[str]:
    """One import cycle, or nothing. Imports inside functions count: hiding a cycle does not remove it."""
    graph = {
        module.name: {one.module for one in imports(module, modules) if one.module in modules}
        for module in modules.values()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def private_imports(modules: Mapping[str, Module]) -> list[str]:
    """Every private module or name that is imported from outside the package it belongs to."""
    found = []
    for module in modules.values():
        for one in imports(module, modules):
            parts = [*one.module.split("."), *([one.name] if one.name else [])]
            if parts[0] != "holdfast":
                continue
            for index, part in enumerate(parts):
                owner = ".".join(parts[:index])
                home = owner if owner not in modules or modules[owner].is_package else owner.rpartition(".")[0]
                is_private = part.startswith("_") and not part.endswith("__")
                if is_private and module.package != home and not module.package.startswith(home + "."):
                    found.append(f"{module.name}:{one.line} imports {'.'.join(parts)}, which is private to {home}")
    return found


def unlisted_imports(modules: Mapping[str, Module]) -> list[str]:
    """Every name that crosses from one package to another although its module does not list it."""
    found = []
    for module in modules.values():
        for one in imports(module, modules):
            source = modules.get(one.module)
            if one.name is None or source is None or module.package.startswith(source.package):
                continue
            listed = declared(source.tree)
            if listed is not None and one.name not in listed:
                found.append(
                    f"{module.name}:{one.line} imports {one.name}, which {one.module} does not list in __all__"
                )
    return found


def jvm_imports(modules: Mapping[str, Module]) -> list[str]:
    """Every import of Spark outside the one package that may."""
    return [
        f"{module.name}:{one.line} imports {one.module}"
        for module in modules.values()
        for one in imports(module, modules)
        if one.module.split(".")[0] in JVM and module.layer != "spark"
    ]


def test_imports_point_down_only() -> None:
    assert upward_imports(product()) == []


def test_no_import_cycles() -> None:
    assert cycle(product()) == []


def test_private_names_stay_in_their_package() -> None:
    assert private_imports(product()) == []


def test_only_listed_names_cross_from_one_package_to_another() -> None:
    assert unlisted_imports(product()) == []


def test_only_the_spark_package_imports_spark() -> None:
    assert jvm_imports(product()) == []


def test_everything_below_spark_and_every_command_imports_without_spark() -> None:
    names = [name for name, module in product().items() if module.layer not in {"spark", "pipeline", "service"}]
    script = "import importlib, sys\n"
    script += f"sys.modules.update(dict.fromkeys({sorted(JVM)!r}))\n"  # None there makes any import of it fail
    script += f"for name in {sorted(names)!r}: importlib.import_module(name)\n"

    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)

    assert result.returncode == 0, result.stderr


# The checks themselves, each seen failing.


def house(**sources: str) -> dict[str, Module]:
    """A house of small modules; `chain__commit="..."` is `holdfast.chain.commit`."""
    packages = {name.split("__")[0] for name in sources if "__" in name}
    modules = {f"holdfast.{name}": parse(f"holdfast.{name}", "", is_package=True) for name in packages}
    for name, text in sources.items():
        dotted = "holdfast." + name.replace("__", ".")
        modules[dotted] = parse(dotted, text)
    return modules


@pytest.mark.parametrize(
    "sources",
    [
        pytest.param({"clock": "import holdfast.errors"}, id="clock and errors stand alone"),
        pytest.param({"storage__local": "from holdfast.chain import commit"}, id="upwards"),
        pytest.param({"fencing__lock": "def f() -> None:\n    import holdfast.chain.layout"}, id="inside a function"),
        pytest.param({"kv__read": "from holdfast.graph.read import Reader"}, id="between the models"),
        pytest.param({"cli__main": "import holdfast.testing.clock"}, id="the product imports its tests"),
        pytest.param({"chain__commit": "from holdfast import testing"}, id="through the root"),
        pytest.param({"testing__run": "from holdfast.cli.main import main"}, id="testing imports the command line"),
        pytest.param({"storage__local": "from ..chain import commit"}, id="relative"),
        pytest.param({"utils": ""}, id="a module without a place"),
    ],
)
def test_an_import_that_does_not_point_down_is_found(sources: dict[str, str]) -> None:
    assert len(upward_imports(house(**sources))) == 1


def test_imports_that_point_down_are_welcome() -> None:
    sources = {
        "chain__commit": "import json\nfrom holdfast.chain.layout import x\nfrom holdfast.errors import Conflict",
        "testing__faulty": "import holdfast.storage.memory",
        "cli__main": "from holdfast import __version__",
    }
    assert upward_imports(house(**sources)) == []


def test_a_cycle_is_found_even_inside_functions_and_through_the_package() -> None:
    assert cycle(
        house(chain__a="import holdfast.chain.b", chain__b="def f() -> None:\n    from holdfast.chain import a")
    )
    through = house(chain__a="from holdfast.chain import B")
    through["holdfast.chain"] = parse("holdfast.chain", "from holdfast.chain.a import A", is_package=True)
    assert cycle(through)


@pytest.mark.parametrize(
    "text",
    ["from holdfast.chain.commit import _swap", "from holdfast.chain._swap import swap", "import holdfast.chain._swap"],
)
def test_a_private_name_of_another_package_is_found(text: str) -> None:
    modules = house(chain__commit="", chain___swap="", cli__main=text, chain__runs=text)
    assert [line.split(":")[0] for line in private_imports(modules)] == ["holdfast.cli.main"]


def test_an_unlisted_name_of_another_package_is_found() -> None:
    text = "from holdfast.chain.commit import a, b"
    modules = house(chain__commit="__all__ = ['a']\na = b = 1", cli__main=text, chain__runs=text)
    assert [line.split(",")[0] for line in unlisted_imports(modules)] == ["holdfast.cli.main:1 imports b"]


def test_spark_outside_its_package_is_found() -> None:
    modules = house(spark__kv="import pyspark", kv__read="from pyspark.sql import DataFrame")
    assert [line.split(":")[0] for line in jvm_imports(modules)] == ["holdfast.kv.read"]
