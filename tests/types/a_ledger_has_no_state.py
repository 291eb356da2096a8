"""Whoever holds a ledger appends to it, and cannot reach state, manifests or the store; nor is it made of a store."""

from __future__ import annotations

from holdfast.catalog import Ledger, LedgerLister, LedgerReader
from holdfast.catalog.payloads import NamespaceDeleted
from holdfast.storage import ApiCapabilities, ObjectStore, ReaderCapabilities


def use(ledger: Ledger, reader: LedgerReader, lister: LedgerLister) -> None:
    ledger.append(NamespaceDeleted(namespace="sales"))
    ledger.put_state("state/1.parquet", b"")  # expect: attr-defined
    ledger.swap_pointer("manifests/catalog.pointer.json", b"")  # expect: attr-defined
    ledger.put_event("ledger/catalog/1.json", b"")  # expect: attr-defined
    ledger.list("ledger")  # expect: attr-defined
    ledger.append({"event_type": "namespace.deleted"})  # expect: arg-type
    _ = ledger.store  # expect: attr-defined
    reader.append(NamespaceDeleted(namespace="sales"))  # expect: attr-defined
    reader.page()  # expect: attr-defined
    lister.read(["ledger/catalog/1.json"])  # expect: attr-defined


def make(store: ObjectStore, api: ApiCapabilities, reader: ReaderCapabilities) -> None:
    Ledger("catalog", ledger=api.ledger, lock=api.lock, read=api.read, source="api")
    Ledger("catalog", ledger=store, lock=api.lock, read=api.read, source="api")  # expect: arg-type
    Ledger("catalog", ledger=api.ledger, lock=store, read=api.read, source="api")  # expect: arg-type
    Ledger("catalog", ledger=api.ledger, lock=api.lock, read=store, source="api")  # expect: arg-type
    LedgerLister("catalog", reader.read)  # expect: arg-type
