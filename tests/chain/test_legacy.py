"""Old readers, old writers, new readers, new writers: each pair on the same chain."""

from __future__ import annotations

from itertools import pairwise

import orjson
import pytest

from holdfast.chain import Chain, Committed
from holdfast.errors import Conflict, CorruptRecord, ObjectNotFound
from holdfast.storage import ObjectStore
from holdfast.testing.faulty import CountingStore, Crashed, Fault, FaultyStore, Operation
from tests.chain.publishing import ChainFactory, contents, edit, everything, keys_below, publish_one

pytestmark = pytest.mark.parametrize("layout_name", ["domain", "orchestration"])


class LegacyWriter:
    """What older releases did: read the one manifest, change it, replace it."""

    def __init__(self, store: ObjectStore, key: str) -> None:
        self._store, self._key = store, key

    def publish(self, **fields: object) -> bytes:
        data = orjson.dumps(fields)
        try:
            self._store.swap(self._key, data, expected=self._store.get(self._key).version)
        except ObjectNotFound:
            self._store.put_new(self._key, data)
        return data


class LegacyReader:
    """What older releases read: the one manifest, every field of it they knew, and the rest ignored."""

    def __init__(self, store: ObjectStore, key: str) -> None:
        self._store, self._key = store, key

    def read(self) -> dict[str, object]:
        found = orjson.loads(self._store.get(self._key).data)
        assert isinstance(found, dict)
        return found


@pytest.fixture
def mirror_key(chain_factory: ChainFactory) -> str:
    assert chain_factory.layout.mirror_key is not None
    return chain_factory.layout.mirror_key


@pytest.fixture
def old_writer(chain_factory: ChainFactory, mirror_key: str) -> LegacyWriter:
    return LegacyWriter(chain_factory.store, mirror_key)


@pytest.fixture
def old_reader(chain_factory: ChainFactory, mirror_key: str) -> LegacyReader:
    return LegacyReader(chain_factory.store, mirror_key)


# -- the table ---------------------------------------------------------------------------------------------------------


def test_legacy_writer_to_legacy_reader(old_writer: LegacyWriter, old_reader: LegacyReader) -> None:
    """S27, first row: the baseline: nothing of ours is in the way."""
    old_writer.publish(tables=["a"])
    old_writer.publish(tables=["a", "b"])
    assert old_reader.read() == {"tables": ["a", "b"]}


def test_legacy_writer_to_new_reader(chain_factory: ChainFactory, old_writer: LegacyWriter) -> None:
    """S26, S27, second row: with no pointer the new reader falls back to the legacy path, and writes nothing."""
    chain = chain_factory()
    assert chain.load_current() is None
    for tables in (["a"], ["a", "b"]):
        old_writer.publish(manifest_id=7, epoch=2, tables=tables, updated_at="2025-01-01T00:00:00Z")
        found = chain_factory().load_current()
        assert found is not None
        assert found.legacy
        assert (found.manifest_id, found.epoch, found.payload["tables"]) == (7, 2, tables)
    with chain.reader(lambda manifest: manifest.payload["tables"]) as reader, reader.borrow() as served:
        assert served.resource == ["a", "b"]
    assert keys_below(chain_factory.store) == [chain.layout.mirror_key]


def test_new_writer_to_legacy_reader(chain_factory: ChainFactory, old_reader: LegacyReader) -> None:
    """S27, third row: every commit and every rollback is mirrored, byte for byte, so an old reader sees it."""
    chain = chain_factory()
    for turn in range(3):
        done = publish_one(chain, b"%d" % turn, payload={"tables": [turn]})
        assert old_reader.read()["tables"] == [turn]
        assert chain.layout.mirror_key is not None
        assert chain.store.get(chain.layout.mirror_key).data == chain.store.get(done.manifest_path).data
    chain_factory(by="operator").rollback(offset=2)
    assert old_reader.read()["tables"] == [0]
    chain_factory(by="operator").forward()
    assert old_reader.read()["tables"] == [2]


def test_new_writer_to_new_reader(chain_factory: ChainFactory, old_writer: LegacyWriter) -> None:
    """S26, S27, last row: where there is a pointer it decides, whatever is at the legacy path."""
    publish_one(chain_factory(), b"new", payload={"tables": ["new"]})
    old_writer.publish(tables=["somebody still writes the old way"])
    store = CountingStore(chain_factory.store)
    found = chain_factory(store=store).load_current()
    assert found is not None
    assert found.payload["tables"] == ["new"]
    layout = chain_factory.layout
    assert [(each.kind, each.key) for each in store.log] == [
        ("get", layout.pointer_key),
        ("get", layout.manifest_key(0, published_at=found.published_at, run_id=found.run_id)),
    ]
    chain_factory().reconcile(enforce=True)
    assert chain_factory.breaks() == []


