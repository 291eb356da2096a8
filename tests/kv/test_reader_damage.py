"""Damage: what is served is right or it is an error, and a bad publish does not stop a reader."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pytest

from holdfast.chain import Chain, Refreshed
from holdfast.errors import CorruptShard, ReaderStateError, StoreUnavailable, UnsupportedFormat
from holdfast.kv import (
    KeyColumn,
    KeyKind,
    KeySchema,
    Published,
    Shard,
    ShardedReader,
    publish_arrow,
    publish_rows,
)
from holdfast.kv.shard_format import place
from holdfast.storage import ObjectStore
from holdfast.testing.clock import VirtualClock
from holdfast.testing.faulty import Fault, FaultyStore
from tests.chain.publishing import ChainFactory, overwrite
from tests.kv.readers import KINDS, MODES, AnyReader, opened

ROWS = 300


def only_shard(published: Published) -> Shard:
    (shard,) = [shard for shard in published.dataset.shards if shard is not None]
    return shard


def damage(store: ObjectStore, path: str, position: int, bit: int = 0) -> None:
    data = bytearray(store.get(path).data)
    data[position] ^= 1 << bit
    overwrite(store, path, bytes(data))


def in_first_block(shard: Shard, keys: Iterable[int]) -> int:
    """A key that a look-up would search in the shard's first block."""
    schema = KeySchema(columns=(KeyColumn(name="key", kind=KeyKind.INT64),))
    return next(key for key in keys if place(schema.hash_of(key), shard.block_count)[0] == 0)


def version_of(chain: Chain, number: int, rows: int = ROWS) -> Published:
    """A snapshot of one shard whose every value says which version it belongs to."""
    return publish_rows(chain, [(key, {"version": number, "own": key}) for key in range(rows)], shards=1)


def answers(reader: AnyReader, expected: dict[int, dict[str, object]], absent: list[int]) -> int:
    """Ask for everything in every way. Each answer is right or CorruptShard; how many were the latter."""
    refused = 0
    for key in (*list(expected)[::29], *absent):
        try:
            assert reader.get(key) == expected.get(key), key
        except CorruptShard:
            refused += 1
        try:
            assert reader.contains(key) == (key in expected)
        except CorruptShard:
            refused += 1
    for asked in (list(expected), absent, list(expected)[::40] + absent[:2]):
        try:
            assert reader.multi_get(asked) == {key: expected[key] for key in asked if key in expected}
        except CorruptShard:
            refused += 1
    try:
        found = reader.get_arrow([*expected, *absent], missing="drop")
        assert found.column("key").to_pylist() == list(expected)
    except CorruptShard:
        refused += 1
    return refused


