"""The pages are true: links lead somewhere, examples run, commands say what the page says they say."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.support import Program, environment
from tests.docs.pages import PAGES, Block, Call, blocks, broken_links, calls, name_of
from tests.docs.situations import SITUATIONS, World
from tests.house.source import ROOT

ULID = re.compile(r"\b[0-7][0-9A-HJKMNP-TV-Z]{25}\b")
HEX = re.compile(r"\b[0-9a-f]{24,64}\b")
OMITTED = "…"

PYTHON = [(page, block) for page in PAGES for block in blocks(page, "python")]
CONSOLE = [(page, block) for page in PAGES for block in blocks(page, "console")]


def ids(found: list[tuple[Path, Block]]) -> list[str]:
    return [f"{name_of(page)}:{block.line}" for page, block in found]


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing of the machine's own settings, and a folder of one's own to stand in."""
    for name in [one for one in os.environ if one.startswith("HOLDFAST_") or one in {"COLUMNS", "NO_COLOR"}]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOLDFAST_BY", "ops")
    monkeypatch.chdir(tmp_path)
    logging.getLogger("holdfast").setLevel(logging.ERROR)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_leads_somewhere(page: Path) -> None:
    """A relative link names a file that exists, and a heading that is on its page."""
    assert broken_links(page, page.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("page, block", PYTHON, ids=ids(PYTHON))
def test_every_python_example_runs(page: Path, block: Block, tmp_path: Path) -> None:
    """A fenced python block is a program: it runs by itself, in an empty folder."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", block.text],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300, env=environment(),
    )  # fmt: skip
    assert done.returncode == 0, f"{name_of(page)}:{block.line}\n{done.stderr}"


@pytest.mark.parametrize("page, block", CONSOLE, ids=ids(CONSOLE))
def test_every_command_says_what_the_page_shows(
    page: Path, block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each command of a console block runs on a real chain, ends as the page says and prints the lines it shows."""
    world = World(tmp_path)
    SITUATIONS[block.situation](world)
    said = ""
    for call in calls(block.text):
        if call.words[0] == "holdfast":
            said = run(call, world, monkeypatch, said)


def run(call: Call, world: World, monkeypatch: pytest.MonkeyPatch, before: str) -> str:
    """Run one command, and compare. An id on the page stands for the one that was printed last, or a commit of the
    chain: ids differ from run to run."""
    known = [world.commit_ulid, *ULID.findall(before)]
    words = [known[-1] if ULID.fullmatch(word) else word for word in call.words[1:]]
    result = Program(monkeypatch)(*words, code=call.code)
    printed = {plain(line) for line in (result.out + result.err).splitlines()}
    missing = [line for line in call.shown if line.strip() not in {"", OMITTED} and plain(line) not in printed]
    assert missing == [], f"holdfast {' '.join(words)} printed:\n{result.out}{result.err}"
    return result.out


def plain(line: str) -> str:
    """A line without what differs from run to run: times, ids, hashes, folders, and how wide the columns are."""
    line = HEX.sub("HEX", ULID.sub("ULID", line))
    line = re.sub(r"(file|sqlite)://\S*/", r"\1://…/", line)
    line = re.sub(r"\d+(?:\.\d+)?", "0", line)
    return re.sub(r"\s+", " ", line).strip()


# The checks themselves, each seen failing.


def test_a_link_that_leads_nowhere_is_found() -> None:
    """A missing file, a missing heading and a heading missing here are found; what is there, and the web, are not."""
    page = ROOT / "docs" / "page.md"
    text = "# One two\n[a](cli.md) [b](gone.md) [c](#one-two) [d](#three) [e](cli.md#nowhere) [f](https://x.example/y)"
    assert broken_links(page, text) == ["gone.md", "#three", "cli.md#nowhere"]


def test_a_console_block_is_read_as_commands_with_output_and_exit_codes() -> None:
    """The exit code belongs to the command before it, and output to the command above it."""
    first, second = calls("$ holdfast verify ./users\nbroken\n$ echo $?\n6\n$ holdfast tags './a b'\n")
    assert (first.words, first.shown, first.code) == (["holdfast", "verify", "./users"], ["broken"], 6)
    assert (second.words, second.shown, second.code) == (["holdfast", "tags", "./a b"], [], 0)


def test_a_line_that_the_command_does_not_print_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page cannot show what the program does not say."""
    world = World(tmp_path)
    run(Call(words=["holdfast", "forward", "./users"], shown=[OMITTED], code=3), world, monkeypatch, "")
    with pytest.raises(AssertionError, match="Nothing is broken"):
        run(Call(words=["holdfast", "verify", "./users"], shown=["All is well."]), world, monkeypatch, "")


def test_every_situation_is_shown_on_a_page() -> None:
    """A situation that no page describes is not needed here."""
    assert {block.situation for _, block in CONSOLE} == set(SITUATIONS)
