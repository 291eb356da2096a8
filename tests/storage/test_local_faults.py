"""What a power cut, a kill or a full disk can do to the store on a file system: nothing but leave a temporary file."""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from holdfast.clock import SystemClock
from holdfast.errors import (
    AlreadyExists,
    HoldfastError,
    ObjectNotFound,
    StoreDenied,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
    UnsafeStore,
    VersionConflict,
)
from holdfast.storage import LocalStore
from holdfast.storage.objects import Version
from holdfast.testing.races import race_in_threads

_CREATE_STEPS = ("temp-made", "temp-written", "temp-synced", "linked", "unlinked", "dir-synced")
_SWAP_STEPS = ("temp-made", "temp-written", "temp-synced", "locked", "compared", "renamed", "dir-synced")

# Runs one write in a process of its own, and kills it with no warning at a named step.
_VICTIM = """
import os, signal, sys
from holdfast.storage import LocalStore

root, write, fatal = sys.argv[1:]

def step(name):
    if name == fatal:
        os.kill(os.getpid(), signal.SIGKILL)

store = LocalStore(root, step=step)
if write == "swap":
    store.swap("a/b", b"new" * 10_000, expected=store.get("a/b").version)
elif write == "upload":
    store.upload("a/b", [b"new"] * 10_000)
else:
    store.put_new("a/b", b"new" * 10_000)
"""


def _run(script: str, *args: str) -> subprocess.CompletedProcess[str]:
    source = str(Path(__file__).parents[2] / "src")
    environment = {**os.environ, "PYTHONPATH": source}
    return subprocess.run(
        [sys.executable, "-c", script, *args], capture_output=True, text=True, timeout=120, check=False, env=environment
    )


@pytest.mark.parametrize("fatal", _SWAP_STEPS)
def test_a_kill_in_a_swap_leaves_the_old_or_the_new_object(tmp_path: Path, fatal: str) -> None:
    """S46, S47: before the rename the old one, from it on the new one, whole; and the next writer is not hindered."""
    store = LocalStore(tmp_path)
    version = store.put_new("a/b", b"old")
    done = _run(_VICTIM, str(tmp_path), "swap", fatal)
    assert done.returncode == -signal.SIGKILL, done.stderr
    renamed = _SWAP_STEPS.index(fatal) >= _SWAP_STEPS.index("renamed")
    found = store.get("a/b")
    assert found.data == (b"new" * 10_000 if renamed else b"old")
    assert (found.version == version) is not renamed
    assert len(store.stray_temporaries()) == (0 if renamed else 1)
    store.swap("a/b", b"next", expected=found.version)
    _check_strays_are_ignored_and_collected(store)


@pytest.mark.parametrize("write", ["put_new", "upload"])
@pytest.mark.parametrize("fatal", _CREATE_STEPS)
def test_a_kill_in_a_create_leaves_nothing_or_the_whole_object(tmp_path: Path, write: str, fatal: str) -> None:
    """S46, S47: before the link nothing, from it on the whole object; a stray file never blocks the next attempt."""
    store = LocalStore(tmp_path)
    done = _run(_VICTIM, str(tmp_path), write, fatal)
    assert done.returncode == -signal.SIGKILL, done.stderr
    if _CREATE_STEPS.index(fatal) >= _CREATE_STEPS.index("linked"):
        assert store.get("a/b").data == b"new" * 10_000
        with pytest.raises(AlreadyExists):
            store.put_new("a/b", b"next")
    else:
        with pytest.raises(ObjectNotFound):
            store.get("a/b")
        assert store.list_folders("") == []
        store.put_new("a/b", b"next")
    assert len(store.stray_temporaries()) == (0 if fatal in {"unlinked", "dir-synced"} else 1)
    _check_strays_are_ignored_and_collected(store)


def _check_strays_are_ignored_and_collected(store: LocalStore) -> None:
    before = store.get("a/b")
    assert [info.key for page in store.list("") for info in page] == ["a/b"]
    strays = store.stray_temporaries()
    assert store.remove_stray(SystemClock().now() - timedelta(hours=1)) == []
    assert store.stray_temporaries() == strays
    assert store.remove_stray(SystemClock().now() + timedelta(hours=1)) == [key for key, _ in strays]
    assert store.stray_temporaries() == []
    assert store.get("a/b") == before


