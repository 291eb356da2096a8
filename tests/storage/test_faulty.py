"""The stores that misbehave do so exactly as planned, and the one that counts counts every request."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.errors import AlreadyExists, ObjectNotFound, StoreUnavailable, VersionConflict
from holdfast.storage import MemoryStore, ObjectStore
from holdfast.testing.faulty import CountingStore, Crashed, Fault, FaultyStore
from holdfast.testing.store_contract import StoreContract


class TestFaultyStoreWithoutFaults(StoreContract):
    """A plan that passes everything changes nothing."""

    @pytest.fixture
    def store(self) -> ObjectStore:
        return FaultyStore(MemoryStore())

    def reopen(self, store: ObjectStore) -> ObjectStore:
        return store


@pytest.mark.parametrize(
    "fault, raised, happened",
    [
        (Fault.ERROR_BEFORE, StoreUnavailable, False),
        (Fault.ERROR_AFTER, StoreUnavailable, True),
        (Fault.CRASH_BEFORE, Crashed, False),
        (Fault.CRASH_AFTER, Crashed, True),
    ],
)
def test_a_fault_strikes_before_or_after_the_effect(fault: Fault, raised: type[BaseException], happened: bool) -> None:
    """S17: what a lost answer leaves behind is what the fault says, for creates, swaps and deletes."""
    store = MemoryStore()
    version = store.put_new("a", b"old")
    store.put_new("doomed", b"")
    faulty = FaultyStore(store, lambda _operation: fault)
    with pytest.raises(raised):
        faulty.put_new("b", b"new")
    with pytest.raises(raised):
        faulty.swap("a", b"new", expected=version)
    with pytest.raises(raised):
        faulty.delete(["doomed"])
    with pytest.raises(raised):
        asyncio.run(faulty.as_async().get("a"))
    assert (store.head_many(["b"]) != [None]) is happened
    assert (store.get("a").data == b"new") is happened
    assert (store.head_many(["doomed"]) == [None]) is happened


def test_an_echo_reports_our_own_write_as_a_conflict() -> None:
    """S17: the write is there, and the answer says that somebody else was first, as a client that retries does."""
    store = MemoryStore()
    faulty = FaultyStore(store, lambda _operation: Fault.ECHO)
    with pytest.raises(AlreadyExists):
        faulty.put_new("a", b"mine")
    with pytest.raises(VersionConflict):
        faulty.swap("a", b"mine too", expected=store.get("a").version)
    assert store.get("a").data == b"mine too"


def test_a_lost_answer_hides_a_conflict_too() -> None:
    """S17: when the answer is lost the caller does not learn of a conflict either."""
    store = MemoryStore()
    store.put_new("a", b"theirs")
    faulty = FaultyStore(store, lambda _operation: Fault.ERROR_AFTER)
    with pytest.raises(StoreUnavailable):
        faulty.put_new("a", b"mine")
    with pytest.raises(StoreUnavailable):
        faulty.get("missing")


def test_a_crash_is_caught_by_no_ordinary_handler() -> None:
    """S47: code that goes on after `except Exception` cannot go on after a crash."""
    assert not issubclass(Crashed, Exception)


def test_every_request_is_counted_by_kind() -> None:
    """S13: heads count one by one, listings by page, deletes by batch, the async half like the sync half."""
    store = CountingStore(MemoryStore())
    version = store.put_new("a/1", b"")
    store.swap("a/1", b"x", expected=version)
    store.upload("a/2", [b"y"])
    store.get("a/1")
    store.get_if_changed("a/1", version)
    store.get_range("a/1", 0, 1)
    store.head_many(["a/1", "a/2", "a/3"])
    assert [len(page) for page in store.list("a", page_size=1)] == [1, 1]
    assert list(store.list("nowhere")) == []
    store.list_folders("")
    store.delete(f"a/{number}" for number in range(1500))
    with pytest.raises(ObjectNotFound):
        asyncio.run(store.as_async().head("a/1"))
    assert store.counts == {
        "delete": 2,
        "get": 1,
        "get_if_changed": 1,
        "get_range": 1,
        "head": 4,
        "list": 3,
        "list_folders": 1,
        "put_new": 1,
        "swap": 1,
        "upload": 1,
    }
    assert store.total == 16
    assert [operation.serial for operation in store.log] == list(range(1, 17))
    store.reset()
    assert (store.total, store.counts, store.log) == (0, {}, ())
