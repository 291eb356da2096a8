"""Whoever holds the ledger can add events and nothing else."""

from __future__ import annotations

from holdfast.storage import LedgerPut, ObjectStore


def use(ledger: LedgerPut, store: ObjectStore) -> None:
    ledger.put_event("ledger/catalog/1.json", b"")
    ledger.put_state("state/1.parquet", b"")  # expect: attr-defined
    ledger.swap_pointer("manifests/catalog.json", b"")  # expect: attr-defined
    ledger.get("ledger/catalog/1.json")  # expect: attr-defined
    ledger.delete(["ledger/catalog/1.json"])  # expect: attr-defined
    _ = ledger.store  # expect: attr-defined
    needs_store(ledger)  # expect: arg-type
    needs_ledger(store)  # expect: arg-type


def needs_store(store: ObjectStore) -> None: ...


def needs_ledger(ledger: LedgerPut) -> None: ...