class _Recorder:
    """Notes the system calls that durability depends on, in the order in which they are made."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[str] = []
        for name in ("write", "link", "rename", "mkdir"):
            self._watch(monkeypatch, os, name)
        self._watch(monkeypatch, fcntl, "flock")
        real = os.fsync

        def fsync(descriptor: int) -> None:
            self.calls.append("fsync-folder" if os.path.isdir(f"/proc/self/fd/{descriptor}") else "fsync-file")
            real(descriptor)

        monkeypatch.setattr(os, "fsync", fsync)

    def _watch(self, monkeypatch: pytest.MonkeyPatch, module: object, name: str) -> None:
        real: Callable[..., object] = getattr(module, name)

        def watched(*args: object, **options: object) -> object:
            self.calls.append(name)
            return real(*args, **options)

        monkeypatch.setattr(module, name, watched)


def test_bytes_are_durable_before_their_name_and_the_name_before_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S46: write, sync the file, link or rename, sync the folder; new folders are synced in their parents."""
    store = LocalStore(tmp_path)
    recorder = _Recorder(monkeypatch)
    version = store.put_new("a/b/c", b"one")
    assert recorder.calls == [
        *("mkdir", "fsync-folder", "mkdir", "fsync-folder"),
        *("write", "fsync-file", "link", "fsync-folder"),
    ]
    recorder.calls.clear()
    store.swap("a/b/c", b"two", expected=version)
    assert recorder.calls == ["write", "fsync-file", "flock", "rename", "fsync-folder"]
    recorder.calls.clear()
    store.upload("a/b/d", [b"x", b"y"])
    assert recorder.calls == ["write", "write", "fsync-file", "link", "fsync-folder"]


def test_records_that_can_be_derived_again_are_not_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S46: `durable=False`, of a call or of the store, leaves out the syncs and nothing else."""
    recorder = _Recorder(monkeypatch)
    version = LocalStore(tmp_path).put_new("a", b"one", durable=False)
    LocalStore(tmp_path).swap("a", b"two", expected=version, durable=False)
    LocalStore(tmp_path, durable=False).put_new("b", b"three")
    assert "link" in recorder.calls
    assert not [call for call in recorder.calls if call.startswith("fsync")]


def test_the_steps_are_those_that_the_kill_tests_use(tmp_path: Path) -> None:
    """S47: a step that is added is also killed at."""
    steps: list[str] = []
    store = LocalStore(tmp_path, step=steps.append)
    version = store.put_new("a", b"one")
    assert tuple(steps) == _CREATE_STEPS
    steps.clear()
    store.swap("a", b"two", expected=version)
    assert tuple(steps) == _SWAP_STEPS


def test_a_full_disk_changes_nothing(tmp_path: Path) -> None:
    """S46, S47: when the bytes do not fit, the error says so, the old object stays, and no temporary file is left."""
    store = LocalStore(tmp_path)
    version = store.put_new("a", b"old")
    full = """
import resource, sys
from holdfast.errors import StoreFull
from holdfast.storage import LocalStore

