"""The compactor of one workspace, without HTTP: what is asked, what is notified, and how it does (C17, C18).

It has the rights of the fast path and no others (C9), so it publishes the domains whose pointers those rights reach:
catalog, lineage and executions. The orchestration chain is published by who runs pipelines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from holdfast.catalog.compactor import Compaction, Compactor, MergeLimits
from holdfast.catalog.compactor_lock import LOCK_TTL_S, compactor_lock
from holdfast.catalog.cursor import Cursor, CursorKeeper, read_cursor
from holdfast.catalog.layout import ledger_layout
from holdfast.catalog.ledger_read import PATHS_MAX
from holdfast.catalog.positions import PositionRecord
from holdfast.catalog.watermark import WatermarkReader
from holdfast.catalog.workspace import Workspace
from holdfast.chain.ids import is_ulid
from holdfast.errors import BadInput, HoldfastError, LimitReached
from holdfast.service.fast_path import confined
from holdfast.service.metrics import DomainMetrics
from holdfast.service.notifications import Notifications, Offered
from holdfast.service.worker import DomainWorker

__all__ = ["SERVED_DOMAINS", "CompactorService", "DomainStatus"]

SERVED_DOMAINS = ("catalog", "lineage", "executions")
QUEUE_MAX_DEFAULT = 100_000
STOP_TIMEOUT_S = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainStatus:
    """How one domain does."""

    waiting: int
    capacity: int
    counts: Mapping[str, int]
    trouble: str | None
    position: int
    """How far the visible snapshot is folded."""
    pending_lag: int | None
    """Events that are written and not folded, as far as is known; None if nobody can tell now."""


class CompactorService:
    """Start it once, stop it once. Any number of threads may call."""

    def __init__(
        self,
        workspace: Workspace,
        *,
        limits: MergeLimits | None = None,
        queue_max: int = QUEUE_MAX_DEFAULT,
        lock_ttl_s: float = LOCK_TTL_S,
    ) -> None:
        self.workspace, rights = confined(workspace)
        self._read, self._head = rights.read, rights.head
        cursors = CursorKeeper(
            rights.manifest, rights.read, clock=workspace.clock, randomness=workspace.randomness
        )  # fmt: skip
        self._workers: dict[str, DomainWorker] = {}
        self._watermarks: dict[str, WatermarkReader] = {}
        for domain in SERVED_DOMAINS:
            compactor = Compactor(
                self.workspace,
                domain,
                limits=limits,
                own_lock=lambda chain, domain=domain: compactor_lock(chain, domain, ttl_s=lock_ttl_s),  # type: ignore[misc]
            )
            self._workers[domain] = DomainWorker(
                domain,
                compactor,
                head=rights.head,
                cursors=cursors,
                queue=Notifications(domain, capacity=queue_max),
                metrics=DomainMetrics(),
            )
            chain = ledger_layout(domain).chain
            self._watermarks[domain] = WatermarkReader(rights.read, chain, clock=workspace.clock)

    def start(self) -> None:
        """See that the workspace is there, then begin to fold."""
        self.workspace.read_root()
        for worker in self._workers.values():
            worker.start()

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """Fold what waits, as far as that works in this time. How many notified events were left to anti-entropy."""
        return sum(worker.stop(timeout_s) for worker in self._workers.values())

    # -- what is asked ------------------------------------------------------------------------------------------------

    def compact(self, domain: str, paths: Sequence[str], *, ticket: str | None = None) -> Future[Compaction]:
        """Fold the events at these paths now. Errors of the fold are the future's; those of the call are raised."""
        return self._worker(domain).ask(self._checked(domain, paths), ticket)

    def notify(self, domain: str, paths: Sequence[str], *, cursor: str | None = None) -> Offered:
        """Fold these soon, then write the cursor. QueueFull if there is no room."""
        if cursor is not None and not is_ulid(cursor):
            raise BadInput(f"{cursor!r} is no event id, so no cursor can be there; it is a ULID of 26 characters")
        return self._worker(domain).notify(self._checked(domain, paths), cursor)

    def cursor(self, domain: str) -> Cursor | None:
        """How far anti-entropy has looked through the domain's ledger."""
        return read_cursor(self._read, self._worker(domain).domain)

    def status(self) -> dict[str, DomainStatus]:
        """How each domain does. Costs three small reads a domain, mostly."""
        return {domain: self._status(domain, worker) for domain, worker in self._workers.items()}

    def troubles(self) -> dict[str, str]:
        """Domains whose newest fold failed, and why. Costs nothing."""
        found = {domain: worker.metrics.trouble for domain, worker in self._workers.items()}
        return {domain: trouble for domain, trouble in found.items() if trouble is not None}

    def require(self, *, tenant: str | None, workspace: str | None) -> None:
        """BadInput if the caller means another workspace."""
        mine = (self.workspace.tenant, self.workspace.name)
        for said, served in zip((tenant, workspace), mine, strict=True):
            if said is not None and said != served:
                raise BadInput(
                    f"this compactor serves workspace {mine[1]!r} of tenant {mine[0]!r}, not {said!r}; use that one's"
                )

    def _worker(self, domain: str) -> DomainWorker:
        worker = self._workers.get(domain)
        if worker is None:
            raise BadInput(f"{domain!r} is not folded here; the domains are {', '.join(SERVED_DOMAINS)}")
        return worker

    def _checked(self, domain: str, paths: Sequence[str]) -> list[str]:
        """The paths, each once, all of them events of this ledger: before anything is read or waits."""
        if len(paths) > PATHS_MAX:
            raise LimitReached(f"{len(paths)} paths are too many for one call; give at most {PATHS_MAX}")
        reader = self.workspace.ledger_reader(domain)
        return list(dict.fromkeys(reader.check_path(path) for path in paths))

    def _written(self, domain: str) -> int:
        """The newest position whose event is there, as far as the ledger's counter remembers."""
        layout = ledger_layout(domain)
        record = PositionRecord.decode(self._read.get(layout.positions_key).data, key=layout.positions_key)
        newest = [place for place in record.recent if place.position > record.written]
        infos = self._head.head_many([layout.event_key(place.event_id) for place in newest])
        there = [place.position for place, info in zip(newest, infos, strict=True) if info is not None]
        return max([record.written, *there])

    def _status(self, domain: str, worker: DomainWorker) -> DomainStatus:
        position, lag = worker.metrics.position, None
        try:
            position = max(position, self._watermarks[domain].refresh().position)
            lag = max(0, self._written(domain) - position)
        except HoldfastError:
            pass  # the numbers that are known are shown all the same; `trouble` tells of a fold that fails
        return DomainStatus(
            waiting=len(worker.queue),
            capacity=worker.queue.capacity,
            counts=worker.metrics.snapshot(),
            trouble=worker.metrics.trouble,
            position=position,
            pending_lag=lag,
        )
