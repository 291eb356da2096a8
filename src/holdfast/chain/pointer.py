"""The pointer: the one mutable record of a chain, and the head of its log of moves (S8).

A pointer carries its newest moves, each with everything `history`, `status` and the collector ask for, so that a commit
and the record of it are one compare-and-swap: there is no moment at which a snapshot was visible and nobody knows.
Older moves are in immutable segments of `MOVES_PER_SEGMENT` that whoever moves the pointer writes first
(`holdfast.chain.moves`).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum

from holdfast.chain.ids import format_manifest_id, is_ulid, parse_manifest_id, ulid_at
from holdfast.clock import format_time
from holdfast.codec import Fields, Json, encode_record, format_stamp, snake_cased
from holdfast.errors import CorruptRecord

__all__ = ["MAKES_VISIBLE", "IdSet", "Move", "MoveKind", "PendingCollection", "Pointer", "PointerIdField"]

_OLD_PATH = "manifestPath"


class MoveKind(StrEnum):
    """Why the pointer was written."""

    PUBLISH = "publish"
    ROLLBACK = "rollback"
    FORWARD = "forward"
    ADOPT = "adopt"
    """A legacy manifest became the first snapshot of the chain."""
    FENCE = "fence"
    """Same target: writers that read the pointer before this must read it again."""
    COLLECT = "collect"
    RESTORE = "restore"
    PURGE = "purge"
    SWITCH = "switch"
    """Publishing was switched between the pointer and the legacy path (S45)."""


MAKES_VISIBLE = frozenset({MoveKind.PUBLISH, MoveKind.ADOPT})
"""Moves by which a manifest becomes visible for the first time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One write of the pointer: from, to, when, who, why."""

    sequence: int
    kind: MoveKind
    commit_ulid: str
    source_id: int | None
    target_id: int
    manifest_path: str
    manifest_hash: str
    run_id: str
    epoch: int
    at: datetime
    by: str
    why: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    unknown: Mapping[str, object] = field(default_factory=dict)
    _json: Json | None = field(default=None, init=False, repr=False, compare=False)

    def to_json(self) -> Json:
        """Made once: until it is settled in the log, a move is written again with every write of the pointer."""
        made = self._json
        if made is None:
            made = self._make_json()
            object.__setattr__(self, "_json", made)
        return made

    def _make_json(self) -> Json:
        record: Json = {
            "sequence": self.sequence,
            "kind": self.kind.value,
            "commit_ulid": self.commit_ulid,
            "from": None if self.source_id is None else format_manifest_id(self.source_id),
            "to": format_manifest_id(self.target_id),
            "manifest_path": self.manifest_path,
            "manifest_hash": self.manifest_hash,
            "run_id": self.run_id,
            "epoch": self.epoch,
            "at": format_time(self.at),
            "by": self.by,
            "why": self.why,
        }
        if self.tags:
            record["tags"] = dict(self.tags)
        return record | dict(self.unknown)

    @classmethod
    def from_fields(cls, fields: Fields) -> Move:
        kind = fields.text("kind")
        source = fields.optional_text("from")
        try:
            return cls(
                sequence=fields.number("sequence"),
                kind=MoveKind(kind),
                commit_ulid=_ulid(fields),
                source_id=None if source is None else parse_manifest_id(source),
                target_id=parse_manifest_id(fields.text("to")),
                manifest_path=fields.text("manifest_path"),
                manifest_hash=fields.text("manifest_hash"),
                run_id=fields.text("run_id"),
                epoch=fields.number("epoch"),
                at=fields.time("at"),
                by=fields.text("by"),
                why=fields.text("why"),
                tags=fields.text_mapping("tags"),
                unknown=fields.rest(),
            )
        except ValueError as error:
            raise CorruptRecord(fields.key, f"a move cannot be read: {error}") from None


@dataclass(frozen=True, slots=True)
class IdSet:
    """A set of manifest ids kept as ranges: collected ids are dense, so this stays small however long the history."""

    ranges: tuple[tuple[int, int], ...] = ()
    """First and last id of each, ascending, not touching."""

    def __contains__(self, manifest_id: int) -> bool:
        position = bisect_right(self.ranges, manifest_id, key=_first)
        return position > 0 and manifest_id <= self.ranges[position - 1][1]

    def __len__(self) -> int:
        return sum(last - first + 1 for first, last in self.ranges)

    def add(self, ids: Iterable[int]) -> IdSet:
        spans = sorted([*self.ranges, *((number, number) for number in ids)])
        merged: list[tuple[int, int]] = []
        for first, last in spans:
            if merged and first <= merged[-1][1] + 1:
                merged[-1] = (merged[-1][0], max(merged[-1][1], last))
            else:
                merged.append((first, last))
        return IdSet(tuple(merged))

    def remove(self, ids: Iterable[int]) -> IdSet:
        out = sorted(set(ids))
        kept: list[tuple[int, int]] = []
        for first, last in self.ranges:
            start = first
            for number in out[bisect_left(out, first) : bisect_right(out, last)]:
                if start < number:
                    kept.append((start, number - 1))
                start = number + 1
            if start <= last:
                kept.append((start, last))
        return IdSet(tuple(kept))

    @classmethod
    def from_json(cls, pairs: object, *, key: str) -> IdSet:
        spans = []
        for pair in pairs if isinstance(pairs, list) else [None]:
            match pair:
                case [int(first), int(last)] if 0 <= first <= last:
                    spans.append((first, last))
                case _:
                    raise CorruptRecord(key, "field 'collected' should be a list of [first, last] ids")
        return cls(tuple(spans)).add(())


def _first(span: tuple[int, int]) -> int:
    return span[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingCollection:
    """A collection that can still be restored, or that a purge has begun to delete."""

    collection: str
    at: datetime
    purging: bool = False
    unknown: Mapping[str, object] = field(default_factory=dict)

    def to_json(self) -> Json:
        return {"collection": self.collection, "at": format_time(self.at), "purging": self.purging, **self.unknown}

    @classmethod
    def from_fields(cls, fields: Fields) -> PendingCollection:
        return cls(
            collection=fields.text("collection"),
            at=fields.time("at"),
            purging=fields.rest().pop("purging", False) is True,
            unknown=fields.rest(),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PointerIdField:
    """How a layout names and spells the visible manifest's id in its pointer."""

    name: str = "manifest_id"
    as_number: bool = False

    def encode(self, manifest_id: int) -> object:
        return manifest_id if self.as_number else format_manifest_id(manifest_id)

    def take(self, fields: Fields) -> int:
        if self.as_number:
            return fields.number(self.name)
        text = fields.text(self.name)
        try:
            return parse_manifest_id(text)
        except ValueError as error:
            raise CorruptRecord(fields.key, str(error)) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pointer:
    """What is visible, and the newest moves that made it so."""

    manifest_id: int
    manifest_path: str
    manifest_hash: str
    epoch: int
    sequence: int
    high_water_id: int
    commit_ulid: str
    """The ULID of the newest move. A publish gives its manifest the same one; every later ULID is greater."""
    updated_at: datetime
    moves: tuple[Move, ...]
    """The newest moves, oldest first, without a gap up to `sequence`."""
    log_hash: str | None = None
    """Hash of the newest segment of older moves; each segment has the hash of the one before."""
    counters: Mapping[str, int] = field(default_factory=dict)
    collected: IdSet = IdSet()
    """Ids of snapshots that were collected (and perhaps purged): no longer history, never to be pointed to."""
    collections: tuple[PendingCollection, ...] = ()
    publishing: str = "pointer"
    """`legacy` while this chain is switched to legacy-only writes (S45)."""
    unknown: Mapping[str, object] = field(default_factory=dict)

    @property
    def last_move(self) -> Move:
        return self.moves[-1]

    def moved(self, move: Move, **changes: object) -> Pointer:
        """The pointer after `move`. Every write goes through here: none can forget the sequence (I2) or the log."""
        return replace(
            self,
            manifest_id=move.target_id,
            manifest_path=move.manifest_path,
            manifest_hash=move.manifest_hash,
            epoch=move.epoch,
            sequence=move.sequence,
            high_water_id=max(self.high_water_id, move.target_id),
            commit_ulid=move.commit_ulid,
            updated_at=move.at,
            moves=(*self.moves, move),
            **changes,  # type: ignore[arg-type]
        )

    def encode(self, id_field: PointerIdField) -> bytes:
        record: Json = {
            "format": format_stamp("pointer"),
            id_field.name: id_field.encode(self.manifest_id),
            "manifest_path": self.manifest_path,
            "manifest_hash": self.manifest_hash,
            "epoch": self.epoch,
            "sequence": self.sequence,
            "high_water_id": self.high_water_id,
            "commit_ulid": self.commit_ulid,
            "updated_at": format_time(self.updated_at),
            "publishing": self.publishing,
            "counters": dict(self.counters),
            "collected": [list(span) for span in self.collected.ranges],
            "collections": [pending.to_json() for pending in self.collections],
            "log_hash": self.log_hash,
            "moves": [move.to_json() for move in self.moves],
        }
        return encode_record(record | dict(self.unknown))

    @classmethod
    def decode(cls, data: bytes, *, key: str, id_field: PointerIdField) -> Pointer:
        """Parse and check a pointer: its own fields must agree with its newest move."""
        fields = Fields.decode(data, key=key, kind=None)
        if fields.is_old and _OLD_PATH in fields.rest():
            return cls._decode_old(fields, key=key, id_field=id_field)
        fields.check_format("pointer")
        return cls._of_fields(fields, key=key, id_field=id_field)

    @classmethod
    def _decode_old(cls, fields: Fields, *, key: str, id_field: PointerIdField) -> Pointer:
        """A pointer of an older release: in camelCase, and perhaps without hash or moves (C4).

        It is told as if its manifest had just been adopted, at its own time, so that everybody who reads it tells the
        same; the next write of it is one of today's. A hash that it does not have is empty: whoever builds on the
        manifest takes it from the bytes (`handle.py`).
        """
        rest = snake_cased(fields.rest())
        if isinstance(number := rest.get(id_field.name), int) and not id_field.as_number:
            rest[id_field.name] = format_manifest_id(number) if number >= 0 else number
        if not rest.get("moves"):
            rest = _as_adopted(Fields(rest, key=key), id_field)
        return cls._of_fields(Fields(rest, key=key, is_old=True), key=key, id_field=id_field)

    @classmethod
    def _of_fields(cls, fields: Fields, *, key: str, id_field: PointerIdField) -> Pointer:
        collected = IdSet.from_json(fields.rest().pop("collected", []), key=key)
        pointer = cls(
            manifest_id=id_field.take(fields),
            manifest_path=fields.text("manifest_path"),
            manifest_hash=fields.text("manifest_hash"),
            epoch=fields.number("epoch"),
            sequence=fields.number("sequence"),
            high_water_id=fields.number("high_water_id"),
            commit_ulid=_ulid(fields),
            updated_at=fields.time("updated_at"),
            moves=fields.records("moves", Move.from_fields),
            log_hash=fields.optional_text("log_hash"),
            counters=fields.number_mapping("counters"),
            collected=collected,
            collections=fields.records("collections", PendingCollection.from_fields),
            publishing=fields.optional_text("publishing") or "pointer",
            unknown=fields.rest(),
        )
        for problem in pointer.contradictions():
            raise CorruptRecord(key, problem)
        return pointer

    def contradictions(self) -> list[str]:
        """Where the pointer disagrees with itself. Read after every read, and by `verify`."""
        if not self.moves:
            return ["it has no moves"]
        found = []
        newest = self.moves[-1]
        if newest.sequence != self.sequence or newest.commit_ulid != self.commit_ulid or newest.epoch != self.epoch:
            found.append(f"its newest move is {newest.sequence}, but its sequence is {self.sequence}")
        if (newest.target_id, newest.manifest_path, newest.manifest_hash) != (
            self.manifest_id,
            self.manifest_path,
            self.manifest_hash,
        ):
            found.append("its newest move leads to another manifest than it names")
        if self.high_water_id < max(move.target_id for move in self.moves):
            found.append(f"its high-water id {self.high_water_id} is below an id it has published")
        if self.manifest_id in self.collected:
            found.append(f"it names snapshot {self.manifest_id}, which it says was collected")
        return found + broken_succession(self.moves)


