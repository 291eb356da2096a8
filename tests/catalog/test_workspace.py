"""A workspace: its places, its beginning, and the walls around it."""

from __future__ import annotations

import pickle
import threading
from contextlib import suppress
from datetime import UTC, datetime

import orjson
import pytest

from holdfast.catalog import Workspace, open_workspace
from holdfast.catalog.layout import LEDGER_DOMAINS, dataset_prefix, ledger_layout, workspace_prefix
from holdfast.catalog.payloads import Edge, LineageEdgesAdded, PipelineDeleted, RunStarted
from holdfast.chain import DOMAINS
from holdfast.errors import (
    AlreadyExists,
    BadInput,
    HoldfastError,
    InvalidKey,
    NotAChain,
    NotFound,
    ObjectNotFound,
    ScopeEscape,
    UnsafeStore,
)
from holdfast.storage import LocalStore, MemoryStore, ObjectStore, Version
from holdfast.testing.clock import VirtualClock
from holdfast.testing.faulty import Crashed, Fault, FaultyStore, InterceptedStore, Operation
from tests.catalog.auditing import keys_below, said
from tests.chain.publishing import everything, publish_one

in_memory = pytest.mark.parametrize("store_kind", ["memory"])
WAIT_MAX_S = 60


def test_a_workspace_has_its_places_below_tenant_and_name(root: ObjectStore, workspace: Workspace) -> None:
    """C1: ledger, state, manifests, locks and data sets, and nothing beside them."""
    at = datetime(2026, 1, 1, tzinfo=UTC)
    workspace.ledger("catalog").append(said("sales"))
    workspace.ledger("lineage").append(LineageEdgesAdded(edges=(Edge(source="a", target="b"),)))
    workspace.ledger("executions").append(RunStarted(run_id="r", started_at=at))
    workspace.ledger("orchestration").append(PipelineDeleted(pipeline="p"))
    for name in (*DOMAINS, "orchestration"):
        publish_one(workspace.domain(name))
    publish_one(workspace.dataset("users", "kv"))
    publish_one(workspace.dataset("follows.v2", "graph"))
    keys = keys_below(root, "")
    assert {key.split("/")[0] for key in keys} == {"acme"}
    assert {key.split("/")[1] for key in keys} == {"prod"}
    assert {key.split("/")[2] for key in keys} == {"datasets", "ledger", "locks", "manifests", "state"}
    assert workspace.dataset_names() == ["follows.v2", "users"]
    assert workspace.dataset("users").layout.name == "kv"
    assert workspace.dataset("follows.v2").layout.name == "graph"


def test_initializing_makes_the_root_and_the_counters_once(root: ObjectStore, clock: VirtualClock) -> None:
    """C1, C3: the root names every domain before any has a snapshot; a second time nothing is touched."""
    workspace = Workspace(root=root, tenant="acme", name="new", clock=clock)
    with pytest.raises(NotFound, match="holdfast init"):
        workspace.read_root()
    made = workspace.initialize()
    assert made == ("manifests/root.manifest.json", *(f"locks/{name}.positions.json" for name in LEDGER_DOMAINS))
    stored = orjson.loads(workspace.store.get("manifests/root.manifest.json").data)
    assert stored == {
        "version": 1,
        **{f"{name}_manifest_path": f"manifests/{name}.pointer.json" for name in sorted(DOMAINS)},
        "updated_at": "2026-03-14T10:30:00.000000Z",
    }
    before = everything(workspace.store)
    clock.advance(60)
    assert Workspace(root=root, tenant="acme", name="new", clock=clock).initialize() == ()
    assert everything(workspace.store) == before
    assert set(workspace.read_root().paths) == {f"{name}_manifest_path" for name in DOMAINS}


@in_memory
def test_initializing_changes_nothing_of_a_workspace_in_use(workspace: Workspace) -> None:
    """C1: events, counters, snapshots and data sets stay as they are."""
    workspace.ledger("catalog").append(said("sales"))
    publish_one(workspace.domain("catalog"))
    publish_one(workspace.dataset("users", "kv"))
    before = everything(workspace.store)
    assert workspace.initialize() == ()
    assert everything(workspace.store) == before


