"""Verify: whatever is done to a chain behind its back is found, and named by its key."""

from __future__ import annotations

from collections.abc import Callable

import orjson
import pytest

from holdfast.chain import Chain, Committed, Pointer, domain_layout, kv_layout
from holdfast.codec import content_hash, encode_record
from holdfast.errors import CorruptRecord
from holdfast.storage import MemoryStore, ObjectStore
from holdfast.testing.clock import SeededRandomness
from holdfast.testing.faulty import CountingStore
from tests.chain.publishing import ChainFactory, edit, everything, keys_below, overwrite, publish_one
from tests.chain.test_history import publish_many

SNAPSHOTS = 40
"""Enough moves for one immutable segment of the log, and for one that is still inside the pointer."""


@pytest.fixture(scope="module")
def pristine() -> dict[str, bytes]:
    """A domain chain with everything in it: log segments, mirror, root, tags, runs, lock, a collection that is
    pending."""
    factory = ChainFactory(layout=domain_layout("catalog"))
    chain = factory()
    publish_many(chain, SNAPSHOTS)
    chain.tag(chain.find(run_id="run-5"), {"keep": "me"})
    chain.collect(retention=20)
    assert factory.breaks() == []
    return everything(factory.store)


@pytest.fixture
def copy(pristine: dict[str, bytes]) -> ChainFactory:
    """A chain of one's own to break."""
    store = MemoryStore()
    for key, data in pristine.items():
        store.put_new(key, data)
    return ChainFactory(layout=domain_layout("catalog"), store=store, randomness=SeededRandomness(1))


def places(factory: ChainFactory) -> dict[str, str]:
    """One object of each kind that verify looks at."""
    chain, layout = factory(), factory.layout
    assert layout.mirror_key is not None
    assert layout.root_key is not None
    current = chain.load_current()
    old = chain.find(run_id="run-25")
    ((pending, record),) = chain.pending_collections()
    return {
        "pointer": layout.pointer_key,
        "current manifest": chain.find().manifest_path,
        "old manifest": old.manifest_path,
        "artifact": current.artifacts[0].path if current else "",
        "old artifact": chain.load_manifest(old.manifest_path).artifacts[0].path,
        "collected artifact": next(item.key for item in record.condemned if item.what == "artifact"),
        "moves": layout.moves_key(0),
        "mirror": layout.mirror_key,
        "root": layout.root_key,
        "tags": layout.tags_key,
        "run": layout.run_key("run-30"),
        "lock": layout.lock_key,
        "collection": layout.collection_key(pending.collection),
    }


KINDS = [
    "pointer",
    "current manifest",
    "old manifest",
    "artifact",
    "old artifact",
    "moves",
    "mirror",
    "root",
    "tags",
    "run",
    "lock",
    "collection",
]
BY_HASH = ["current manifest", "old manifest", "artifact", "old artifact", "moves", "mirror"]
NEED_NOT_EXIST = {"tags", "run", "lock"}
"""Nothing was tagged, a purged run, a lock that was lost: a chain without them is whole, and none of them comes back
wrong."""


def test_an_untouched_chain_has_no_breaks(chain: Chain) -> None:
    """S38: nothing is reported where nothing is broken: empty, published, rolled back, tagged, collected, purged."""
    assert chain.verify() == []
    publish_many(chain, 3)
    assert chain.verify() == []
    chain.rollback()
    chain.tag(chain.find(), {"a": "b"})
    assert chain.verify() == []
    publish_one(chain)
    chain.collect(retention=1)
    assert chain.verify() == []
    chain.purge(grace_s=0)
    assert chain.verify() == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_truncated_object_is_reported_with_its_key(copy: ChainFactory, kind: str) -> None:
    """S38: cut in half, and cut to nothing."""
    key = places(copy)[kind]
    data = copy.store.get(key).data
    for damaged in (data[: len(data) // 2], b""):
        overwrite(copy.store, key, damaged)
        assert key in {found.key for found in copy.breaks()}


@pytest.mark.parametrize("kind", KINDS)
def test_a_garbled_object_is_reported_with_its_key(copy: ChainFactory, kind: str) -> None:
    """S38: one byte of its structure is another."""
    key = places(copy)[kind]
    data = copy.store.get(key).data
    overwrite(copy.store, key, b"\x00" + data[1:])
    assert key in {found.key for found in copy.breaks()}


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in NEED_NOT_EXIST])
def test_a_missing_object_is_reported_with_its_key(copy: ChainFactory, kind: str) -> None:
    """S38: what must be there and is not."""
    key = places(copy)[kind]
    copy.store.delete([key])
    assert key in {found.key for found in copy.breaks()}


