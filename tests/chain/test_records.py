"""What each record carries, what it keeps that it does not know, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import orjson
import pytest

from holdfast.chain import Chain, Committed, InputPin, RunRecord, layout_named
from holdfast.chain.collection import CollectionRecord
from holdfast.chain.manifest import Manifest
from holdfast.chain.moves import MoveSegment
from holdfast.chain.pointer import Pointer
from holdfast.chain.root import RootManifest, sync_root
from holdfast.chain.tags import TagBook
from holdfast.errors import CorruptRecord, UnsupportedFormat
from holdfast.fencing import LockRecord
from tests.chain.publishing import LAYOUTS, ChainFactory, edit, keys_below, publish_one, sha256

GOLDEN = Path(__file__).parent.parent / "golden" / "v1"
Json = dict[str, object]


def record(chain: Chain, key: str) -> Json:
    found = orjson.loads(chain.store.get(key).data)
    assert isinstance(found, dict)
    return found


# -- what is there -----------------------------------------------------------------------------------------------------


def test_a_manifest_carries_everything_the_contract_names(chain_factory: ChainFactory) -> None:
    """S7: ids, fencing, lineage, time, run; and for each artifact its path, byte size, row count and checksum."""
    chain = chain_factory()
    first = publish_one(chain, b"one")
    done = publish_one(chain, {"a": b"two!", "b": b""}, run_id="nightly-7")
    stored = record(chain, done.manifest_path)
    assert stored["manifest_id"] == f"{chain.layout.first_id + 1:020d}"
    assert (stored["epoch"], stored["fencing_token"]) == (2, 2)
    assert stored["commit_ulid"] == done.commit_ulid
    assert stored["parent_hash"] == sha256(chain.store.get(first.manifest_path).data)
    assert stored["previous_manifest_path"] == first.manifest_path
    assert stored["published_at"] == "2026-03-14T10:30:00.000001Z"
    assert stored["run_id"] == "nightly-7"
    names = chain.layout.names
    artifacts = stored[next(iter(names.lists.values()))]
    assert artifacts == [
        {names.path: each.path, "byte_size": len(data), names.row_count: 1, "checksum": sha256(data)}
        for each, data in zip(done.manifest.artifacts, [b"two!", b""], strict=True)
    ]


def test_the_first_manifest_has_neither_parent_nor_previous_path(chain: Chain) -> None:
    """S7: the fields are absent, not empty."""
    stored = record(chain, publish_one(chain).manifest_path)
    assert "parent_hash" not in stored
    assert "previous_manifest_path" not in stored


def test_a_pointer_carries_everything_the_contract_names(chain_factory: ChainFactory) -> None:
    """S8: target, hash, epoch, sequence, high-water id, ULID, time, and last moves with from, to, when, who, why."""
    chain = chain_factory(by="anna")
    first = publish_one(chain, b"one", why="load")
    second = publish_one(chain, b"two")
    chain_factory.clock.advance(60)
    chain_factory(by="bert").rollback(why="bad rows")
    stored = record(chain, chain.layout.pointer_key)
    numeric = chain.layout.name == "graph"
    shown = first.manifest.manifest_id if numeric else f"{first.manifest.manifest_id:020d}"
    assert stored["version" if numeric else "manifest_id"] == shown
    assert stored["manifest_path"] == first.manifest_path
    assert stored["manifest_hash"] == sha256(chain.store.get(first.manifest_path).data)
    assert (stored["epoch"], stored["sequence"]) == (2, 2)
    assert stored["high_water_id"] == second.manifest.manifest_id
    assert stored["updated_at"] == "2026-03-14T10:31:00.000000Z"
    moves = stored["moves"]
    assert isinstance(moves, list)
    told = [(move["kind"], move["from"], move["to"], move["by"], move["why"]) for move in moves]
    ids = [f"{each.manifest.manifest_id:020d}" for each in (first, second)]
    assert told == [
        ("publish", None, ids[0], "anna", "load"),
        ("publish", ids[0], ids[1], "anna", ""),
        ("rollback", ids[1], ids[0], "bert", "bad rows"),
    ]
    assert stored["commit_ulid"] == moves[-1]["commit_ulid"]
    assert moves[-1]["at"] == stored["updated_at"]


def test_the_sequence_grows_by_one_with_every_write_of_the_pointer(chain_factory: ChainFactory) -> None:
    """S8: publish, rollback, forward and fence alike; so the bytes never repeat, even on the way back."""
    chain = chain_factory()
    acts: list[Callable[[], object]] = [lambda: publish_one(chain), lambda: publish_one(chain)]
    acts += [chain.rollback, chain.forward] * 20
    seen: list[bytes] = []
    for number, act in enumerate(acts):
        act()
        seen.append(chain.store.get(chain.layout.pointer_key).data)
        assert orjson.loads(seen[-1])["sequence"] == number
    assert len(set(seen)) == len(seen)


def test_every_record_is_pretty_printed(chain_factory: ChainFactory) -> None:
    """S46: JSON an operator can read with `cat`: two spaces, one field a line, a final newline."""
    chain = chain_factory()
    publish_one(chain, tags={"a": "b"})
    chain.tag(chain.find(), {"stage": "released"})
    publish_one(chain)
    chain.collect(retention=1)
    keys = [
        key
        for key in keys_below(chain.store)
        if not any(key.startswith(each) for each in chain.layout.artifact_prefixes)
    ]
    assert len(keys) >= 7
    for key in keys:
        data = chain.store.get(key).data
        assert data == orjson.dumps(orjson.loads(data), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE), key


# -- what is unknown ---------------------------------------------------------------------------------------------------


def test_unknown_fields_of_the_pointer_survive_every_move(chain_factory: ChainFactory) -> None:
    """S9: a field of a newer minor is ignored on read and kept on rewrite: at the top, in moves and in collections."""
    chain = chain_factory()
    for _ in range(3):
        publish_one(chain)
    chain.collect(retention=2)
    key = chain.layout.pointer_key
    stored = record(chain, key)
    moves, collections = stored["moves"], stored["collections"]
    assert isinstance(moves, list)
    assert isinstance(collections, list)
    moves[0]["x_move"] = {"deep": [1]}
    collections[0]["x_collection"] = 2
    edit(chain.store, key, x_top=[1, {"a": None}], format="holdfast.pointer/1.9", moves=moves, collections=collections)
    reader = chain_factory(by="later")
    publish_one(reader)
    reader.rollback()
    after = record(reader, key)
    assert after["x_top"] == [1, {"a": None}]
    assert isinstance(after["moves"], list)
    assert after["moves"][0]["x_move"] == {"deep": [1]}
    assert isinstance(after["collections"], list)
    assert after["collections"][0]["x_collection"] == 2


def test_unknown_fields_of_moves_survive_into_the_log(chain_factory: ChainFactory) -> None:
    """S9: when a move leaves the pointer for a segment, it takes with it what nobody knows."""
    chain = chain_factory()
    publish_one(chain)
    publish_one(chain)
    stored = record(chain, chain.layout.pointer_key)
    moves = stored["moves"]
    assert isinstance(moves, list)
    moves[1]["x_move"] = "kept"
    edit(chain.store, chain.layout.pointer_key, moves=moves)
    for _ in range(16):
        chain.rollback()
        chain.forward()
    segment = record(chain, chain.layout.moves_key(0))
    assert isinstance(segment["moves"], list)
    assert segment["moves"][1]["x_move"] == "kept"


def test_unknown_fields_of_runs_tags_lock_and_root_survive(chain_factory: ChainFactory) -> None:
    """S9: every other record that is rewritten keeps them as well."""
    chain = chain_factory()
    publish_one(chain)
    layout = chain.layout
    edit(chain.store, layout.lock_key, x="lock")
    run = chain.begin_run("mine")
    edit(chain.store, layout.run_key("mine"), x="run")
    run.require_writing()
    run.renew()
    run.fail("done")
    chain.tag(chain.find(), {"a": "b"})
    edit(chain.store, layout.tags_key, x="tags")
    chain.tag(chain.find(), {"a": "c"})
    with chain.lock():
        pass
    expected = {layout.lock_key: "lock", layout.run_key("mine"): "run", layout.tags_key: "tags"}
    if layout.root_key is not None:
        edit(chain.store, layout.root_key, x="root", catalog_manifest_path="elsewhere", other_manifest_path="theirs")
        sync_root(chain.handle)
        expected[layout.root_key] = "root"
        assert record(chain, layout.root_key)["other_manifest_path"] == "theirs"
    assert {key: record(chain, key).get("x") for key in expected} == expected


def test_fields_of_the_model_come_back_as_they_were(chain: Chain) -> None:
    """S9: what the kernel does not know in a manifest is the model's, and is handed back whole."""
    payload = {"schema": {"k": "int"}, "watermark": 12, "nothing": None, "größe": [1.5, True]}
    done = publish_one(chain, payload=payload)
    loaded = chain.load_current()
    assert loaded is not None
    assert loaded.payload == payload
    assert loaded == done.manifest


