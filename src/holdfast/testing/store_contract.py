"""The promises of `holdfast.storage.objects`, as tests that any store can inherit.

    class TestMyStore(StoreContract):
        @pytest.fixture
        def store(self, tmp_path: Path) -> ObjectStore:
            return MyStore(tmp_path)

The store must be empty. A store that other processes can reach inherits `ProcessStoreContract`, which adds their races.
"""

from __future__ import annotations

import asyncio
import pickle
import tracemalloc
from collections.abc import Callable, Iterator

import pytest

from holdfast.errors import AlreadyExists, BadInput, InvalidKey, ObjectNotFound, ScopeEscape, VersionConflict
from holdfast.storage.objects import AsyncObjectReader, ObjectInfo, ObjectStore, StoredObject, Version
from holdfast.storage.scope import scope
from holdfast.testing.races import Winners, race_in_processes, race_in_threads

__all__ = ["ODD_KEYS", "ProcessStoreContract", "StoreContract"]

ODD_KEYS = (
    "a b/c",
    "a+b",
    "a&b=c",
    "a#b?c",
    "a%41b",
    "a:b",
    "a'b\"c",
    "a~b!$(*),;@[]",
    "...dots",
    ".hidden/.file",
    "é/ü",
    "e\u0301-is-not-\u00e9",
    "日本/データ",
    "😀",
    "x" * 240,
    "/".join(["deep"] * 40),
)
"""Keys that some file system, server or client has been seen to mangle."""

_MIB = 1024 * 1024


