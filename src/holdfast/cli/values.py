"""How keys and values look: as JSON that programs read back, and as text on a terminal.

bytes                         {"base64": …}         text if it is printable UTF-8, else 0x and hex
dates, times, UUIDs, decimals text, ISO 8601        the same
NaN and the infinities        "NaN", "Infinity", …  the same: JSON has no numbers for them
maps                          a list of pairs       the same
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Mapping
from datetime import timedelta

__all__ = ["json_text", "json_value", "key_text", "value_text"]


def json_value(value: object) -> object:
    """A value as `--json` spells it."""
    return _spelled(value, lambda data: {"base64": base64.b64encode(data).decode()})


def value_text(value: object) -> str:
    """A value on one line, for people. Nothing in it can move a terminal's cursor."""
    if isinstance(value, bytes):
        return _bytes_text(value)
    if isinstance(value, str):
        return _printable(value)
    plain = _spelled(value, _bytes_text)
    return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)


def json_text(value: object) -> str:
    """A JSON value over several lines, for people."""
    return _printable(json.dumps(_spelled(value, _bytes_text), ensure_ascii=False, indent=2), keep="\n")


def key_text(key: object) -> str:
    """A key as it is typed."""
    return ",".join(map(value_text, key)) if isinstance(key, tuple) else value_text(key)


def _spelled(value: object, spell_bytes: Callable[[bytes], object]) -> object:
    """A value in what JSON has."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else _NO_NUMBERS[str(value)]
        case bytes():
            return spell_bytes(value)
        case Mapping():
            return {str(name): _spelled(one, spell_bytes) for name, one in value.items()}
        case list() | tuple():
            return [_spelled(one, spell_bytes) for one in value]
        case timedelta():
            return f"{value.total_seconds():.6f}s"
        case _:
            isoformat = getattr(value, "isoformat", None)
            return str(value) if isoformat is None else str(isoformat())


_NO_NUMBERS = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def _bytes_text(data: bytes) -> str:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return f"0x{data.hex()}"
    return text if text.isprintable() else f"0x{data.hex()}"


def _printable(text: str, *, keep: str = "") -> str:
    """Text with everything that a terminal would not show as a character spelled out, as Python would."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one in keep else one.encode("unicode_escape").decode() for one in text)
