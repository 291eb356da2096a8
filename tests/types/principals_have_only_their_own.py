"""A principal's bundle has the capabilities of its row in the table, and no others."""

from __future__ import annotations

from holdfast.storage import MemoryStore, grant


def use() -> None:
    store = MemoryStore()
    api = grant(store, "api")
    api.ledger.put_event("ledger/catalog/1.json", b"")
    _ = api.manifest  # expect: attr-defined
    _ = api.state  # expect: attr-defined
    fast = grant(store, "compactor-fastpath")
    fast.manifest.put_manifest("manifests/catalog/1.json", b"")
    _ = fast.ledger  # expect: attr-defined
    _ = fast.list  # expect: attr-defined
    watch = grant(store, "compactor-antientropy")
    list(watch.ledger.list("ledger/catalog"))
    _ = watch.state  # expect: attr-defined
    pipeline = grant(store, "pipeline")
    pipeline.data.put_data("datasets/users/1", b"")
    _ = pipeline.manifest  # expect: attr-defined
    reader = grant(store, "reader")
    reader.read.get("datasets/users/1")
    _ = reader.ledger  # expect: attr-defined
    reader.read.put_new("x", b"")  # expect: attr-defined
    reader.read = reader.read  # expect: misc
    grant(store, "root")  # expect: call-overload
