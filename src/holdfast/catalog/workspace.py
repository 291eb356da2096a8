"""A workspace: a store confined to `{root}/{tenant}/{workspace}/`, and what a team keeps in it (C1, C2, C11)."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, get_args

from holdfast.catalog.backpressure import Limits
from holdfast.catalog.former import canonical_name, load_visible, move_forward
from holdfast.catalog.former_ledger import copy_ledger, former_ledgers
from holdfast.catalog.layout import (
    DATASETS_PREFIX,
    LEDGER_DOMAINS,
    LedgerLayout,
    dataset_prefix,
    ledger_layout,
    workspace_prefix,
)
from holdfast.catalog.ledger import Ledger
from holdfast.catalog.ledger_read import LedgerLister, LedgerReader
from holdfast.catalog.positions import Place, create_counter
from holdfast.catalog.watermark import Watermark
from holdfast.chain.chain import Chain
from holdfast.chain.layout import DOMAINS, Layout, domain_layout, layout_named, orchestration_layout
from holdfast.chain.opening import chain_on, detect_layout, whoami
from holdfast.chain.root import RootManifest, read_root, sync_root
from holdfast.clock import Clock, Randomness, SystemClock, SystemRandomness
from holdfast.errors import BadInput, CorruptRecord, NotFound, ObjectNotFound
from holdfast.fencing import LockGuard
from holdfast.storage.capabilities import LockSwap
from holdfast.storage.objects import ObjectStore
from holdfast.storage.principals import grant
from holdfast.storage.probe import ensure_safe
from holdfast.storage.scope import scope
from holdfast.storage.url import open_store

__all__ = ["DatasetKind", "Workspace", "open_workspace"]

DatasetKind = Literal["kv", "graph", "table"]

_NEWEST_MAX = 16
"""How many of the newest events are asked for their position when a counter was lost: some may be unreadable."""


def open_workspace(
    url: str,
    *,
    tenant: str,
    workspace: str,
    by: str | None = None,
    clock: Clock | None = None,
    randomness: Randomness | None = None,
) -> Workspace:
    """The workspace below the root at `url`. Nothing is read or written yet."""
    return Workspace(
        root=open_store(url),
        tenant=tenant,
        name=workspace,
        by=by or whoami(),
        clock=clock or SystemClock(),
        randomness=randomness or SystemRandomness(),
    )


@dataclass(frozen=True, kw_only=True)
class Workspace:
    """One team's catalog and data sets. Pickles if its root does, so that executors can be given one."""

    root: ObjectStore = field(repr=False)
    tenant: str
    name: str
    by: str = field(default_factory=whoami)
    """What moves, locks and events say about who did it."""
    clock: Clock = field(default_factory=SystemClock, repr=False)
    randomness: Randomness = field(default_factory=SystemRandomness, repr=False)
    store: ObjectStore = field(init=False, repr=False)
    """The workspace itself. No key of it can name anything of another workspace or tenant."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "store", scope(self.root, workspace_prefix(self.tenant, self.name)))

    @property
    def url(self) -> str:
        return self.store.url

    # -- chains ------------------------------------------------------------------------------------------------------

    def domain(self, name: str) -> Chain:
        """The chain of a domain: one of the four, or `orchestration`. Each has its own lock and pointer (C2).

        A domain may also be called what older releases called it (C4).
        """
        return self._chain(self.store, _domain_layout(canonical_name(name)))

    def dataset(self, name: str, kind: DatasetKind | None = None) -> Chain:
        """The chain of a data set. Without a kind it must be there already: NotAChain otherwise."""
        store = scope(self.store, dataset_prefix(name))
        if kind is None:
            return self._chain(store, detect_layout(store))
        if kind not in get_args(DatasetKind):
            raise BadInput(f"{kind!r} is no kind of data set; use {', '.join(get_args(DatasetKind))}")
        return self._chain(store, layout_named(kind))

    def dataset_names(self) -> list[str]:
        """The data sets that have anything stored, sorted. Lists."""
        return self.store.list_folders(DATASETS_PREFIX)

    def _chain(self, store: ObjectStore, layout: Layout) -> Chain:
        return chain_on(store, layout, by=self.by, clock=self.clock, randomness=self.randomness)

    # -- ledgers -----------------------------------------------------------------------------------------------------

    def ledger(self, domain: str, *, source: str | None = None, limits: Limits | None = None) -> Ledger:
        """Appends to a domain's ledger, with the rights of the API and no others (C8)."""
        rights = grant(self.store, "api")
        return Ledger(
            domain,
            ledger=rights.ledger,
            lock=rights.lock,
            read=rights.read,
            source=source or self.by,
            limits=limits,
            clock=self.clock,
            randomness=self.randomness,
        )

    def ledger_reader(self, domain: str) -> LedgerReader:
        """Reads a domain's ledger by paths, with the rights of a reader."""
        return LedgerReader(domain, grant(self.store, "reader").read)

    def ledger_lister(self, domain: str) -> LedgerLister:
        """Lists a domain's ledger, with the rights of anti-entropy."""
        return LedgerLister(domain, grant(self.store, "compactor-antientropy").ledger)

    # -- beginning ---------------------------------------------------------------------------------------------------

    def read_root(self) -> RootManifest:
        """Where each domain is (C3); NotFound for a workspace that was never initialized."""
        found = read_root(self.domain(DOMAINS[0]).handle)
        if found is None:
            raise NotFound(f"there is no workspace at {self.url}; check its name, or run `holdfast init`")
        return found[0]

    def initialize(self) -> tuple[str, ...]:
        """Make the root manifest and the counters, as far as they are missing. What was made; twice makes nothing.

        What an older release left in this workspace is moved forward first (C4), so that the root never leads to a
        domain that is not there yet. A counter that was lost is made again above everything that the ledger and the
        domain's manifest know of. These are the only cases in which this lists anything but empty folders.
        """
        first = self.domain(DOMAINS[0])
        ensure_safe(self.store, first.layout.probe_key, randomness=self.randomness)
        made = self._move_forward()
        for name in DOMAINS:
            handle = self.domain(name).handle
            if sync_root(handle) and handle.layout.root_key is not None:
                made.append(handle.layout.root_key)
        lock = LockSwap(self.store)
        for name in LEDGER_DOMAINS:
            layout = ledger_layout(name)
            if self._has_counter(name):
                continue
            if create_counter(layout, lock, randomness=self.randomness, highest=self._highest(layout)):
                made.append(layout.positions_key)
        return tuple(dict.fromkeys(made))

    def _move_forward(self) -> list[str]:
        """State under old names or in old spellings, and ledgers under old names. What was made."""
        made = []
        for name in LEDGER_DOMAINS:
            chain, ledger = self.domain(name), ledger_layout(name)
            found = load_visible(chain)
            if found is not None and found.legacy:
                with chain.lock(operation="move forward") as guard:
                    moved = move_forward(chain, name, chain.load_current(), partial(_given, guard))
                made += [] if moved is None else [chain.layout.pointer_key]
            if not self._has_counter(name):
                copied = [copy_ledger(self.store, former, self.store, ledger) for former in former_ledgers(name)]
                made += [ledger.event_prefix] if any(copied) else []
        return made

    def _has_counter(self, domain: str) -> bool:
        try:
            LockSwap(self.store).get_lock(ledger_layout(domain).positions_key)
        except ObjectNotFound:
            return False
        return True

    def _highest(self, layout: LedgerLayout) -> Place | None:
        """The highest place that the ledger or the manifest knows; None where nothing was ever told."""
        newest: deque[str] = deque(maxlen=_NEWEST_MAX)
        for page in self.store.list(layout.event_prefix):
            newest.extend(info.key for info in page if layout.parse_event_key(info.key) is not None)
        manifest = load_visible(self.domain(layout.domain))
        mark = Watermark() if manifest is None else Watermark.of(manifest.payload, key=layout.chain.pointer_key)
        claimed = any(page for page in self.store.list(layout.claim_prefix, page_size=1))
        if not newest and not claimed and mark.position == 0:
            return None
        positions = [event.position for event in self.ledger_reader(layout.domain).read(list(newest))]
        known = [position for position in positions if position is not None]
        if newest and not known:
            raise CorruptRecord(
                newest[-1], f"none of the {len(newest)} newest events can be read, so no position is safe"
            )
        last_id = max([mark.event_id or "", *(layout.parse_event_key(key) or "" for key in newest)])
        return Place(max([mark.position, *known]), last_id)


def _given(guard: LockGuard) -> LockGuard:
    return guard


def _domain_layout(name: str) -> Layout:
    if name == "orchestration":
        return orchestration_layout()
    if name not in DOMAINS:
        raise BadInput(f"{name!r} is no domain; there are {', '.join(DOMAINS)} and orchestration")
    return domain_layout(name)
