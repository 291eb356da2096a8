"""What older releases left is read, written on in the form of today, and converted: once, whatever is killed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import orjson
import pytest

from holdfast.catalog import LEDGER_DOMAINS, Workspace
from holdfast.catalog.compactor import Compactor
from holdfast.catalog.former_ledger import former_ledgers
from holdfast.catalog.layout import ledger_layout
from holdfast.catalog.migrate import Step, migrate
from holdfast.catalog.payloads import TableRegistered
from holdfast.catalog.reading import read_state, read_tables
from holdfast.errors import Conflict, CorruptRecord, CorruptShard, NotFound
from holdfast.storage import LocalStore, MemoryStore, ObjectStore
from holdfast.testing.clock import SeededRandomness, VirtualClock
from holdfast.testing.faulty import CountingStore, Crashed, Fault, FaultyStore, Operation
from tests.catalog.auditing import audit
from tests.chain.publishing import everything, overwrite
from tests.golden.make_old import FOLDED, OLD, SAID, events_of

LAYOUTS = ("named", "pointers", "tenant")
IN_PLACE = pytest.mark.parametrize("layout", ["named", "pointers"])
ALL = pytest.mark.parametrize("layout", LAYOUTS)
ROWS = {"catalog": {"namespaces": 1, "tables": 1}, "lineage": {"edges": 1}, "executions": {"run_starts": 1}}


def copy_of(layout: str) -> MemoryStore:
    """The golden files in memory, so that no test can change them."""
    golden, copy = LocalStore(OLD / layout), MemoryStore()
    for page in golden.list(""):
        for info in page:
            copy.put_new(info.key, golden.get(info.key).data)
    return copy


def workspace_on(root: ObjectStore, seed: int = 1) -> Workspace:
    return Workspace(
        root=root, tenant="acme", name="prod", by="test", clock=VirtualClock(), randomness=SeededRandomness(seed)
    )


def rows_of(workspace: Workspace) -> dict[str, dict[str, int]]:
    """How many rows each table has, where there are any."""
    found = {}
    for domain in ROWS:
        tables = {name: len(table) for name, table in read_tables(workspace, domain).items() if len(table)}
        if tables:
            found[domain] = tables
    return found


def convert(workspace: Workspace, layout: str, *, enforce: bool = True) -> list[Step]:
    return migrate(workspace, superseded=layout == "tenant", enforce=enforce)


def names_in(value: object) -> set[str]:
    """Every name of a field of a record, however deep."""
    if isinstance(value, dict):
        return set(value) | {name for inner in value.values() for name in names_in(inner)}
    return {name for inner in value for name in names_in(inner)} if isinstance(value, list) else set()


# -- writing -----------------------------------------------------------------------------------------------------------


@IN_PLACE
@pytest.mark.parametrize("domain", ["catalog", "lineage", "executions"])
def test_the_next_write_goes_on_from_the_old_state_in_the_form_of_today(layout: str, domain: str) -> None:
    """C4, C22: a compaction folds onto what an older release left, and never onto nothing."""
    workspace = workspace_on(copy_of(layout))
    paths = []
    for event in events_of(domain):
        path = ledger_layout(domain).event_key(event.event_id)
        paths.append(path)
        if path not in {info.key for page in workspace.store.list(ledger_layout(domain).event_prefix) for info in page}:
            workspace.store.put_new(path, event.encode())
    done = Compactor(workspace, domain).compact(paths)
    assert done.watermark.position == len(SAID[domain])
    state, manifest = read_state(workspace, domain)
    assert manifest is not None
    assert not manifest.legacy
    assert state.snapshot_version >= 3
    tables = {name: len(table) for name, table in state.read(workspace.ledger_reader(domain)._read).items()}
    assert sum(tables.values()) == len(SAID[domain])
    assert all(file.path.startswith((f"state/{domain}/", f"l0/{domain}/")) for file in state.files)
    assert workspace.domain(domain).verify() == []


def test_damaged_old_state_stops_the_move() -> None:
    """C4, C22: a file that is missing or changed, and a manifest that names none: closed, and nothing is published."""
    root = copy_of("named")
    workspace = workspace_on(root)
    path = "state/core/v3/tables.parquet"
    good = workspace.store.get(path).data
    overwrite(workspace.store, path, good[:-1] + b"x")
    for attempt in (workspace.initialize, lambda: convert(workspace, "named"), lambda: rows_of(workspace)):
        with pytest.raises(CorruptShard, match="checksum"):
            attempt()
    workspace.store.delete([path])
    with pytest.raises(CorruptShard, match="missing"):
        workspace.initialize()
    assert workspace.domain("catalog").current() is None
    overwrite(workspace.store, "manifests/core.manifest.json", b'{"snapshotVersion": 2, "updatedAt": "2025-01-01"}')
    with pytest.raises(CorruptRecord, match="names no files"):
        Compactor(workspace, "catalog").compact([])
    assert workspace.domain("catalog").current() is None


def test_an_old_workspace_that_held_nothing_yet_is_moved_forward() -> None:
    """C4: snapshot 0 has no files, and says so."""
    root = copy_of("named")
    workspace = workspace_on(root)
    overwrite(workspace.store, "manifests/core.manifest.json", b'{"snapshotVersion": 0, "updatedAt": "2025-01-01"}')
    workspace.initialize()
    assert read_state(workspace, "catalog")[0].files == ()
    assert workspace.domain("catalog").verify() == []


# -- converting --------------------------------------------------------------------------------------------------------


@ALL
def test_converting_gives_the_form_of_today_and_twice_gives_the_same(layout: str) -> None:
    """C4, C1: state, ledger, counters and root; a second time finds nothing; the old files stay byte for byte."""
    root = copy_of(layout)
    before, workspace = everything(root), workspace_on(root)
    planned = convert(workspace, layout, enforce=False)
    assert everything(root) == before, "a dry run writes nothing"
    assert {step.what for step in planned} == {"state", "events", "counter", "root"}
    done = convert(workspace, layout)
    assert [(step.what, step.domain, step.source, step.count) for step in done] == [
        (step.what, step.domain, step.source, step.count) for step in planned
    ]
    assert all(step.done for step in done)
    after = everything(root)
    assert convert(workspace, layout) == convert(workspace, layout, enforce=False) == []
    assert workspace.initialize() == ()
    assert everything(root) == after
    check_converted(workspace, before)
    legacy = {key: data for key, data in before.items() if "lineage.pointer" not in key and "root.manifest" not in key}
    mirrors = {"acme/prod/manifests/lineage.manifest.json", "acme/prod/state/orchestration/manifest.json"}
    assert {key for key, data in legacy.items() if after[key] != data} <= mirrors, "what is left is what is mirrored"


def check_whole(workspace: Workspace) -> None:
    """All of the old state and ledger is there, and everything holds together."""
    assert rows_of(workspace) == ROWS
    assert audit(workspace.store) == []
    for domain in ROWS:
        assert workspace.domain(domain).verify() == []
        listed = workspace.ledger_lister(domain).page().paths
        assert [path.rpartition("/")[2] for path in listed] == [f"{e.event_id}.json" for e in events_of(domain)]


def check_converted(workspace: Workspace, before: dict[str, bytes]) -> None:
    """The same; it is in the form of today and in no other, and events go on above it."""
    check_whole(workspace)
    for domain in ROWS:
        listed = workspace.ledger_lister(domain).page().paths
        done = Compactor(workspace, domain).compact(list(listed))
        assert done.published == (FOLDED[domain] < len(SAID[domain]))
    pointers = {f"{domain}_manifest_path": workspace.domain(domain).layout.pointer_key for domain in (*ROWS, "search")}
    assert workspace.read_root().paths == pointers
    for key, data in everything(workspace.store).items():
        if key.startswith("manifests/") and f"acme/prod/{key}" not in before and not _is_adopted(workspace, key):
            assert not {name for name in names_in(orjson.loads(data)) if name != name.lower()}, key
    receipt = workspace.ledger("catalog").append(TableRegistered(namespace="sales", table="new"))
    assert receipt.position > len(SAID["catalog"])
    Compactor(workspace, "catalog").compact([receipt.path])  # a counter that was made above it all begins far above
    again = workspace.ledger("catalog").append(SAID["catalog"][0], idempotency_key="old/catalog/1")
    assert (again.duplicate, again.position) == (True, 1), "what was told long ago is the same event for ever"
    assert audit(workspace.store) == []


def _is_adopted(workspace: Workspace, key: str) -> bool:
    """A copy of an old manifest among the snapshots: its bytes are the evidence, and stay as they are."""
    return any(
        move.kind.value == "adopt" and move.manifest_path == key
        for domain in ROWS
        if (seen := workspace.domain(domain).handle.read_pointer()) is not None
        for move in seen.pointer.moves
    )


@ALL
def test_initialize_moves_a_workspace_forward_too(layout: str) -> None:
    """C4: what lies in the workspace itself; the layout without workspaces only when asked for."""
    root = copy_of(layout)
    before, workspace = everything(root), workspace_on(root)
    made = workspace.initialize()
    if layout == "tenant":
        assert rows_of(workspace) == {}
        assert migrate(workspace) == []
        convert(workspace, layout)  # the counters are there by now, and were not used
    else:
        assert {"manifests/catalog.pointer.json", "ledger/executions", "manifests/root.manifest.json"} <= set(made)
    assert workspace.initialize() == ()
    check_converted(workspace, before)


@ALL
def test_killed_at_every_step_and_run_again_it_ends_the_same(layout: str) -> None:
    """C4: dead at any request, and at each of them readers see the old state or the new, whole."""
    golden = copy_of(layout)
    before = everything(golden)
    for step in range(200):
        root = MemoryStore()
        for key, data in before.items():
            root.put_new(key, data)
        dying = FaultyStore(root, _dies_at(step, partial(_readable, root, layout)))
        try:
            convert(workspace_on(dying, seed=7), layout)
        except Crashed:
            workspace = Workspace(
                root=root, tenant="acme", name="prod", by="next", clock=_later(), randomness=SeededRandomness(step)
            )
            convert(workspace, layout)
            assert convert(workspace, layout, enforce=False) == []
            check_whole(workspace)
        else:
            assert step > 30
            check_converted(workspace_on(root), before)
            return
    raise AssertionError("it never came to its end")


def _dies_at(step: int, look: Callable[[], None]) -> Callable[[Operation], Fault]:
    """Before a request that changes something, which is also after the one before that."""
    seen = 0

    def plan(operation: Operation) -> Fault:
        nonlocal seen
        if operation.kind not in {"put_new", "swap", "upload", "delete"}:
            return Fault.PASS
        seen += 1
        if seen <= step:
            return Fault.PASS
        look()
        return Fault.CRASH_BEFORE

    return plan


def _readable(root: ObjectStore, layout: str) -> None:
    found = rows_of(workspace_on(root, seed=99))
    if layout == "tenant":
        assert all(tables == ROWS[domain] for domain, tables in found.items())
    else:
        assert found == ROWS


def test_events_that_an_older_writer_appends_afterwards_are_counted_and_left_alone() -> None:
    """C4, C14: their positions were given to others by now: they are reported every time, and nothing is broken."""
    root = copy_of("named")
    workspace = workspace_on(root)
    convert(workspace, "named")
    workspace.ledger("catalog").append(TableRegistered(namespace="sales", table="new"))
    (old,) = [ledger for ledger in former_ledgers("catalog") if ledger.domain == "core"]
    late = "01JTC000000000000000000009"
    workspace.store.put_new(old.event_key(late), events_of("catalog")[0].encode())
    for enforce in (False, True, True):
        (step,) = migrate(workspace, enforce=enforce)
        assert (step.what, step.count, step.done) == ("late events", 1, False)
        assert "tell these again" in step.advice
    assert audit(workspace.store) == []


def test_a_counter_that_was_raised_lets_the_rest_be_copied_and_no_more() -> None:
    """C4, C14: `init` came first; killed halfway through the copy, the next one copies the rest, and nothing late."""
    root = copy_of("tenant")
    workspace = workspace_on(root)
    workspace.initialize()
    struck = ledger_layout("catalog").event_key(events_of("catalog")[1].event_id)
    dying = FaultyStore(
        root, lambda one: Fault.CRASH_BEFORE if one.key.endswith(struck) and one.kind == "put_new" else Fault.PASS
    )
    with pytest.raises(Crashed):
        convert(workspace_on(dying, seed=5), "tenant")
    workspace = Workspace(
        root=root, tenant="acme", name="prod", by="next", clock=_later(), randomness=SeededRandomness(8)
    )
    told = workspace.ledger("catalog").append(TableRegistered(namespace="sales", table="new"))
    assert told.position == len(SAID["catalog"]) + 1
    convert(workspace, "tenant")
    assert migrate(workspace, superseded=True) == []
    assert audit(workspace.store) == []
    late = orjson.loads(events_of("catalog")[0].encode()) | {
        "event_id": "01JTC000000000000000000009", "sequence_position": 4, "idempotency_key": "late",
    }  # fmt: skip
    root.put_new("tenant=acme/_events/core/01JTC000000000000000000009.json", orjson.dumps(late))
    (step,) = convert(workspace, "tenant")
    assert (step.what, step.source) == ("late events", "tenant=acme/_events/core")
    assert audit(workspace.store) == []


def _later() -> VirtualClock:
    clock = VirtualClock()
    clock.advance(1e5)
    return clock


def test_whoever_appends_during_the_conversion_stops_it() -> None:
    """C4, C14: a counter that moves while it is to be raised is a conflict that says what to do."""
    root = copy_of("tenant")
    workspace_on(root).initialize()
    key = ledger_layout("catalog").positions_key

    def plan(operation: Operation) -> Fault:
        if operation.kind == "swap" and operation.key.endswith(key) and not appended:
            appended.append(workspace_on(root, seed=3).ledger("catalog").append(SAID["catalog"][0]).path)
        return Fault.PASS

    appended: list[str] = []
    with pytest.raises(Conflict, match="stop the writers"):
        convert(workspace_on(FaultyStore(root, plan), seed=4), "tenant")
    assert appended
    assert audit(workspace_on(root).store) == []


def test_an_event_that_differs_from_the_one_that_is_there_is_not_overwritten() -> None:
    """C4, C12: two ledgers that disagree are looked at by people."""
    root = copy_of("named")
    event = events_of("catalog")[0]
    workspace_on(root).store.put_new(ledger_layout("catalog").event_key(event.event_id), b"{}")
    with pytest.raises(CorruptRecord, match="not what an older release wrote"):
        convert(workspace_on(root), "named")


def test_a_name_that_is_wrong_does_not_become_a_workspace() -> None:
    """C4: nothing is there, so nothing is made."""
    root = MemoryStore()
    for superseded in (False, True):
        with pytest.raises(NotFound, match="check its name"):
            migrate(workspace_on(root), superseded=superseded, enforce=True)
    assert everything(root) == {}


def test_an_initialized_workspace_costs_nothing_more_to_read() -> None:
    """C4, C5: the root says that nothing lies under old names, so nobody looks there."""
    counting = CountingStore(MemoryStore())
    workspace = workspace_on(counting)
    workspace.initialize()
    counting.reset()
    read_state(workspace, "catalog")
    assert [one.key.removeprefix("acme/prod/") for one in counting.log] == [
        "manifests/catalog.pointer.json", "manifests/catalog.manifest.json", "manifests/root.manifest.json",
    ]  # fmt: skip


def test_golden_old_layouts_are_what_their_maker_wrote(tmp_path: Path) -> None:
    """C4: they are kept for ever; the maker says what is in them."""
    from tests.golden import make_old

    make_old.make_named(tmp_path / "named/acme/prod")
    make_old.make_pointers(tmp_path / "pointers/acme/prod")
    make_old.make_tenant(tmp_path / "tenant")
    for path in sorted(OLD.rglob("*.json")):
        made = orjson.loads((tmp_path / path.relative_to(OLD)).read_bytes())
        kept = orjson.loads(path.read_bytes())
        assert names_in(made) == names_in(kept), path
    assert len(list(OLD.rglob("*"))) == len(list(tmp_path.rglob("*")))
    assert set(LEDGER_DOMAINS) == set(SAID)
