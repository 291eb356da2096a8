"""`__all__` is what is visible."""

from __future__ import annotations

import importlib
import re
import types

import pytest

from tests.house.source import SOURCE, declared, product

PACKAGES = [name for name, module in product().items() if module.is_package]


MODULES = {name: names for name, module in product().items() if (names := declared(module.tree)) is not None}


def in_order(names: list[str]) -> list[str]:
    """Constants, then classes, then the rest, each by name with numbers as numbers: the order the linter keeps."""

    def place(name: str) -> tuple[int, list[tuple[int, str]]]:
        kind = 0 if len(name) > 1 and name.isupper() else 1 if name[:1].isupper() else 2
        return kind, [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]

    return sorted(names, key=place)


def test_every_folder_with_python_in_it_is_a_package() -> None:
    folders = {path.parent for path in SOURCE.rglob("*.py")} - {SOURCE}
    assert [
        str(folder.relative_to(SOURCE)) for folder in sorted(folders) if not (folder / "__init__.py").exists()
    ] == []


def test_the_package_is_typed() -> None:
    assert (SOURCE / "holdfast" / "py.typed").exists()


@pytest.mark.parametrize("name", MODULES)
def test_all_is_sorted_and_names_nothing_twice(name: str) -> None:
    assert MODULES[name] == in_order(list(set(MODULES[name])))


@pytest.mark.parametrize("name", MODULES)
def test_every_name_in_all_resolves(name: str) -> None:
    if product()[name].layer == "spark":
        pytest.importorskip("pyspark", reason="pyspark is not installed: the names of this module cannot be resolved")
    module = importlib.import_module(name)
    assert [one for one in MODULES[name] if not hasattr(module, one)] == []


@pytest.mark.parametrize("name", PACKAGES)
def test_a_package_shows_exactly_what_its_all_says(name: str) -> None:
    if product()[name].layer == "spark":
        pytest.importorskip("pyspark", reason="pyspark is not installed: this package cannot be looked at")
    package = importlib.import_module(name)
    # Modules are reached by their path. `from __future__ import annotations` leaves a name behind that nobody means.
    visible = {
        one
        for one, value in vars(package).items()
        if not one.startswith("_") and not isinstance(value, types.ModuleType) and one != "annotations"
    }
    public = {one for one in MODULES.get(name, []) if not one.startswith("_")}
    assert visible == public


def test_names_are_ordered_as_the_linter_orders_them() -> None:
    assert in_order(["b10", "b9", "Z", "A", "LIMIT", "a"]) == ["LIMIT", "A", "Z", "a", "b9", "b10"]
