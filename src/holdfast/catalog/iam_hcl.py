"""Terraform's language, as far as policies need it: blocks, attributes, lists, maps and expressions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

__all__ = ["Block", "Expression", "Value", "write"]

_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}


@dataclass(frozen=True, slots=True)
class Expression:
    """Text that Terraform evaluates: a reference, a call, an interpolated string. Never made from what users type."""

    text: str


Value = str | bool | Expression | Sequence["Value"] | Mapping[str, "Value"]


@dataclass(frozen=True, slots=True)
class Block:
    """`kind "label" { ... }`. A comment stands above it."""

    kind: str
    labels: tuple[str, ...] = ()
    attributes: Mapping[str, Value] = field(default_factory=dict)
    blocks: tuple[Block, ...] = ()
    comment: str = ""


def write(blocks: Sequence[Block]) -> str:
    """A file."""
    return "\n".join("".join(f"{line}\n" for line in _block(block)) for block in blocks)


def _block(block: Block) -> list[str]:
    head = " ".join([block.kind, *(_quoted(label) for label in block.labels), "{"])
    width = max((len(name) for name, value in block.attributes.items() if _is_short(value)), default=0)
    inner: list[str] = []
    for name, value in block.attributes.items():
        first, *rest = _value(value)
        inner += [f"{name.ljust(width if _is_short(value) else 0)} = {first}", *rest]
    for number, below in enumerate(block.blocks):
        inner += [*([""] if inner or number else []), *_block(below)]
    comments = [f"# {line}" for line in block.comment.splitlines()]
    return [*comments, head, *(f"  {line}" if line else "" for line in inner), "}"]


def _is_short(value: Value) -> bool:
    return len(_value(value)) == 1


def _value(value: Value) -> list[str]:
    match value:
        case bool():
            return ["true" if value else "false"]
        case str():
            return [_quoted(value)]
        case Expression(text):
            return [text]
        case Mapping():
            return _nested("{", [(f"{_quoted(name)} = ", one, "") for name, one in value.items()], "}")
        case _:
            if len(value) <= 1 and all(_is_short(one) for one in value):
                return [f"[{''.join(_value(one)[0] for one in value)}]"]
            return _nested("[", [("", one, ",") for one in value], "]")


def _nested(opening: str, items: Sequence[tuple[str, Value, str]], closing: str) -> list[str]:
    lines = []
    for before, value, after in items:
        first, *rest = _value(value)
        inner = [f"{before}{first}", *rest]
        inner[-1] += after
        lines += [f"  {line}" for line in inner]
    return [opening, *lines, closing]


def _quoted(text: str) -> str:
    """A string that is only a string: `${` and `%{` would begin an expression."""
    escaped = "".join(_ESCAPES.get(character, character) for character in text)
    return '"' + escaped.replace("${", "$${").replace("%{", "%%{") + '"'
