"""Ledgers that older releases kept under old names, copied to where events are looked for today (C4).

An event is copied byte for byte, with its position and id, and so is its claim. Whoever says the same thing again is
told the event that it already is. Nothing of the old ledger is changed or deleted; doing it again copies what is
missing.

This is done before the domain's counter is made, which then begins above all that was copied. What an older release
appends afterwards would have positions that others have too: it is counted, and left where it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from holdfast.catalog.layout import LedgerLayout
from holdfast.chain.layout import FORMER_NAMES, domain_layout
from holdfast.codec import Fields
from holdfast.errors import AlreadyExists, CorruptRecord
from holdfast.storage.objects import ObjectStore

__all__ = ["copy_ledger", "former_ledgers", "former_only"]

COPIES_IN_FLIGHT_MAX = 16
PAGE_SIZE = 1_000


def former_ledgers(domain: str) -> tuple[LedgerLayout, ...]:
    """Where the events of a domain lay under the names that it had."""
    return tuple(
        LedgerLayout(domain=old, chain=domain_layout(old)) for old, name in FORMER_NAMES.items() if name == domain
    )


def copy_ledger(source: ObjectStore, former: LedgerLayout, target: ObjectStore, ledger: LedgerLayout) -> int:
    """Copy claims, then events. How many of these were missing."""
    copied = 0
    with ThreadPoolExecutor(COPIES_IN_FLIGHT_MAX, "holdfast-former") as pool:
        for page in source.list(former.claim_prefix, page_size=PAGE_SIZE):
            keys = [(info.key, ledger.claim_prefix + info.key.removeprefix(former.claim_prefix)) for info in page]
            list(pool.map(lambda pair: _copy(source, pair[0], target, pair[1]), keys))
        for found in _event_pages(source, former):
            copied += sum(pool.map(lambda key: _copy_event(source, key, former, target, ledger), found))
    return copied


def former_only(source: ObjectStore, former: LedgerLayout, target: ObjectStore, ledger: LedgerLayout) -> int:
    """How many events of an old ledger are not in the one of today."""
    missing = 0
    for page in _event_pages(source, former):
        found = target.head_many([_place(key, former, ledger) for key in page])
        missing += sum(info is None for info in found)
    return missing


def _event_pages(source: ObjectStore, former: LedgerLayout) -> Iterator[list[str]]:
    for page in source.list(former.event_prefix, page_size=PAGE_SIZE):
        yield [info.key for info in page if former.parse_event_key(info.key) is not None]


def _place(key: str, former: LedgerLayout, ledger: LedgerLayout) -> str:
    event_id = former.parse_event_key(key)
    assert event_id is not None
    return ledger.event_key(event_id)


def _copy_event(source: ObjectStore, key: str, former: LedgerLayout, target: ObjectStore, ledger: LedgerLayout) -> bool:
    data = source.get(key).data
    with suppress(CorruptRecord):  # what is no event has no key to be claimed by; it is folded into the quarantine
        _put(target, ledger.claim_key(Fields.decode(data, key=key, kind=None).text("idempotency_key")), data)
    return _put(target, _place(key, former, ledger), data)


def _copy(source: ObjectStore, key: str, target: ObjectStore, to: str) -> bool:
    return _put(target, to, source.get(key).data)


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
