"""How far a domain's ledger is folded: what the domain's visible manifest says, asked cheaply and often.

Asking again costs one conditional GET without a body while nothing was published. What cannot be read counts as not
moved: a damaged manifest stops no append until the limit of what may wait is reached (C25).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from holdfast.chain.ids import is_ulid
from holdfast.chain.layout import Layout
from holdfast.chain.legacy import decode_any_manifest
from holdfast.chain.pointer import Pointer
from holdfast.clock import Clock
from holdfast.errors import CorruptRecord, Damaged, ObjectNotFound
from holdfast.storage.capabilities import Reader
from holdfast.storage.objects import Version

__all__ = ["EVENT_WATERMARK", "POSITION_WATERMARK", "Watermark", "WatermarkReader"]

POSITION_WATERMARK = "position_watermark"
EVENT_WATERMARK = "watermark_event_id"
"""Fields of a domain manifest: the highest position that is folded into it, and that event's id (C6)."""

AGE_MAX_S_DEFAULT = 1.0

_log = logging.getLogger("holdfast.ledger")


@dataclass(frozen=True, slots=True, kw_only=True)
class Watermark:
    """Everything up to here is folded, as far as the fold was told of it."""

    position: int = 0
    event_id: str | None = None

    @classmethod
    def of(cls, payload: Mapping[str, object], *, key: str) -> Watermark:
        """What a manifest says; nothing is folded where it says nothing."""
        position, event_id = payload.get(POSITION_WATERMARK, 0), payload.get(EVENT_WATERMARK)
        if type(position) is not int or position < 0:
            raise CorruptRecord(key, f"field {POSITION_WATERMARK!r} should be a whole number")
        if event_id is not None and not (isinstance(event_id, str) and is_ulid(event_id)):
            raise CorruptRecord(key, f"field {EVENT_WATERMARK!r} should be a ULID")
        return cls(position=position, event_id=event_id)


class WatermarkReader:
    """Knows the watermark of one domain. Safe for many threads."""

    def __init__(self, read: Reader, layout: Layout, *, clock: Clock, age_max_s: float = AGE_MAX_S_DEFAULT) -> None:
        self._read = read
        self._layout = layout
        self._clock = clock
        self._age_max_s = age_max_s
        self._lock = threading.Lock()
        self._known = Watermark()
        self._version: Version | None = None
        self._asked_at: datetime | None = None

    def known(self) -> Watermark:
        """What was true a moment ago; asks again if that is longer ago, by a clock that may have gone back."""
        with self._lock:
            asked_at = self._asked_at
        if asked_at is None or abs((self._clock.now() - asked_at).total_seconds()) > self._age_max_s:
            return self.refresh()
        return self._known

    def refresh(self) -> Watermark:
        """What is true now."""
        with self._lock:
            try:
                self._look()
            except (Damaged, ObjectNotFound) as error:
                self._version = None
                _log.warning("the watermark of %s cannot be read, so it has not moved: %s", self._layout.name, error)
            self._asked_at = self._clock.now()
            return self._known

    def _look(self) -> None:
        key = self._layout.pointer_key
        try:
            stored = self._read.get(key) if self._version is None else self._read.get_if_changed(key, self._version)
        except ObjectNotFound:
            self._version = None
            self._look_at_mirror()
            return
        if stored is None:
            return
        pointer = Pointer.decode(stored.data, key=key, id_field=self._layout.id_field)
        if pointer.publishing == "legacy":
            self._look_at_mirror()  # and at the pointer again the next time: the mirror moves without it
            self._version = None
            return
        self._take(pointer.manifest_path)
        self._version = stored.version

    def _look_at_mirror(self) -> None:
        """Where no pointer is there yet, or publishing is switched back, the legacy path is what is visible (S26)."""
        if self._layout.mirror_key is None:
            return
        try:
            self._take(self._layout.mirror_key)
        except ObjectNotFound:
            self._known = Watermark()

    def _take(self, key: str) -> None:
        manifest = decode_any_manifest(self._read.get(key).data, key=key, names=self._layout.names)
        self._known = Watermark.of(manifest.payload, key=key)
