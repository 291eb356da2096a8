"""Changes that somebody waits for: visible when they return, refused where they make no sense, published together."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from holdfast.catalog import payloads as p
from holdfast.catalog.compactor import Compaction, Compactor
from holdfast.catalog.operations import Catalog
from holdfast.catalog.reading import read_tables
from holdfast.catalog.workspace import Workspace
from holdfast.errors import BadInput, Conflict, HoldfastError, IdempotencyConflict, NotFound, StoreUnavailable
from holdfast.storage.memory import MemoryStore
from holdfast.storage.url import open_store

COLUMNS = (p.Column(name="id", type="bigint", nullable=False), p.Column(name="note", type="string"))


@pytest.fixture
def workspace() -> Workspace:
    made = Workspace(root=MemoryStore(), tenant="acme", name="prod")
    made.initialize()
    return made


@pytest.fixture
def catalog(workspace: Workspace) -> Catalog:
    found = Catalog(workspace)
    found.create_namespace("sales", description="what was sold")
    return found


def tables_of(workspace: Workspace) -> list[tuple[str, str]]:
    rows = read_tables(workspace, "catalog", ["tables"])["tables"].to_pylist()
    return [(row["namespace"], row["table"]) for row in rows]


def test_a_change_is_visible_when_it_returns(catalog: Catalog, workspace: Workspace) -> None:
    """C17: register, update, rename, drop; each publishes once."""
    done = catalog.register_table("sales", "orders", columns=COLUMNS, tags={"pii": "no"})
    assert (done.compaction.published, done.together, done.receipt.position) == (True, 1, 2)
    assert tables_of(workspace) == [("sales", "orders")]
    catalog.update_table("sales", "orders", columns=COLUMNS[:1], description="all of them")
    catalog.rename_table("sales", "orders", to_namespace="sales", to_table="bookings")
    (row,) = read_tables(workspace, "catalog", ["tables"])["tables"].to_pylist()
    assert (row["table"], row["description"], len(row["columns"])) == ("bookings", "all of them", 1)
    catalog.drop_table("sales", "bookings")
    assert tables_of(workspace) == []
    catalog.delete_namespace("sales")
    assert len(read_tables(workspace, "catalog", ["namespaces"])["namespaces"]) == 0


def test_what_makes_no_sense_is_refused_and_told_to_nobody(catalog: Catalog, workspace: Workspace) -> None:
    """C16, C17: conditions are checked under the lock, against what is visible."""
    catalog.register_table("sales", "orders")
    version = workspace.domain("catalog").current()
    refused: list[tuple[type[HoldfastError], Any]] = [
        (Conflict, lambda: catalog.create_namespace("sales")),
        (Conflict, lambda: catalog.register_table("sales", "orders")),
        (Conflict, lambda: catalog.delete_namespace("sales")),
        (NotFound, lambda: catalog.register_table("nowhere", "orders")),
        (NotFound, lambda: catalog.update_table("sales", "nothing")),
        (NotFound, lambda: catalog.drop_table("sales", "nothing")),
        (NotFound, lambda: catalog.update_namespace("nowhere")),
        (NotFound, lambda: catalog.rename_table("sales", "nothing", to_namespace="sales", to_table="x")),
        (NotFound, lambda: catalog.rename_table("sales", "orders", to_namespace="nowhere", to_table="x")),
        (Conflict, lambda: catalog.rename_table("sales", "orders", to_namespace="sales", to_table="orders")),
        (BadInput, lambda: catalog.register_table("sales", "")),
    ]
    for kind, attempt in refused:
        with pytest.raises(kind):
            attempt()
    assert workspace.domain("catalog").current() == version


def test_the_same_change_may_be_made_again_after_it_was_undone(catalog: Catalog, workspace: Workspace) -> None:
    """C13, C17: registered, dropped, registered again just so: it is there."""
    for _ in range(3):
        catalog.register_table("sales", "orders", columns=COLUMNS)
        assert tables_of(workspace) == [("sales", "orders")]
        catalog.drop_table("sales", "orders")
        assert tables_of(workspace) == []


def test_an_idempotency_key_makes_a_change_once(catalog: Catalog) -> None:
    """C13: the same key with other content is refused; nothing else of the change happens."""
    catalog.register_table("sales", "orders", key="deploy-7")
    with pytest.raises(IdempotencyConflict):
        catalog.register_table("sales", "returns", key="deploy-7")


class Gate:
    """A compactor that waits for a word, so that others gather behind the first change; and counts."""

    def __init__(self, workspace: Workspace) -> None:
        self.compactor = Compactor(workspace, "catalog")
        self.entered, self.open = threading.Event(), threading.Event()
        self.batches: list[int] = []

    def __call__(self, paths: Sequence[str], ticket: str) -> Compaction:
        self.batches.append(len(paths))
        self.entered.set()
        assert self.open.wait(60)
        return self.compactor.compact(paths, ticket=ticket)


class Queue(deque[Any]):
    """Tells when somebody has come."""

    def __init__(self) -> None:
        super().__init__()
        self.arrived = threading.Semaphore(0)

    def append(self, waiting: Any, /) -> None:
        super().append(waiting)
        self.arrived.release()


def test_changes_that_wait_together_are_published_together(workspace: Workspace) -> None:
    """C20: 40 changes in flight take two publishes, and one that is refused takes nobody along."""
    Catalog(workspace).create_namespace("n")
    gate = Gate(workspace)
    catalog, queue = Catalog(workspace, gate), Queue()
    catalog._group._queue = queue
    outcomes: dict[int, object] = {}

    def register(number: int) -> None:
        try:
            outcomes[number] = catalog.register_table("n", f"t{number % 39}")
        except HoldfastError as error:
            outcomes[number] = error

    first = threading.Thread(target=register, args=(0,))
    first.start()
    assert gate.entered.wait(60)
    assert queue.arrived.acquire(timeout=60)
    others = [threading.Thread(target=register, args=(number,)) for number in range(1, 40)]
    for thread in others:
        thread.start()
    for _ in others:
        assert queue.arrived.acquire(timeout=60)
    gate.open.set()
    for thread in (first, *others):
        thread.join(60)
    refused = [found for found in outcomes.values() if isinstance(found, Conflict)]
    assert (len(outcomes), len(refused)) == (40, 1), "two of them register t0"
    assert gate.batches == [1, 38]
    assert len(tables_of(workspace)) == 39
    assert workspace.domain("catalog").verify() == []


def test_a_failing_compactor_is_told_to_all_who_wait_and_the_next_change_goes_on(workspace: Workspace) -> None:
    """C17, C20: what could not be published is an error for each; nobody waits for ever."""
    failing = True

    def compact(paths: Sequence[str], ticket: str) -> Compaction:
        if failing:
            raise StoreUnavailable("the compactor does not answer")
        return Compactor(workspace, "catalog").compact(paths, ticket=ticket)

    catalog = Catalog(workspace, compact)
    with pytest.raises(StoreUnavailable):
        catalog.create_namespace("a")
    failing = False
    catalog.create_namespace("b")
    names = read_tables(workspace, "catalog", ["namespaces"])["namespaces"].column("namespace").to_pylist()
    assert names == ["b"], "the event of the first is in the ledger; anti-entropy will bring it"


def test_two_writers_change_one_catalog(tmp_path: Path) -> None:
    """C17: the lock keeps them apart; each sees what the other did."""
    here, there = (Workspace(root=open_store(str(tmp_path)), tenant="acme", name="prod", by=by) for by in ("a", "b"))
    here.initialize()
    one, other = Catalog(here), Catalog(there)
    one.create_namespace("n")
    threads = [
        threading.Thread(target=catalog.register_table, args=("n", f"{name}{number}"))
        for number in range(5)
        for name, catalog in (("x", one), ("y", other))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(tables_of(here)) == 10
    with pytest.raises(Conflict):
        other.register_table("n", "x1")
    assert here.domain("catalog").verify() == []
