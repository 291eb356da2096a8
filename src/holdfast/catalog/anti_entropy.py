"""Anti-entropy: finds events that nobody told the compactor of, and tells it (C18).

    job = AntiEntropy("lineage", rights=grant(store, "compactor-antientropy"), notify=compactor.notify)
    job.round()

It lists a ledger and reads a domain's state, and writes nothing; that is all its principal may do (C9). The cursor, up
to which a ledger was looked through, goes with a notification to the compactor, who writes it once the paths that came
with it are folded.

1. A round begins after the cursor and goes to the end, page by page. An event whose row is in the state was applied,
   and so was the event of the watermark. All others may have been missed, and are told again. Some were applied and
   have been superseded since: folding these again changes nothing, and ends when the cursor has passed them.
2. The watermark is a maximum, and no promise: an event far below it may never have been told.
3. An event may appear below one that is there: its append was under way. So the cursor stays behind whatever is younger
   than `settle_s`, by the time in its id; what is behind the cursor in that time is looked at in every round.
4. A cursor is sent only if every event up to it is known to be folded or goes with it. A notification that was accepted
   may still be lost with the compactor: until the cursor that came with it is seen, no later one is sent.

So wherever the job or the compactor dies, the next round looks at the same events again, and never past them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.catalog.compactor import Compactor
from holdfast.catalog.cursor import CursorKeeper, read_cursor
from holdfast.catalog.domain_state import DomainState, StateFile, read_table
from holdfast.catalog.layout import LedgerLayout, ledger_layout
from holdfast.catalog.ledger_read import PAGE_SIZE_MAX, LedgerLister, LedgerPage
from holdfast.catalog.tables import EVENT_ID
from holdfast.catalog.workspace import Workspace
from holdfast.chain.ids import ulid_time
from holdfast.chain.legacy import decode_any_manifest
from holdfast.chain.manifest import Manifest
from holdfast.chain.pointer import Pointer
from holdfast.clock import Clock, SystemClock
from holdfast.errors import BadInput, ObjectNotFound, StoreDenied
from holdfast.storage.capabilities import Reader
from holdfast.storage.principals import AntiEntropyCapabilities, grant

__all__ = ["PAGES_MAX", "SETTLE_S", "AntiEntropy", "Notify", "Round", "fold_here"]

SETTLE_S = 600.0
"""How long an append may be under way: an appender gives up long before."""
PAGES_MAX = 1_000
"""How many pages one round looks at. The next one goes on from the cursor."""

Notify = Callable[[str, Sequence[str], str | None], object]
"""Told a domain, paths of its ledger, and the cursor to write once these are folded, if there is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """What one look through a ledger found."""

    domain: str
    events: int
    """Looked at."""
    told: int
    """Told again: missed, or applied and superseded since."""
    pages: int
    cursor: str | None
    """The last cursor that was sent; None if none was."""
    foreign: int = 0
    """Files among the events that are none."""
    is_complete: bool = True
    """It came to the end of the ledger."""


