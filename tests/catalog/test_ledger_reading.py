"""Reading a ledger: by paths that are its own and nothing else, and in bounded pages that miss nothing."""

from __future__ import annotations

import pytest

from holdfast.catalog import EVENT_BYTES_MAX, Event, EventDraft, LedgerLister, LedgerReader, UnknownEvent, Workspace
from holdfast.catalog.ledger_read import PATHS_MAX
from holdfast.errors import BadInput, ObjectNotFound, ScopeEscape
from holdfast.storage import Lister, MemoryStore, Reader, grant
from holdfast.testing.clock import VirtualClock
from holdfast.testing.faulty import CountingStore
from tests.catalog.auditing import said
from tests.chain.publishing import overwrite

in_memory = pytest.mark.parametrize("store_kind", ["memory"])
EVENT_ID = "01M7H5KDBQ66BPT6R44QXBJQVC"


def append(workspace: Workspace, count: int) -> list[str]:
    ledger = workspace.ledger("catalog")
    return [one.path for one in ledger.append_many([EventDraft(payload=said(f"n{number}")) for number in range(count)])]


def test_events_are_read_in_the_order_of_their_paths(workspace: Workspace) -> None:
    """C12: many at once, each in its place, one twice if it is named twice."""
    paths = append(workspace, 30)
    wanted = [*reversed(paths), paths[3]]
    events = workspace.ledger_reader("catalog").read(wanted)
    assert [f"ledger/catalog/{event.event_id}.json" for event in events] == wanted
    assert all(isinstance(event, Event) for event in events)
    assert workspace.ledger_reader("catalog").read([]) == []


@pytest.mark.parametrize(
    "path",
    [
        "",
        EVENT_ID,
        f"ledger/lineage/{EVENT_ID}.json",
        f"ledger/claims/catalog/{EVENT_ID}.json",
        f"ledger/catalog/{EVENT_ID}",
        f"ledger/catalog/{EVENT_ID.lower()}.json",
        f"ledger/catalog/../catalog/{EVENT_ID}.json",
        f"ledger/catalog/%2e%2e/{EVENT_ID}.json",
        f"/ledger/catalog/{EVENT_ID}.json",
        f"../test/ledger/catalog/{EVENT_ID}.json",
        f"acme/prod/ledger/catalog/{EVENT_ID}.json",
        f"globex/prod/ledger/catalog/{EVENT_ID}.json",
        f"s3://lake/acme/prod/ledger/catalog/{EVENT_ID}.json",
        "state/catalog/part.parquet",
        "locks/catalog.positions.json",
        "manifests/root.manifest.json",
    ],
)
def test_a_path_outside_the_ledger_is_refused_before_anything_is_read(path: str, clock: VirtualClock) -> None:
    """C11: of another domain, another tenant, another folder, or spelled in another way."""
    root = CountingStore(MemoryStore())
    workspace = Workspace(root=root, tenant="acme", name="prod", clock=clock)
    workspace.initialize()
    good = append(workspace, 1)
    reader = workspace.ledger_reader("catalog")
    root.reset()
    with pytest.raises(ScopeEscape, match="no event of this ledger"):
        reader.read([*good, path])
    assert root.total == 0


def test_an_event_that_was_deleted_by_hand_is_missed_by_name(workspace: Workspace) -> None:
    """C13: the others are not returned without it; appending it again brings it back where it was."""
    paths = append(workspace, 3)
    workspace.store.delete([paths[1]])
    with pytest.raises(ObjectNotFound, match=paths[1]):
        workspace.ledger_reader("catalog").read(paths)
    again = workspace.ledger("catalog").append(said("n1"))
    assert (again.path, again.duplicate) == (paths[1], True)
    assert len(workspace.ledger_reader("catalog").read(paths)) == 3


def test_what_is_no_event_is_read_as_unknown_with_its_reason(workspace: Workspace) -> None:
    """C16: the good ones beside it are read; of a huge one no more than an event may have is brought into memory."""
    paths = append(workspace, 4)
    good = {path: workspace.store.get(path).data for path in paths}
    overwrite(workspace.store, paths[0], b"")
    overwrite(workspace.store, paths[1], b" " * (EVENT_BYTES_MAX + 5_000))
    overwrite(workspace.store, paths[2], good[paths[2]].replace(b"namespace.created", b"namespace.foretold"))
    empty, huge, newer, fine = workspace.ledger_reader("catalog").read(paths)
    assert isinstance(fine, Event)
    assert isinstance(empty, UnknownEvent)
    assert isinstance(huge, UnknownEvent)
    assert isinstance(newer, UnknownEvent)
    assert "not JSON" in empty.reason
    assert (huge.reason, len(huge.data)) == (f"it has more than {EVENT_BYTES_MAX} bytes", EVENT_BYTES_MAX + 1)
    assert newer.reason == "event type 'namespace.foretold' is not known to this release"
    assert (newer.event_type, newer.event_version, newer.position) == ("namespace.foretold", 1, 3)
    for path, data in good.items():
        overwrite(workspace.store, path, data)


