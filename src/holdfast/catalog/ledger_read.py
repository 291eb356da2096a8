"""Reading a ledger: by the paths that somebody was told (C17, C18), or page by page for what nobody was told.

The two are separate because their rights are: who folds events reads them and cannot list, who looks for forgotten ones
lists them and cannot read (C9).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from holdfast.catalog.events import EVENT_BYTES_MAX, Event, UnknownEvent, decode_event
from holdfast.catalog.layout import LedgerLayout, ledger_layout
from holdfast.errors import BadInput, ScopeEscape
from holdfast.storage.capabilities import Lister, Reader

__all__ = ["PATHS_MAX", "LedgerLister", "LedgerPage", "LedgerReader"]

PATHS_MAX = 10_000
"""How many events one call reads at most."""
PAGE_SIZE_MAX = 1_000
READS_IN_FLIGHT_MAX = 16


class LedgerReader:
    """Reads events of one domain by their paths. Lists nothing."""

    def __init__(self, domain: str, read: Reader) -> None:
        self._layout: LedgerLayout = ledger_layout(domain)
        self._read = read

    def read(self, paths: Sequence[str], *, told: Mapping[str, bytes] | None = None) -> list[Event | UnknownEvent]:
        """The events at these paths, in their order. What is there and is no event of this release is an UnknownEvent.

        ScopeEscape for a path that is none of this ledger, before anything is read; ObjectNotFound for an event that
        is gone. `told` are events that this process has just appended, as they are stored.
        """
        known = told or {}
        missing = [path for path in paths if path not in known]
        found = {**known, **dict(zip(missing, self.read_bytes(missing), strict=True))}
        return [decode_event(found[path], path=self.check_path(path), layout=self._layout) for path in paths]

    def read_bytes(self, paths: Sequence[str]) -> list[bytes]:
        """The same as they are stored: one byte more than an event may have, if there is more."""
        if len(paths) > PATHS_MAX:
            raise BadInput(f"{len(paths)} paths are too many for one call; give at most {PATHS_MAX}")
        for path in paths:
            self.check_path(path)
        if len(paths) < 2:
            return self._read_some(paths)
        some = [paths[start::READS_IN_FLIGHT_MAX] for start in range(min(len(paths), READS_IN_FLIGHT_MAX))]
        with ThreadPoolExecutor(len(some), "holdfast-ledger") as pool:
            found = list(pool.map(self._read_some, some))
        return [found[place % len(some)][place // len(some)] for place in range(len(paths))]

    def check_path(self, path: str) -> str:
        """The path, if it is one of an event of this ledger; ScopeEscape otherwise."""
        if self._layout.parse_event_key(path) is None:
            expected = self._layout.event_prefix
            raise ScopeEscape(f"{path!r} is no event of this ledger; its paths are like {expected}, a ULID and .json")
        return path

    def _read_some(self, paths: Sequence[str]) -> list[bytes]:
        # One byte more than an event may have: whatever is there, no more than that is brought into memory.
        return [self._read.get_range(path, 0, EVENT_BYTES_MAX + 1) for path in paths]


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerPage:
    """Some events in the order of their ids."""

    paths: tuple[str, ...]
    cursor: str | None
    """What to go on after: give it to the next call, in this process or another. None before anything was found."""
    is_last: bool
    """Nothing was behind it when it was listed."""
    foreign: tuple[str, ...] = ()
    """What lies among the events and is none."""


class LedgerLister:
    """Lists a ledger in bounded pages. Reads nothing.

    An event may appear below the cursor after it passed: whoever took its place was slow, or died and was finished
    later (see `ledger.py`). Begin again from the start now and then; the last page says when one round is over.
    """

    def __init__(self, domain: str, lister: Lister) -> None:
        self._layout: LedgerLayout = ledger_layout(domain)
        self._lister = lister

    def cursor_at(self, event_id: str) -> str:
        """The cursor that goes on after this event: the last one that was applied, say, which is not missed (C18)."""
        return self._layout.event_key(event_id)

    def pages(self, *, after: str | None = None) -> Iterator[LedgerPage]:
        """Every page, from one listing: a long ledger is not looked through once for each of its pages."""
        if after is not None and not self._layout.is_in_ledger(after):
            raise ScopeEscape(f"{after!r} is no cursor of this ledger; use one that a page has given, or none")
        listed = self._lister.list(self._layout.event_prefix, after=after, page_size=PAGE_SIZE_MAX)
        before: list[str] = []
        for found in listed:
            if before:
                yield self._page(before, is_last=False)
            before = [info.key for info in found]
        if before:
            yield self._page(before, is_last=True)

    def _page(self, keys: list[str], *, is_last: bool) -> LedgerPage:
        paths = tuple(key for key in keys if self._layout.parse_event_key(key) is not None)
        foreign = () if len(paths) == len(keys) else tuple(sorted(set(keys) - set(paths)))
        return LedgerPage(paths=paths, cursor=keys[-1], is_last=is_last, foreign=foreign)

    def page(self, *, after: str | None = None, size: int = PAGE_SIZE_MAX) -> LedgerPage:
        """The next `size` events after the cursor, from the beginning without one."""
        if not 1 <= size <= PAGE_SIZE_MAX:
            raise BadInput(f"a page has 1 to {PAGE_SIZE_MAX} events, not {size}")
        if after is not None and not self._layout.is_in_ledger(after):
            raise ScopeEscape(f"{after!r} is no cursor of this ledger; use one that a page has given, or none")
        keys: list[str] = []
        is_last = True
        for found in self._lister.list(self._layout.event_prefix, after=after, page_size=size):
            keys += [info.key for info in found[: size - len(keys)]]
            if len(keys) == size:
                is_last = False  # as far as anybody knows: the next page may be empty
                break
        foreign = tuple(key for key in keys if self._layout.parse_event_key(key) is None)
        return LedgerPage(
            paths=tuple(key for key in keys if key not in foreign),
            cursor=keys[-1] if keys else after,
            is_last=is_last,
            foreign=foreign,
        )