store = LocalStore(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
for write in (
    lambda: store.put_new("b", b"x" * 300_000),
    lambda: store.upload("c", [b"x" * 70_000] * 2),
    lambda: store.swap("a", b"x" * 300_000, expected=store.get("a").version),
):
    try:
        write()
    except StoreFull:
        continue
    sys.exit(f"{write} went through")
"""
    done = _run(full, str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert [(info.key, info.version) for page in store.list("") for info in page] == [("a", version)]
    assert store.stray_temporaries() == []
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 100_000


@pytest.mark.parametrize(
    "number, expected",
    [
        (errno.ENOSPC, StoreFull),
        (errno.EDQUOT, StoreFull),
        (errno.EFBIG, StoreFull),
        (errno.EROFS, StoreReadOnly),
        (errno.EACCES, StoreDenied),
        (errno.EIO, StoreUnavailable),
        (errno.EMFILE, StoreUnavailable),
    ],
)
@pytest.mark.parametrize("call", ["open", "write", "fsync", "rename", "link", "utime"])
def test_every_failing_call_is_reported_as_what_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int, expected: type[HoldfastError]
) -> None:
    """S46, S47: whichever call fails, the error names the kind, the old object stays, and no temporary file is left."""
    store = LocalStore(tmp_path)
    version = store.put_new("a/b", b"old")
    real_open = os.open

    def failing(*args: object, **options: object) -> object:
        if call == "open" and not (isinstance(args[1], int) and args[1] & os.O_CREAT):
            return real_open(*args, **options)  # type: ignore[arg-type]
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(os, call, failing)
        if call != "link":
            with pytest.raises(expected):
                store.swap("a/b", b"new", expected=version)
        if call != "rename":
            with pytest.raises(expected):
                store.put_new("a/c", b"new")
    assert store.get("a/b").data == b"old"
    assert store.stray_temporaries() == []


def test_a_read_only_folder_is_denied_or_read_only(tmp_path: Path) -> None:
    """S47: a folder that may not be written to is reported, and nothing is left; root is not stopped by permissions."""
    store = LocalStore(tmp_path)
    version = store.put_new("a/b", b"old")
    (tmp_path / "a").chmod(0o555)
    try:
        if os.access(tmp_path / "a", os.W_OK):
            pytest.skip("this user may write everywhere")
        with pytest.raises(StoreDenied):
            store.put_new("a/c", b"")
        with pytest.raises(StoreDenied):
            store.swap("a/b", b"", expected=version)
    finally:
        (tmp_path / "a").chmod(0o755)
    assert store.get("a/b").data == b"old"


def test_a_sync_that_fails_after_the_rename_does_not_claim_success(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S46: when the folder cannot be synced the write is visible and not confirmed: the caller reads back."""
    store = LocalStore(tmp_path)
    version = store.put_new("a", b"old")
    real = os.fsync

    def failing(descriptor: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{descriptor}"):
            raise OSError(errno.EIO, "Input/output error")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(StoreUnavailable):
        store.swap("a", b"new", expected=version)
    assert store.get("a").data == b"new"


class _ImpatientClock:
    """Time passes as soon as somebody waits."""

    def __init__(self) -> None:
        self.waited_s = 0.0

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC)

    def sleep(self, seconds: float) -> None:
        self.waited_s += seconds


def test_a_stopped_lock_holder_is_reported_and_not_waited_for_without_end(tmp_path: Path) -> None:
    """S47: whoever holds the lock for ever stops no reader, and writers are told after a bounded wait."""
    clock = _ImpatientClock()
    store = LocalStore(tmp_path, clock=clock)
    version = store.put_new("a", b"old")
    holder = os.open(tmp_path, os.O_RDONLY)
    try:
        fcntl.flock(holder, fcntl.LOCK_EX)
        with pytest.raises(StoreUnavailable, match="lock"):
            store.swap("a", b"new", expected=version)
    finally:
        os.close(holder)
    assert 25 < clock.waited_s < 60
    assert store.stray_temporaries() == []
    store.swap("a", b"new", expected=version)


def test_a_file_system_that_cannot_lock_is_unsafe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S48: without a lock there is no compare-and-swap, so nothing is written."""
    store = LocalStore(tmp_path)
    version = store.put_new("a", b"old")

    def refuse(_descriptor: int, _operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(UnsafeStore):
        store.swap("a", b"new", expected=version)
    assert store.get("a").data == b"old"


def test_a_writer_whose_temporary_file_was_collected_changes_nothing(tmp_path: Path) -> None:
    """S47: a collector that is too eager makes a slow writer fail, and never leaves half an object."""
    store = LocalStore(tmp_path)
    version = store.put_new("a", b"old")

    def collect(name: str) -> None:
        if name == "temp-synced":
            store.remove_stray(SystemClock().now() + timedelta(hours=1))

    slow = LocalStore(tmp_path, step=collect)
    with pytest.raises(StoreUnavailable):
        slow.swap("a", b"new", expected=version)
    with pytest.raises(StoreUnavailable):
        slow.put_new("b", b"new")
    assert [info.key for page in store.list("") for info in page] == ["a"]
    assert store.get("a").data == b"old"


def test_a_swap_of_an_object_that_is_replaced_meanwhile_conflicts(tmp_path: Path) -> None:
    """S13: the version is compared again under the lock, so a writer that was faster is never overwritten."""
    store = LocalStore(tmp_path)
    version = store.put_new("a", b"old")

    def overtake(name: str) -> None:
        if name == "temp-synced" and store.get("a").data == b"old":
            store.swap("a", b"faster", expected=version)

    with pytest.raises(VersionConflict):
        LocalStore(tmp_path, step=overtake).swap("a", b"slow", expected=version)
    assert store.get("a").data == b"faster"
    assert store.stray_temporaries() == []


def test_a_folder_that_is_deleted_meanwhile_neither_loses_nor_revives_an_object(tmp_path: Path) -> None:
    """S13, S47: a swap whose object is deleted with its folder conflicts; a create makes the folder again."""
    store = LocalStore(tmp_path)
    version = store.put_new("a/b/c", b"old")

    def vanish(name: str) -> None:
        if name == "locked":
            store.delete(["a/b/c"])

    with pytest.raises(VersionConflict):
        LocalStore(tmp_path, step=vanish).swap("a/b/c", b"new", expected=version)
    with pytest.raises(VersionConflict):
        store.swap("a/b/c", b"new", expected=Version(version))
    store.put_new("a/b/c", b"again")
    assert store.get("a/b/c").data == b"again"


def test_racers_leave_no_temporary_files(tmp_path: Path) -> None:
    """S47: whoever loses a race cleans up after itself."""
    store = LocalStore(tmp_path, durable=False)
    race_in_threads([store], racers=20, rounds=3)
    assert store.stray_temporaries() == []
