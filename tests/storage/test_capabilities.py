"""Components can do what they were handed, and cannot reach the rest: at run time and for the type checker."""

from __future__ import annotations

import dataclasses
import pickle
from pathlib import Path

import pytest

from holdfast.errors import BadInput, InvalidKey, ScopeEscape
from holdfast.storage import (
    DatasetPut,
    Deleter,
    LedgerPut,
    Lister,
    LockSwap,
    ManifestSwap,
    MemoryStore,
    MetadataHead,
    ObjectStore,
    Reader,
    StatePut,
    Version,
    grant,
)
from tests.typecheck import assert_mypy_rejects

_TESTS = Path(__file__).parent.parent

_METHODS = {
    LedgerPut: {"put_event"},
    StatePut: {"put_state", "upload_state"},
    ManifestSwap: {"put_manifest", "swap_pointer"},
    DatasetPut: {"put_data", "swap_record", "upload_data"},
    LockSwap: {"get_lock", "put_lock", "swap_lock"},
    MetadataHead: {"head", "head_many"},
    Reader: {"get", "get_if_changed", "get_range"},
    Lister: {"list"},
    Deleter: {"delete"},
}

_FIELDS = {
    "api": {"ledger", "lock", "read"},
    "pipeline": {"data", "head", "ledger", "lock", "read"},
    "compactor-fastpath": {"head", "manifest", "read", "state"},
    "compactor-antientropy": {"ledger", "read"},
    "reader": {"read"},
    "collector": {"delete"},
}


def _visible(thing: object) -> set[str]:
    return {name for name in dir(thing) if not name.startswith("_")}


@pytest.mark.parametrize("kind, methods", _METHODS.items(), ids=lambda value: getattr(value, "__name__", ""))
def test_a_capability_has_its_own_methods_and_no_way_to_the_store(kind: type, methods: set[str]) -> None:
    """C7: nothing else is visible, nothing can be added, and the store below is behind a mangled name."""
    capability: object = kind(MemoryStore(), "ledger") if kind is Lister else kind(MemoryStore())
    assert _visible(capability) == methods
    assert not hasattr(capability, "__dict__")
    with pytest.raises(AttributeError):
        setattr(capability, "anything", 1)  # noqa: B010 - the type checker would refuse it, which is the point
    assert not isinstance(capability, ObjectStore)


@pytest.mark.parametrize("principal, fields", _FIELDS.items())
def test_a_principal_is_handed_its_row_and_nothing_more(principal: str, fields: set[str]) -> None:
    """C8, C9: the bundles are those of the table; they cannot be changed, and they pickle."""
    bundle = grant(MemoryStore("capabilities"), principal)  # type: ignore[call-overload]
    assert {field.name for field in dataclasses.fields(bundle)} == fields
    with pytest.raises(AttributeError):
        setattr(bundle, next(iter(fields)), None)
    assert type(pickle.loads(pickle.dumps(bundle))) is type(bundle)


def test_an_unknown_principal_gets_nothing() -> None:
    """C9: there is no default."""
    with pytest.raises(BadInput):
        grant(MemoryStore(), "root")  # type: ignore[call-overload]


def test_capabilities_stay_in_their_folders() -> None:
    """C8, C9, C11: each writes below its own folders; other folders, look-alikes and escapes are refused."""
    store = MemoryStore()
    version = Version("m1")
    attempts = {
        LedgerPut(store).put_event: "ledger",
        StatePut(store).put_state: "state",
        ManifestSwap(store).put_manifest: "manifests",
        DatasetPut(store).put_data: "datasets",
        LockSwap(store).put_lock: "locks",
    }
    folders = {"ledger", "state", "l0", "manifests", "datasets", "locks", "other"}
    for put, own in attempts.items():
        allowed = {own, "l0"} if own == "state" else {own}
        bad = [f"{folder}/x" for folder in folders - allowed]
        bad += [f"{own}-not/x", f"{own}/../manifests/x", f"/{own}/x", f"{own}/%2e%2e/x", own]
        for key in bad:
            with pytest.raises(ScopeEscape):
                put(key, b"")
    for swap in (ManifestSwap(store).swap_pointer, DatasetPut(store).swap_record, LockSwap(store).swap_lock):
        with pytest.raises(ScopeEscape):
            swap("ledger/x", b"", expected=version)
    for upload in (StatePut(store).upload_state, DatasetPut(store).upload_data):
        with pytest.raises(ScopeEscape):
            upload("ledger/x", [b""])
    with pytest.raises(InvalidKey):
        LedgerPut(store).put_event("ledger//x", b"")
    assert list(store.list("")) == []


def test_what_is_allowed_works() -> None:
    """C8, C9: the methods do what they say to the objects of the workspace."""
    store = MemoryStore()
    api, fast = grant(store, "api"), grant(store, "compactor-fastpath")
    watch, pipeline = grant(store, "compactor-antientropy"), grant(store, "pipeline")
    api.ledger.put_event("ledger/catalog/1.json", b"{}")
    lock = api.lock.put_lock("locks/catalog.lock.json", b"1")
    api.lock.swap_lock("locks/catalog.lock.json", b"2", expected=lock)
    assert pipeline.lock.get_lock("locks/catalog.lock.json").data == b"2"
    fast.state.put_state("state/catalog/1.parquet", b"rows")
    assert fast.state.upload_state("l0/catalog/1.parquet", [b"ro", b"ws"]).size == 4
    pointer = fast.manifest.put_manifest("manifests/catalog.pointer.json", b"1")
    fast.manifest.swap_pointer("manifests/catalog.pointer.json", b"2", expected=pointer)
    assert fast.head.head("state/catalog/1.parquet").size == 4
    assert fast.head.head_many(["state/none"]) == [None]
    record = pipeline.data.put_data("datasets/users/run", b"1")
    pipeline.data.swap_record("datasets/users/run", b"2", expected=record)
    pipeline.data.upload_data("datasets/users/shard", [b"x"])
    assert [info.key for page in watch.ledger.list("ledger") for info in page] == ["ledger/catalog/1.json"]
    assert [info.key for page in watch.ledger.list("ledger/catalog/") for info in page] == ["ledger/catalog/1.json"]
    assert watch.read.get("state/catalog/1.parquet").data == b"rows"
    grant(store, "collector").delete.delete(["datasets/users/shard"])
    assert grant(store, "reader").read.get_range("datasets/users/run", 0, 9) == b"2"


def test_anti_entropy_lists_the_ledger_and_reads_state_only() -> None:
    """C9: it cannot list anything else, nor read what is not its business."""
    watch = grant(MemoryStore(), "compactor-antientropy")
    for prefix in ("", "state", "ledger-not", "datasets"):
        with pytest.raises(ScopeEscape):
            watch.ledger.list(prefix)
    for key in ("ledger/catalog/1.json", "locks/x", "datasets/x"):
        with pytest.raises(ScopeEscape):
            watch.read.get(key)


@pytest.mark.parametrize("path", sorted((_TESTS / "types").glob("*.py")), ids=lambda path: path.stem)
def test_the_type_checker_rejects(path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """C7: code that reaches beyond its capability does not type-check, on the very lines that do."""
    assert_mypy_rejects(path, tmp_path_factory.getbasetemp() / "mypy")
