"""Ledgers that older releases kept under old names, copied to where events are looked for today (C4).

An event is copied byte for byte, with its position and id, and so is its claim. Whoever says the same thing again is
told the event that it already is. Nothing of the old ledger is changed or deleted; doing it again copies what is
missing.

This is done before the domain's counter is made, which then begins above all that was copied; a counter that is there
and has given nothing out is raised first, and remembers how far. What an older release appends afterwards would have
positions that others have too: it is counted, and left where it is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from holdfast.catalog.layout import LedgerLayout
from holdfast.catalog.positions import Place
from holdfast.chain.layout import FORMER_NAMES, domain_layout
from holdfast.codec import Fields
from holdfast.errors import AlreadyExists, CorruptRecord
from holdfast.storage.objects import ObjectStore

__all__ = ["copy_ledger", "former_ledgers", "former_only", "highest_position"]

COPIES_IN_FLIGHT_MAX = 16
PAGE_SIZE = 1_000
_NEWEST_MAX = 16
"""How many of the newest events are asked for their position: some may be unreadable."""


def former_ledgers(domain: str) -> tuple[LedgerLayout, ...]:
    """Where the events of a domain lay under the names that it had."""
    return tuple(
        LedgerLayout(domain=old, chain=domain_layout(old)) for old, name in FORMER_NAMES.items() if name == domain
    )


def copy_ledger(
    source: ObjectStore, former: LedgerLayout, target: ObjectStore, ledger: LedgerLayout, *, up_to: int | None = None
) -> int:
    """Copy claims, then events, those above a position left out. How many events were missing."""
    copied = 0
    with ThreadPoolExecutor(COPIES_IN_FLIGHT_MAX, "holdfast-former") as pool:
        for page in source.list(former.claim_prefix, page_size=PAGE_SIZE):
            moves = [(info.key, ledger.claim_prefix + info.key.removeprefix(former.claim_prefix)) for info in page]
            list(pool.map(lambda move: _copy_claim(source, move[0], target, move[1], up_to), moves))
        for keys in _event_pages(source, former):
            copied += sum(pool.map(lambda key: _copy_event(source, key, former, target, ledger, up_to), keys))
    return copied


def former_only(
    source: ObjectStore, former: LedgerLayout, target: ObjectStore, ledger: LedgerLayout, *, up_to: int | None = None
) -> tuple[int, int]:
    """How many events of an old ledger are not in the one of today: up to a position, and above it."""
    there, late = 0, 0
    for keys in _event_pages(source, former):
        found = target.head_many([_place(key, former, ledger) for key in keys])
        for key, info in zip(keys, found, strict=True):
            if info is None and _may_copy(source.get(key).data if up_to is not None else b"", key, up_to):
                there += 1
            elif info is None:
                late += 1
    return there, late


def highest_position(source: ObjectStore, former: LedgerLayout) -> Place:
    """The highest place in an old ledger; position 0 if it is empty. Ids are in the order of positions."""
    newest: deque[str] = deque(maxlen=_NEWEST_MAX)
    for keys in _event_pages(source, former):
        newest.extend(keys)
    places = []
    for key in newest:
        with suppress(CorruptRecord):
            position = Fields.decode(source.get(key).data, key=key, kind=None).number("sequence_position")
            places.append(Place(position, former.parse_event_key(key) or ""))
    if newest and not places:
        raise CorruptRecord(newest[-1], f"none of the {len(newest)} newest events can be read, so no position is safe")
    return max(places, default=Place(0, ""))


def _may_copy(data: bytes, key: str, up_to: int | None) -> bool:
    """Whether an event has a place that nobody else was given. What is no event has none, and goes to quarantine."""
    if up_to is None:
        return True
    try:
        return Fields.decode(data, key=key, kind=None).number("sequence_position") <= up_to
    except CorruptRecord:
        return up_to > 0


def _event_pages(source: ObjectStore, former: LedgerLayout) -> Iterator[list[str]]:
    for page in source.list(former.event_prefix, page_size=PAGE_SIZE):
        yield [info.key for info in page if former.parse_event_key(info.key) is not None]


def _place(key: str, former: LedgerLayout, ledger: LedgerLayout) -> str:
    event_id = former.parse_event_key(key)
    assert event_id is not None
    return ledger.event_key(event_id)


def _copy_event(
    source: ObjectStore, key: str, former: LedgerLayout, target: ObjectStore, ledger: LedgerLayout, up_to: int | None
) -> bool:
    data = source.get(key).data
    if not _may_copy(data, key, up_to):
        return False
    with suppress(CorruptRecord):  # what is no event has no key to be claimed by; it is folded into the quarantine
        _put(target, ledger.claim_key(Fields.decode(data, key=key, kind=None).text("idempotency_key")), data)
    return _put(target, _place(key, former, ledger), data)


def _copy_claim(source: ObjectStore, key: str, target: ObjectStore, to: str, up_to: int | None) -> None:
    data = source.get(key).data
    if _may_copy(data, key, up_to):
        _put(target, to, data)


def _put(target: ObjectStore, key: str, data: bytes) -> bool:
    try:
        target.put_new(key, data)
    except AlreadyExists:
        if target.get(key).data != data:
            raise CorruptRecord(
                key, "it is not what an older release wrote there; look at both, and remove the one that is wrong"
            ) from None
        return False
    return True
