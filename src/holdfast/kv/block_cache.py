"""What look-ups by range requests remember: pages of directories and blocks, as many as fit, the latest used (K17)."""

from __future__ import annotations

import threading
from collections import OrderedDict

import pyarrow as pa

__all__ = ["BYTES_DEFAULT", "BlockCache"]

BYTES_DEFAULT = 16 << 20

Name = tuple[str, str, int]
"""(what, shard's path, number). A path is used once: what is remembered of it holds for every snapshot that has it."""


class BlockCache:
    """Safe for any number of threads. Holds nothing that is larger than all of it."""

    def __init__(self, max_bytes: int = BYTES_DEFAULT) -> None:
        self._max_bytes = max_bytes
        self._held: OrderedDict[Name, tuple[bytes | pa.RecordBatch, int]] = OrderedDict()
        self._used_bytes = 0
        self._lock = threading.Lock()

    @property
    def used_bytes(self) -> int:
        return self._used_bytes

    def page(self, path: str, number: int) -> bytes | None:
        found = self._get(("page", path, number))
        return found if isinstance(found, bytes) else None

    def block(self, path: str, number: int) -> pa.RecordBatch | None:
        return self._get(("block", path, number))

    def put_page(self, path: str, number: int, data: bytes) -> None:
        self._put(("page", path, number), data, len(data))

    def put_block(self, path: str, number: int, batch: pa.RecordBatch, size: int) -> None:
        self._put(("block", path, number), batch, size)

    def forget_page(self, path: str, number: int) -> None:
        with self._lock:
            self._drop(("page", path, number))

    def _get(self, name: Name) -> bytes | pa.RecordBatch | None:
        with self._lock:
            held = self._held.get(name)
            if held is None:
                return None
            self._held.move_to_end(name)
            return held[0]

    def _put(self, name: Name, value: bytes | pa.RecordBatch, size: int) -> None:
        if size > self._max_bytes:
            return
        with self._lock:
            self._drop(name)
            self._held[name] = (value, size)
            self._used_bytes += size
            while self._used_bytes > self._max_bytes:
                _, (_, gone) = self._held.popitem(last=False)
                self._used_bytes -= gone

    def _drop(self, name: Name) -> None:
        held = self._held.pop(name, None)
        if held is not None:
            self._used_bytes -= held[1]