class StoreContract:
    """What every store promises, within one process."""

    racers = 50
    """How many writers race."""
    rounds = 4
    """How many races are run of each kind."""
    ordered_listing = True
    """Whether listings are in key order. One server's are not; then completeness is all that is asked for."""
    listed_versions_equal = True
    """Whether a listing names the same version as a head."""
    same_bytes_new_version = True
    """Whether writing the same bytes again makes a new version. Where it is made from the content, it does not."""
    forgets_empty_folders = True
    """Whether a folder is gone with its last object. Some servers take their time."""
    large_bytes = 32 * _MIB
    upload_memory_max: int | None = None
    """Python memory that an upload of `large_bytes` may take, where that is promised."""

    def reopen(self, store: ObjectStore) -> ObjectStore:
        """A second handle on the same objects."""
        again = pickle.loads(pickle.dumps(store))
        assert isinstance(again, ObjectStore)
        return again

    def test_what_is_created_is_read_back_at_the_version_that_was_returned(self, store: ObjectStore) -> None:
        """S13: create, get and head agree on the version, from every handle."""
        version = store.put_new("a/b", b"one")
        assert store.get("a/b") == StoredObject(key="a/b", data=b"one", version=version)
        info = self.reopen(store).head("a/b")
        assert (info.key, info.size, info.version) == ("a/b", 3, version)
        assert info.modified_at.tzinfo is not None

    def test_creating_an_existing_key_is_refused_and_changes_nothing(self, store: ObjectStore) -> None:
        """S13: there is no unconditional create."""
        version = store.put_new("a/b", b"one")
        with pytest.raises(AlreadyExists) as caught:
            store.put_new("a/b", b"two")
        assert caught.value.key == "a/b"
        assert store.get("a/b") == StoredObject(key="a/b", data=b"one", version=version)

    def test_a_swap_replaces_only_the_version_it_names(self, store: ObjectStore) -> None:
        """S13: a current version is replaced, a stale one is refused and changes nothing."""
        first = store.put_new("a/b", b"one")
        second = store.swap("a/b", b"two", expected=first)
        assert first != second
        assert store.get("a/b") == StoredObject(key="a/b", data=b"two", version=second)
        with pytest.raises(VersionConflict) as caught:
            store.swap("a/b", b"three", expected=first)
        assert caught.value.key == "a/b"
        assert store.get("a/b").data == b"two"

    @pytest.mark.parametrize(
        "version",
        ["", "*", "x", '"x"', '"a", "b"', "W/*", "0", "-1", "\n", "é", "|", '"x"|1', "1-2-3", "m1 ", "z" * 999],
    )
    def test_a_version_that_was_never_one_conflicts(self, store: ObjectStore, version: str) -> None:
        """S13: a malformed version is a conflict like any other; above all it never matches everything."""
        store.put_new("a/b", b"one")
        with pytest.raises(VersionConflict):
            store.swap("a/b", b"two", expected=Version(version))
        assert store.get("a/b").data == b"one"

    def test_a_swap_of_a_missing_object_conflicts_and_creates_nothing(self, store: ObjectStore) -> None:
        """S13: a swap never creates."""
        version = store.put_new("a/b", b"one")
        for key in ("a/c", "a/b-not", "nowhere/at/all"):
            with pytest.raises(VersionConflict):
                store.swap(key, b"two", expected=version)
            with pytest.raises(ObjectNotFound):
                store.head(key)

    def test_a_version_does_not_come_back_with_other_content(self, store: ObjectStore) -> None:
        """S13: after a delete and a new object at the same key, the old version still conflicts (no ABA)."""
        seen = set()
        for number in range(20):
            version = store.put_new("a/b", b"%02d" % number)
            assert version not in seen
            seen.add(version)
            store.delete(["a/b"])
        store.put_new("a/b", b"end")
        for version in seen:
            with pytest.raises(VersionConflict):
                store.swap("a/b", b"mine", expected=version)

    def test_versions_of_one_key_never_repeat(self, store: ObjectStore) -> None:
        """S13: every write of a key has a version of its own, even within one tick of the clock."""
        version = store.put_new("a/b", b"00")
        seen = {version}
        for number in range(1, 50):
            data = b"00" if self.same_bytes_new_version else b"%02d" % number
            version = store.swap("a/b", data, expected=version)
            assert version not in seen
            seen.add(version)

    def test_of_many_threads_exactly_one_creates_and_one_swaps(self, store: ObjectStore) -> None:
        """S13: races between threads have one winner, and its content is what is there."""
        stores = [self.reopen(store) for _ in range(5)]
        _check_winners(store, race_in_threads(stores, racers=self.racers, rounds=self.rounds), self.rounds)

    def test_missing_objects_are_not_found(self, store: ObjectStore) -> None:
        """S13: every read of a missing key says so, also where a folder or an object stands in its way."""
        store.put_new("a/b", b"one")
        for key in ("missing", "a", "a/b/c", "a/bb"):
            for read in _all_reads(store, key):
                with pytest.raises(ObjectNotFound):
                    read()
            assert store.head_many([key]) == [None]

    def test_an_unchanged_object_is_not_read_again(self, store: ObjectStore) -> None:
        """S13: get_if_changed is None at the known version, and the new object otherwise."""
        first = store.put_new("a/b", b"one")
        assert store.get_if_changed("a/b", first) is None
        second = store.swap("a/b", b"two", expected=first)
        assert store.get_if_changed("a/b", first) == StoredObject(key="a/b", data=b"two", version=second)
        assert store.get_if_changed("a/b", Version("nonsense")) is not None

    @pytest.mark.parametrize("key", ODD_KEYS)
    def test_odd_keys_mean_themselves(self, store: ObjectStore, key: str) -> None:
        """C11: a key is never normalised, decoded or folded on its way."""
        store.put_new(key, key.encode())
        assert store.get(key).data == key.encode()
        assert [info.key for page in store.list("") for info in page] == [key]

    @pytest.mark.parametrize(
        "key", ["", "/a", "a/", "a//b", "..", "../a", "a/../b", "%2e%2e/a", "a%2Fb", "a\\b", "a\nb"]
    )
    def test_keys_that_would_leave_are_refused_everywhere(self, store: ObjectStore, key: str) -> None:
        """C11: no operation accepts a key that could name something else; a scope says that it would leave."""
        for each in (store, scope(store, "tenant/workspace")):
            for operation in _all_operations(each, key):
                with pytest.raises((InvalidKey, ScopeEscape)):
                    operation()

    def test_a_scope_sees_its_own_objects_only(self, store: ObjectStore) -> None:
        """C11: two workspaces in one store cannot read, list or delete each other's objects."""
        ours, theirs = scope(store, "t/ours"), scope(store, "t/ours-not")
        version = ours.put_new("x/y", b"ours")
        theirs.put_new("x/y", b"theirs")
        assert ours.get("x/y") == StoredObject(key="x/y", data=b"ours", version=version)
        assert [info.key for page in ours.list("") for info in page] == ["x/y"]
        assert ours.list_folders("") == ["x"]
        ours.delete(["x/y"])
        assert theirs.get("x/y").data == b"theirs"
        with pytest.raises(ScopeEscape):
            ours.get("../ours-not/x/y")
        assert self.reopen(theirs).url == theirs.url

    def test_empty_objects_are_objects(self, store: ObjectStore) -> None:
        """S13: no bytes are bytes, however they are written."""
        version = store.put_new("a/put", b"")
        assert store.upload("a/uploaded", []).size == 0
        assert store.get("a/put") == StoredObject(key="a/put", data=b"", version=version)
        assert store.get("a/uploaded").data == b""
        assert store.get_range("a/put", 0, 10) == b""

    def test_ranges_end_where_the_object_ends(self, store: ObjectStore) -> None:
        """S13: a range is exact inside, short at the end, empty behind it, and never negative."""
        data = bytes(range(200))
        store.put_new("a/b", data)
        for start, length in [
            (0, 200),
            (0, 1),
            (199, 1),
            (10, 50),
            (190, 100),
            (200, 1),
            (5000, 10),
            (7, 0),
            (0, 10**6),
        ]:
            assert store.get_range("a/b", start, length) == data[start : start + length]
        for start, length in [(-1, 5), (0, -1)]:
            with pytest.raises(BadInput):
                store.get_range("a/b", start, length)

    def test_a_large_upload_arrives_whole_and_only_once(self, store: ObjectStore) -> None:
        """S13, S46: an upload is visible whole or not at all, never replaces, and takes bounded memory."""
        count = self.large_bytes // _MIB

        def chunks() -> Iterator[bytes]:
            for number in range(count):
                yield bytes([number % 251]) * _MIB

        tracemalloc.start()
        try:
            info = store.upload("a/large", chunks())
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        if self.upload_memory_max is not None:
            assert peak < self.upload_memory_max
        assert info.size == self.large_bytes
        assert store.head("a/large") == info
        for number in (0, count // 2, count - 1):
            assert store.get_range("a/large", number * _MIB, _MIB) == bytes([number % 251]) * _MIB
        with pytest.raises(AlreadyExists):
            store.upload("a/large", chunks())
        with pytest.raises(AlreadyExists):
            store.upload("a/large", [b"small"])

    def test_an_upload_whose_source_fails_leaves_nothing(self, store: ObjectStore) -> None:
        """S46, S47: the source's own exception comes out, and no object is there."""

        def broken() -> Iterator[bytes]:
            for _ in range(20):
                yield b"x" * _MIB
            raise RuntimeError("the source broke")

        with pytest.raises(RuntimeError, match="the source broke"):
            store.upload("a/broken", broken())
        assert store.head_many(["a/broken"]) == [None]
        assert list(store.list("")) == []

    def test_listing_is_complete_ordered_and_paged(self, store: ObjectStore) -> None:
        """S13: byte order of whole keys, pages no larger than asked for, and `after` continues exactly."""
        keys = ["a", "b-c/x", "b.c", "b/a", "b/c/d", "b/c/e", "b/c-d", "ba", "c/é", "c/z", "Z", "z/😀"]
        for key in keys:
            store.put_new(key, key.encode())
        assert _listed(store, "") == (sorted(keys) if self.ordered_listing else _listed(store, ""))
        assert sorted(_listed(store, "")) == sorted(keys)
        assert sorted(_listed(store, "b")) == ["b/a", "b/c-d", "b/c/d", "b/c/e"]
        assert _listed(store, "b/") == _listed(store, "b")
        assert _listed(store, "nowhere") == []
        assert _listed(store, "a") == []
        pages = list(store.list("", page_size=5))
        assert all(len(page) <= 5 for page in pages)
        assert sorted(info.key for page in pages for info in page) == sorted(keys)
        sizes = {info.key: info.size for page in pages for info in page}
        assert sizes == {key: len(key.encode()) for key in keys}
        if self.ordered_listing:
            for after in [*keys, "", "b", "b/", "b/c", "b/c/", "b/c/d0", "zzz", "\U0010ffff"]:
                assert _listed(store, "", after=after) == sorted(key for key in keys if key > after), after
                assert _listed(store, "b", after=after) == sorted(k for k in keys if k > after and k.startswith("b/"))
        with pytest.raises(BadInput):
            store.list("", page_size=0)

    def test_listed_versions_are_those_of_the_objects(self, store: ObjectStore) -> None:
        """S13: what a listing says of an object is what a head says."""
        for number in range(5):
            store.put_new(f"a/{number}", b"x" * number)
        listed = [info for page in store.list("a") for info in page]
        heads = [store.head(info.key) for info in listed]
        if self.listed_versions_equal:
            assert [_facts(info) for info in listed] == [_facts(info) for info in heads]
        else:
            assert [(info.key, info.size) for info in listed] == [(info.key, info.size) for info in heads]

    def test_many_objects_are_listed_over_many_pages(self, store: ObjectStore) -> None:
        """S13: nothing is lost between a server's pages."""
        keys = [f"many/{number:04d}" for number in range(230)]
        for key in keys:
            store.put_new(key, b"", durable=False)
        assert _listed(store, "many", page_size=100) == keys
        assert _listed(store, "many", after=keys[120], page_size=7) == keys[121:]

    def test_folders_are_those_with_objects_below(self, store: ObjectStore) -> None:
        """S13: list_folders names the next segment, sorted, and forgets a folder with its last object."""
        for key in ("a/1", "a/b/2", "a-b/3", "top", "a/c/d/e"):
            store.put_new(key, b"")
        assert store.list_folders("") == ["a", "a-b"]
        assert store.list_folders("a") == ["b", "c"]
        assert store.list_folders("a/") == ["b", "c"]
        assert store.list_folders("a/c") == ["d"]
        assert store.list_folders("nowhere") == []
        store.delete(["a/c/d/e"])
        if self.forgets_empty_folders:
            assert store.list_folders("a") == ["b"]

    def test_heads_come_in_the_order_of_the_keys(self, store: ObjectStore) -> None:
        """S16: head_many answers every key in its place, missing ones with None, more of them than run at once."""
        for number in range(0, 80, 2):
            store.put_new(f"a/{number}", b"x" * number)
        keys = [f"a/{number}" for number in range(80)]
        found = store.head_many(keys)
        assert [info.size if info else None for info in found] == [n if n % 2 == 0 else None for n in range(80)]
        assert [info.key for info in found if info] == keys[::2]
        assert store.head_many([]) == []

    def test_deleting_is_idempotent(self, store: ObjectStore) -> None:
        """S47: a missing object is no error, and others in the same call are still deleted."""
        store.put_new("a/b", b"")
        store.put_new("a/c", b"")
        store.delete(["a/missing", "a/b", "nowhere/x", "a", "a/b"])
        assert _listed(store, "") == ["a/c"]
        store.delete([])
        store.put_new("a/b", b"again")
        assert store.get("a/b").data == b"again"

    def test_a_pickled_handle_reads_and_writes_the_same_objects(self, store: ObjectStore) -> None:
        """S13: executors get a store by pickle; what one handle writes the other sees."""
        again = self.reopen(store)
        assert again.url == store.url
        version = again.put_new("a/b", b"one")
        assert store.swap("a/b", b"two", expected=version) == again.get("a/b").version

    def test_the_async_half_answers_like_the_sync_half(self, store: ObjectStore) -> None:
        """S13: get, get_if_changed, get_range and head, of present and of missing objects."""
        version = store.put_new("a/b", b"0123456789")
        asyncio.run(_check_async(store, store.as_async(), version))
        confined = scope(store, "a")
        asyncio.run(_check_async(confined, confined.as_async(), version, key="b"))


class ProcessStoreContract(StoreContract):
    """For stores that other processes can reach."""

    processes = 8

    def test_of_many_processes_exactly_one_creates_and_one_swaps(self, store: ObjectStore) -> None:
        """S13: races between processes have one winner, and its content is what is there."""
        threads = max(1, self.racers // self.processes)
        winners = race_in_processes(store, processes=self.processes, threads=threads, rounds=self.rounds)
        _check_winners(store, winners, self.rounds)


def _check_winners(store: ObjectStore, winners: Winners, rounds: int) -> None:
    assert set(winners) == {(kind, number) for kind in ("create", "swap") for number in range(rounds)}
    for (kind, number), tokens in winners.items():
        assert len(tokens) == 1, f"{len(tokens)} winners of {kind} {number}: {tokens}"
        assert store.get(f"race/{kind}-{number}").data.decode() == tokens[0]


def _all_reads(store: ObjectStore, key: str) -> list[Callable[[], object]]:
    return [
        lambda: store.get(key),
        lambda: store.head(key),
        lambda: store.get_range(key, 0, 1),
        lambda: store.get_range(key, 0, 0),
        lambda: store.get_if_changed(key, Version("x")),
    ]


def _all_operations(store: ObjectStore, key: str) -> list[Callable[[], object]]:
    return [
        *_all_reads(store, key),
        lambda: store.put_new(key, b""),
        lambda: store.swap(key, b"", expected=Version("x")),
        lambda: store.upload(key, []),
        lambda: store.head_many([key]),
        lambda: store.delete([key]),
    ]


def _listed(store: ObjectStore, prefix: str, *, after: str | None = None, page_size: int = 1000) -> list[str]:
    return [info.key for page in store.list(prefix, after=after, page_size=page_size) for info in page]


def _facts(info: ObjectInfo) -> tuple[str, int, Version]:
    # Without the time: some servers round it in one answer and not in the other.
    return info.key, info.size, info.version


async def _check_async(store: ObjectStore, reader: AsyncObjectReader, version: Version, key: str = "a/b") -> None:
    assert reader.url == store.url
    assert await reader.get(key) == store.get(key)
    assert await reader.head(key) == store.head(key)
    assert await reader.get_if_changed(key, version) is None
    assert await reader.get_if_changed(key, Version("other")) == store.get(key)
    for start, length in [(0, 10), (3, 4), (8, 100), (10, 1), (50, 5), (2, 0)]:
        assert await reader.get_range(key, start, length) == store.get_range(key, start, length)
    with pytest.raises(BadInput):
        await reader.get_range(key, -1, 2)
    for missing in (reader.get("x/y"), reader.head("x/y"), reader.get_range("x/y", 0, 1)):
        with pytest.raises(ObjectNotFound):
            await missing
    with pytest.raises(ObjectNotFound):
        await reader.get_if_changed("x/y", version)
    with pytest.raises((InvalidKey, ScopeEscape)):
        await reader.get("../x")