@in_memory
@pytest.mark.parametrize("fault", [Fault.CRASH_BEFORE, Fault.CRASH_AFTER, Fault.ERROR_AFTER, Fault.ECHO])
def test_an_initialization_that_was_interrupted_anywhere_is_finished_by_the_next(
    root: ObjectStore, clock: VirtualClock, fault: Fault
) -> None:
    """C1: each request dies, or its answer is lost; what is there in the end is the same."""
    for step in range(1, 40):
        name = f"w{step}"

        def plan(operation: Operation, step: int = step) -> Fault:
            is_write = operation.kind in {"put_new", "swap"}
            return fault if operation.serial == step and (is_write or "crash" in fault.value) else Fault.PASS

        faulty = Workspace(root=FaultyStore(root, plan), tenant="acme", name=name, clock=clock)
        with suppress(Crashed, HoldfastError):
            faulty.initialize()
        workspace = Workspace(root=root, tenant="acme", name=name, clock=clock)
        workspace.initialize()
        assert set(workspace.read_root().paths) == {f"{domain}_manifest_path" for domain in DOMAINS}
        assert workspace.ledger("catalog").append(said("sales")).position == 1
        assert workspace.initialize() == ()


def test_many_who_initialize_at_once_make_one_workspace(root: ObjectStore) -> None:
    """C1, C3: six at once; the root has all of its lines, and every position is given once."""
    barrier = threading.Barrier(6)
    failures: list[BaseException] = []
    positions: list[int] = []

    def work(number: int) -> None:
        try:
            mine = Workspace(root=root, tenant="acme", name="busy", clock=VirtualClock(), by=f"w{number}")
            barrier.wait(WAIT_MAX_S)
            mine.initialize()
            positions.append(mine.ledger("catalog").append(said(f"n{number}")).position)
        except BaseException as error:
            failures.append(error)
            raise

    threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_MAX_S)
    assert failures == []
    assert sorted(positions) == [1, 2, 3, 4, 5, 6]
    root_manifest = Workspace(root=root, tenant="acme", name="busy").read_root()
    assert set(root_manifest.paths) == {f"{name}_manifest_path" for name in DOMAINS}


class Careless(InterceptedStore):
    """Accepts conditions and ignores them."""

    @property
    def conditional_writes_trusted(self) -> bool:
        return False

    def put_new(self, key: str, data: bytes, *, durable: bool = True) -> Version:
        try:
            return super().put_new(key, data, durable=durable)
        except AlreadyExists:
            return self._store.swap(key, data, expected=self._store.get(key).version)


def test_a_store_that_ignores_conditions_becomes_no_workspace() -> None:
    """C13: events could be overwritten there; nothing but the probe is written."""
    workspace = Workspace(root=Careless(MemoryStore()), tenant="acme", name="prod")
    with pytest.raises(UnsafeStore):
        workspace.initialize()
    assert [key for key in keys_below(workspace.store, "") if "probe" not in key] == []


def test_a_held_lock_of_one_domain_delays_no_other(workspace: Workspace) -> None:
    """C2: while the catalog is locked the other domains publish, and every ledger is appended to."""
    with workspace.domain("catalog").lock(operation="a long change"):
        for name in ("lineage", "executions", "search", "orchestration"):
            publish_one(workspace.domain(name))
        edges = LineageEdgesAdded(edges=(Edge(source="a", target="b"),))
        assert workspace.ledger("lineage").append(edges).position == 1
        assert workspace.ledger("catalog").append(said("sales")).position == 1


@in_memory
def test_tenants_and_workspaces_do_not_see_each_other(root: ObjectStore, workspace: Workspace) -> None:
    """C11: the same names, keys and events in three of them are three worlds."""
    others = [Workspace(root=root, tenant=t, name=w) for t, w in (("acme", "test"), ("globex", "prod"))]
    receipt = workspace.ledger("catalog").append(said("sales"), idempotency_key="k")
    for other in others:
        with pytest.raises(NotFound):
            other.read_root()
        other.initialize()
        mine = other.ledger("catalog").append(said("sales"), idempotency_key="k")
        assert (mine.position, mine.duplicate) == (1, False)
        with pytest.raises(ObjectNotFound):
            other.store.get(receipt.path)
        with pytest.raises(ObjectNotFound):
            other.ledger_reader("catalog").read([receipt.path])
        assert keys_below(other.store, "ledger/catalog") == [mine.path]