@in_memory
def test_no_call_reads_without_bound(workspace: Workspace) -> None:
    """C18: neither by paths nor by pages."""
    with pytest.raises(BadInput, match=str(PATHS_MAX)):
        workspace.ledger_reader("catalog").read([f"ledger/catalog/{EVENT_ID}.json"] * (PATHS_MAX + 1))
    for size in (0, -1, 1_001):
        with pytest.raises(BadInput, match="1 to 1000"):
            workspace.ledger_lister("catalog").page(size=size)


@pytest.mark.parametrize("size", [1, 3, 7, 1_000])
def test_pages_with_a_cursor_hold_every_event_once_in_order(workspace: Workspace, size: int) -> None:
    """C18: each page is bounded; the cursor is plain text and goes on in another process; claims are not listed."""
    paths = append(workspace, 10)
    found: list[str] = []
    cursor: str | None = None
    for _ in range(20):
        page = workspace.ledger_lister("catalog").page(after=cursor, size=size)
        assert len(page.paths) <= size
        assert page.foreign == ()
        found += page.paths
        cursor = page.cursor
        if page.is_last:
            break
    assert found == sorted(paths)
    late = append(workspace, 11)[-1]
    assert workspace.ledger_lister("catalog").page(after=cursor).paths == (late,)


def test_a_cursor_at_the_last_applied_event_does_not_miss_it_again(workspace: Workspace) -> None:
    """C18: only what comes after it is listed, and after the last nothing is."""
    paths = append(workspace, 3)
    lister = workspace.ledger_lister("catalog")
    ids = [path.removeprefix("ledger/catalog/").removesuffix(".json") for path in paths]
    assert lister.page(after=lister.cursor_at(ids[1])).paths == (paths[2],)
    end = lister.page(after=lister.cursor_at(ids[2]))
    assert (end.paths, end.is_last, end.cursor) == ((), True, paths[2])
    empty = workspace.ledger_lister("lineage").page()
    assert (empty.paths, empty.cursor, empty.is_last) == ((), None, True)


@in_memory
def test_what_lies_among_events_and_is_none_is_named_and_does_not_stop_the_round(workspace: Workspace) -> None:
    """C16, C18: whole pages of it too."""
    paths = append(workspace, 2)
    strange = [f"ledger/catalog/{name}" for name in ("0.tmp", "00", "a/b.json", "zzz.json")]
    for key in strange:
        workspace.store.put_new(key, b"?")
    found: list[str] = []
    foreign: list[str] = []
    cursor: str | None = None
    for _ in range(20):
        page = workspace.ledger_lister("catalog").page(after=cursor, size=1)
        found += page.paths
        foreign += page.foreign
        cursor = page.cursor
        if page.is_last:
            break
    assert (sorted(found), sorted(foreign)) == (sorted(paths), sorted(strange))
    workspace.store.delete(strange)


@in_memory
@pytest.mark.parametrize("cursor", ["", "x", "ledger/lineage/x", "../x", "ledger/claims/catalog/x", "state/x"])
def test_a_cursor_of_something_else_is_refused(workspace: Workspace, cursor: str) -> None:
    """C11, C18: one from another domain would silently begin in the middle, or not at all."""
    with pytest.raises(ScopeEscape, match="no cursor of this ledger"):
        workspace.ledger_lister("catalog").page(after=cursor)


@in_memory
def test_who_reads_cannot_list_and_who_lists_cannot_read(workspace: Workspace) -> None:
    """C9: each is made of its own capability."""
    append(workspace, 1)
    watch = grant(workspace.store, "compactor-antientropy")
    page = LedgerLister("catalog", watch.ledger).page()
    with pytest.raises(ScopeEscape):
        LedgerReader("catalog", watch.read).read(list(page.paths))
    assert len(LedgerReader("catalog", Reader(workspace.store, ("ledger",))).read(list(page.paths))) == 1
    with pytest.raises(ScopeEscape):
        LedgerLister("catalog", Lister(workspace.store, "state")).page()
    assert not hasattr(LedgerReader("catalog", watch.read), "page")
    assert not hasattr(LedgerLister("catalog", watch.ledger), "read")