# -- from one to the other ---------------------------------------------------------------------------------------------


def test_the_first_pointer_publish_continues_from_the_legacy_manifest(
    chain_factory: ChainFactory, old_writer: LegacyWriter, old_reader: LegacyReader
) -> None:
    """S10, S26: read the legacy manifest where there is no pointer: it becomes the first snapshot, then the parent."""
    raw = old_writer.publish(manifest_id=41, epoch=3, tables=["old"])
    done = publish_one(chain_factory(), b"new", payload={"tables": ["new"]})
    chain = chain_factory(by="later")
    assert done.manifest.manifest_id == 42
    assert done.manifest.epoch > 3
    assert done.manifest.previous_manifest_path is not None
    assert chain.store.get(done.manifest.previous_manifest_path).data == raw
    assert old_reader.read()["tables"] == ["new"]
    assert [each.manifest_id for each in chain.list_manifests()] == [42, 41]
    chain.rollback()
    found = chain.load_current()
    assert found is not None
    assert found.payload["tables"] == ["old"]
    assert old_reader.read() == orjson.loads(raw)


def test_an_adopted_chain_is_in_the_root(chain_factory: ChainFactory, old_writer: LegacyWriter) -> None:
    """S10, S26: readers that come by the root find the pointer of a chain that an older release began."""
    old_writer.publish(tables=["old"])
    publish_one(chain_factory(), b"new")
    layout = chain_factory.layout
    if layout.root_key is not None:
        root = orjson.loads(chain_factory.store.get(layout.root_key).data)
        assert root[layout.root_field] == layout.pointer_key
    assert chain_factory.breaks() == []


def test_readers_see_the_legacy_manifest_until_the_pointer_exists(
    chain_factory: ChainFactory, old_writer: LegacyWriter
) -> None:
    """S26: at every request of the first pointer publish a reader sees the old snapshot or the new one, whole."""
    old_writer.publish(manifest_id=1, tables=["old"])
    seen: list[object] = []

    def plan(_: object) -> Fault:
        found = chain_factory(by="reader").load_current()
        assert found is not None
        seen.append(found.payload["tables"])
        return Fault.PASS

    publish_one(chain_factory(store=FaultyStore(chain_factory.store, plan)), b"new", payload={"tables": ["new"]})
    changes = [seen[0], *(now for before, now in pairwise(seen) if now != before)]
    assert changes == [["old"], ["new"]]


@pytest.mark.parametrize("also_pointer", [False, True], ids=["copy", "copy-and-pointer"])
def test_a_crashed_adoption_does_not_wedge_the_chain(
    chain_factory: ChainFactory, old_writer: LegacyWriter, also_pointer: bool
) -> None:
    """S21, S26: a writer died while adopting; the legacy writer went on; the next adoption still works."""
    old_writer.publish(tables=["older"])
    pointer = chain_factory.layout.pointer_key
    struck = pointer if also_pointer else chain_factory.layout.manifest_id_key(0)
    dying = FaultyStore(
        chain_factory.store,
        lambda each: Fault.CRASH_AFTER if each.key == struck and each.kind == "put_new" else Fault.PASS,
    )
    with pytest.raises(Crashed):
        publish_one(chain_factory(by="dying", store=dying))
    raw = old_writer.publish(tables=["newer"]) if not also_pointer else None
    done = publish_one(chain_factory(), b"new")
    assert contents(chain_factory()) == {"part-0": b"new"}
    if raw is not None:
        assert done.manifest.previous_manifest_path is not None
        assert chain_factory.store.get(done.manifest.previous_manifest_path).data == raw
    chain_factory().reconcile(enforce=True)


def test_a_lost_pointer_is_not_mistaken_for_a_chain_that_never_had_one(chain_factory: ChainFactory) -> None:
    """S26, I4: readers still find the mirror; a writer does not start a second log, which would forget the history."""
    chain = chain_factory()
    publish_one(chain, b"one")
    last = publish_one(chain, b"two")
    pointer = chain_factory.store.get(chain.layout.pointer_key).data
    chain_factory.store.delete([chain.layout.pointer_key])
    before = everything(chain_factory.store)
    with pytest.raises(CorruptRecord, match="pointer is missing"):
        publish_one(chain_factory(by="later"), b"three")
    assert everything(chain_factory.store) == before
    found = chain.load_current()
    assert found is not None
    assert found.manifest_id == last.manifest.manifest_id
    chain_factory.store.put_new(chain.layout.pointer_key, pointer)
    assert publish_one(chain_factory(by="later"), b"three").manifest.manifest_id == last.manifest.manifest_id + 1