# -- what is refused ---------------------------------------------------------------------------------------------------

Read = Callable[[bytes, str], object]
LAYOUT = LAYOUTS["domain"]
DECODERS: dict[str, tuple[str, Read]] = {
    "pointer": (
        "domain/manifests/catalog.pointer.json",
        lambda data, key: Pointer.decode(data, key=key, id_field=LAYOUT.id_field),
    ),
    "manifest": (
        "domain/manifests/catalog/00000000000000000002.json",
        lambda data, key: Manifest.decode(data, key=key, names=LAYOUT.names),
    ),
    "run": ("domain/manifests/catalog.runs/nightly-1.json", lambda data, key: RunRecord.decode(data, key=key)),
    "tags": ("domain-collected/manifests/catalog.tags.json", lambda data, key: TagBook.decode(data, key=key)),
    "lock": ("domain/locks/catalog.lock.json", lambda data, key: LockRecord.decode(data, key=key)),
    "moves": (
        "domain/manifests/catalog.moves/00000000000000000000.json",
        lambda data, key: MoveSegment.decode(data, key=key, segment=0),
    ),
    "root": ("domain/manifests/root.manifest.json", lambda data, key: RootManifest.decode(data, key=key)),
    "collection": (
        "domain-collected/manifests/catalog.gc/*.json",
        lambda data, key: CollectionRecord.decode(data, key=key),
    ),
}
OPTIONAL = {
    "pointer": {"log_hash", "counters", "collected", "collections", "publishing"},
    "manifest": {"parent_hash", "previous_manifest_path", "tags", "counters", "inputs", "artifacts", "model"},
    "run": {"claims", "pins"},
    "tags": {"snapshots"},
    "moves": {"previous_hash"},
    "collection": {"snapshots", "runs", "condemned"},
    "root": {"catalog_manifest_path"},
}