def broken_succession(moves: Iterable[Move]) -> list[str]:
    """What consecutive moves break: no gap in sequences, ULIDs that grow, epochs that do not fall, ids used once."""
    found = []
    previous: Move | None = None
    for move in moves:
        if previous is not None:
            if move.sequence != previous.sequence + 1:
                found.append(f"move {move.sequence} follows move {previous.sequence}: there is a gap")
            if move.commit_ulid <= previous.commit_ulid:
                found.append(f"move {move.sequence} has a ULID that is not greater than the one before")
            if move.epoch < previous.epoch:
                found.append(f"move {move.sequence} has epoch {move.epoch}, below {previous.epoch}")
            if move.source_id != previous.target_id:
                found.append(
                    f"move {move.sequence} starts at {move.source_id}, but the pointer was at {previous.target_id}"
                )
        if move.kind is MoveKind.PUBLISH and move.source_id is not None and move.target_id <= move.source_id:
            found.append(f"move {move.sequence} publishes id {move.target_id}, not greater than {move.source_id}")
        previous = move
    return found


def _as_adopted(fields: Fields, id_field: PointerIdField) -> Json:
    """The fields of a pointer that has one move, which led to what it names."""
    manifest_id, path, at = id_field.take(fields), fields.text("manifest_path"), fields.time("updated_at")
    move = Move(
        sequence=0,
        kind=MoveKind.ADOPT,
        commit_ulid=fields.optional_text("commit_ulid") or ulid_at(at),
        source_id=None,
        target_id=manifest_id,
        manifest_path=path,
        manifest_hash=fields.optional_text("manifest_hash") or "",
        run_id="legacy",
        epoch=fields.optional_number("epoch") or 0,
        at=at,
        by="legacy",
        why="written by an older release",
    )
    return {
        **fields.rest(),
        id_field.name: id_field.encode(manifest_id),
        "manifest_path": path,
        "manifest_hash": move.manifest_hash,
        "epoch": move.epoch,
        "sequence": 0,
        "high_water_id": max(fields.optional_number("high_water_id") or 0, manifest_id),
        "commit_ulid": move.commit_ulid,
        "updated_at": format_time(at),
        "moves": [move.to_json()],
    }


def _ulid(fields: Fields) -> str:
    text = fields.text("commit_ulid")
    if not is_ulid(text):
        raise CorruptRecord(fields.key, f"commit_ulid {text!r} is not a ULID")
    return text
