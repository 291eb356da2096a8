"""The cache: each shard downloaded once, verified, shared, limited; and what can go wrong with a folder of files."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

from holdfast.chain import Chain, Refreshed, chain_on, kv_layout
from holdfast.errors import BadInput, CorruptShard, StoreFull, StoreReadOnly
from holdfast.kv import (
    ConcurrentShardedReader,
    Published,
    Shard,
    ShardCache,
    ShardedReader,
    publish_arrow,
    update_arrow,
)
from holdfast.storage import LocalStore, ObjectStore, scope
from holdfast.testing.clock import VirtualClock
from holdfast.testing.faulty import CountingStore
from tests.chain.publishing import ChainFactory, overwrite

PROCESSES = 3


@pytest.fixture
def store_kind() -> str:
    return "memory"


def shards_of(published: Published) -> list[Shard]:
    return [shard for shard in published.dataset.shards if shard is not None]


def files_in(cache: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in cache.iterdir()}


def test_a_shard_is_downloaded_once_and_named_by_its_content(
    chain: Chain, chain_factory: ChainFactory, published: Published, tmp_path: Path
) -> None:
    """K17: the first reader downloads, the next ones find the files; their names are the checksums of the manifest."""
    counting = CountingStore(chain_factory.store)
    there = chain_factory(store=counting)
    with ShardedReader.open(there, cache=tmp_path / "cache") as reader:
        assert counting.counts == {"get": 2, "get_range": 4}
        assert reader.get(7) == {"square": 49, "name": "row 7"}
    assert files_in(tmp_path / "cache") == {
        shard.checksum.removeprefix("sha256:"): shard.byte_size for shard in shards_of(published)
    }
    counting.reset()
    with ShardedReader.open(there, cache=ShardCache(tmp_path / "cache")) as reader:
        assert reader.get(7) == {"square": 49, "name": "row 7"}
        assert counting.counts == {"get": 2}


@pytest.mark.parametrize("kind", [ShardedReader, ConcurrentShardedReader])
def test_an_unchanged_shard_is_not_fetched_again(
    chain: Chain, chain_factory: ChainFactory, published: Published, tmp_path: Path, kind: type[ShardedReader]
) -> None:
    """K17, K9: a refresh fetches what changed and nothing else; what stayed stays mapped."""
    counting = CountingStore(chain_factory.store)
    with kind.open(chain_factory(store=counting), cache=tmp_path / "cache") as reader:
        before = dict(reader._current().snapshot.shards)
        updated = update_arrow(chain, upserts=pa.table({"id": [7], "square": [0], "name": ["new"]}))
        assert updated.written_shards == 1
        counting.reset()
        assert reader.refresh() is Refreshed.SWAPPED
        assert counting.counts == {"get": 1, "get_if_changed": 1, "get_range": 1}
        assert reader.get(7) == {"square": 0, "name": "new"}
        assert reader.get(8) == {"square": 64, "name": "row 8"}
        after = reader._current().snapshot.shards
        assert sum(before.get(path) is mapped for path, mapped in after.items()) == 3


def test_the_same_content_is_one_file_whatever_it_is_called(
    chain: Chain, chain_factory: ChainFactory, published: Published, table: pa.Table, tmp_path: Path
) -> None:
    """K17: other snapshots and other data sets with the same shards share their files."""
    again = publish_arrow(chain, table, key="id", shards=4)
    assert [s.checksum for s in shards_of(again)] == [s.checksum for s in shards_of(published)]
    counting = CountingStore(chain_factory.store)
    there = chain_factory(store=counting)
    with ShardedReader.open(there, cache=tmp_path / "cache", offset=1):
        assert counting.counts["get_range"] == 4
    with ShardedReader.open(there, cache=tmp_path / "cache") as reader:
        assert counting.counts["get_range"] == 4
        assert reader.get(7) == {"square": 49, "name": "row 7"}


def test_files_of_this_machine_are_not_copied(tmp_path: Path, table: pa.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """K17: a store on a file system is mapped where it is, below a folder of it too; no cache is made."""
    monkeypatch.setenv("HOLDFAST_CACHE", str(tmp_path / "cache"))
    whole = LocalStore(tmp_path / "store", durable=False)
    for store in (whole, scope(whole, "team/users")):
        chain = chain_on(store, kv_layout(), by="writer")
        publish_arrow(chain, table, key="id", shards=4)
        with ShardedReader.open(chain) as reader:
            assert reader.get(7) == {"square": 49, "name": "row 7"}
    assert not (tmp_path / "cache").exists()


def test_the_default_cache_is_named_by_the_environment(
    chain: Chain, published: Published, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K17: $HOLDFAST_CACHE, else a folder of the user's."""
    monkeypatch.setenv("HOLDFAST_CACHE", str(tmp_path / "mine"))
    with ShardedReader.open(chain) as reader:
        assert reader.contains(7)
    assert len(files_in(tmp_path / "mine")) == 4
    monkeypatch.delenv("HOLDFAST_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert ShardCache().directory == tmp_path / ".cache" / "holdfast"


def test_a_download_that_is_not_what_the_manifest_says_leaves_nothing(
    chain: Chain, chain_factory: ChainFactory, store: ObjectStore, published: Published, tmp_path: Path
) -> None:
    """K17, K18: size and SHA-256 are checked on the way; a file has its name only once they were right."""
    chain_factory.expect_damage()
    shard = shards_of(published)[1]
    whole = store.get(shard.path).data
    cache = ShardCache(tmp_path / "cache")
    for broken in (whole[:-1], whole[:-1] + b"\x00", b"", bytes(len(whole))):
        overwrite(store, shard.path, broken)
        with pytest.raises(CorruptShard, match=shard.path):
            cache.fetch(store, shard)
        assert files_in(tmp_path / "cache") == {}
    overwrite(store, shard.path, whole)
    assert cache.fetch(store, shard).read_bytes() == whole


def test_large_shards_are_downloaded_in_ranges(
    chain: Chain, chain_factory: ChainFactory, published: Published, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K17: memory is bounded by the range, not by the shard."""
    monkeypatch.setattr("holdfast.kv.cache.RANGE_BYTES", 1_000)
    counting = CountingStore(chain_factory.store)
    with ShardedReader.open(chain_factory(store=counting), cache=tmp_path / "cache") as reader:
        assert counting.counts["get_range"] == sum(-(-shard.byte_size // 1_000) for shard in shards_of(published))
        assert len(reader.multi_get(range(1_000))) == 1_000


# -- limits ----------------------------------------------------------------------------------------------------------


def test_room_is_made_by_removing_what_was_unused_longest(
    chain: Chain, store: ObjectStore, published: Published, table: pa.Table, tmp_path: Path
) -> None:
    """K17: the cache stays below its limit; what is mapped stays usable though its name is gone."""
    size = sum(shard.byte_size for shard in shards_of(published))
    cache = ShardCache(tmp_path / "cache", max_bytes=2 * size + size // 2)
    folder = tmp_path / "cache"
    with ShardedReader.open(chain, cache=cache) as first:
        for version in range(1, 5):
            changed = table.set_column(1, "square", pa.array([version] * table.num_rows, pa.int64()))
            publish_arrow(chain, changed, key="id", shards=4)
            with ShardedReader.open(chain, cache=cache) as reader:
                assert reader.get(7) == {"square": version, "name": "row 7"}
            assert cache.used_bytes() <= cache.max_bytes
            assert first.get(8) == {"square": 64, "name": "row 8"}
        assert not any(cache.holds(shard) for shard in shards_of(published))
        assert len(first.multi_get(range(1_000))) == 1_000
    assert len(files_in(folder)) >= 8


def test_what_is_used_again_counts_as_used(
    chain: Chain, store: ObjectStore, published: Published, tmp_path: Path
) -> None:
    """K17: opening a snapshot that is in the cache protects it from being removed next."""
    shards = shards_of(published)
    sizes = [shard.byte_size for shard in shards]
    cache = ShardCache(tmp_path / "cache", max_bytes=sum(sizes[:3]) + 10)
    for shard in shards[:3]:
        cache.fetch(store, shard)
        path = tmp_path / "cache" / shard.checksum.removeprefix("sha256:")
        os.utime(path, ns=(10**9 * shard.number, 10**9 * shard.number))
    cache.prepare(shards[:1])
    cache.prepare(shards[3:])
    assert [cache.holds(shard) for shard in shards[:3]] == [True, False, sizes[1] >= sizes[3] - 10]


def test_a_snapshot_that_can_never_fit_is_refused(chain: Chain, published: Published, tmp_path: Path) -> None:
    """K17: the limit is a limit: say more, or read directly."""
    with pytest.raises(BadInput, match=r"raise max_bytes, or open with mode='direct'"):
        ShardedReader.open(chain, cache=ShardCache(tmp_path / "cache", max_bytes=1_000))
    with pytest.raises(BadInput, match="max_bytes is 0"):
        ShardCache(tmp_path / "cache", max_bytes=0)


def test_what_dead_processes_left_is_removed_and_what_is_being_downloaded_is_not(
    store: ObjectStore, published: Published, tmp_path: Path
) -> None:
    """K17: a lock tells them apart: it is let go when its process dies."""
    folder = tmp_path / "cache"
    folder.mkdir()
    dead, alive = folder / f"{'d' * 64}.part", folder / f"{'a' * 64}.part"
    dead.write_bytes(b"half")
    alive.write_bytes(b"half")
    with alive.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        ShardCache(folder, max_bytes=10**9).prepare(shards_of(published))
    assert not dead.exists()
    assert alive.exists()


def test_a_half_file_of_a_dead_process_is_started_anew(
    store: ObjectStore, published: Published, tmp_path: Path
) -> None:
    """K17: whatever it holds, it is not believed."""
    shard = shards_of(published)[0]
    folder = tmp_path / "cache"
    folder.mkdir()
    name = shard.checksum.removeprefix("sha256:")
    (folder / f"{name}.part").write_bytes(b"nonsense" * 100_000)
    path = ShardCache(folder).fetch(store, shard)
    assert path.read_bytes() == store.get(shard.path).data
    assert files_in(folder) == {name: shard.byte_size}


def test_a_download_that_stands_still_is_not_waited_for(
    store: ObjectStore, published: Published, tmp_path: Path
) -> None:
    """K17: a stopped process keeps its lock; the next one waits a while and then downloads by itself."""
    shard = shards_of(published)[0]
    folder = tmp_path / "cache"
    folder.mkdir()
    name = shard.checksum.removeprefix("sha256:")
    clock = VirtualClock()
    started = clock.now()
    with (folder / f"{name}.part").open("wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        path = ShardCache(folder, clock=clock).fetch(store, shard)
    assert 30 <= (clock.now() - started).total_seconds() < 31
    assert path.read_bytes() == store.get(shard.path).data
    assert sorted(files_in(folder)) == [name, f"{name}.part"]


# -- many at once ----------------------------------------------------------------------------------------------------


def test_threads_that_need_the_same_shards_download_each_once(
    chain_factory: ChainFactory, published: Published, tmp_path: Path
) -> None:
    """K17: eight readers open at once, and the store is asked for each shard once."""
    counting = CountingStore(chain_factory.store)

    meeting = threading.Barrier(8)

    def read(_: int) -> int:
        meeting.wait(60)
        with ShardedReader.open(chain_factory(store=counting), cache=tmp_path / "cache") as reader:
            return len(reader.multi_get(range(1_000)))

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(read, range(8))) == [1_000] * 8
    assert counting.counts["get_range"] == 4


@contextmanager
def _process(chain: Chain, tmp_path: Path, store: str = "logged") -> Iterator[subprocess.Popen[bytes]]:
    """A process that is ready to open the data set, and does once it is sent a line."""
    assert isinstance(chain.store, LocalStore)
    arguments = [str(chain.store.root), str(tmp_path / "log"), str(tmp_path / "cache"), store]
    command = [sys.executable, "-m", "tests.kv.shared_store", *arguments]
    with subprocess.Popen(
        command, cwd=Path(__file__).parents[2], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        yield process


def _go(processes: list[subprocess.Popen[bytes]]) -> list[int]:
    """Let them all begin together, and say how each ended."""
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(b"go\n")
        process.stdin.flush()
    return [process.wait(120) for process in processes]


@pytest.mark.parametrize("store_kind", ["file"])
def test_processes_share_one_cache_and_download_each_shard_once(
    chain: Chain, published: Published, tmp_path: Path
) -> None:
    """K17: several processes start together on an empty cache; all answer, and each shard was fetched once."""
    with ExitStack() as stack:
        assert _go([stack.enter_context(_process(chain, tmp_path)) for _ in range(PROCESSES)]) == [0] * PROCESSES
    fetched = Counter(line.split()[0] for line in (tmp_path / "log").read_text().splitlines())
    assert fetched == {shard.path: 1 for shard in shards_of(published)}
    assert sorted(files_in(tmp_path / "cache")) == sorted(
        shard.checksum.removeprefix("sha256:") for shard in shards_of(published)
    )


@pytest.mark.parametrize("store_kind", ["file"])
def test_a_process_that_dies_in_a_download_stops_nobody(chain: Chain, published: Published, tmp_path: Path) -> None:
    """K17: its half files are taken over by the next one, and are gone in the end."""
    with _process(chain, tmp_path, "dying") as victim, _process(chain, tmp_path) as heir:
        assert _go([victim]) == [9]
        assert any(name.endswith(".part") for name in files_in(tmp_path / "cache"))
        assert _go([heir]) == [0]
    assert sorted(files_in(tmp_path / "cache")) == sorted(
        shard.checksum.removeprefix("sha256:") for shard in shards_of(published)
    )


# -- folders that cannot be used -------------------------------------------------------------------------------------


def test_a_full_disk_is_said_to_be_full_and_gets_its_space_back(
    chain: Chain, published: Published, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K17: StoreFull names the folder and what to do; no half file stays."""

    def full(descriptor: int, chunks: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("holdfast.storage.local_io.write_all", full)
    with pytest.raises(StoreFull, match=r"no space is left for the cache .*mode='direct'"):
        ShardedReader.open(chain, cache=tmp_path / "cache")
    assert files_in(tmp_path / "cache") == {}


def test_a_read_only_cache_serves_what_it_has_and_says_so_otherwise(
    chain: Chain, published: Published, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K17: an image may ship a filled cache; an empty one that cannot be written to is StoreReadOnly."""
    really_open, really_touch = os.open, os.utime
    read_only = threading.Event()

    def opened(path: object, flags: int, *rest: object, **named: object) -> int:
        if read_only.is_set() and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return really_open(path, flags, *rest, **named)  # type: ignore[arg-type]

    def touched(path: object, *rest: object, **named: object) -> None:
        if read_only.is_set():
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        really_touch(path, *rest, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", opened)
    monkeypatch.setattr(os, "utime", touched)
    (tmp_path / "empty").mkdir()
    with ShardedReader.open(chain, cache=tmp_path / "cache"):
        pass
    read_only.set()
    with ShardedReader.open(chain, cache=tmp_path / "cache") as reader:
        assert reader.get(7) == {"square": 49, "name": "row 7"}
    with pytest.raises(StoreReadOnly, match=r"cannot be written to.*HOLDFAST_CACHE"):
        ShardedReader.open(chain, cache=tmp_path / "empty")


def test_a_cache_that_is_no_folder_is_bad_input(chain: Chain, published: Published, tmp_path: Path) -> None:
    """K18: a file where the folder should be, or above it."""
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(BadInput, match="name a folder"):
        ShardedReader.open(chain, cache=tmp_path / "file")
    with pytest.raises(BadInput, match="not a folder"):
        ShardedReader.open(chain, cache=tmp_path / "file" / "below")
