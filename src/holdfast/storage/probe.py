"""Does this store honour conditional writes? Asked once, before the first write, because some servers accept and ignore
them.

The question is asked at a key that is never deleted and whose content never repeats, by any number of processes at
once. Seven requests; nothing else is written, and nothing is deleted.

What counts as honouring:

1. Creating a key that exists is refused, and the content stays.
2. A swap against a version that has been replaced is refused, and the content stays.
3. A swap against the current version succeeds, unless somebody else was faster, which the content then shows.
"""

from __future__ import annotations

import contextlib
import threading

from holdfast.clock import Randomness, SystemRandomness
from holdfast.errors import AlreadyExists, UnsafeStore, VersionConflict
from holdfast.storage.objects import RecordStore, StoredObject

__all__ = ["ensure_safe", "probe_conditional_writes"]

_REFUSED_MAX = 3
"""How often a correct swap may be refused although nobody changed anything, before the store is called broken."""

_known_lock = threading.Lock()
_known_safe: set[tuple[str, str]] = set()


def ensure_safe(store: RecordStore, key: str, *, randomness: Randomness | None = None) -> None:
    """Probe a store at its first use by this process, or raise UnsafeStore. Stores of our own are trusted by type."""
    if getattr(store, "conditional_writes_trusted", False):
        return
    identity = (store.url, key)
    with _known_lock:
        if identity in _known_safe:
            return
    probe_conditional_writes(store, key, randomness=randomness)
    with _known_lock:
        _known_safe.add(identity)


def probe_conditional_writes(store: RecordStore, key: str, *, randomness: Randomness | None = None) -> None:
    """Raise UnsafeStore unless the store at `key` keeps to the three rules above."""
    token = f"{(randomness or SystemRandomness()).bits(128):032x}"
    intruder = f"holdfast probe {token} must never be stored\n".encode()
    with contextlib.suppress(AlreadyExists):
        store.put_new(key, f"holdfast probe {token} created\n".encode())
    try:
        store.put_new(key, intruder)
    except AlreadyExists:
        pass
    else:
        raise _unsafe(store, "it let an existing object be created again")
    replaced = _replace(store, key, f"holdfast probe {token} swapped\n".encode())
    try:
        store.swap(key, intruder, expected=replaced.version)
    except VersionConflict:
        pass
    else:
        raise _unsafe(store, "it let an object be replaced against a version that was gone")
    if store.get(key).data == intruder:
        # It reported a conflict and wrote all the same.
        raise _unsafe(store, "it refused a write and stored it nevertheless")


def _replace(store: RecordStore, key: str, mine: bytes) -> StoredObject:
    """See the object replaced, by us or by another prober, and return what it was before: a version that is gone."""
    for _ in range(_REFUSED_MAX):
        before = store.get(key)
        if before.data.endswith(b"must never be stored\n"):
            raise _unsafe(store, "it let an existing object be created again")
        try:
            store.swap(key, mine, expected=before.version)
        except VersionConflict:
            # Somebody else was faster, or the answer to our own write was lost; either way the content has changed.
            if store.get(key).data != before.data:
                return before
            continue
        after = store.get(key)
        if after.data == before.data:
            raise _unsafe(store, "it accepted a write and did not store it")
        return before
    raise _unsafe(store, "it refuses to replace an object that nobody else changed")


def _unsafe(store: RecordStore, what: str) -> UnsafeStore:
    return UnsafeStore(
        f"{store.url} does not honour conditional writes: {what}. "
        "Two writers could overwrite each other; use another store"
    )
