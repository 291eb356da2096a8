"""On which line of a TOML file a value is, however it is spelled."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.pipeline.file_places import find_places
from holdfast.pipeline.plan_problem import Where
from tests.pipeline.golden import BAD, GOOD

ODD = '''\
# [not.here]
"quoted key" = 1
'single "key"' = 2
"esc\\u0061ped" = 3
a . "b.c" . d = """
one
two \\

    three\\nfour \\\\n
five\\u000Asix""""
e = \'\'\'first
second\\n
third\'\'\'
[x]  # [no]
list = [ # comment, ]
  {p = 1, q.r = [1,
  2], "s]" = "},]"},
  "text, ]", \'#\',

  2026-01-02 10:00:00,
]  # done
empty = []
none = {}
short = "a\\nb"
[[x.items]]
k = \'a\'
[[x.items]]  # [[x.no]]
k = 1
[x.items.sub]
deep = true
[x.y.z]
w = """x"""
[x.y]
v = -1e5
'''


def paths(value: object, where: Where = ()) -> Iterator[tuple[Where, object]]:
    """Every path of a document, and what lies there."""
    if where:
        yield where, value
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from paths(inner, (*where, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from paths(inner, (*where, index))


def test_odd_spellings_are_found() -> None:
    """C30: quoted and dotted keys, inline tables, lists of tables, long texts, comments."""
    places = find_places(ODD)
    lines = {where: places.line(where) for where in places.by_path}
    assert lines == {
        ("quoted key",): 2, ('single "key"',): 3, ("escaped",): 4,
        ("a",): 5, ("a", "b.c"): 5, ("a", "b.c", "d"): 5, ("e",): 11,
        ("x",): 14, ("x", "list"): 15,
        ("x", "list", 0): 16, ("x", "list", 0, "p"): 16, ("x", "list", 0, "q"): 16, ("x", "list", 0, "q", "r"): 16,
        ("x", "list", 0, "q", "r", 0): 16, ("x", "list", 0, "q", "r", 1): 17, ("x", "list", 0, "s]"): 17,
        ("x", "list", 1): 18, ("x", "list", 2): 18, ("x", "list", 3): 20,
        ("x", "empty"): 22, ("x", "none"): 23, ("x", "short"): 24,
        ("x", "items"): 25, ("x", "items", 0): 25, ("x", "items", 0, "k"): 26,
        ("x", "items", 1): 27, ("x", "items", 1, "k"): 28, ("x", "items", 1, "sub"): 29,
        ("x", "items", 1, "sub", "deep"): 30,
        ("x", "y", "z"): 31, ("x", "y", "z", "w"): 32, ("x", "y"): 33, ("x", "y", "v"): 34,
    }  # fmt: skip
    assert {where for where, _ in paths(tomllib.loads(ODD))} == set(lines)


def test_lines_of_a_text_are_lines_of_the_file() -> None:
    """C30: a line inside SQL is said as the line in the file, through folded lines and escapes."""
    document, places = tomllib.loads(ODD), find_places(ODD)
    assert document["a"]["b.c"]["d"].split("\n") == ["one", "two three", "four \\n", "five", 'six"']
    assert [places.line(("a", "b.c", "d"), row) for row in (1, 2, 3, 4, 5)] == [6, 7, 9, 10, 10]
    assert [places.line(("e",), row) for row in (1, 2, 3)] == [11, 12, 13]
    assert [places.line(("x", "short"), row) for row in (1, 2)] == [24, 24]


def test_empty_lines_of_a_text_have_their_lines() -> None:
    for quotes in ('"""', "'''"):
        assert find_places(f"k = {quotes}\n\n\nx\n{quotes}").by_path["k",].rows == (2, 3, 4, 5)


def test_what_is_not_there_is_where_it_would_be() -> None:
    places = find_places(ODD)
    assert places.line(("x", "missing")) == 14
    assert places.line(("x", "items", 1, "missing", "more"), 7) == 27
    assert places.line(("gone",)) == 1
    assert places.line(("e",), 99) == 11


@pytest.mark.parametrize("path", [*GOOD, *BAD], ids=lambda path: path.stem)
def test_every_value_of_a_golden_file_has_a_place(path: Path) -> None:
    text = path.read_bytes().decode("utf-8", errors="replace")
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return
    assert {where for where, _ in paths(document)} == set(find_places(text).by_path)


# -- any document, in any spelling -------------------------------------------------------------------------------------

