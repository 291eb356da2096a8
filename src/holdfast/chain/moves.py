"""The log of moves: the newest inside the pointer, older ones in immutable segments.

Segment `n` holds the moves with sequences `n * MOVES_PER_SEGMENT` up to, but not including, `(n + 1) *
MOVES_PER_SEGMENT`. A sequence therefore says where its move is, and nothing is listed. Whoever would let the pointer
grow past two segments' worth writes the older segment first, "must not exist"; what it holds is settled, so two writers
of it write the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from holdfast.chain.handle import ChainHandle
from holdfast.chain.pointer import Move, Pointer
from holdfast.codec import Fields, content_hash, encode_record, format_stamp
from holdfast.errors import AlreadyExists, CorruptRecord, ObjectNotFound

__all__ = [
    "MOVES_PER_SEGMENT",
    "MoveSegment",
    "find_move",
    "find_ulid",
    "moves_newest_first",
    "read_hashed_segment",
    "read_segment",
    "shorten",
]

MOVES_PER_SEGMENT = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveSegment:
    """One immutable piece of the log."""

    segment: int
    previous_hash: str | None
    moves: tuple[Move, ...]

    def encode(self) -> bytes:
        return encode_record(
            {
                "format": format_stamp("moves"),
                "segment": self.segment,
                "previous_hash": self.previous_hash,
                "moves": [move.to_json() for move in self.moves],
            }
        )

    @classmethod
    def decode(cls, data: bytes, *, key: str, segment: int) -> MoveSegment:
        fields = Fields.decode(data, key=key, kind="moves")
        found = cls(
            segment=fields.number("segment"),
            previous_hash=fields.optional_text("previous_hash"),
            moves=fields.records("moves", Move.from_fields),
        )
        if found.segment != segment or [move.sequence for move in found.moves] != list(sequences_of(segment)):
            raise CorruptRecord(key, f"it does not hold exactly the moves of segment {segment}")
        return found


def sequences_of(segment: int) -> range:
    return range(segment * MOVES_PER_SEGMENT, (segment + 1) * MOVES_PER_SEGMENT)


def shorten(handle: ChainHandle, pointer: Pointer) -> Pointer:
    """The pointer with its oldest full segment moved into the log, if it has grown to two segments' worth of moves."""
    if len(pointer.moves) < 2 * MOVES_PER_SEGMENT:
        return pointer
    segment = pointer.moves[0].sequence // MOVES_PER_SEGMENT
    settled = MoveSegment(segment=segment, previous_hash=pointer.log_hash, moves=pointer.moves[:MOVES_PER_SEGMENT])
    key = handle.layout.moves_key(segment)
    data = settled.encode()
    try:
        handle.records.put_new(key, data)
    except AlreadyExists:
        data = handle.records.get(key).data  # another mover was first, perhaps with another spelling of the same moves
        found = MoveSegment.decode(data, key=key, segment=segment)
        if (found.moves, found.previous_hash) != (settled.moves, settled.previous_hash):
            raise CorruptRecord(key, "it disagrees with the pointer about moves that are settled") from None
    return replace(pointer, moves=pointer.moves[MOVES_PER_SEGMENT:], log_hash=content_hash(data))


def read_segment(handle: ChainHandle, segment: int) -> MoveSegment:
    return read_hashed_segment(handle, segment)[0]


def read_hashed_segment(handle: ChainHandle, segment: int) -> tuple[MoveSegment, str]:
    """A segment, and what its bytes hash to: what the next one must say of it."""
    key = handle.layout.moves_key(segment)
    try:
        data = handle.records.get(key).data
    except ObjectNotFound:
        raise CorruptRecord(key, "a segment of the move log is missing") from None
    return MoveSegment.decode(data, key=key, segment=segment), content_hash(data)


def moves_newest_first(handle: ChainHandle, pointer: Pointer, *, down_to: int = 0) -> Iterator[Move]:
    """Every move with a sequence of at least `down_to`; reads a segment only when it is reached."""
    yield from (move for move in reversed(pointer.moves) if move.sequence >= down_to)
    for segment in range(pointer.moves[0].sequence // MOVES_PER_SEGMENT - 1, down_to // MOVES_PER_SEGMENT - 1, -1):
        yield from (move for move in reversed(read_segment(handle, segment).moves) if move.sequence >= down_to)


def find_move(handle: ChainHandle, pointer: Pointer, sequence: int) -> Move | None:
    """The move with this sequence, or None if the pointer has not come to it yet. At most one read."""
    if sequence > pointer.sequence:
        return None
    first = pointer.moves[0].sequence
    if sequence >= first:
        return pointer.moves[sequence - first]
    return read_segment(handle, sequence // MOVES_PER_SEGMENT).moves[sequence % MOVES_PER_SEGMENT]


def find_ulid(handle: ChainHandle, pointer: Pointer, commit_ulid: str) -> Move | None:
    """The move with this ULID, or None. ULIDs grow with sequences, so older segments are searched by halving."""
    moves = pointer.moves
    if commit_ulid < moves[0].commit_ulid:
        low, high = 0, moves[0].sequence // MOVES_PER_SEGMENT - 1
        moves = ()
        while low <= high:  # halves at each turn
            middle = (low + high) // 2
            candidate = read_segment(handle, middle).moves
            if commit_ulid < candidate[0].commit_ulid:
                high = middle - 1
            elif commit_ulid > candidate[-1].commit_ulid:
                low = middle + 1
            else:
                moves = candidate
                break
    return next((move for move in moves if move.commit_ulid == commit_ulid), None)
