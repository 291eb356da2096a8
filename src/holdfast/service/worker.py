"""One thread per domain that folds: what somebody waits for first, then what was notified (C17, C18, C20).

No domain waits for another (C2), and nothing of a domain is folded by two at once in this process. Notifications that
arrive while a fold runs are the next batch, so the busier it gets the more events share a publish. A fold that fails
keeps its batch, and is tried again after a while that grows; what is asked for in between is answered all the same.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from holdfast.catalog.compactor import Compaction, Compactor
from holdfast.catalog.cursor import CursorKeeper
from holdfast.errors import Conflict, CorruptRecord, Fenced, HoldfastError, ObjectNotFound, StoreUnavailable
from holdfast.service.metrics import DomainMetrics
from holdfast.service.notifications import Batch, Notifications, Offered, QueueFull
from holdfast.storage.capabilities import MetadataHead

__all__ = ["DomainWorker"]

BATCH_PATHS_MAX = 1_000
ASKED_MAX = 64
"""How many may wait for an answer: they hold the domain's lock one after another, so there are few."""
PAUSE_FIRST_S, PAUSE_MAX_S = 0.05, 15.0

_log = logging.getLogger("holdfast.compactor")


@dataclass(slots=True, kw_only=True)
class _Asked:
    paths: Sequence[str]
    ticket: str | None
    answer: Future[Compaction] = field(default_factory=Future)