KEYS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), max_size=4)
TEXTS = st.text(st.sampled_from("ab \n#\"'\\,[]{}=.é"), max_size=8)
VALUES = st.recursive(
    TEXTS | st.integers(-9, 9) | st.booleans(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)
BLANKS = st.sampled_from(["", " ", "\t"])


def quoted(text: str) -> str:
    escapes = {"\\": "\\\\", '"': '\\"', "\n": "\\n"}
    return '"' + "".join(escapes.get(one, one) for one in text) + '"'


class Writer:
    """Writes a document in a spelling that is drawn, and notes the line of each value itself."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.text = ""
        self.lines: dict[Where, int] = {}

    @property
    def line(self) -> int:
        return self.text.count("\n") + 1

    def key(self, key: str) -> None:
        bare = key.isascii() and key.replace("_", "a").replace("-", "a").isalnum()
        literal = "'" not in key
        forms = [quoted(key)] + ([key] if bare else []) + ([f"'{key}'"] if literal else [])
        self.text += self.draw(BLANKS) + self.draw(st.sampled_from(forms)) + self.draw(BLANKS)

    def string(self, text: str) -> None:
        forms = [quoted(text)]
        if "'''" not in text and not text.endswith("'") and not text.startswith("\n"):
            forms.append(f"'''{text}'''")
        if "'''" not in text and not text.endswith("'"):
            forms.append(f"'''\n{text}'''")
        body = text.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
        if not body.endswith('"'):
            forms += [f'"""\n{body}"""', f'"""\\\n  \n{body}"""' if body[:1] not in {" ", "\n"} else f'"""\n{body}"""']
        self.text += self.draw(st.sampled_from(forms))

    def gap(self) -> None:
        self.text += self.draw(st.sampled_from(["", " ", "\n", " # , ]\n", "\n\n  "]))

    def value(self, value: object, where: Where) -> None:
        if isinstance(value, str):
            self.string(value)
        elif isinstance(value, list):
            self.text += "["
            for index, one in enumerate(value):
                self.gap()
                self.lines[(*where, index)] = self.line
                self.value(one, (*where, index))
                self.gap()
                self.text += ","
            self.gap()
            self.text += "]"
        elif isinstance(value, dict):
            self.text += "{"
            for number, (key, one) in enumerate(value.items()):
                self.text += "," if number else ""
                self.lines[(*where, key)] = self.line
                self.key(key)
                self.text += "="
                self.value(one, (*where, key))
            self.text += "}"
        else:
            self.text += str(value).lower()

    def pairs(self, table: dict[str, Any], where: Where) -> None:
        for key, value in table.items():
            self.lines[(*where, key)] = self.line
            self.key(key)
            self.text += "="
            self.value(value, (*where, key))
            self.text += self.draw(st.sampled_from(["\n", " # [a] = 1\n", "\n\n"]))

    def document(self, tops: dict[str, Any], tables: dict[str, dict[str, Any]], many: list[dict[str, Any]]) -> None:
        self.pairs(tops, ())
        for name, table in tables.items():
            self.lines[(name,)] = self.line
            self.text += "["
            self.key(name)
            self.text += "]\n"
            self.pairs(table, (name,))
        for index, table in enumerate(many):
            self.lines.setdefault(("many",), self.line)
            self.lines["many", index] = self.line
            self.text += "[[ many ]] # [[\n"
            self.pairs(table, ("many", index))


@st.composite
def written(draw: st.DrawFn) -> tuple[str, dict[Where, int]]:
    tables = st.dictionaries(KEYS, VALUES, max_size=3)
    writer = Writer(draw)
    tops = draw(tables)
    named = draw(st.dictionaries(KEYS.filter(lambda key: key not in tops and key != "many"), tables, max_size=2))
    tops.pop("many", None)
    writer.document(tops, named, draw(st.lists(tables, max_size=2)))
    return writer.text, writer.lines


@given(written())
def test_any_value_of_any_document_is_found_on_its_line(drawn: tuple[str, dict[Where, int]]) -> None:
    """C30: whatever tomllib reads, each of its values is found, on the line where it was written."""
    text, lines = drawn
    places = find_places(text)
    document = tomllib.loads(text)
    assert {where for where, _ in paths(document)} == set(places.by_path) == set(lines)
    assert {where: places.line(where) for where in lines} == lines
    for where, value in paths(document):
        if isinstance(value, str):
            assert len(places.by_path[where].rows) == value.count("\n") + 1
