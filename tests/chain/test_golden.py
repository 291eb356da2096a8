"""Records that released versions wrote are read for ever, and this one still writes them byte for byte."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.chain import Chain, ChainHandle, Layout, MoveKind, Pointer, RunRecord, RunState, chain_on
from holdfast.chain.collection import CollectionRecord
from holdfast.chain.legacy import decode_any_manifest
from holdfast.chain.moves import MoveSegment, moves_newest_first
from holdfast.chain.root import RootManifest
from holdfast.chain.tags import TagBook
from holdfast.fencing import LockRecord, read_lock
from holdfast.storage import LocalStore, MemoryStore
from holdfast.testing.clock import VirtualClock
from tests.chain.publishing import LAYOUTS, ChainFactory, contents, everything, publish_one
from tests.golden.make import GOLDEN, LEGACY, adopt_story, make, tell_story

VERSIONS = sorted(path.parent.name for path in GOLDEN.glob("v*/kv"))
"""Those that have chains: some have only what was added to the ledger."""
CURRENT = "v1"
WITH_MIRROR = [name for name, layout in LAYOUTS.items() if layout.mirror_key is not None]


def as_first_written(name: str) -> Layout:
    """The layout as it was when these files were made: graph manifests did not say their version twice yet (G2)."""
    layout = LAYOUTS[name]
    return replace(layout, names=replace(layout.names, version_of=None))


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def golden(version: str, layout_name: str, layout: Layout, tmp_path: Path) -> Chain:
    """A chain over a copy of the golden files, so that no test can change them."""
    shutil.copytree(GOLDEN / version / layout_name, tmp_path / "copy")
    return chain_on(LocalStore(tmp_path / "copy", durable=False), layout, by="reader", clock=VirtualClock())


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def rewritten(handle: ChainHandle, key: str, data: bytes) -> bytes | None:
    """The record at `key`, read and written again; None for what is no record."""
    layout = handle.layout
    if key == layout.pointer_key:
        return Pointer.decode(data, key=key, id_field=layout.id_field).encode(layout.id_field)
    if key == layout.lock_key:
        return LockRecord.decode(data, key=key).encode()
    if key == layout.tags_key:
        return TagBook.decode(data, key=key).encode()
    if key == layout.root_key:
        return RootManifest.decode(data, key=key).encode()
    if key == layout.mirror_key or layout.parse_manifest_key(key) is not None:
        return decode_any_manifest(data, key=key, names=layout.names).encode(layout.names)
    if key.startswith(f"{layout.run_prefix}/"):
        return RunRecord.decode(data, key=key).encode()
    if key.startswith(f"{layout.collection_prefix}/"):
        return CollectionRecord.decode(data, key=key).encode()
    segment = layout.parse_moves_key(key)
    return None if segment is None else MoveSegment.decode(data, key=key, segment=segment).encode()


@pytest.fixture
def collected(version: str, layout_name: str, layout: Layout, tmp_path: Path) -> Chain:
    """The same, of a chain that has a collection."""
    shutil.copytree(GOLDEN / version / f"{layout_name}-collected", tmp_path / "copy")
    return chain_on(LocalStore(tmp_path / "copy", durable=False), layout, by="reader", clock=VirtualClock())


def test_golden_files_are_whole(golden: Chain) -> None:
    """S9: today's code reads every record of every version: verify finds nothing from the pointer to the bytes."""
    assert golden.verify() == []


def test_golden_files_mean_what_they_meant(golden: Chain) -> None:
    """S7, S8, S9: the visible snapshot, the history, the moves, tags and lock read as they were told."""
    first = golden.layout.first_id
    assert contents(golden) == {"part-0": b"rows of turn 2\n", "part-1": b"more of turn 2\n"}
    current = golden.load_current()
    assert current is not None
    assert (current.run_id, current.counters, current.epoch) == ("nightly-2", {"events": 200}, 3)
    assert current.payload == {"model": {"turn": 2, "name": "größe"}}
    assert [pin.chain for pin in current.inputs] == ["s3://lake/users#kv"]
    assert [each.manifest_id for each in golden.list_manifests()] == [first + 2, first + 1, first]
    assert golden.find_snapshot("reviewed", "yes").manifest_id == first + 1
    seen = golden.handle.read_pointer()
    assert seen is not None
    assert (seen.pointer.sequence, seen.pointer.high_water_id) == (32, first + 2)
    moves = list(moves_newest_first(golden.handle, seen.pointer))
    assert [move.kind for move in moves[-3:]] == [MoveKind.PUBLISH] * 3
    assert [move.kind for move in moves[:2]] == [MoveKind.FORWARD, MoveKind.ROLLBACK]
    assert [move.sequence for move in moves] == list(range(32, -1, -1))
    lock = read_lock(golden.handle.records, golden.layout.lock_key)
    assert lock is not None
    assert (lock.holder, lock.sequence) == ("golden@host:2", 4)


