"""The project's pages, taken apart: links, headings, and the fenced blocks that a test can run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.house.source import ROOT

PAGES = tuple(sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]))

_FENCE = re.compile(r"^```(?P<kind>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} (?P<title>.+)$", re.MULTILINE)
_SITUATION = re.compile(r"<!-- situation: (?P<name>[a-z ]+) -->\n+\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One fenced block: its language, its text, where it begins, and the situation that a comment above it asks for."""

    kind: str
    text: str
    line: int
    situation: str | None = None


@dataclass(slots=True, kw_only=True)
class Call:
    """One command of a console block, with the output that the page shows for it and the exit code it expects."""

    words: list[str]
    shown: list[str] = field(default_factory=list)
    code: int = 0


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path, kind: str) -> list[Block]:
    """The fenced blocks of one language."""
    text = page.read_text(encoding="utf-8")
    found = []
    for fence in _FENCE.finditer(text):
        if fence["kind"] == kind:
            asked = _SITUATION.search(text[: fence.start()])
            line = text.count("\n", 0, fence.start()) + 1
            situation = None if asked is None else asked["name"]
            found.append(Block(kind=kind, text=fence["text"], line=line, situation=situation))
    return found


def calls(text: str) -> list[Call]:
    """The commands of a console block. `$ echo $?` and the line after it tell the exit code of the one before."""
    found: list[Call] = []
    lines = iter(text.splitlines())
    for line in lines:
        if line == "$ echo $?":
            found[-1].code = int(next(lines))
        elif line.startswith("$ "):
            found.append(Call(words=shlex.split(line[2:])))
        elif found:
            found[-1].shown.append(line)
    return found


def links(text: str) -> Iterator[str]:
    """Where the links of a page lead, those inside fenced blocks left out."""
    return (link["target"] for link in _LINK.finditer(_FENCE.sub("", text)))


def anchors(text: str) -> set[str]:
    """The anchors that the headings of a page make, as code hosts spell them."""
    plain = (re.sub(r"[^\w\- ]", "", title["title"].lower()) for title in _HEADING.finditer(_FENCE.sub("", text)))
    return {title.strip().replace(" ", "-") for title in plain}


def broken_links(page: Path, text: str) -> list[str]:
    """The relative links of a page that lead nowhere."""
    found = []
    for target in links(text):
        if "://" in target or target.startswith("mailto:"):
            continue
        path, _, anchor = target.partition("#")
        place = (page.parent / path).resolve() if path else page
        if path and not place.exists():
            found.append(target)
        elif anchor and place.suffix == ".md":
            there = text if place == page else place.read_text(encoding="utf-8")
            if anchor not in anchors(there):
                found.append(target)
    return found