@pytest.mark.parametrize("store_kind, mode", [("file", "cache"), ("memory", "direct")])
def test_no_flipped_bit_is_ever_served(
    chain: Chain, chain_factory: ChainFactory, store: ObjectStore, tmp_path: Path, mode: str
) -> None:
    """K18: one byte of a shard changes, anywhere in it: every answer is right or CorruptShard, and no key is missed."""
    published = version_of(chain, 1)
    shard = only_shard(published)
    chain_factory.expect_damage()
    expected: dict[int, dict[str, object]] = {key: {"version": 1, "own": key} for key in range(ROWS)}
    absent = list(range(ROWS, ROWS + 20))
    whole = store.get(shard.path).data
    refused: set[int] = set()
    for position in range(0, len(whole), 23):
        broken = bytearray(whole)
        broken[position] ^= 1 << position % 8
        overwrite(store, shard.path, bytes(broken))
        try:
            with ShardedReader.open(chain, mode=mode, cache=tmp_path / "cache") as reader:
                if answers(reader, expected, absent):
                    refused.add(position)
        except (CorruptShard, ReaderStateError):
            refused.add(position)
    # What a look-up rests on, blocks and directory, is refused wherever it is hit. Padding and the footer are not read.
    blocks = range(shard.directory_offset * 3 // 4, shard.directory_offset + shard.block_count * 32)
    assert len([position for position in refused if position in blocks]) > len(blocks) / 23 * 0.9


@pytest.mark.parametrize("store_kind", ["memory"])
def test_a_cached_file_that_went_bad_is_fetched_again_and_never_served(
    chain: Chain, chain_factory: ChainFactory, tmp_path: Path
) -> None:
    """K18: one byte of the file in the cache changes: every answer is right, whichever byte it was."""
    published = version_of(chain, 1)
    shard = only_shard(published)
    expected: dict[int, dict[str, object]] = {key: {"version": 1, "own": key} for key in range(ROWS)}
    absent = list(range(ROWS, ROWS + 20))
    with ShardedReader.open(chain, cache=tmp_path / "cache"):
        (cached,) = (tmp_path / "cache").iterdir()
    whole = cached.read_bytes()
    assert len(whole) == shard.byte_size
    for position in range(0, len(whole), 97):
        broken = bytearray(whole)
        broken[position] ^= 0x10
        cached.write_bytes(bytes(broken))
        with ShardedReader.open(chain, cache=tmp_path / "cache") as reader:
            assert answers(reader, expected, absent) == 0, position


@pytest.mark.parametrize("store_kind", ["memory"])
@pytest.mark.parametrize("kind", KINDS)
def test_damage_in_the_cache_and_in_the_store_is_reported(
    chain: Chain, chain_factory: ChainFactory, store: ObjectStore, tmp_path: Path, kind: str
) -> None:
    """K18: a cached file is fetched again once; where the store's own is bad too, the answer is CorruptShard."""
    shard = only_shard(version_of(chain, 1))
    chain_factory.expect_damage()
    with opened(kind, chain, mode="cache", cache=tmp_path / "cache") as reader:
        (cached,) = (tmp_path / "cache").iterdir()
        with cached.open("r+b") as file:
            file.seek(1_000)
            file.write(bytes(64))
        damage(store, shard.path, 1_000)
        for _ in range(2):
            with pytest.raises(CorruptShard, match=shard.path):
                reader.multi_get(range(ROWS))


@pytest.mark.parametrize("store_kind", ["memory"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_disk_that_spoils_the_same_shard_again_is_reported(chain: Chain, tmp_path: Path, kind: str) -> None:
    """K18: a shard is fetched again once; after that it is not the shard that is bad."""
    shard = only_shard(version_of(chain, 1))
    assert shard.block_count > 1
    with opened(kind, chain, mode="cache", cache=tmp_path / "cache") as reader:

        def spoil() -> None:
            (cached,) = (tmp_path / "cache").iterdir()
            with cached.open("r+b") as file:  # in place: what is mapped changes
                file.seek(600)
                file.write(bytes(shard.directory_offset - 600))

        spoil()
        first = in_first_block(shard, range(ROWS))
        assert reader.get(first) == {"version": 1, "own": first}
        spoil()
        with pytest.raises(CorruptShard, match=shard.path):
            reader.multi_get(range(ROWS))


DAMAGES = ["missing", "empty", "cut short", "longer", "another shard", "flipped"]


def harm(store: ObjectStore, shard: Shard, other: Shard, how: str) -> None:
    data = store.get(shard.path).data
    match how:
        case "missing":
            store.delete([shard.path])
        case "empty":
            overwrite(store, shard.path, b"")
        case "cut short":
            overwrite(store, shard.path, data[: len(data) // 2])
        case "longer":
            overwrite(store, shard.path, data + data)
        case "another shard":
            overwrite(store, shard.path, store.get(other.path).data)
        case _:
            damage(store, shard.path, shard.directory_offset + 5)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", DAMAGES)
def test_a_bad_shard_at_cold_start_falls_back_to_an_earlier_snapshot(
    chain: Chain,
    chain_factory: ChainFactory,
    store: ObjectStore,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    store_kind: str,
    mode: str,
    kind: str,
    how: str,
) -> None:
    """K16, K26, S28: a missing or damaged shard is never an empty one: the snapshot before it is served, and warned of.

    A direct reader reads no shard before it is asked to: it looks at their sizes if told so, and otherwise the look-up
    itself is the error.
    """
    first = version_of(chain, 1)
    second = version_of(chain, 2)
    chain_factory.expect_damage()
    harm(store, only_shard(second), only_shard(first), how)
    cache = tmp_path / "cache"
    shows_at_once = mode == "cache" or how not in ("another shard", "flipped")
    if shows_at_once and (
        how != "longer" or mode == "direct" or store_kind == "file"
    ):  # a download takes what it needs
        with (
            caplog.at_level(logging.WARNING, logger="holdfast.reader"),
            opened(kind, chain, mode=mode, cache=cache, check_shards=True) as reader,
        ):
            assert reader.get(7) == {"version": 1, "own": 7}
            health = reader.health()
        assert (health.manifest_id, health.head_id, health.fell_back) == (0, 1, True)
        assert only_shard(second).path in health.skipped[0]
        assert only_shard(second).path in caplog.text
        with (
            pytest.raises(ReaderStateError, match=only_shard(second).path),
            opened(kind, chain, mode=mode, cache=cache, check_shards=True, max_fallback_attempts=0),
        ):
            pass
    if mode == "direct" and how != "longer":
        with opened(kind, chain, mode=mode, cache=cache) as reader:
            key = in_first_block(only_shard(second), range(ROWS))
            absent = in_first_block(only_shard(second), range(ROWS, 9_999))
            for call in (
                lambda: reader.get(key),
                lambda: reader.contains(absent),
                lambda: reader.multi_get([key]),
                lambda: reader.get_arrow([absent]),
            ):
                with pytest.raises(CorruptShard):
                    call()


@pytest.mark.parametrize("store_kind", ["memory"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_refresh_to_a_bad_snapshot_keeps_the_old_one(
    chain: Chain,
    chain_factory: ChainFactory,
    store: ObjectStore,
    clock: VirtualClock,
    tmp_path: Path,
    mode: str,
    kind: str,
) -> None:
    """K16, S29: a bad publish is warned about and not served; the next good one is."""
    version_of(chain, 1)
    chain_factory.expect_damage()
    with opened(kind, chain, mode=mode, cache=tmp_path / "cache", check_shards=True) as reader:
        bad = version_of(chain, 2)
        store.delete([only_shard(bad).path])
        clock.advance(30)
        assert reader.refresh() is Refreshed.KEPT
        assert reader.get(7) == {"version": 1, "own": 7}
        health = reader.health()
        assert (health.manifest_id, health.head_id) == (0, 1)
        assert health.staleness_s == pytest.approx(30)
        assert only_shard(bad).path in health.skipped[0]
        overwrite(store, bad.commit.manifest_path, b"{")
        assert reader.refresh() is Refreshed.KEPT
        version_of(chain, 3)
        assert reader.refresh() is Refreshed.SWAPPED
        assert reader.get(7) == {"version": 3, "own": 7}
        assert (reader.health().skipped, reader.health().staleness_s) == ((), 0)


@pytest.mark.parametrize("store_kind", ["memory"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_silent_store_is_an_error_and_no_reason_to_fall_back(
    chain: Chain, chain_factory: ChainFactory, store: ObjectStore, tmp_path: Path, mode: str, kind: str
) -> None:
    """K16, S28: what does not answer now may answer later: old data is no substitute for asking again."""
    version_of(chain, 1)
    shard = only_shard(version_of(chain, 2))
    faulty = FaultyStore(store, lambda asked: Fault.ERROR_BEFORE if asked.key == shard.path else Fault.PASS)
    there = chain_factory(store=faulty)
    with (
        pytest.raises(StoreUnavailable),
        opened(kind, there, mode=mode, cache=tmp_path / "cache", check_shards=True),
    ):
        pass
    with opened(kind, chain, mode=mode, cache=tmp_path / "cache", check_shards=True) as reader:
        assert reader.get(7) == {"version": 2, "own": 7}


@pytest.mark.parametrize("store_kind", ["memory"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_newer_format_is_refused_at_cold_start_and_waited_out_by_a_reader_that_serves(
    chain: Chain, chain_factory: ChainFactory, tmp_path: Path, mode: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K16, S9, S28: nothing is wrong with what a newer release wrote, so nobody is sent back to older data by it."""
    version_of(chain, 1)
    with opened(kind, chain, mode=mode, cache=tmp_path / "cache") as reader:
        with monkeypatch.context() as newer:
            newer.setattr("holdfast.kv.dataset.SHARD_FORMAT_MAJOR", 2)
            version_of(chain, 2)
        assert reader.refresh() is Refreshed.KEPT
        assert reader.get(7) == {"version": 1, "own": 7}
        with (
            pytest.raises(UnsupportedFormat, match="upgrade"),
            opened(kind, chain, mode=mode, cache=tmp_path / "cache"),
        ):
            pass


@pytest.mark.parametrize("store_kind", ["memory"])
@pytest.mark.parametrize("mode", MODES)
def test_a_pinned_reader_does_not_fall_back(
    chain: Chain, chain_factory: ChainFactory, store: ObjectStore, tmp_path: Path, mode: str
) -> None:
    """K16: who names a snapshot wants that one: damage in it is the answer."""
    version_of(chain, 1)
    second = version_of(chain, 2)
    chain_factory.expect_damage()
    store.delete([only_shard(second).path])
    with pytest.raises(CorruptShard, match="missing"):
        ShardedReader.open(chain, mode=mode, cache=tmp_path / "cache", ref=second.ref, check_shards=True)


@pytest.mark.parametrize("store_kind", ["memory"])
@pytest.mark.parametrize("mode", MODES)
def test_an_empty_shard_is_a_miss_without_a_request_for_it(chain: Chain, tmp_path: Path, mode: str) -> None:
    """K6, K18: a shard without rows has no file, and its keys are not there."""
    publish_arrow(chain, pa.table({"k": pa.array([1, 2], pa.int64()), "v": ["a", "b"]}), key="k", shards=16)
    with ShardedReader.open(chain, mode=mode, cache=tmp_path / "cache") as reader:
        empty = next(key for key in range(100) if reader.shard_for_key(key) is None)
        assert reader.get(empty) is None
        assert reader.multi_get([empty, 1, 2]) == {1: {"v": "a"}, 2: {"v": "b"}}
