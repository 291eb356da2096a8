"""Where bytes live: the store protocol, its implementations, and what each component may do with them."""

from __future__ import annotations

from holdfast.storage.capabilities import (
    DatasetPut,
    Deleter,
    LedgerPut,
    Lister,
    LockSwap,
    ManifestSwap,
    MetadataHead,
    Reader,
    StatePut,
)
from holdfast.storage.keys import check_key, check_prefix
from holdfast.storage.local import LocalStore
from holdfast.storage.memory import MemoryStore
from holdfast.storage.objects import AsyncObjectReader, ObjectInfo, ObjectStore, RecordStore, StoredObject, Version
from holdfast.storage.principals import (
    AntiEntropyCapabilities,
    ApiCapabilities,
    Capabilities,
    CollectorCapabilities,
    FastPathCapabilities,
    PipelineCapabilities,
    ReaderCapabilities,
    grant,
)
from holdfast.storage.probe import ensure_safe, probe_conditional_writes
from holdfast.storage.scope import ScopedStore, scope
from holdfast.storage.url import open_store

__all__ = [
    "AntiEntropyCapabilities",
    "ApiCapabilities",
    "AsyncObjectReader",
    "Capabilities",
    "CollectorCapabilities",
    "DatasetPut",
    "Deleter",
    "FastPathCapabilities",
    "LedgerPut",
    "Lister",
    "LocalStore",
    "LockSwap",
    "ManifestSwap",
    "MemoryStore",
    "MetadataHead",
    "ObjectInfo",
    "ObjectStore",
    "PipelineCapabilities",
    "Reader",
    "ReaderCapabilities",
    "RecordStore",
    "ScopedStore",
    "StatePut",
    "StoredObject",
    "Version",
    "check_key",
    "check_prefix",
    "ensure_safe",
    "grant",
    "open_store",
    "probe_conditional_writes",
    "scope",
]
