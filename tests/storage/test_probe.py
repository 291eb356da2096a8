"""A store that ignores conditions is refused before anything is written to it."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from holdfast.errors import AlreadyExists, UnsafeStore, VersionConflict
from holdfast.storage import MemoryStore, ObjectStore, Version, ensure_safe, probe_conditional_writes
from holdfast.testing.faulty import CountingStore, Fault, FaultyStore, InterceptedStore
from holdfast.testing.servers import Server

Opener = Callable[[Server, str], ObjectStore]


class _Untrusted(CountingStore):
    """A store that is not one of ours, as far as the probe knows."""

    conditional_writes_trusted = False


class _OverwritingStore(InterceptedStore):
    """Ignores "must not exist"."""

    def put_new(self, key: str, data: bytes, *, durable: bool = True) -> Version:
        try:
            return super().put_new(key, data, durable=durable)
        except AlreadyExists:
            return super().swap(key, data, expected=self._store.get(key).version)


class _BlindStore(InterceptedStore):
    """Ignores the version of a swap."""

    def swap(self, key: str, data: bytes, *, expected: Version, durable: bool = True) -> Version:
        return super().swap(key, data, expected=self._store.get(key).version, durable=durable)


class _LyingStore(InterceptedStore):
    """Reports the conflict, and writes all the same."""

    def swap(self, key: str, data: bytes, *, expected: Version, durable: bool = True) -> Version:
        current = self._store.get(key).version
        version = super().swap(key, data, expected=current, durable=durable)
        if current != expected:
            raise VersionConflict(key)
        return version


class _FrozenStore(InterceptedStore):
    """Never replaces anything."""

    def swap(self, key: str, data: bytes, *, expected: Version, durable: bool = True) -> Version:
        raise VersionConflict(key)


class _ForgetfulStore(InterceptedStore):
    """Accepts a swap and forgets it."""

    def swap(self, key: str, data: bytes, *, expected: Version, durable: bool = True) -> Version:
        return expected


@pytest.mark.parametrize(
    "kind, what",
    [
        (_OverwritingStore, "an existing object be created again"),
        (_BlindStore, "replaced against a version that was gone"),
        (_LyingStore, "refused a write and stored it"),
        (_FrozenStore, "refuses to replace an object"),
        (_ForgetfulStore, "accepted a write and did not store it"),
    ],
)
def test_a_store_that_breaks_a_condition_is_refused_by_name(kind: type[InterceptedStore], what: str) -> None:
    """S48: each way of not honouring a condition is found, and the message names the store and what it did."""
    store = kind(MemoryStore())
    with pytest.raises(UnsafeStore, match=what) as caught:
        probe_conditional_writes(store, "probe")
    assert store.url in str(caught.value)


@pytest.mark.server
def test_a_server_that_ignores_conditions_is_refused(rclone: Server, open_on: Opener, bucket: str) -> None:
    """S48: a real server that accepts conditional writes and ignores them is not used, the second time neither."""
    store = open_on(rclone, f"s3://{bucket}")
    for _ in range(2):
        with pytest.raises(UnsafeStore, match=f"s3://{bucket}"):
            ensure_safe(store, "locks/probe")


@pytest.mark.server
def test_a_server_that_honours_conditions_is_accepted(ministack: Server, open_on: Opener, bucket: str) -> None:
    """S48: at first use and ever after, also when the probe's object is there already."""
    store = open_on(ministack, f"s3://{bucket}")
    ensure_safe(store, "locks/probe")
    probe_conditional_writes(store, "locks/probe")
    assert [info.key for page in store.list("") for info in page] == ["locks/probe"]


def test_a_store_is_asked_once_per_process_and_nothing_is_deleted() -> None:
    """S48, I10: six requests at first use, none after, no delete; our own stores are trusted."""
    store = _Untrusted(MemoryStore())
    ensure_safe(store, "probe")
    assert store.counts == {"get": 3, "put_new": 2, "swap": 2}
    ensure_safe(store, "probe")
    assert store.total == 7
    trusted = CountingStore(MemoryStore())
    ensure_safe(trusted, "probe")
    assert trusted.total == 0


def test_an_echo_of_our_own_write_is_not_taken_for_a_broken_store() -> None:
    """S48, S17: a lost answer that comes back as a conflict says nothing against the store."""
    echoed = {("put_new", 1), ("swap", 1)}
    store = FaultyStore(MemoryStore(), lambda step: Fault.ECHO if (step.kind, step.number) in echoed else Fault.PASS)
    probe_conditional_writes(store, "probe")


def test_fifty_probes_at_once_all_find_the_store_safe() -> None:
    """S48: conflicts between probes are the store honouring conditions, not a failure."""
    store = MemoryStore()
    start = threading.Barrier(50)
    failures: list[BaseException] = []

    def probe() -> None:
        start.wait(30)
        try:
            probe_conditional_writes(store, "probe")
        except BaseException as error:
            failures.append(error)
            raise

    threads = [threading.Thread(target=probe) for _ in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