@pytest.mark.parametrize("kind", sorted(NEED_NOT_EXIST))
def test_what_need_not_exist_is_not_missed(copy: ChainFactory, kind: str) -> None:
    """S38, S22: a lost lock, run record or tag book is no break: the chain is whole without it, and goes on."""
    copy.store.delete([places(copy)[kind]])
    assert copy.breaks() == []
    assert isinstance(publish_one(copy()), Committed)
    assert copy.breaks() == []


@pytest.mark.parametrize("kind", BY_HASH)
def test_any_flipped_bit_is_found_where_a_hash_protects(copy: ChainFactory, kind: str) -> None:
    """S38, I3: manifests, artifacts, segments of the log and the mirror: no bit can change unnoticed."""
    key = places(copy)[kind]
    data = copy.store.get(key).data
    for position in range(0, len(data), max(1, len(data) // 40)):
        flipped = bytearray(data)
        flipped[position] ^= 1
        overwrite(copy.store, key, bytes(flipped))
        assert key in {found.key for found in copy.breaks()}, f"byte {position} of {kind}"
    overwrite(copy.store, key, data)
    assert copy.breaks() == []


@pytest.mark.parametrize("field", ["manifest_hash", "manifest_path", "manifest_id", "epoch", "sequence", "commit_ulid"])
def test_a_pointer_that_contradicts_itself_is_reported(copy: ChainFactory, field: str) -> None:
    """S38, S8: each field that a pointer has twice, once for itself and once in its newest move, must agree."""
    key = copy.layout.pointer_key
    record = orjson.loads(copy.store.get(key).data)
    value = record[field]
    changed = value + 1 if isinstance(value, int) else value[:-1] + ("1" if value[-1] != "1" else "2")
    edit(copy.store, key, **{field: changed})
    assert key in {found.key for found in copy.breaks()}
    with pytest.raises(CorruptRecord):
        copy().list_manifests()


def test_a_collected_artifact_that_is_gone_too_early_is_reported(copy: ChainFactory) -> None:
    """S38, S39: what can still be restored must still be there."""
    key = places(copy)["collected artifact"]
    copy.store.delete([key])
    assert [found.key for found in copy.breaks()] == [key]


@pytest.mark.parametrize("what", ["manifests", "artifacts", "manifest and artifact"])
def test_swapped_files_are_reported_with_both_keys(copy: ChainFactory, what: str) -> None:
    """S38: two objects that exchanged their bytes are both wrong, although each is valid in itself."""
    chain = copy()
    one, two = chain.find(run_id="run-25"), chain.find(run_id="run-26")
    manifests = [one.manifest_path, two.manifest_path]
    artifacts = [chain.load_manifest(path).artifacts[0].path for path in manifests]
    first, second = {
        "manifests": manifests,
        "artifacts": artifacts,
        "manifest and artifact": [manifests[0], artifacts[1]],
    }[what]
    data = copy.store.get(first).data, copy.store.get(second).data
    overwrite(copy.store, first, data[1])
    overwrite(copy.store, second, data[0])
    assert {first, second} <= {found.key for found in copy.breaks()}


def _forge(factory: ChainFactory, change: Callable[[dict[str, object]], None]) -> str:
    """Change the visible manifest and make pointer and move agree with the forgery: only the chain itself can tell."""
    layout, store = factory.layout, factory.store
    pointer = orjson.loads(store.get(layout.pointer_key).data)
    path = str(pointer["manifest_path"])
    manifest = orjson.loads(store.get(path).data)
    change(manifest)
    overwrite(store, path, encode_record(manifest))
    forged = content_hash(store.get(path).data)
    pointer["manifest_hash"] = pointer["moves"][-1]["manifest_hash"] = forged
    overwrite(store, layout.pointer_key, encode_record(pointer))
    return path


@pytest.mark.parametrize(
    "changes",
    [
        {"parent_hash": "sha256:" + "0" * 64},
        {"previous_manifest_path": "manifests/elsewhere"},
        {"manifest_id": "00000000000000000099"},
        {"commit_ulid": "01KKNYAM206K33HRKQEYQ0D3GR"},
        {"epoch": 77},
        {"run_id": "somebody-else"},
        {"pointer_sequence": 0},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_a_forged_manifest_is_reported_by_the_chain_around_it(changes: dict[str, object]) -> None:
    """S38, S14, I3: the forger even corrected the pointer's hashes; the parent, or the move, still says otherwise."""
    factory = ChainFactory(layout=kv_layout())
    publish_many(factory(), 3)
    path = _forge(factory, lambda manifest: manifest.update(changes))
    assert path in {found.key for found in factory.breaks()}


def test_an_epoch_that_falls_is_reported(chain: Chain, chain_factory: ChainFactory) -> None:
    """S38, I5: a lock file whose sequence is below the pointer's epoch lets a stale writer in."""
    publish_many(chain, 2)
    publish_one(chain)
    chain_factory.expect_damage()
    edit(chain_factory.store, chain.layout.lock_key, sequence=0)
    assert [found.key for found in chain_factory.breaks()] == [chain.layout.lock_key]


def test_a_run_that_was_swept_although_it_was_published_is_reported(chain: Chain, chain_factory: ChainFactory) -> None:
    """S38, I7: a published run marked as swept would have its files collected."""
    publish_one(chain, run_id="published")
    chain_factory.expect_damage()
    edit(chain_factory.store, chain.layout.run_key("published"), state="swept")
    (found,) = chain_factory.breaks()
    assert (found.invariant, found.key) == ("I7", chain.layout.run_key("published"))
    assert str(found).startswith(f"I7 {found.key}: ")


def test_a_tag_on_what_never_was_is_reported(chain: Chain, chain_factory: ChainFactory) -> None:
    """S38, S36: tags name snapshots that were visible at some time."""
    publish_one(chain)
    chain.tag(chain.find(), {"a": "b"})
    chain_factory.expect_damage()
    edit(chain_factory.store, chain.layout.tags_key, snapshots={"00000000000000000099": {"a": "b"}})
    assert [found.key for found in chain_factory.breaks()] == [chain.layout.tags_key]


def test_every_break_is_reported_not_only_the_first(copy: ChainFactory) -> None:
    """S38: many damages at once are all in one report."""
    where = places(copy)
    kinds = ["old manifest", "artifact", "mirror", "root", "tags", "run", "lock", "collection"]
    for kind in kinds:
        overwrite(copy.store, where[kind], b"?")
    assert {where[kind] for kind in kinds} <= {found.key for found in copy.breaks()}


def test_verify_changes_nothing_and_can_spare_the_bytes(copy: ChainFactory) -> None:
    """S38: it reads only; without reading artifacts it still finds missing and shortened ones, and says how far it
    is."""
    before = everything(copy.store)
    counting = CountingStore(copy.store)
    progress: list[tuple[int, int]] = []
    chain = copy(store=counting)
    assert chain.verify(progress=lambda done, total: progress.append((done, total))) == []
    assert set(counting.counts) <= {"get", "get_range", "head", "list"}
    assert everything(copy.store) == before
    assert progress[-1] == (21, 21)
    counting.reset()
    assert chain.verify(read_artifacts=False) == []
    assert "get_range" not in counting.counts
    key = places(copy)["artifact"]
    overwrite(copy.store, key, b"")
    assert [found.key for found in chain.verify(read_artifacts=False)] == [key]


def test_an_artifact_with_an_unknown_checksum_is_not_believed() -> None:
    """S38: a checksum that verify cannot compute is a break, not a pass."""
    factory = ChainFactory(layout=kv_layout())
    publish_one(factory())
    _forge(factory, lambda manifest: manifest["artifacts"][0].update(checksum="crc7:00"))  # type: ignore[index]
    assert ["unknown algorithm" in found.problem for found in factory.breaks()] == [True]


def test_every_kind_of_object_is_in_the_table(copy: ChainFactory) -> None:
    """S38: the damages above cover every object the chain has: nothing is left that verify need not look at."""
    layout = copy.layout
    covered = {*layout.record_keys, layout.probe_key}
    prefixes = (
        f"{layout.manifest_prefix}/",
        f"{layout.run_prefix}/",
        f"{layout.moves_prefix}/",
        f"{layout.collection_prefix}/",
        *(f"{prefix}/" for prefix in layout.artifact_prefixes),
    )
    assert [key for key in keys_below(copy.store) if key not in covered and not key.startswith(prefixes)] == []


def _pointer(store: ObjectStore, factory: ChainFactory) -> Pointer:
    layout = factory.layout
    return Pointer.decode(store.get(layout.pointer_key).data, key=layout.pointer_key, id_field=layout.id_field)


def test_a_log_that_disagrees_with_the_pointer_is_reported(copy: ChainFactory) -> None:
    """S38, I2: a segment that was replaced by a well-formed one with other moves is found by its hash."""
    key = copy.layout.moves_key(0)
    segment = orjson.loads(copy.store.get(key).data)
    segment["moves"][3]["why"] = "nobody will notice"
    overwrite(copy.store, key, encode_record(segment))
    assert _pointer(copy.store, copy).log_hash is not None
    assert key in {found.key for found in copy.breaks()}
