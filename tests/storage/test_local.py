"""The store on a file system keeps the contract, on the disk and in shared memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from holdfast.errors import AlreadyExists, InvalidKey, ObjectNotFound, VersionConflict
from holdfast.storage import LocalStore, ObjectStore, open_store
from holdfast.storage.local_io import stamp, version_of
from holdfast.testing.store_contract import ProcessStoreContract

_SHARED_MEMORY = Path("/dev/shm")


class TestLocalStore(ProcessStoreContract):
    """The contract on the disk, syncs included."""

    upload_memory_max = 8 * 1024 * 1024

    @pytest.fixture
    def store(self, tmp_path: Path) -> ObjectStore:
        return LocalStore(tmp_path / "root")


@pytest.mark.skipif(not _SHARED_MEMORY.is_dir(), reason="no shared memory file system here")
class TestLocalStoreInSharedMemory(ProcessStoreContract):
    """The contract on another kind of file system, without syncs."""

    upload_memory_max = 8 * 1024 * 1024

    @pytest.fixture
    def store(self) -> Iterator[ObjectStore]:
        with TemporaryDirectory(dir=_SHARED_MEMORY) as folder:
            yield LocalStore(Path(folder), durable=False)


def test_stores_with_different_roots_exclude_each_other(tmp_path: Path) -> None:
    """S13: the lock belongs to the files, not to the store: handles on two roots see and refuse the same versions."""
    outer, inner = LocalStore(tmp_path), LocalStore(tmp_path / "a")
    version = outer.put_new("a/b/c", b"one")
    assert inner.get("b/c").version == version
    inner.swap("b/c", b"two", expected=version)
    with pytest.raises(VersionConflict):
        outer.swap("a/b/c", b"three", expected=version)
    with pytest.raises(AlreadyExists):
        inner.put_new("b/c", b"")


def test_versions_grow_even_when_the_clock_stands_in_the_past(tmp_path: Path) -> None:
    """S13: a file from the future still gets a later version with every swap."""
    store = LocalStore(tmp_path)
    store.put_new("a", b"x")
    future_ns = 4_000_000_000_000_000_000
    os.utime(tmp_path / "a", ns=(future_ns, future_ns))
    version = store.get("a").version
    for _ in range(10):
        replaced = version
        version = store.swap("a", b"x", expected=replaced)
        assert int(version.split("-")[0], 16) > int(replaced.split("-")[0], 16)


def test_two_files_with_one_inode_in_one_tick_have_two_versions(tmp_path: Path) -> None:
    """S13: a file made after a delete may get the same inode and the same coarse time; the stamp tells them apart."""
    descriptor = os.open(tmp_path / "a", os.O_RDWR | os.O_CREAT)
    try:
        seen = set()
        for noise in (1, 2, 3):
            os.utime(descriptor, ns=(10**18, 10**18))
            seen.add(version_of(stamp(descriptor, noise=noise, previous_ns=0)))
    finally:
        os.close(descriptor)
    assert len(seen) == 3


def test_folders_go_with_their_last_object(tmp_path: Path) -> None:
    """S47: a delete leaves no empty folders behind, and keeps the root and those that are still needed."""
    store = LocalStore(tmp_path / "root")
    for key in ("a/b/c/d", "a/e"):
        store.put_new(key, b"")
    store.delete(["a/b/c/d"])
    assert sorted(path.name for path in (tmp_path / "root" / "a").iterdir()) == ["e"]
    store.delete(["a/e"])
    assert list((tmp_path / "root").iterdir()) == []


def test_a_file_system_without_links_still_creates_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S13: where hard links are refused, the folder's lock decides between creators."""

    def refuse(*_args: object, **_options: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    steps: list[str] = []
    store = LocalStore(tmp_path, step=steps.append)
    version = store.put_new("a/b", b"one")
    with pytest.raises(AlreadyExists):
        store.put_new("a/b", b"two")
    assert store.get("a/b").version == version
    assert store.stray_temporaries() == []
    assert {"locked", "renamed"} < set(steps)


def test_an_object_is_never_a_folder(tmp_path: Path) -> None:
    """C11: on a file system a key below an object is refused clearly; reading it finds nothing."""
    store = LocalStore(tmp_path)
    version = store.put_new("a/b", b"one")
    with pytest.raises(InvalidKey):
        store.put_new("a/b/c", b"two")
    with pytest.raises(InvalidKey):
        store.put_new("a", b"two")
    with pytest.raises(VersionConflict):
        store.swap("a", b"two", expected=version)
    with pytest.raises(ObjectNotFound):
        store.get("a")
    assert store.stray_temporaries() == []


def test_nothing_is_made_before_the_first_write(tmp_path: Path) -> None:
    """S13: opening, reading and listing a store leave no trace."""
    store = LocalStore(tmp_path / "not" / "yet")
    assert list(store.list("")) == []
    assert store.list_folders("") == []
    assert store.head_many(["a"]) == [None]
    store.delete(["a/b"])
    assert not (tmp_path / "not").exists()


def test_the_url_opens_the_same_store(tmp_path: Path) -> None:
    """S13: the URL names the root exactly, odd characters included."""
    store = LocalStore(tmp_path / "a b%é#?")
    store.put_new("x", b"one")
    assert open_store(store.url).get("x").data == b"one"
    assert open_store(tmp_path / "a b%é#?").get("x").data == b"one"
