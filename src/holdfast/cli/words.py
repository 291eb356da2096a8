"""What people read and type: durations, sizes, times, counts."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from holdfast.errors import BadInput

__all__ = [
    "age_text",
    "count",
    "duration_text",
    "parse_duration",
    "shorten",
    "size_text",
    "tags_text",
    "time_text",
    "took_text",
]

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?[smhdw])+")
_PIECE = re.compile(r"(\d+(?:\.\d+)?)([smhdw])")


def parse_duration(text: str, *, name: str = "duration") -> float:
    """Seconds from `7d`, `12h`, `30m`, `0s` or `1d12h`."""
    if not _DURATION.fullmatch(text.strip()):
        raise BadInput(f"{name} {text!r} is not a duration: use a number with a unit, as in 7d, 12h, 30m or 0s")
    return sum(float(number) * _SECONDS[unit] for number, unit in _PIECE.findall(text))


def duration_text(seconds: float) -> str:
    """The largest whole unit that says it exactly: `7d`, `36h`, `90s`."""
    for unit in ("d", "h", "m"):
        if seconds and seconds % _SECONDS[unit] == 0:
            return f"{int(seconds // _SECONDS[unit])}{unit}"
    return f"{seconds:g}s"


def took_text(seconds: float) -> str:
    """How long something took, as precisely as anybody cares."""
    return f"{seconds:.1f} s" if seconds < 60 else f"{seconds // 60:.0f} min {seconds % 60:.0f} s"


def age_text(seconds: float) -> str:
    """Roughly, in the one or two units that tell: `40 s`, `12 min`, `3 h 20 min`, `5 d 2 h`."""
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole} s"
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if hours < 1:
        return f"{minutes} min"
    if days < 1:
        return f"{hours} h" + (f" {minutes % 60} min" if minutes % 60 else "")
    return f"{days:,} d" + (f" {hours % 24} h" if hours % 24 else "")


def size_text(size: int) -> str:
    """`512 B`, `1.5 KiB`, `2.0 GiB`."""
    if size < 1024:
        return f"{size} B"
    value = float(size)
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        value /= 1024
        if value < 1024:
            return f"{value:.1f} {unit}"
    return f"{value / 1024:.1f} PiB"


def time_text(moment: datetime) -> str:
    """UTC, to the second. The table's head says that it is UTC."""
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def count(number: int, noun: str) -> str:
    """`1 snapshot`, `2 snapshots`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def tags_text(tags: dict[str, str]) -> str:
    return " ".join(f"{name}={value}" for name, value in sorted(tags.items()))


def shorten(text: str, width: int, *, keep: str = "start") -> str:
    """`text` in at most `width` characters: its start, its end, or both ends around an ellipsis."""
    if len(text) <= width:
        return text
    if width <= 1:
        return text[:width]
    if keep == "end":
        return "…" + text[len(text) - width + 1 :]
    if keep == "middle":
        head = width // 2
        return text[:head] + "…" + text[len(text) - (width - head - 1) :]
    return text[: width - 1] + "…"
