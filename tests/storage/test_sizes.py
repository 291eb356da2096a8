"""Sizes are what a commit asks of every artifact; a store may answer them its own way, but never differently."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.errors import InvalidKey
from holdfast.storage.local import LocalStore
from holdfast.storage.memory import MemoryStore
from holdfast.storage.objects import ObjectStore, sizes_of
from holdfast.testing.faulty import CountingStore

KEYS = ["a/one", "a/none", "a", "a/empty", "a/one/below", "a/one"]


@pytest.mark.parametrize("kind", ["local", "memory", "counting"])
def test_sizes_are_those_that_a_head_of_each_key_would_tell(kind: str, tmp_path: Path) -> None:
    local = LocalStore(tmp_path, durable=False)
    stores: dict[str, ObjectStore] = {"local": local, "memory": MemoryStore(), "counting": CountingStore(local)}
    store = stores[kind]
    store.put_new("a/one", b"12345")
    store.put_new("a/empty", b"")
    assert sizes_of(store, KEYS) == [5, None, None, 0, None, 5]
    assert sizes_of(store, KEYS) == [None if info is None else info.size for info in store.head_many(KEYS)]
    assert sizes_of(store, []) == []


def test_sizes_refuse_a_key_that_leaves_the_store(tmp_path: Path) -> None:
    with pytest.raises(InvalidKey):
        sizes_of(LocalStore(tmp_path), ["../outside"])
