"""Converting a workspace that an older release left (C4).

    migrate(workspace)                                 # what would be done
    migrate(workspace, enforce=True)                   # do it
    migrate(workspace, superseded=True, enforce=True)  # take over tenant={tenant}/_catalog and _events as well

`Workspace.initialize` and the next compaction move a workspace forward too. This says what it finds, looks under every
old name whatever the root says, and takes over the layout that had no workspaces.

Each step makes nothing that is there already: killed anywhere, it is simply run again. The root is last, so that it
leads to a domain only once that is there. Nothing of the old layout is changed or deleted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Literal

from holdfast.catalog.former import Former, find_former, former_layouts, move_forward, to_move
from holdfast.catalog.former_ledger import copy_ledger, former_ledgers, former_only, highest_position
from holdfast.catalog.layout import (
    LEDGER_DOMAINS,
    LedgerLayout,
    SupersededLedger,
    ledger_layout,
    superseded_prefixes,
)
from holdfast.catalog.positions import Place, PositionRecord
from holdfast.catalog.workspace import Workspace
from holdfast.chain.layout import DOMAINS, FORMER_NAMES
from holdfast.chain.legacy import mirror_is_current, sync_mirror
from holdfast.chain.root import read_root, root_is_current
from holdfast.errors import Conflict, ObjectNotFound, VersionConflict
from holdfast.storage.capabilities import LockSwap, Reader
from holdfast.storage.objects import ObjectStore
from holdfast.storage.scope import scope

__all__ = ["Step", "StepKind", "migrate"]

StepKind = Literal["state", "mirror", "events", "late events", "counter", "root"]

_MOVED = "former_highest"
"""A field of a counter that was raised: old events up to this position have places that nobody else was given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One thing that is not as this release keeps it."""

    what: StepKind
    domain: str
    """Empty for the root."""
    source: str
    """Where it lies, or is missing: a key or a folder of the workspace, or of the root where it is not in one."""
    count: int
    """Rows of a state, or events."""
    done: bool = False
    advice: str = ""
    """What to do where this cannot be converted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Somewhere that old things of a domain may lie, besides in the domain's own chain."""

    store: ObjectStore
    events: ObjectStore
    state: Former | None
    ledgers: tuple[LedgerLayout, ...]
    folders: tuple[str, str] = ("", "")
    """What state and events lie below, as seen from the root; empty in the workspace itself."""


def migrate(workspace: Workspace, *, superseded: bool = False, enforce: bool = False) -> list[Step]:
    """What is left of older releases; converted if `enforce`. Doing it twice finds nothing the second time."""
    steps = list(_survey(workspace, superseded))
    if all(step.what in {"counter", "root"} for step in steps):
        workspace.read_root()  # NotFound: a name that is wrong does not become a workspace
    if not enforce or all(step.advice for step in steps):
        return steps
    for domain in LEDGER_DOMAINS:
        places = _places(workspace, domain, superseded)
        _move_state(workspace, domain, places)
        sync_mirror(workspace.domain(domain).handle)
        _move_ledger(workspace, domain, places)
    workspace.initialize()
    return [replace(step, done=not step.advice) for step in steps]


# -- what there is -----------------------------------------------------------------------------------------------------


def _survey(workspace: Workspace, superseded: bool) -> Iterator[Step]:
    for domain in LEDGER_DOMAINS:
        places = _places(workspace, domain, superseded)
        former = _movable(workspace, domain, places)
        if former is not None:
            rows = sum(file.row_count for file in former.state(domain).files)
            folder = next((place.folders[0] for place in places if place.state is former), "")
            source = PurePosixPath(folder, former.path).as_posix()
            yield Step(what="state", domain=domain, source=source, count=rows)
        elif not mirror_is_current(handle := workspace.domain(domain).handle):  # killed just before it was done
            yield Step(what="mirror", domain=domain, source=handle.layout.mirror_key or "", count=0)
        ledger, up_to = ledger_layout(domain), _up_to(workspace, domain)
        if not _has_counter(workspace, domain):
            yield Step(what="counter", domain=domain, source=ledger.positions_key, count=0)
        for place in places:
            for old in place.ledgers:
                missing, late = former_only(place.events, old, workspace.store, ledger, up_to=up_to)
                source = PurePosixPath(place.folders[1], old.event_prefix).as_posix()
                if missing:
                    yield Step(what="events", domain=domain, source=source, count=missing)
                if late:
                    advice = "stop the older writer, and tell these again"
                    yield Step(what="late events", domain=domain, source=source, count=late, advice=advice)
    handles = [workspace.domain(name).handle for name in DOMAINS]
    found = read_root(handles[0])
    if found is None or found[0].is_old or not all(map(root_is_current, handles)):
        yield Step(what="root", domain="", source=handles[0].layout.root_key or "", count=0)


