"""Sizes are what a commit asks of every artifact, and keys what a collector asks of every object.

A store may answer them its own way, but never differently.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.errors import InvalidKey
from holdfast.storage.local import LocalStore
from holdfast.storage.memory import MemoryStore
from holdfast.storage.objects import ObjectStore, list_keys_of, sizes_of
from holdfast.storage.scope import scope
from holdfast.testing.faulty import CountingStore

KEYS = ["a/one", "a/none", "a", "a/empty", "a/one/below", "a/one"]


@pytest.fixture(params=["local", "memory", "counting", "local folder", "memory folder"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    local = LocalStore(tmp_path, durable=False)
    stores: dict[str, ObjectStore] = {
        "local": local,
        "memory": MemoryStore(),
        "counting": CountingStore(local),
        "local folder": scope(local, "below/here"),
        "memory folder": scope(MemoryStore(), "below/here"),
    }
    return stores[str(request.param)]


def test_sizes_are_those_that_a_head_of_each_key_would_tell(store: ObjectStore) -> None:
    store.put_new("a/one", b"12345")
    store.put_new("a/empty", b"")
    assert sizes_of(store, KEYS) == [5, None, None, 0, None, 5]
    assert sizes_of(store, KEYS) == [None if info is None else info.size for info in store.head_many(KEYS)]
    assert sizes_of(store, []) == []


def test_sizes_refuse_a_key_that_leaves_the_store(tmp_path: Path) -> None:
    with pytest.raises(InvalidKey):
        sizes_of(LocalStore(tmp_path), ["../outside"])


def test_keys_are_listed_as_a_whole_listing_would_with_sizes_that_are_true_or_left_out(store: ObjectStore) -> None:
    for number, key in enumerate(("a-b/one", "a.b", "a/one", "a/two/three", "ab", "b/one")):
        store.put_new(key, b"x" * number)
    for prefix in ("", "a", "a/", "a/two", "none"):
        listed = [info for page in store.list(prefix) for info in page]
        found = list(list_keys_of(store, prefix))
        assert [key for key, _ in found] == [info.key for info in listed]
        assert all(size in {None, info.size} for (_, size), info in zip(found, listed, strict=True))


def test_a_writers_temporary_file_is_no_key(tmp_path: Path) -> None:
    store = LocalStore(tmp_path, durable=False)
    store.put_new("a/one", b"12345")
    (tmp_path / "a" / ".holdfast-1.tmp").write_bytes(b"half")
    assert list(list_keys_of(store, "a")) == [("a/one", None)]


def test_keys_below_a_folder_that_leaves_the_store_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidKey):
        list(list_keys_of(LocalStore(tmp_path), "../outside"))