WRONG: dict[type, list[object]] = {
    str: [7, True, ["text"], {"a": 1}],
    int: ["text", -1, 1.5, True, [1]],
    list: ["text", 7, {"a": 1}, [[]]],
    dict: ["text", 7, [1], {"a": []}],
}


def golden_record(kind: str) -> tuple[Json, Read]:
    pattern, read = DECODERS[kind]
    [path] = GOLDEN.glob(pattern)
    found = orjson.loads(path.read_bytes())
    assert isinstance(found, dict)
    return found, read


@pytest.mark.parametrize("kind", [kind for kind in DECODERS if kind != "root"])
def test_a_higher_major_is_refused_and_a_higher_minor_is_not(kind: str) -> None:
    """S9: a newer format is UnsupportedFormat, which says to upgrade; a newer minor of this one is read."""
    found, read = golden_record(kind)
    read(orjson.dumps(found | {"format": f"holdfast.{kind}/1.7"}), "some/key")
    for stamp in (f"holdfast.{kind}/2.0", f"holdfast.{kind}/10.3"):
        with pytest.raises(UnsupportedFormat, match=r"some/key.*newer.*upgrade"):
            read(orjson.dumps(found | {"format": stamp}), "some/key")


@pytest.mark.parametrize("kind", [kind for kind in DECODERS if kind != "root"])
@pytest.mark.parametrize("stamp", [None, 7, "", "holdfast.other/1.0", "holdfast/1.0", "1.0", "holdfast.{}/x.y", "{}"])
def test_what_is_no_format_of_ours_is_damage(kind: str, stamp: object) -> None:
    """S9: another kind of record, or none of ours, is CorruptRecord and never half-read."""
    found, read = golden_record(kind)
    spelled = stamp.format(kind) if isinstance(stamp, str) else stamp
    with pytest.raises(CorruptRecord, match="some/key"):
        read(orjson.dumps(found | {"format": spelled}), "some/key")


@pytest.mark.parametrize("kind", list(DECODERS))
def test_a_missing_field_is_damage_that_names_key_and_field(kind: str) -> None:
    """S9: whatever required field is missing, the error says which, and where."""
    found, read = golden_record(kind)
    required = set(found) - OPTIONAL.get(kind, set()) - {"moves"}
    for name in required:
        with pytest.raises(CorruptRecord, match=f"'some/key' is damaged: .*{name}"):
            read(orjson.dumps({each: value for each, value in found.items() if each != name}), "some/key")


@pytest.mark.parametrize("kind", list(DECODERS))
def test_a_field_of_the_wrong_type_is_damage_that_names_key_and_field(kind: str) -> None:
    """S9: text for a number, a number for text, a list for an object: none passes, none escapes as another error."""
    found, read = golden_record(kind)
    for name, value in found.items():
        if name in {"model", "catalog_manifest_path"} or value is None:
            continue  # the model's own, unknown unless it is text, or of any type
        for wrong in WRONG[type(value)]:
            with pytest.raises(CorruptRecord, match="'some/key' is damaged"):
                read(orjson.dumps(found | {name: wrong}), "some/key")


def test_no_artifact_gets_lost_between_draft_and_manifest(chain: Chain) -> None:
    """S7: every artifact of the draft is in the stored manifest, in order, and comes back equal."""
    done = publish_one(chain, {f"part-{number}": b"%d" % number for number in range(5)})
    assert isinstance(done, Committed)
    loaded = chain.load_current()
    assert loaded is not None
    assert loaded.artifacts == done.manifest.artifacts
    assert len(loaded.artifacts) == 5


def test_an_input_pin_reads_back(chain: Chain) -> None:
    """S7: the exact snapshots a manifest was built from are in it."""
    pin = InputPin(chain="s3://lake/x#kv", manifest_id=3, manifest_hash=sha256(b"x"), ref="r")
    publish_one(chain, inputs=(pin,))
    loaded = chain.load_current()
    assert loaded is not None
    assert loaded.inputs == (pin,)
    assert layout_named(chain.layout.name) == chain.layout
