"""Ids that only grow: manifest ids and commit ULIDs."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from holdfast.clock import Clock, Randomness

__all__ = [
    "MANIFEST_ID_DIGITS",
    "ULID_LAST",
    "format_manifest_id",
    "is_ulid",
    "next_ulid",
    "parse_manifest_id",
    "ulid_at",
    "ulid_time",
]

MANIFEST_ID_DIGITS = 20
ULID_LAST = "7" + "Z" * 25

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"  # Crockford's base 32: text order is numeric order
_AS_PYTHON_READS_IT = str.maketrans(_ALPHABET, "0123456789abcdefghijklmnopqrstuv")
_ULID = re.compile(f"[0-7][{_ALPHABET}]{{25}}")
_ULID_LENGTH = 26
_RANDOM_BITS = 80
_STEP_BITS = 64
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ULID_MAX = (1 << 128) - 1


def format_manifest_id(number: int) -> str:
    """20 digits, zero-padded, so that text order is numeric order (S1)."""
    if number < 0 or number >= 10**MANIFEST_ID_DIGITS:
        raise ValueError(f"manifest id out of range: {number}")
    return f"{number:0{MANIFEST_ID_DIGITS}d}"


def parse_manifest_id(text: str) -> int:
    """The inverse of `format_manifest_id`; any other spelling is a ValueError."""
    if len(text) != MANIFEST_ID_DIGITS or not (text.isascii() and text.isdigit()):
        raise ValueError(f"not a manifest id: {text!r} (expected {MANIFEST_ID_DIGITS} digits)")
    return int(text)


def is_ulid(text: str) -> bool:
    """Whether `text` is a ULID in its one canonical spelling."""
    return _ULID.fullmatch(text) is not None


def next_ulid(clock: Clock, randomness: Randomness, *, after: str | None) -> str:
    """A new ULID that is greater than `after` even when the clock has gone backwards (S18).

    Then it is `after` + 1 and a random step: two writers whose clocks are behind must not both take the same next one,
    or the loser would find "its own" ULID in the pointer and believe that it committed (I8).
    """
    milliseconds = max(0, int(clock.now().timestamp() * 1000))  # a clock before 1970 is behind like any other
    fresh = (milliseconds << _RANDOM_BITS) | randomness.bits(_RANDOM_BITS)
    if after is not None and fresh <= (previous := _decode(after)):
        fresh = max(previous + 1, min(previous + 1 + randomness.bits(_STEP_BITS), _ULID_MAX))
    return _encode(fresh)


def ulid_at(moment: datetime) -> str:
    """The first ULID of a moment: for what happened then and was given none. Below every other one of that moment."""
    return _encode(max(0, int(moment.timestamp() * 1000)) << _RANDOM_BITS)


def ulid_time(ulid: str) -> datetime:
    """The time in a ULID, to the millisecond: what its maker's clock said, or later where that was behind."""
    return _EPOCH + timedelta(milliseconds=_decode(ulid) >> _RANDOM_BITS)


def _encode(number: int) -> str:
    if not 0 <= number <= _ULID_MAX:
        raise ValueError(f"ULID out of range: {number}")
    characters = []
    for _ in range(_ULID_LENGTH):
        number, digit = divmod(number, 32)
        characters.append(_ALPHABET[digit])
    return "".join(reversed(characters))


def _decode(text: str) -> int:
    if not is_ulid(text):
        raise ValueError(f"not a ULID: {text!r}")
    return int(text.translate(_AS_PYTHON_READS_IT), 32)
