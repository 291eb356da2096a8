"""What a key is: the one check that every store makes before it touches anything.

A key is relative, `/`-separated text that means the same on a file system, in S3, GCS and Azure, in a URL and in XML.
Whatever one of them would normalise, decode or refuse is refused here, for all of them alike, so that a key can never
name two objects and two keys can never name one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from holdfast.errors import BadInput, InvalidKey

__all__ = [
    "KEY_BYTES_MAX",
    "RESERVED_PREFIX",
    "SEGMENT_BYTES_MAX",
    "check_key",
    "check_keys",
    "check_page_size",
    "check_prefix",
    "check_range",
    "leaves_scope",
]

KEY_BYTES_MAX = 1024
"""S3, GCS and Azure all stop here."""

SEGMENT_BYTES_MAX = 240
"""File systems stop at 255; the rest is room for decorations of tools that copy or back up a tree."""

RESERVED_PREFIX = ".holdfast-"
"""Segments that start like this are a store's own temporary files."""

# Nearly every key matches this, and one match is cheaper than the careful way. A segment here cannot be `.` or `..`.
_PLAIN = re.compile(r"[A-Za-z0-9_=-][A-Za-z0-9_=.-]{0,199}(?:/[A-Za-z0-9_=-][A-Za-z0-9_=.-]{0,199})*")

# `%2e`, `%2F`, `%5c`, `%00`..., encoded once or many times over (`%252e`): some server or proxy would decode them.
_ENCODED = re.compile(r"%(?:25)*(?:2e|2f|5c|7f|[01][0-9a-f])", re.IGNORECASE)

# Control characters, and the two code points that no XML listing can carry.
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\ufffe\uffff]")


def check_key(key: str) -> str:
    """The key itself, or InvalidKey with the reason."""
    # Text with a lone surrogate, a control character or a backslash never matches the plain form.
    if len(key) <= KEY_BYTES_MAX and _PLAIN.fullmatch(key) is not None:
        return key
    reason = _why_not(key)
    if reason is not None:
        raise InvalidKey(f"not a usable key: {key!r}: {reason}")
    return key


def check_keys(keys: Sequence[str]) -> None:
    """`check_key` of each. Plain keys, put one behind the other, are one plain key: mostly a single match does."""
    if keys and max(map(len, keys)) <= KEY_BYTES_MAX and _PLAIN.fullmatch("/".join(keys)) is not None:
        return
    for key in keys:
        check_key(key)


def check_prefix(prefix: str) -> str:
    """A folder without its trailing slash (`""` is the whole store), or InvalidKey."""
    folder = prefix[:-1] if prefix.endswith("/") and prefix != "/" else prefix
    return check_key(folder) if folder else folder


def check_range(start: int, length: int) -> None:
    """BadInput unless the range could exist; whether the object is long enough is another question."""
    if start < 0 or length < 0:
        raise BadInput(f"a range needs a start and a length of at least 0, not {start} and {length}")


def check_page_size(page_size: int) -> None:
    """BadInput unless a page can hold an object."""
    if page_size < 1:
        raise BadInput(f"a page needs room for at least one object, not {page_size}")


def leaves_scope(key: str) -> bool:
    """Whether the key tries to name something outside the folder it is relative to, in any spelling."""
    return (
        key.startswith(("/", "\\"))
        or "\\" in key
        or _ENCODED.search(key) is not None
        or any(segment in {".", ".."} for segment in key.split("/"))
    )


def _why_not(key: str) -> str | None:
    """The first reason why this is no key, or None."""
    if not key:
        return "it is empty"
    try:
        size = len(key.encode("utf-8"))
    except UnicodeEncodeError:
        return "it has a lone surrogate and cannot be written as UTF-8"
    if size > KEY_BYTES_MAX:
        return f"it has {size} bytes, more than {KEY_BYTES_MAX}"
    if key.startswith("/") or key.endswith("/"):
        return "it starts or ends with '/'"
    if "\\" in key:
        return "it has a backslash"
    if _UNPRINTABLE.search(key) is not None:
        return "it has a control character"
    if _ENCODED.search(key) is not None:
        return "it has a percent-encoded '.', '/', '\\' or control character"
    for segment in key.split("/"):
        if not segment:
            return "it has an empty segment"
        if segment in {".", ".."}:
            return f"it has a {segment!r} segment"
        if segment.startswith(RESERVED_PREFIX):
            return f"segments that start with {RESERVED_PREFIX!r} are reserved"
        if len(segment.encode("utf-8")) > SEGMENT_BYTES_MAX:
            return f"a segment has more than {SEGMENT_BYTES_MAX} bytes"
    return None
