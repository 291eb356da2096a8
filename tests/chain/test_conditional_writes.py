"""There is no unconditional write, and no second way to write a pointer: read from the source itself."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

import pytest

from holdfast.chain import Chain
from holdfast.storage import ObjectStore
from holdfast.testing.faulty import CountingStore
from tests.chain.publishing import ChainFactory, publish_one
from tests.house.source import Module, parse, product

# What a store can do to its objects. `delete` belongs to the collector, and to the capability that is handed to it.
CREATES = {"put_new", "upload"}
DELETERS = {"holdfast.chain.purge", "holdfast.storage.capabilities", "holdfast.storage.scope"}
POINTER_WRITER = ("holdfast.chain.commit", "move_pointer")


def calls(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    """Every method call, by the method's name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            yield node.func.attr, node


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            yield node


def unconditional(modules: Mapping[str, Module]) -> list[str]:
    """Swaps that name no expected version, and records sent to a cloud client without a mode."""
    found = []
    for module in modules.values():
        for name, call in calls(module.tree):
            given = {keyword.arg: keyword.value for keyword in call.keywords}
            if name.startswith("swap") and len(call.args) >= 2:
                expected = given.get("expected")
                if expected is None or (isinstance(expected, ast.Constant) and expected.value is None):
                    found.append(f"{module.name}:{call.lineno}: {name} without an expected version")
            # A large artifact goes in parts, which no cloud can make conditional; its key is used once.
            in_parts = "use_multipart" in given and ast.unparse(given["use_multipart"]) == "True"
            is_put = name in {"put", "put_async"} and ast.unparse(call.func).startswith("obstore.")
            if is_put and not in_parts and "mode" not in given:
                found.append(f"{module.name}:{call.lineno}: {ast.unparse(call.func)} without a mode")
    return found


def pointer_writers(modules: Mapping[str, Module]) -> set[tuple[str, str]]:
    """Functions that both name the pointer's key and write or delete something."""
    return {
        (module.name, function.name)
        for module in modules.values()
        for function in functions(module.tree)
        if any(isinstance(node, ast.Attribute) and node.attr == "pointer_key" for node in ast.walk(function))
        and any(name in {*CREATES, "swap", "delete"} for name, _ in calls(function))
    }


def publish_ulid(chain: Chain) -> str:
    """The ULID of the newest move."""
    seen = chain.handle.read_pointer()
    assert seen is not None
    return seen.pointer.commit_ulid


def shipped() -> dict[str, Module]:
    return {name: module for name, module in product().items() if module.layer != "testing"}


def test_no_write_in_the_code_is_unconditional() -> None:
    """S13: every swap names its expected version, every record sent to a cloud its mode; stores have no other verb."""
    assert unconditional(shipped()) == []
    verbs = {name for name in vars(ObjectStore) if not name.startswith("_")}
    assert verbs - {"get", "get_if_changed", "get_range", "head", "head_many", "list", "list_folders", "as_async"} == {
        *CREATES,
        "swap",
        "delete",
        "url",
    }


def test_one_function_writes_pointers() -> None:
    """S13: the code that names a pointer's key and writes is `move_pointer`, and nothing else."""
    assert pointer_writers({name: each for name, each in shipped().items() if each.layer == "chain"}) == {
        POINTER_WRITER
    }


def test_only_the_collector_deletes() -> None:
    """S13: nobody else in the kernel can make room for an unconditional write by deleting first."""
    kernel = {name: module for name, module in shipped().items() if module.layer in {"chain", "fencing", "storage"}}
    deleters = {
        module.name
        for module in kernel.values()
        for name, call in calls(module.tree)
        if name == "delete" and call.args and "obstore" not in ast.unparse(call.func)
    }
    assert deleters <= DELETERS


@pytest.mark.parametrize(
    "text",
    [
        "def f(s, k, d):\n    s.swap(k, d)",
        "def f(s, k, d):\n    s.swap(k, d, expected=None)",
        "import obstore\ndef f(s, k, d):\n    obstore.put(s, k, d)",
    ],
)
def test_an_unconditional_write_is_found(text: str) -> None:
    """S13: the check itself, seen failing."""
    assert len(unconditional({"x": parse("holdfast.chain.other", text)})) == 1


def test_a_second_writer_of_pointers_is_found() -> None:
    """S13: the check itself, seen failing."""
    text = "def g(h, d, v):\n    h.records.swap(h.layout.pointer_key, d, expected=v)"
    assert pointer_writers({"x": parse("holdfast.chain.other", text)}) == {("holdfast.chain.other", "g")}


def test_every_write_of_a_pointer_is_a_create_or_a_swap(chain_factory: ChainFactory) -> None:
    """S8, S13: through a whole life the pointer is created once, then swapped; no two contents are the same."""
    store = CountingStore(chain_factory.store)
    chain: Chain = chain_factory(store=store)
    contents, versions = [], []
    for act in (
        lambda: publish_one(chain, b"one"),
        lambda: publish_one(chain, b"one"),
        chain.rollback,
        chain.forward,
        chain.rollback,
        lambda: publish_one(chain, b"two"),
        lambda: chain.collect(retention=1),
        lambda: chain.status(chain.handle.ulid(after=publish_ulid(chain)), settle=True),
    ):
        act()
        stored = chain_factory.store.get(chain.layout.pointer_key)
        contents.append(stored.data)
        versions.append(stored.version)
    writes = [
        each.kind for each in store.log if each.key == chain.layout.pointer_key and not each.kind.startswith("get")
    ]
    assert writes == ["put_new"] + ["swap"] * 7
    assert len(set(contents)) == len(contents)
    assert len(set(versions)) == len(versions)
