"""Where bytes live: the store protocol, its implementations, and what each component may do with them."""

from __future__ import annotations

from holdfast.storage.keys import check_key, check_prefix
from holdfast.storage.local import LocalStore
from holdfast.storage.memory import MemoryStore
from holdfast.storage.objects import AsyncObjectReader, ObjectInfo, ObjectStore, RecordStore, StoredObject, Version
from holdfast.storage.scope import ScopedStore, scope
from holdfast.storage.url import open_store

__all__ = [
    "AsyncObjectReader",
    "LocalStore",
    "MemoryStore",
    "ObjectInfo",
    "ObjectStore",
    "RecordStore",
    "ScopedStore",
    "StoredObject",
    "Version",
    "check_key",
    "check_prefix",
    "open_store",
    "scope",
]