def test_a_first_snapshot_published_while_a_writer_looks_is_no_lost_pointer(chain_factory: ChainFactory) -> None:
    """S26, S10: no pointer yet, then a mirror that has one: the writer looks again, and goes on after it."""
    mirror = chain_factory.layout.mirror_key
    first: list[Committed] = []

    def plan(operation: Operation) -> Fault:
        if operation.key == mirror and not first:
            first.append(publish_one(chain_factory(by="first"), b"one"))
        return Fault.PASS

    late = publish_one(chain_factory(by="late", store=FaultyStore(chain_factory.store, plan)), b"two")
    assert late.manifest.previous_manifest_path == first[0].manifest_path


@pytest.mark.parametrize("text", [b"", b"[]", b"{", b"\xff", b'"text"'])
def test_a_damaged_legacy_manifest_is_damage_and_not_an_empty_chain(chain_factory: ChainFactory, text: bytes) -> None:
    """S26: a reader that cannot read it says so; a writer does not start a chain over it."""
    chain = chain_factory()
    assert chain.layout.mirror_key is not None
    chain_factory.store.put_new(chain.layout.mirror_key, text)
    with pytest.raises(CorruptRecord):
        chain.load_current()
    with pytest.raises(CorruptRecord):
        chain.lock()
    assert keys_below(chain_factory.store) == [chain.layout.mirror_key]


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"manifest_id": "00000000000000000007"},
        {"manifest_id": "seven"},
        {"manifest_id": -1},
        {"epoch": "x", "updated_at": 7},
        {"published_at": "2025-01-01T00:00:00+02:00"},
    ],
)
def test_a_legacy_manifest_is_read_leniently(
    chain_factory: ChainFactory, old_writer: LegacyWriter, fields: dict[str, object]
) -> None:
    """S26: its fields are its own; whatever they are, the chain can be read and continued, and nothing is lost."""
    raw = old_writer.publish(**fields, tables=["old"])
    found = chain_factory().load_current()
    assert found is not None
    assert found.payload == orjson.loads(raw)
    done = publish_one(chain_factory(), b"new")
    assert done.manifest.previous_manifest_path is not None
    assert chain_factory.store.get(done.manifest.previous_manifest_path).data == raw


def test_bookkeeping_that_fails_after_a_legacy_publish_is_no_error(chain_factory: ChainFactory) -> None:
    """S20: switched to legacy writes, a commit whose run record cannot be closed is a commit all the same."""
    publish_one(chain_factory(), b"one")
    chain_factory().switch_publishing("legacy", why="rollback plan")
    run_key = chain_factory.layout.run_key("mine")
    store = FaultyStore(
        chain_factory.store,
        lambda each: Fault.ERROR_BEFORE if (each.kind, each.key) == ("swap", run_key) else Fault.PASS,
    )
    done = publish_one(chain_factory(store=store), b"two", run_id="mine")
    assert done.repair_pending == ("run record",)
    assert contents(chain_factory()) == {"part-0": b"two"}
    chain_factory().switch_publishing("pointer")
    assert contents(chain_factory()) == {"part-0": b"two"}


def test_who_missed_the_switch_back_cannot_write_the_legacy_path(chain_factory: ChainFactory) -> None:
    """S26, S45: the chain was switched back and rolled back meanwhile; a writer with the old view is refused."""
    publish_one(chain_factory(), b"one")
    operator: Chain = chain_factory(by="operator")
    operator.switch_publishing("legacy")
    late = chain_factory(by="late")
    guard = late.lock()
    publish_one(late, b"two", guard=guard)
    operator.switch_publishing("pointer")
    operator.rollback(offset=1)
    with pytest.raises(Conflict, match="switched back"):
        publish_one(late, b"three", guard=guard)
    assert contents(chain_factory()) == {"part-0": b"one"}
    guard.release()


def test_an_edited_mirror_is_found_and_repaired(chain_factory: ChainFactory, mirror_key: str) -> None:
    """S27: what an old reader sees is checked by verify and brought back by reconcile."""
    done = publish_one(chain_factory(), b"one")
    edit(chain_factory.store, mirror_key, tables=["tampered"])
    assert mirror_key in {found.key for found in chain_factory.breaks()}
    chain_factory().reconcile(enforce=True)
    assert chain_factory.store.get(mirror_key).data == chain_factory.store.get(done.manifest_path).data