class AntiEntropy:
    """Looks after one domain's ledger. Not for several threads at once; several processes may, and do the same work."""

    def __init__(
        self,
        domain: str,
        *,
        rights: AntiEntropyCapabilities,
        notify: Notify,
        clock: Clock | None = None,
        settle_s: float = SETTLE_S,
        page_size: int = PAGE_SIZE_MAX,
        pages_max: int = PAGES_MAX,
    ) -> None:
        if settle_s < 0 or pages_max < 1:
            raise BadInput("events settle in 0 seconds or more, and a round has at least 1 page")
        self._layout: LedgerLayout = ledger_layout(domain)
        self._lister = LedgerLister(domain, rights.ledger)
        self._read: Reader = rights.read
        self._notify = notify
        self._clock: Clock = clock or SystemClock()
        self._settle = timedelta(seconds=settle_s)
        self._page_size = page_size
        self._pages_max = pages_max
        self._ids: dict[str, frozenset[str]] = {}
        """The events behind the rows of a file, by its checksum: files never change."""
        self._ids_begin = ""
        """They are those above this one."""

    @property
    def domain(self) -> str:
        return self._layout.domain

    def round(self, *, from_start: bool = False) -> Round:
        """Look through what is behind the cursor, or through all of the ledger, and tell what may have been missed.

        Whatever the notification raises ends the round; nothing is lost by that, and the next one begins again.
        """
        settled = (self._clock.now() - self._settle).timestamp()
        start = None if from_start else self._cursor()
        after = None if start is None else self._layout.event_key(start)
        applied: frozenset[str] | None = None
        unsure: str | None = None  # told, and not known to be folded
        events = told = foreign = pages = 0
        sent: str | None = None
        is_complete = False
        while pages < self._pages_max and not is_complete:
            page = self._lister.page(after=after, size=self._page_size)
            pages, after, is_complete = pages + 1, page.cursor, page.is_last
            ids = self._event_ids(page)
            events, foreign = events + len(ids), foreign + len(page.foreign)
            if ids and applied is None:
                applied = self._applied(start)
            missing = [event_id for event_id in ids if event_id not in (applied or ())]
            if unsure is not None and (self._cursor() or "") >= unsure:
                unsure = None
            cursor = _last_settled(ids, settled) if unsure is None else None
            if missing or cursor is not None:
                self._notify(self.domain, [self._layout.event_key(one) for one in missing], cursor)
                told, sent = told + len(missing), cursor or sent
            if missing:
                unsure = missing[-1]
        return Round(
            domain=self.domain,
            events=events,
            told=told,
            pages=pages,
            cursor=sent,
            foreign=foreign,
            is_complete=is_complete,
        )

    def _event_ids(self, page: LedgerPage) -> list[str]:
        return [event_id for path in page.paths if (event_id := self._layout.parse_event_key(path)) is not None]

    def _cursor(self) -> str | None:
        try:
            found = read_cursor(self._read, self.domain)
        except StoreDenied:  # so some stores answer where nothing is, to who may not list there
            return None
        return None if found is None else found.event_id

    # -- what was applied ---------------------------------------------------------------------------------------------

    def _applied(self, start: str | None) -> frozenset[str]:
        """Events above the cursor that are known to be folded: their rows are there, or the watermark is theirs."""
        state = DomainState.of_manifest(self.domain, self._manifest())
        begin = start or ""
        if begin < self._ids_begin:
            self._ids = {}
        known = {file.checksum: self._ids_in(file, begin) for file in state.files}
        self._ids, self._ids_begin = known, begin
        mark = state.watermark.event_id
        return frozenset().union(*known.values(), () if mark is None else (mark,))

    def _ids_in(self, file: StateFile, start: str) -> frozenset[str]:
        found = self._ids.get(file.checksum)
        if found is None:
            column = read_table(self._read, file).column(EVENT_ID)
            newer = column.filter(pc.greater(column, pa.scalar(start)))
            found = frozenset(map(str, pc.unique(newer).to_pylist()))
        return frozenset(event_id for event_id in found if event_id > start)

    def _manifest(self) -> Manifest | None:
        """The visible one: by the pointer, or at the legacy path where that counts (S26, S45)."""
        layout = self._layout.chain
        data = self._get(layout.pointer_key)
        path = layout.mirror_key
        if data is not None:
            pointer = Pointer.decode(data, key=layout.pointer_key, id_field=layout.id_field)
            path = layout.mirror_key if pointer.publishing == "legacy" else pointer.manifest_path
        found = None if path is None else self._get(path)
        return None if path is None or found is None else decode_any_manifest(found, key=path, names=layout.names)

    def _get(self, key: str) -> bytes | None:
        try:
            return self._read.get(key).data
        except (ObjectNotFound, StoreDenied):
            return None


def _last_settled(ids: Sequence[str], settled: float) -> str | None:
    """The last event of a page that nothing can appear before any more."""
    old = [event_id for event_id in ids if ulid_time(event_id).timestamp() <= settled]
    return old[-1] if old else None


def fold_here(workspace: Workspace) -> Notify:
    """A compactor in this process, for whoever has none elsewhere. It needs the rights of one."""
    rights = grant(workspace.store, "compactor-fastpath")
    keeper = CursorKeeper(rights.manifest, rights.read, clock=workspace.clock, randomness=workspace.randomness)
    compactors: dict[str, Compactor] = {}

    def notify(domain: str, paths: Sequence[str], cursor: str | None) -> None:
        if paths:
            compactors.setdefault(domain, Compactor(workspace, domain)).compact(paths)
        if cursor is not None:
            keeper.advance(domain, cursor)

    return notify
