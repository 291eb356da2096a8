"""The error tree is the one that is drawn, and every error says what to do."""

from __future__ import annotations

import pickle
import re
import typing

import pytest

from holdfast import errors
from holdfast.errors import HoldfastError

# What an advice begins with. A new verb is welcome here, if it tells the reader to do something.
ADVICE = re.compile(
    r"(?:^|[.:;] )(?:acquire|ask|catch|check|choose|create|fix|free|give|install|list|look|name|never|open"
    r"|pass|read|rebuild|reload|repeat|report|run|see|start|stop|try|upgrade|use|wait|write)\b",
    re.IGNORECASE,
)


def subclasses(cls: type[HoldfastError]) -> list[type[HoldfastError]]:
    """A class and everything below it, as far as `holdfast.errors` defines it."""
    return [
        cls,
        *(below for one in cls.__subclasses__() for below in subclasses(one) if one.__module__ == errors.__name__),
    ]


ERRORS = subclasses(HoldfastError)


def drawn(picture: str) -> dict[str, str | None]:
    """The tree in a docstring: each name with its parent's."""
    parents: dict[str, str | None] = {}
    path: list[tuple[int, str]] = []
    for line in picture.splitlines():
        match = re.match(r"^(?P<lead>[ │]*(?:[├└]── )?)(?P<name>[A-Z][A-Za-z]+)(?: {2,}.*)?$", line)
        if match is None or (not path and not match["lead"]):
            continue
        depth = len(match["lead"])
        path = [(at, name) for at, name in path if at < depth]
        parents[match["name"]] = path[-1][1] if path else None
        path.append((depth, match["name"]))
    return parents


def gives_advice(text: str) -> bool:
    """Whether a clause begins with an instruction, or a command is named."""
    return "`holdfast " in text or ADVICE.search(text) is not None


def sample(cls: type[HoldfastError]) -> HoldfastError:
    """An error of this class, with every argument its own."""
    if "__init__" not in vars(cls):
        return cls("what happened, and what to do")
    hints = {name: hint for name, hint in typing.get_type_hints(cls.__init__).items() if name != "return"}
    values = {str: lambda name: f"the {name}", int: len}
    return cls(*(values[hint](name) for name, hint in hints.items()))


def test_the_tree_in_the_docstring_is_the_class_tree() -> None:
    assert drawn(errors.__doc__ or "") == {
        cls.__name__: None if cls is HoldfastError else cls.__bases__[0].__name__ for cls in ERRORS
    }


def test_every_error_has_one_parent_and_is_public() -> None:
    assert [cls.__name__ for cls in ERRORS if len(cls.__bases__) != 1] == []
    assert sorted(cls.__name__ for cls in ERRORS) == sorted(errors.__all__)


@pytest.mark.parametrize("cls", ERRORS, ids=lambda cls: cls.__name__)
def test_every_error_says_what_to_do(cls: type[HoldfastError]) -> None:
    text = " ".join((vars(cls).get("__doc__") or "").split())
    assert text.endswith(".")
    is_advice = gives_advice(text)
    assert is_advice, f"{cls.__name__}: {text!r} tells nobody what to do"


@pytest.mark.parametrize("cls", ERRORS, ids=lambda cls: cls.__name__)
def test_every_error_survives_pickling(cls: type[HoldfastError]) -> None:
    error = sample(cls)
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), vars(copy)) == (cls, str(error), vars(error))


@pytest.mark.parametrize("cls", ERRORS, ids=lambda cls: cls.__name__)
def test_every_error_is_one_line(cls: type[HoldfastError]) -> None:
    assert len(str(sample(cls)).splitlines()) == 1


def test_a_drawing_is_read_with_its_depths() -> None:
    picture = "Prose first.\n\n    Top\n    ├── Left    words\n    │   └── LeftLeaf\n    └── Right\n\nProse."
    assert drawn(picture) == {"Top": None, "Left": "Top", "LeftLeaf": "Left", "Right": "Top"}


def test_a_statement_is_no_advice() -> None:
    assert not gives_advice("The thing is not there. Nothing was changed.")
    assert gives_advice("The thing is not there: check its name.")