class DomainWorker:
    """Start it once, stop it once. Any number of threads may ask and notify."""

    def __init__(
        self,
        domain: str,
        compactor: Compactor,
        *,
        head: MetadataHead,
        cursors: CursorKeeper,
        queue: Notifications,
        metrics: DomainMetrics,
    ) -> None:
        self.domain = domain
        self.queue = queue
        self.metrics = metrics
        self._compactor = compactor
        self._head = head
        self._cursors = cursors
        self._asked: deque[_Asked] = deque()
        self._wake = threading.Condition()
        self._stopping = False
        self._failures = 0
        self._thread = threading.Thread(target=self._run, name=f"holdfast-fold-{domain}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_s: float) -> int:
        """Fold what waits, as far as that works at once and in this time. How many paths were left."""
        with self._wake:
            self._stopping = True
            self._wake.notify_all()
        self._thread.join(timeout_s)
        return len(self.queue)

    def ask(self, paths: Sequence[str], ticket: str | None) -> Future[Compaction]:
        """Fold now, under the lock of the ticket or the compactor's own."""
        asked = _Asked(paths=paths, ticket=ticket)
        with self._wake:
            if self._stopping or len(self._asked) >= ASKED_MAX:
                raise StoreUnavailable(f"the compactor of {self.domain!r} cannot take this now; ask again in a moment")
            self._asked.append(asked)
            self._wake.notify_all()
        return asked.answer

    def notify(self, paths: Sequence[str], cursor: str | None) -> Offered:
        """Fold soon."""
        with self._wake:
            if self._stopping:
                raise StoreUnavailable(f"the compactor of {self.domain!r} stops; notify it again when it is back")
            try:
                offered = self.queue.offer(paths, cursor)
            except QueueFull:
                self.metrics.add("rejected")
                raise
            if not self._failures:  # else it comes after the pause, which no crowd of notifications makes longer
                self._wake.notify_all()
        self.metrics.add("accepted", offered.accepted)
        self.metrics.add("known", offered.known)
        return offered

    # -- the thread ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        self._work()
        with self._wake:
            for asked in self._asked:
                asked.answer.set_exception(StoreUnavailable("the compactor has stopped; ask again when it is back"))
            self._asked.clear()

    def _work(self) -> None:
        while True:
            asked = self._next()
            if asked is not None:
                self._answer(asked)
            elif (batch := self.queue.take(BATCH_PATHS_MAX)) is not None:
                self._fold(batch)
            elif self._stopping:
                return
            if self._stopping and self._failures:
                return  # it would only fail again: anti-entropy will tell of it

    def _next(self) -> _Asked | None:
        """Who is to be answered first; None when it is the turn of what was notified, or time to stop."""
        with self._wake:
            pause = min(PAUSE_FIRST_S * 2 ** (self._failures - 1), PAUSE_MAX_S) if self._failures else None
            while not self._asked and not self._stopping:
                if self.queue.is_empty():
                    self._wake.wait()
                elif pause is None or not self._wake.wait(pause):
                    break
            return self._asked.popleft() if self._asked else None

    def _answer(self, asked: _Asked) -> None:
        try:
            done = self._compactor.compact(asked.paths, ticket=asked.ticket)
        except Exception as error:  # noqa: BLE001 - told to who asked, whatever it is
            self.metrics.add("conflicts" if isinstance(error, Conflict | Fenced) else "failures")
            if isinstance(error, ObjectNotFound) and error.key not in asked.paths:
                error = CorruptRecord(error.key, "it is missing")  # what is published names it
            asked.answer.set_exception(error)
            return
        self._note(done, "asked for")
        asked.answer.set_result(done)

    def _fold(self, batch: Batch) -> None:
        try:
            if batch.paths:
                self._note(self._compactor.compact(batch.paths), "notified")
            if batch.cursor is not None:
                cursor = self._cursors.advance(self.domain, batch.cursor)
                _log.info("%s: looked through to %s", self.domain, cursor.event_id)
        except ObjectNotFound as error:
            self._without_missing(batch, error)
        except Exception as error:  # noqa: BLE001 - the thread goes on, and the batch is kept
            self._retry_later(batch, error)
        else:
            self._failures = 0
            self.queue.settle(batch)

    def _without_missing(self, batch: Batch, error: ObjectNotFound) -> None:
        """An event that is gone stops nobody else."""
        try:
            infos = self._head.head_many(batch.paths)
        except HoldfastError as failure:
            self._retry_later(batch, failure)
            return
        gone = [path for path, info in zip(batch.paths, infos, strict=True) if info is None]
        if not gone:  # something else is missing, and that is damage
            self._retry_later(batch, error)
            return
        self.metrics.add("missing", len(gone))
        _log.error(
            "%s: %d of %d notified events are not in the ledger and are dropped, such as %s; was it deleted by hand?",
            self.domain, len(gone), len(batch.paths), gone[0],
        )  # fmt: skip
        self.queue.put_back(batch, gone=gone)

    def _retry_later(self, batch: Batch, error: Exception) -> None:
        self.queue.put_back(batch)
        self._failures += 1
        if isinstance(error, Conflict | Fenced):
            self.metrics.add("conflicts")
            _log.info("%s: %d events wait: %s", self.domain, len(batch.paths), error)
            return
        self.metrics.add("failures")
        self.metrics.failed(f"{type(error).__name__}: {error}")
        unforeseen = None if isinstance(error, HoldfastError) else error
        _log.error(
            "%s: %d events are not folded yet: %s: %s",
            self.domain, len(batch.paths), type(error).__name__, error, exc_info=unforeseen,
        )  # fmt: skip

    def _note(self, done: Compaction, why: str) -> None:
        self.metrics.add("events", done.events)
        self.metrics.add("publishes", done.published)
        self.metrics.add("merges", len(done.merged))
        self.metrics.add("quarantined", done.quarantined)
        self.metrics.folded_to(done.watermark.position)
        if not done.published:
            _log.info("%s: nothing new in %s", self.domain, _events(done.events, why))
            return
        merged = f", merged {', '.join(done.merged)}" if done.merged else ""
        odd = f", {done.quarantined} quarantined" if done.quarantined else ""
        _log.info(
            "%s: snapshot %d published from %s, up to position %d%s%s",
            self.domain, done.snapshot_version, _events(done.events, why), done.watermark.position, merged, odd,
        )  # fmt: skip


def _events(count: int, why: str) -> str:
    return f"1 event that was {why}" if count == 1 else f"{count:,} events that were {why}"
