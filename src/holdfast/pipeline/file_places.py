"""On which line of a TOML file a value is. The standard library's parser does not tell.

This is no second parser: the text must be one that `tomllib` has read. It only walks over headers, keys and values, as
the grammar separates them, and notes where each begins. Of a text it also notes on which line of the file each of its
own lines is, so that line 3 of a statement can be found, whatever quotes and escapes it is written with.
"""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass

from holdfast.pipeline.plan_problem import Where

__all__ = ["Place", "Places", "find_places"]

_BLANK = re.compile(r"(?:[ \t\n]|#[^\n]*)*")
_SPACE = re.compile(r"[ \t]*")
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_PLAIN = re.compile(r"[^,\]}#\n]*")
_LINE_BREAK_ESCAPE = re.compile(r"n|u000[aA]|U0000000[aA]")
_FOLD = re.compile(r"[ \t]*\n[ \t\n]*")


@dataclass(frozen=True, slots=True)
class Place:
    """The line of a key, or of an item of a list; of a text also the line of each of its lines."""

    line: int
    rows: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Places:
    """Where everything is."""

    by_path: Mapping[Where, Place]

    def line(self, where: Where, row: int = 0) -> int:
        """The line of a value, or of what it would be in if it is not there."""
        for length in range(len(where), 0, -1):
            place = self.by_path.get(where[:length])
            if place is not None:
                is_it = length == len(where)
                return place.rows[row - 1] if is_it and 0 < row <= len(place.rows) else place.line
        return 1


def find_places(text: str) -> Places:
    """Of a text that `tomllib` reads."""
    walk = _Walk(text.replace("\r\n", "\n"))
    walk.document()
    return Places(walk.places)


class _Walk:
    def __init__(self, text: str) -> None:
        self._text = text
        self._breaks = [at for at, one in enumerate(text) if one == "\n"]
        self._at = 0
        self._lists: dict[Where, int] = {}
        """Lists that are written as `[[name]]`, and the index of the last item."""
        self.places: dict[Where, Place] = {}

    def document(self) -> None:
        table: Where = ()
        self._skip(_BLANK)
        while self._at < len(self._text):
            line = self._line()
            if self._take("[["):
                table = self._header(self._keys(), appends=True)
                self._take("]]")
                self._note(table, line)
            elif self._take("["):
                table = self._header(self._keys(), appends=False)
                self._take("]")
                self._note(table, line)
            else:
                self._pair(table)
            self._skip(_BLANK)

    # -- names ---------------------------------------------------------------------------------------------------------

    def _header(self, keys: tuple[str, ...], *, appends: bool) -> Where:
        """A header's own path: a name that is a list means its last item, or a new one."""
        path: Where = ()
        for number, key in enumerate(keys, 1):
            path = (*path, key)
            if appends and number == len(keys):
                self._lists[path] = self._lists.get(path, -1) + 1
            if path in self._lists:
                path = (*path, self._lists[path])
        return path

    def _keys(self) -> tuple[str, ...]:
        keys = []
        while True:
            self._skip(_SPACE)
            start = self._at
            if self._text[start] in "\"'":
                self._string()
                keys.append(str(tomllib.loads(f"key = {self._text[start : self._at]}")["key"]))
            else:
                self._skip(_BARE)
                keys.append(self._text[start : self._at])
            self._skip(_SPACE)
            if not self._take("."):
                return tuple(keys)

    def _note(self, path: Where, line: int, rows: tuple[int, ...] = ()) -> None:
        """What says a value itself counts more than what only leads through it."""
        for length in range(1, len(path)):
            self.places.setdefault(path[:length], Place(line))
        self.places[path] = Place(line, rows)

    # -- values --------------------------------------------------------------------------------------------------------

    def _pair(self, table: Where) -> None:
        line = self._line()
        path = (*table, *self._keys())
        self._take("=")
        self._skip(_SPACE)
        self._value(path, line)

    def _value(self, path: Where, line: int) -> None:
        if self._text[self._at] in "\"'":
            self._note(path, line, self._string())
            return
        self._note(path, line)
        if self._take("["):
            self._skip(_BLANK)
            index = 0
            while not self._take("]"):
                self._value((*path, index), self._line())
                index += 1
                self._next()
        elif self._take("{"):
            self._skip(_BLANK)
            while not self._take("}"):
                self._pair(path)
                self._next()
        else:
            self._skip(_PLAIN)

    def _next(self) -> None:
        self._skip(_BLANK)
        self._take(",")
        self._skip(_BLANK)

    def _string(self) -> tuple[int, ...]:
        """Walk over a text; on which line of the file each of its lines is."""
        quote = self._text[self._at]
        is_long = self._take(quote * 3)
        if not is_long:
            self._take(quote)
        elif self._take("\n"):
            pass  # the first line break of a long text is not part of it
        end = quote * 3 if is_long else quote
        rows = [self._line()]
        while not self._take(end):
            if self._text[self._at] == "\\" and quote == '"':
                self._at += 1
                self._escape(rows)
            else:
                self._at += 1
                if self._text[self._at - 1] == "\n":
                    rows.append(self._line())
        for _ in range(2 if is_long else 0):
            self._take(quote)  # one or two quotes may stand before the three that end it
        return tuple(rows)

    def _escape(self, rows: list[int]) -> None:
        folded = _FOLD.match(self._text, self._at)
        if folded is not None:
            self._at = folded.end()
            return
        if _LINE_BREAK_ESCAPE.match(self._text, self._at):
            rows.append(self._line())
        self._at += 1

    # -- the text ------------------------------------------------------------------------------------------------------

    def _line(self) -> int:
        return bisect_right(self._breaks, self._at - 1) + 1

    def _skip(self, pattern: re.Pattern[str]) -> None:
        found = pattern.match(self._text, self._at)
        assert found is not None, f"the text at {self._at} is not what tomllib reads"
        self._at = found.end()

    def _take(self, word: str) -> bool:
        if not self._text.startswith(word, self._at):
            return False
        self._at += len(word)
        return True