@in_memory
@pytest.mark.parametrize(
    "key", ["../test/ledger/x", "/ledger/x", "ledger/../../../globex/x", "ledger/%2e%2e/x", "ledger\\x", "./x"]
)
def test_no_spelling_of_a_key_leaves_a_workspace(workspace: Workspace, key: str) -> None:
    """C11: refused before it reaches the store, for reading, writing and listing alike."""
    for attempt in (
        lambda: workspace.store.get(key),
        lambda: workspace.store.put_new(key, b""),
        lambda: list(workspace.store.list(key)),
    ):
        with pytest.raises((ScopeEscape, InvalidKey)):
            attempt()


@pytest.mark.parametrize(
    "name", ["", "..", ".", "a/b", "Acme", "tenant=acme", "a b", "-a", "a" * 64, "a.b", "ä", "%2e", "a\n", "_catalog"]
)
def test_names_that_could_not_be_a_folder_everywhere_are_refused(name: str) -> None:
    """C1, C11: and so is the older form `tenant={id}`; the message says what a name is."""
    for make in (
        lambda: Workspace(root=MemoryStore(), tenant=name, name="prod"),
        lambda: Workspace(root=MemoryStore(), tenant="acme", name=name),
        lambda: workspace_prefix(name, name),
    ):
        with pytest.raises(BadInput, match="use 1 to 63 lower-case letters, digits"):
            make()


@pytest.mark.parametrize("name", ["", "..", ".a", "a/b", "Users", "a b", "a" * 129, "%2e%2e", "a\\b"])
def test_a_data_set_name_is_one_folder(name: str) -> None:
    """C1, C11: a data set cannot lie inside another, nor outside the workspace."""
    with pytest.raises(BadInput, match="data set name"):
        Workspace(root=MemoryStore(), tenant="acme", name="prod").dataset(name, "kv")
    with pytest.raises(BadInput):
        dataset_prefix(name)


@in_memory
def test_what_is_not_there_is_said_in_one_line(workspace: Workspace) -> None:
    """C2: a domain that does not exist, a data set that was never published, a kind that is none."""
    with pytest.raises(BadInput, match="no domain; there are catalog, lineage, executions, search and orchestration"):
        workspace.domain("payments")
    with pytest.raises(NotAChain):
        workspace.dataset("missing")
    with pytest.raises(BadInput, match="use kv, graph, table"):
        workspace.dataset("users", "heap")  # type: ignore[arg-type]


def test_a_workspace_opens_by_url_and_pickles(tmp_path: object) -> None:
    """C1: executors are sent one."""
    workspace = open_workspace(f"file://{tmp_path}/lake", tenant="acme", workspace="prod", by="driver")
    workspace.initialize()
    copy = pickle.loads(pickle.dumps(workspace))
    assert isinstance(copy, Workspace)
    assert (copy.url, copy.by) == (workspace.url, "driver")
    assert copy.url.endswith("/lake/acme/prod")
    assert copy.ledger("catalog").append(said("sales")).position == 1
    assert isinstance(workspace.root, LocalStore)


@pytest.mark.parametrize("domain", LEDGER_DOMAINS)
def test_the_keys_of_a_ledger_are_parsed_as_they_are_spelled(domain: str) -> None:
    """C12: one spelling; whatever is almost an event's path is none."""
    layout = ledger_layout(domain)
    event_id = "01M7H5KDBQ66BPT6R44QXBJQVC"
    key = layout.event_key(event_id)
    assert (key, layout.parse_event_key(key)) == (f"ledger/{domain}/{event_id}.json", event_id)
    for almost in (
        key.lower(),
        f"/{key}",
        f"{key}/",
        f"x/{key}",
        key.replace("ledger", "Ledger"),
        key.removesuffix(".json"),
        f"{key}.json",
        f"ledger/{domain}/../{domain}/{event_id}.json",
        f"ledger/claims/{domain}/{event_id}.json",
        f"ledger//{domain}/{event_id}.json",
        event_id,
        "",
    ):
        assert layout.parse_event_key(almost) is None
    with pytest.raises(BadInput, match="ULID"):
        layout.event_key("../x")
    assert layout.parse_event_key(layout.claim_key("k")) is None
