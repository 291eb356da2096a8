"""The store in memory keeps the contract."""

from __future__ import annotations

import gc
import pickle

import pytest

from holdfast.errors import ObjectNotFound
from holdfast.storage import MemoryStore, ObjectStore, open_store
from holdfast.testing.store_contract import StoreContract


class TestMemoryStore(StoreContract):
    """The contract, within one process."""

    @pytest.fixture
    def store(self) -> ObjectStore:
        return MemoryStore()


def test_a_name_is_one_store_within_the_process() -> None:
    """S13: two handles of one name share objects; other names do not."""
    name = f"shared-{id(object())}"
    MemoryStore(name).put_new("a", b"one")
    assert open_store(f"memory://{name}").get("a").data == b"one"
    with pytest.raises(ObjectNotFound):
        MemoryStore(f"{name}-not").get("a")


def test_unnamed_stores_are_apart_and_end_with_their_last_handle() -> None:
    """S13: an unnamed store is found again through a pickle while a handle lives, and then its memory is free."""
    one, other = MemoryStore(), MemoryStore()
    one.put_new("a", b"one")
    with pytest.raises(ObjectNotFound):
        other.get("a")
    pickled = pickle.dumps(one)
    assert pickle.loads(pickled).get("a").data == b"one"
    del one
    gc.collect()
    with pytest.raises(ObjectNotFound):
        pickle.loads(pickled).get("a")