def _places(workspace: Workspace, domain: str, superseded: bool) -> tuple[_Place, ...]:
    """Under old names in the workspace; and, if asked for, in the superseded layout."""
    here = _Place(
        store=workspace.store,
        events=workspace.store,
        state=find_former(Reader(workspace.store), domain),
        ledgers=former_ledgers(domain),
    )
    if not superseded:
        return (here,)
    catalog, events = (scope(workspace.root, prefix) for prefix in superseded_prefixes(workspace.tenant))
    chain = ledger_layout(domain).chain
    names = (domain, *(old for old, name in FORMER_NAMES.items() if name == domain))
    there = _Place(
        store=catalog,
        events=events,
        state=find_former(Reader(catalog), domain, layouts=(chain, *former_layouts(domain))),
        ledgers=tuple(SupersededLedger(domain=name, chain=chain) for name in names),
        folders=superseded_prefixes(workspace.tenant),
    )
    return here, there


def _source(places: tuple[_Place, ...]) -> tuple[Reader, Former] | None:
    return next(((Reader(place.store), place.state) for place in places if place.state is not None), None)


def _movable(workspace: Workspace, domain: str, places: tuple[_Place, ...]) -> Former | None:
    chain = workspace.domain(domain)
    found = to_move(chain, domain, chain.load_current(), source=_source(places))
    return None if found is None else found[1]


# -- doing it ----------------------------------------------------------------------------------------------------------


def _move_state(workspace: Workspace, domain: str, places: tuple[_Place, ...]) -> None:
    if _movable(workspace, domain, places) is None:
        return
    chain = workspace.domain(domain)
    with chain.lock(operation="move forward") as guard:
        move_forward(chain, domain, chain.load_current(), lambda: guard, source=_source(places))


def _move_ledger(workspace: Workspace, domain: str, places: tuple[_Place, ...]) -> None:
    ledger = ledger_layout(domain)
    _raise_counter(workspace, domain, places)
    up_to = _up_to(workspace, domain)
    for place in places:
        for old in place.ledgers:
            copy_ledger(place.events, old, workspace.store, ledger, up_to=up_to)


def _up_to(workspace: Workspace, domain: str) -> int | None:
    """Up to which position old events may be copied: all of them before the counter is made or has given one out."""
    key = ledger_layout(domain).positions_key
    try:
        record = PositionRecord.decode(workspace.store.get(key).data, key=key)
    except ObjectNotFound:
        return None
    moved = record.unknown.get(_MOVED, 0)
    return None if record.next == 1 else moved if isinstance(moved, int) else 0


def _has_counter(workspace: Workspace, domain: str) -> bool:
    return workspace.store.head_many([ledger_layout(domain).positions_key]) != [None]


def _raise_counter(workspace: Workspace, domain: str, places: tuple[_Place, ...]) -> None:
    """Bring a counter that was made and never used above all that will be copied."""
    lock, key = LockSwap(workspace.store), ledger_layout(domain).positions_key
    try:
        stored = lock.get_lock(key)
    except ObjectNotFound:
        return
    record = PositionRecord.decode(stored.data, key=key)
    if record.next > 1:
        return
    found = [highest_position(place.events, old) for place in places for old in place.ledgers]
    if not (highest := max(found, default=Place(0, ""))).position:
        return
    raised = replace(
        record,
        next=highest.position + 1,
        last_id=highest.event_id,
        written=highest.position,
        revision=record.revision + 1,
        token=f"{workspace.randomness.bits(96):024x}",
        unknown={**record.unknown, _MOVED: highest.position},
    )
    try:
        lock.swap_lock(key, raised.encode(), expected=stored.version)
    except VersionConflict:
        raise Conflict(f"somebody appended to {domain} meanwhile; stop the writers, then convert again") from None