def test_a_golden_chain_can_be_continued(golden: Chain) -> None:
    """S9: what an older release wrote is not only read: it is published to and rolled back."""
    clock = VirtualClock()
    clock.advance(86400)
    chain = chain_on(golden.store, golden.layout, by="today", clock=clock)
    done = publish_one(chain, b"today")
    assert done.manifest.manifest_id == golden.layout.first_id + 3
    assert contents(chain) == {"part-0": b"today"}
    chain.rollback(offset=3)
    assert contents(chain)["part-0"] == b"rows of turn 0\n"
    assert chain.verify() == []


def test_a_golden_collection_can_be_restored(collected: Chain) -> None:
    """S9: the record of a collection says the same to every later release, and can be undone by it."""
    first = collected.layout.first_id
    assert collected.verify() == []
    assert [each.manifest_id for each in collected.list_manifests()] == [first + 2, first + 1]  # the second is tagged
    [(pending, collection)] = collected.pending_collections()
    assert not pending.purging
    assert collection.snapshots == (first,)
    assert collection.runs == ("failed-run",)
    assert collected.find_snapshot("stage", "released").manifest_id == first + 1
    assert collected.list_snapshots("reviewed") == []
    collected.restore(pending.collection)
    assert [each.manifest_id for each in collected.list_manifests()] == [first + 2, first + 1, first]
    assert collected.verify() == []


@pytest.mark.parametrize("name", list(LAYOUTS))
def test_every_golden_record_is_written_back_byte_for_byte(name: str) -> None:
    """S9: reading a record of this format and writing it again changes nothing, for each kind of record there is."""
    handle = chain_on(MemoryStore(), as_first_written(name)).handle
    files = files_of(GOLDEN / CURRENT / f"{name}-collected") | files_of(GOLDEN / CURRENT / name)
    again = {key: written for key, data in files.items() if (written := rewritten(handle, key, data)) is not None}
    assert {key: files[key] for key in again} == again
    layout = LAYOUTS[name]
    singles = {layout.pointer_key, layout.lock_key, layout.tags_key, layout.mirror_key, layout.root_key} - {None}
    assert singles <= set(again)
    for folder in (layout.run_prefix, layout.moves_prefix, layout.collection_prefix, layout.manifest_prefix):
        assert any(key.startswith(f"{folder}/") for key in again), folder
    states = {RunRecord.decode(files[key], key=key).state for key in files if key.startswith(f"{layout.run_prefix}/")}
    assert states == {RunState.FAILED, RunState.WRITING}


@pytest.mark.parametrize("name", list(LAYOUTS))
def test_the_story_is_still_written_byte_for_byte(name: str) -> None:
    """S7, S8, S9: told again, the same story leaves the same objects at the same keys, byte for byte."""
    store = MemoryStore()
    tell_story(store, as_first_written(name))
    told = everything(store)
    golden = files_of(GOLDEN / CURRENT / name)
    assert sorted(told) == sorted(golden)
    assert {key for key in told if told[key] != golden[key]} == set()


@pytest.mark.parametrize("name", WITH_MIRROR)
def test_the_adoption_of_a_legacy_manifest_is_still_written_byte_for_byte(name: str) -> None:
    """S9, S26: the legacy manifest is kept as it was, and its successor is the one of the golden files."""
    store = MemoryStore()
    adopt_story(store, LAYOUTS[name])
    golden = files_of(GOLDEN / CURRENT / f"{name}-adopted")
    assert everything(store) == golden
    assert LEGACY in golden.values()
    assert ChainFactory(layout=LAYOUTS[name], store=store).breaks() == []


def test_a_golden_version_is_never_made_again() -> None:
    """S9: the generator refuses a version that exists, and changes nothing."""
    before = files_of(GOLDEN / CURRENT)
    with pytest.raises(SystemExit, match="kept for ever"):
        make(CURRENT)
    assert files_of(GOLDEN / CURRENT) == before
