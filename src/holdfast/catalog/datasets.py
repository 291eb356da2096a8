"""Data sets of a workspace that announce themselves: every publish and rollback is told as it happens (C16, C28).

    users = open_dataset(workspace, "users", "kv")
    publish_arrow(users, rows, key="id", shards=8)       # the catalog knows it when this returns

The announcement follows the move and cannot undo it: where it fails, the move reports it among what is left to repair,
and the next move of the data set, or `holdfast catalog announce`, tells it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from itertools import islice

from holdfast.catalog.announce import MOVES_MAX, event_key, tell_moves
from holdfast.catalog.compactor import Compactor
from holdfast.catalog.layout import parse_dataset_url
from holdfast.catalog.workspace import DatasetKind, Workspace, open_workspace
from holdfast.chain import Chain
from holdfast.chain.moves import moves_newest_first
from holdfast.clock import Clock
from holdfast.errors import Conflict, NotFound

__all__ = ["Announcer", "FoldHere", "Notify", "announcer_of", "announcing", "open_dataset"]

Notify = Callable[[str, Sequence[str]], object]
"""Has the events of a domain, at some paths, folded: by a compactor in this process, or by a service that is told."""

COMPACT_ATTEMPTS_MAX = 100
COMPACT_WAIT_S = 0.05

_log = logging.getLogger("holdfast.catalog")


def open_dataset(
    workspace: Workspace, name: str, kind: DatasetKind | None = None, *, notify: Notify | None = None
) -> Chain:
    """The chain of a data set, which announces its moves. Without a kind it must be there already.

    Without `notify` events are folded in this process.
    """
    chain = workspace.dataset(name, kind)
    chain.when_moved(Announcer(chain, workspace, name, notify))
    return chain


def announcing(chain: Chain, *, notify: Notify | None = None) -> Chain:
    """The same chain; if it lies in a workspace's folder of data sets it announces its moves from now on."""
    announcer = announcer_of(chain, notify=notify)
    if announcer is not None:
        chain.when_moved(announcer)
    return chain


def announcer_of(chain: Chain, *, notify: Notify | None = None) -> Announcer | None:
    """Who tells the moves of a chain that is known by its URL; None where it lies in no workspace."""
    place, handle = parse_dataset_url(chain.store.url), chain.handle
    if place is None or handle.records is not handle.store:
        return None
    root, tenant, name, dataset = place
    workspace = open_workspace(
        root, tenant=tenant, workspace=name, by=chain.by, clock=handle.clock, randomness=handle.randomness
    )
    return Announcer(chain, workspace, dataset, notify)


class Announcer:
    """Tells the moves of one data set when it is called, from where it left off."""

    def __init__(self, chain: Chain, workspace: Workspace, dataset: str, notify: Notify | None = None) -> None:
        self._chain = chain
        self._workspace = workspace
        self._dataset = dataset
        self._notify = notify or FoldHere(workspace)
        self._is_there = False
        self._told: str | None = None
        self._unfolded: list[str] = []
        """Events that are in the ledger, but whoever folds could not be told of them yet."""

    def __call__(self) -> None:
        if not self._is_workspace():
            return
        seen = self._chain.seen
        told = self._told or self._told_before()
        receipts = tell_moves(self._workspace, self._dataset, chain=self._chain, told=told)
        self._told = None if seen is None else seen.pointer.moves[-1].commit_ulid
        self._unfolded += [receipt.path for receipt in receipts]
        if self._unfolded:
            self._notify("catalog", self._unfolded)
            self._unfolded = []

    def _is_workspace(self) -> bool:
        """A folder that only looks like one has no catalog to tell."""
        if not self._is_there:
            try:
                self._workspace.read_root()
            except NotFound:
                _log.debug("%s was never initialized, so %s is not announced", self._workspace.url, self._dataset)
                return False
            self._is_there = True
        return True

    def _told_before(self) -> str | None:
        """The move before the newest that is in the ledger: whoever told that may have died before it was folded."""
        seen = self._chain.seen
        if seen is None:
            return None
        ledger = self._workspace.ledger("catalog")
        moves = islice(moves_newest_first(self._chain.handle, seen.pointer), MOVES_MAX)
        if any(ledger.told(event_key(self._dataset, move)) is not None for move in moves):
            before = next(moves, None)
            return None if before is None else before.commit_ulid
        return None


class FoldHere:
    """Folds in this process; where another one holds the lock it waits a little."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._clock: Clock = workspace.clock

    def __call__(self, domain: str, paths: Sequence[str]) -> None:
        compactor = Compactor(self._workspace, domain)
        for _ in range(COMPACT_ATTEMPTS_MAX - 1):
            try:
                compactor.compact(paths)
            except Conflict:
                self._clock.sleep(COMPACT_WAIT_S)
            else:
                return
        compactor.compact(paths)
