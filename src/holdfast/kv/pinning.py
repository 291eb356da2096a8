"""Which snapshot a reader is opened at: the head, or one that is named and stays (K14)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeVar

from holdfast.chain import Chain, Manifest, ReaderStatus, Refreshed, open_chain
from holdfast.chain.history import load_move_target, require_pointer, resolve
from holdfast.chain.reader import visible_since
from holdfast.chain.tags import find_snapshot
from holdfast.errors import BadInput, NotAChain

__all__ = ["Found", "Pinned", "Which", "chain_at"]

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A snapshot that was named, and what the pointer named meanwhile."""

    manifest: Manifest
    manifest_path: str
    head_id: int
    head_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Which:
    """At most one way to name a snapshot; none means the head."""

    ref: str | None = None
    run_id: str | None = None
    offset: int | None = None
    tag: tuple[str, str] | None = None
    at: datetime | None = None

    def __post_init__(self) -> None:
        given = [name for name in ("ref", "run_id", "offset", "tag", "at") if getattr(self, name) is not None]
        if len(given) > 1:
            raise BadInput(f"give one of ref, run_id, offset, tag and at, not {' and '.join(given)}")
        if self.tag is not None and len(self.tag) != 2:
            raise BadInput(f"a tag is a pair of name and value, not {self.tag!r}")
        if self.at is not None and self.at.tzinfo is None:
            raise BadInput("the time needs a zone: datetime(…, tzinfo=UTC)")

    def __bool__(self) -> bool:
        return self != _HEAD

    def find(self, chain: Chain) -> Found:
        """The snapshot that is named, from the history: one that was never visible is not there (S11)."""
        handle = chain.handle
        pointer = require_pointer(handle).pointer
        if self.tag is not None:
            move = find_snapshot(handle, pointer, *self.tag)
        else:
            move = resolve(handle, pointer, ref=self.ref, run_id=self.run_id, offset=self.offset, at=self.at)
        return Found(
            manifest=load_move_target(handle, move),
            manifest_path=move.manifest_path,
            head_id=pointer.manifest_id,
            head_at=visible_since(pointer),
        )


_HEAD = Which()


def chain_at(place: str | Chain) -> Chain:
    """The KV chain that a caller means."""
    chain = open_chain(place, layout="kv") if isinstance(place, str) else place
    if chain.layout.name != "kv":
        raise NotAChain(
            f"{chain.store.url!r} is opened as a {chain.layout.name} chain: a key-value data set is a kv one"
        )
    return chain


class Pinned(Generic[_T]):
    """Stands where a chain's reader would, for a snapshot that stays."""

    def __init__(self, chain: Chain, found: Found, resource: _T) -> None:
        self._found = found
        self._clock = chain.handle.clock
        self._checked_at = self._clock.now()
        self.resource = resource

    def refresh(self) -> Refreshed:
        return Refreshed.UNCHANGED

    def status(self) -> ReaderStatus:
        manifest = self._found.manifest
        behind = self._found.head_id != manifest.manifest_id
        since_s = (self._clock.now() - self._found.head_at).total_seconds()
        return ReaderStatus(
            served_id=manifest.manifest_id,
            served_path=self._found.manifest_path,
            served_published_at=manifest.published_at,
            head_id=self._found.head_id,
            fell_back=False,
            skipped=(),
            checked_at=self._checked_at,
            staleness_s=max(0.0, since_s) if behind else 0.0,
        )

    def close(self) -> None:
        """Nothing is held here."""
