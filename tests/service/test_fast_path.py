"""The service does no more than the compactor's fast path may, whatever its credentials allow."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.catalog.remote_compactor import RemoteCompactor
from holdfast.errors import ScopeEscape, StoreDenied
from holdfast.service.compactor import CompactorService
from holdfast.service.fast_path import FastPathRoot, confined
from holdfast.storage.memory import MemoryStore
from holdfast.storage.objects import Version
from holdfast.testing.faulty import CountingStore
from tests.service.support import ULID, call, edge, edges_of, local_root, serving, table, tell, until, workspace_on

READS = {"get", "get_if_changed", "get_range", "head"}
MAY = {"put_new": ("state/", "l0/", "manifests/"), "upload": ("state/", "l0/"), "swap": ("manifests/",)}


def test_every_request_of_the_service_is_one_that_the_fast_path_may_make(tmp_path: Path) -> None:
    """C9, C8: compactions, notifications, cursors, metrics and damage: no listing, no lock of the API's, no event."""
    seen = CountingStore(local_root(tmp_path / "root"))
    plain, served = workspace_on(local_root(tmp_path / "root")), workspace_on(seen)
    plain.initialize()
    with serving(CompactorService(served)) as url:
        remote = RemoteCompactor(url)
        remote.compact(tell(plain, table("a")))
        with plain.domain("catalog").lock() as guard:
            remote.compact(tell(plain, table("b")), ticket=guard.ticket)
        remote.notify("lineage", [*tell(plain, edge(1)), f"ledger/lineage/{ULID}.json"], cursor=ULID)
        until(lambda: remote.cursor("lineage") == ULID)
        call(url, "GET", "/metrics")
    assert edges_of(plain) == {"s1"}
    log = [(one.kind, one.key.removeprefix("acme/prod/")) for one in seen.log]
    assert {kind for kind, _ in log} <= READS | set(MAY)
    wrong = [(kind, key) for kind, key in log if kind in MAY and not key.startswith(MAY[kind])]
    assert wrong == []
    assert all(one.key.startswith("acme/prod/") for one in seen.log)


def test_what_it_may_not_is_refused_before_the_store_is_asked() -> None:
    """C9, C11: by the code, not by the credentials; another tenant's keys cannot even be named."""
    store = CountingStore(MemoryStore())
    root = FastPathRoot(store, "acme/prod")
    version = Version("1")
    for refused in (
        lambda: root.put_new("acme/prod/ledger/catalog/x.json", b""),
        lambda: root.put_new("acme/prod/locks/catalog.lock.json", b""),
        lambda: root.put_new("acme/prod/datasets/users/x", b""),
        lambda: root.put_new("acme/dev/manifests/x.json", b""),
        lambda: root.put_new("acme/prod/../dev/manifests/x.json", b""),
        lambda: root.swap("acme/prod/locks/catalog.lock.json", b"", expected=version),
        lambda: root.swap("acme/prod/state/x", b"", expected=version),
        lambda: root.upload("acme/prod/manifests/x", [b""]),
        lambda: root.get("acme/dev/ledger/catalog/x.json"),
        lambda: root.get_range("other/prod/x", 0, 1),
        lambda: root.head("acme/production/x"),
    ):
        with pytest.raises(ScopeEscape):
            refused()
    for denied in (
        lambda: root.list("acme/prod/ledger"),
        lambda: root.list_folders("acme/prod"),
        lambda: root.delete(["acme/prod/state/x"]),
        root.as_async,
    ):
        with pytest.raises(StoreDenied, match="may not"):
            denied()
    assert store.log == ()


def test_what_it_may_is_the_same_as_without(tmp_path: Path) -> None:
    """C9: keys, versions and sizes are those of the root."""
    inner = MemoryStore()
    root = FastPathRoot(inner, "acme/prod")
    version = root.put_new("acme/prod/manifests/x.json", b"1")
    root.swap("acme/prod/manifests/x.json", b"2", expected=version)
    assert inner.get("acme/prod/manifests/x.json").data == b"2"
    assert root.get("acme/prod/manifests/x.json") == inner.get("acme/prod/manifests/x.json")
    assert root.upload("acme/prod/l0/x", [b"12", b"3"]) == inner.head("acme/prod/l0/x")
    assert root.head("acme/prod/l0/x").size == 3
    root.put_new("acme/prod/state/y", b"1")
    assert inner.get("acme/prod/state/y").data == b"1"
    infos = root.head_many(["acme/prod/l0/x", "acme/prod/l0/y"])
    assert [None if info is None else info.key for info in infos] == ["acme/prod/l0/x", None]
    assert root.get_if_changed("acme/prod/l0/x", root.head("acme/prod/l0/x").version) is None
    assert root.get_range("acme/prod/l0/x", 1, 1) == b"2"
    assert root.url == inner.url
    workspace, _ = confined(workspace_on(inner))
    assert workspace.url == workspace_on(inner).url
