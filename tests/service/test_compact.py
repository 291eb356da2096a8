"""`POST /compact`: a change that somebody waits for is folded by a service, exactly as it would be in this process."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from holdfast.catalog import Workspace
from holdfast.catalog.compactor import Compactor, MergeLimits
from holdfast.catalog.operations import Catalog
from holdfast.catalog.remote_compactor import RemoteCompactor
from holdfast.errors import (
    BadInput,
    Conflict,
    CorruptRecord,
    CorruptShard,
    HoldfastError,
    LockLost,
    ObjectNotFound,
    ScopeEscape,
)
from holdfast.service.compactor import CompactorService
from holdfast.testing.faulty import CountingStore, Fault, FaultyStore, Operation
from tests.service.support import ULID, call, edge, local_root, serving, state_of, table, tables_of, tell, workspace_on

WRITES = frozenset({"put_new", "swap", "upload", "delete"})


def test_a_change_is_made_by_who_may_not_publish(workspace: Workspace, remote: RemoteCompactor) -> None:
    """C17, C8, C24: lock, event, call, release. It is visible when it returns, and its caller wrote nothing but the
    ledger and locks."""
    written: list[str] = []

    def plan(operation: Operation) -> Fault:
        if operation.kind in WRITES:
            written.append(operation.key)
        return Fault.PASS

    catalog = Catalog(workspace_on(FaultyStore(workspace.root, plan)), remote)
    catalog.create_namespace("n")
    applied = catalog.register_table("n", "orders")
    assert tables_of(workspace) == ["orders"]
    assert applied.compaction.snapshot_version == 2
    current = workspace.domain("catalog").current()
    assert current is not None
    assert (applied.compaction.manifest_id, applied.compaction.commit_ulid) == (
        current.manifest_id,
        current.commit_ulid,
    )
    folders = {key.removeprefix("acme/prod/").partition("/")[0] for key in written}
    assert folders == {"ledger", "locks"}
    root = workspace.read_root().paths["catalog_manifest_path"]
    assert workspace.store.head(root).size > 0
    with pytest.raises(Conflict, match="exists already"):
        catalog.register_table("n", "orders")


def test_an_answer_is_what_the_compactor_did(workspace: Workspace, url: str) -> None:
    """C17: the document, and the same once more: nothing new is published, and what is visible is told again."""
    (path,) = tell(workspace, table("a"))
    chain = workspace.domain("catalog")
    with chain.lock() as guard:
        body = {"domain": "catalog", "paths": [path, path], "ticket": guard.ticket}
        first, again = call(url, "POST", "/compact", body), call(url, "POST", "/compact", body)
    current = chain.current()
    assert current is not None
    assert (first.status, again.status) == (200, 200)
    assert first.document == {
        "domain": "catalog",
        "published": True,
        "manifest_version": current.manifest_id,
        "commit_ulid": current.commit_ulid,
        "snapshot_version": 1,
        "watermark": {"position": 1, "event_id": path[-31:-5]},
        "events": 1,
        "quarantined": 0,
        "merged": [],
    }
    assert again.document == {**first.document, "published": False}


def test_a_stale_or_forged_ticket_is_409_and_publishes_nothing(
    workspace: Workspace, url: str, remote: RemoteCompactor
) -> None:
    """C17: the ticket is compared with who holds the lock now; the client raises what a compactor here would."""
    (path,) = tell(workspace, table("a"))
    with workspace.domain("catalog").lock() as guard:
        stale, sequence = guard.ticket, guard.record.sequence
        forged = call(url, "POST", "/compact", {"domain": "catalog", "paths": [path], "ticket": f"{sequence}.0"})
    late = call(url, "POST", "/compact", {"domain": "catalog", "paths": [path], "ticket": stale})
    for answer in (forged, late):
        assert (answer.status, answer.document["error"]) == (409, "LockLost")
        assert stale not in str(answer.document)
    with pytest.raises(LockLost, match="not that of who holds") as theirs:
        remote.compact([path], ticket=stale)
    with pytest.raises(LockLost) as ours:
        Compactor(workspace, "catalog").compact([path], ticket=stale)
    assert str(theirs.value) == str(ours.value)
    assert workspace.domain("catalog").current() is None


@pytest.mark.parametrize(
    "path",
    [
        f"ledger/lineage/{ULID}.json",
        f"../dev/ledger/catalog/{ULID}.json",
        f"ledger/catalog/../../../dev/ledger/catalog/{ULID}.json",
        f"/ledger/catalog/{ULID}.json",
        f"acme/dev/ledger/catalog/{ULID}.json",
        f"ledger%2Fcatalog%2F{ULID}.json",
        f"ledger/catalog/%2e%2e/{ULID}.json",
        f"ledger\\catalog\\{ULID}.json",
        f"ledger/catalog/{ULID.lower()}.json",
        f"ledger/catalog/{ULID}.json\n",
        "manifests/root.manifest.json",
        "locks/catalog.lock.json",
        "",
    ],
)
def test_a_path_outside_of_the_ledger_is_refused_by_its_name(workspace: Workspace, url: str, path: str) -> None:
    """C11, C17, C18: another domain's, another tenant's, `..`, absolute, encoded, or no event: 422, and nothing is
    read or waits."""
    good = tell(workspace, table("a"))
    for address in ("/compact", "/notify"):
        answer = call(url, "POST", address, {"domain": "catalog", "paths": [*good, path]})
        assert (answer.status, answer.document["error"]) == (422, "ScopeEscape")
        assert repr(path) in answer.document["message"]
    assert workspace.domain("catalog").current() is None


@pytest.mark.parametrize(
    "body, status, words",
    [
        (b"{", 400, "not JSON"),
        (b'"x"', 400, "JSON object"),
        ({"paths": []}, 422, "'domain' is missing"),
        ({"domain": 7, "paths": []}, 422, "should be text"),
        ({"domain": "search", "paths": []}, 422, "not folded here"),
        ({"domain": "orchestration", "paths": []}, 422, "not folded here"),
        ({"domain": "../catalog", "paths": []}, 422, "not folded here"),
        ({"domain": "catalog"}, 422, "'paths' should be a list"),
        ({"domain": "catalog", "paths": "x"}, 422, "'paths' should be a list"),
        ({"domain": "catalog", "paths": [None]}, 422, "'paths' should be a list"),
        ({"domain": "catalog", "paths": [], "ticket": 1}, 422, "should be text"),
        ({"domain": "catalog", "paths": [], "path": []}, 422, "'path' is not known"),
        ({"domain": "catalog", "paths": [], "workspace": "dev"}, 422, "serves workspace 'prod' of tenant 'acme'"),
        ({"domain": "catalog", "paths": [], "tenant": "evil"}, 422, "serves workspace 'prod' of tenant 'acme'"),
    ],
)
def test_what_is_no_request_is_told_so(url: str, body: object, status: int, words: str) -> None:
    """C17: in one line that says what is wrong."""
    answer = call(url, "POST", "/compact", body)
    assert answer.status == status, answer
    assert words in answer.document["message"]
    assert "\n" not in answer.document["message"]


def test_bodies_and_numbers_of_paths_are_bounded(url: str) -> None:
    """C17: 413, and no more than that is read, whether a length is said or not."""
    many = [f"ledger/catalog/{number:026d}.json" for number in range(10_001)]
    for body in ({"domain": "catalog", "paths": many}, b" " * ((1 << 20) + 1)):
        answer = call(url, "POST", "/compact", body)
        assert (answer.status, answer.document["error"]) == (413, "LimitReached")


def test_what_is_no_address_or_no_json_is_told_so(url: str) -> None:
    """C17: a page of another site cannot make a browser send JSON here without being asked first."""
    assert call(url, "GET", "/").status == 404
    assert call(url, "GET", "/compact").status == 405
    assert "POST /compact" in call(url, "GET", "/docs").document["message"]
    answer = call(url, "POST", "/compact", {"domain": "catalog", "paths": []}, content_type="text/plain")
    assert (answer.status, answer.document["error"]) == (415, "BadBody")


def test_missing_or_damaged_state_is_500_and_publishes_nothing(
    workspace: Workspace, url: str, remote: RemoteCompactor
) -> None:
    """C22: closed; the answer says which file, and once it is back the same call succeeds."""
    remote.compact(tell(workspace, table("a")))
    (file,) = state_of(workspace, "catalog").files
    later = tell(workspace, table("b"))
    # The service has the file in memory; one that was started afterwards has not.
    good = workspace.store.get(file.path).data
    for damage in (None, good[:-1] + b"x"):
        workspace.store.delete([file.path])
        if damage is not None:
            workspace.store.put_new(file.path, damage)
        with serving(CompactorService(workspace)) as fresh:
            answer = call(fresh, "POST", "/compact", {"domain": "catalog", "paths": later})
            assert (answer.status, answer.document["error"]) == (500, "CorruptShard")
            assert file.path in answer.document["message"]
            with pytest.raises(CorruptShard, match="missing" if damage is None else "checksum"):
                RemoteCompactor(fresh).compact(later)
    assert state_of(workspace, "catalog").snapshot_version == 1
    workspace.store.delete([file.path])
    workspace.store.put_new(file.path, good)
    assert remote.compact(later).published
    assert tables_of(workspace) == ["a", "b"]


def test_a_missing_or_damaged_manifest_is_500_and_publishes_nothing(workspace: Workspace, url: str) -> None:
    """C22: what the pointer names is gone, or is not what it was: no empty catalog is published in its place."""
    remote = RemoteCompactor(url)
    remote.compact(tell(workspace, table("a")))
    current = workspace.domain("catalog").current()
    assert current is not None
    good, later = workspace.store.get(current.manifest_path).data, tell(workspace, table("b"))
    pointer = workspace.store.get("manifests/catalog.pointer.json").data
    for damage in (None, b"{"):
        workspace.store.delete([current.manifest_path])
        if damage is not None:
            workspace.store.put_new(current.manifest_path, damage)
        with serving(CompactorService(workspace)) as fresh:
            answer = call(fresh, "POST", "/compact", {"domain": "catalog", "paths": later})
            assert answer.status == 500
            with pytest.raises((CorruptRecord, HoldfastError), match=r"damaged|missing"):
                RemoteCompactor(fresh).compact(later)
    assert workspace.store.get("manifests/catalog.pointer.json").data == pointer
    workspace.store.delete([current.manifest_path])
    workspace.store.put_new(current.manifest_path, good)


def test_an_event_that_was_deleted_is_404_and_named(workspace: Workspace, url: str, tmp_path: Path) -> None:
    """C17: nothing is published of what came with it."""
    paths = tell(workspace, table("a"))
    gone = f"ledger/catalog/{ULID}.json"
    answer = call(url, "POST", "/compact", {"domain": "catalog", "paths": [*paths, gone]})
    assert (answer.status, answer.document["error"]) == (404, "ObjectNotFound")
    assert gone in answer.document["message"]
    assert "not in the ledger" in answer.document["message"]
    with pytest.raises(ObjectNotFound) as raised:
        RemoteCompactor(url).compact([gone])
    assert raised.value.key == gone
    assert workspace.domain("catalog").current() is None


def test_errors_are_the_same_as_in_this_process(workspace: Workspace, remote: RemoteCompactor) -> None:
    """C17: whoever handles them need not know where the fold ran."""
    for paths in (["manifests/root.json"], [f"ledger/lineage/{ULID}.json"]):
        with pytest.raises(ScopeEscape) as theirs:
            remote.compact(paths)
        with pytest.raises(ScopeEscape) as ours:
            Compactor(workspace, "catalog").compact(paths)
        assert str(theirs.value) == str(ours.value)
    with pytest.raises(BadInput, match="serves workspace 'prod'"):
        RemoteCompactor(remote.url, workspace="dev").compact([])


def test_a_held_catalog_lock_delays_no_lineage(workspace: Workspace, url: str) -> None:
    """C2: nor do changes of the catalog that wait for it; each domain has its own thread."""
    remote = RemoteCompactor(url)
    with workspace.domain("catalog").lock() as guard:
        assert remote.notify("catalog", tell(workspace, table("a"))).waiting == 1
        assert remote.compact(tell(workspace, edge(1)), domain="lineage").published
        with pytest.raises(Conflict, match="is held by 'tests'"):
            remote.compact(tell(workspace, table("b")))
        assert remote.compact(tell(workspace, table("c")), ticket=guard.ticket).published
    assert "c" in tables_of(workspace)


def test_changes_that_wait_together_share_a_publish_through_the_service(
    workspace: Workspace, remote: RemoteCompactor
) -> None:
    """C20: eight threads, far fewer publishes than changes: the callers' group commit batches, the lock orders."""
    catalog = Catalog(workspace, remote)
    catalog.create_namespace("n")
    start = threading.Barrier(8)

    def register(number: int) -> None:
        start.wait()
        for turn in range(4):
            catalog.register_table("n", f"t{number}-{turn}")

    threads = [threading.Thread(target=register, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(tables_of(workspace)) == 32
    assert state_of(workspace, "catalog").snapshot_version < 25


def test_deltas_are_merged_by_the_service(workspace: Workspace) -> None:
    """C21: a change is a small file more, until there are several; then one base."""
    service = CompactorService(workspace, limits=MergeLimits(files_max=3))
    levels, merged = [], []
    with serving(service) as address:
        remote = RemoteCompactor(address)
        for number in range(5):
            merged.append(remote.compact(tell(workspace, table(f"t{number}"))).merged)
            levels.append([file.level for file in state_of(workspace, "catalog").files])
    assert levels[2:] == [["delta"] * 3, ["base"], ["base", "delta"]]
    assert merged[3] == ("tables",)


def test_a_compaction_over_http_costs_few_requests_and_no_listing(tmp_path: Path) -> None:
    """C17, C24: what an in-process compaction costs, and nothing is listed."""
    counting = CountingStore(local_root(tmp_path / "counted"))
    workspace = workspace_on(counting)
    workspace.initialize()
    with serving(CompactorService(workspace)) as address:
        remote = RemoteCompactor(address)
        remote.compact(tell(workspace, table("a")))
        (path,) = tell(workspace, table("b"))
        with workspace.domain("catalog").lock() as guard:
            counting.reset()
            remote.compact([path], ticket=guard.ticket)
            counts = dict(counting.counts)
    assert "list" not in counts
    assert sum(counts.values()) <= 15, counts
