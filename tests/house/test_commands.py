"""Every command is documented, has examples and speaks JSON."""

from __future__ import annotations

import click
import pytest

from tests.house.source import ROOT
from tools.cli_reference import commands, load, reference

PAGE = ROOT / "docs" / "cli.md"


def leaves(root: click.Group) -> list[tuple[str, click.Command, click.Context]]:
    """The commands that do something, by the words one types."""
    return [
        (context.command_path, command, context)
        for command, context in commands(root)
        if not isinstance(command, click.Group)
    ]


def without_help(root: click.Group) -> list[str]:
    """Everything, groups included, that `--help` says nothing about."""
    return [context.command_path for command, context in commands(root) if not (command.help or "").strip()]


def without_examples(root: click.Group) -> list[str]:
    """Commands whose help shows no call of themselves under "Examples:"."""
    return [
        path
        for path, command, context in leaves(root)
        if path not in command.get_help(context).partition("Examples:")[2]
    ]


def without_json(root: click.Group) -> list[str]:
    """Commands that do not take `--json` themselves."""
    return [path for path, command, _ in leaves(root) if not any("--json" in one.opts for one in command.params)]


def undocumented_options(root: click.Group) -> list[str]:
    """Options without a word of help."""
    return [
        f"{path} {one.opts[0]}"
        for path, command, _ in leaves(root)
        for one in command.params
        if isinstance(one, click.Option) and not one.hidden and not one.help
    ]


def test_every_command_and_group_has_help() -> None:
    assert without_help(load()) == []


def test_every_command_shows_examples() -> None:
    assert leaves(load()), "the program has no commands"
    assert without_examples(load()) == []


def test_every_command_speaks_json() -> None:
    assert without_json(load()) == []


def test_every_option_is_explained() -> None:
    assert undocumented_options(load()) == []


def test_the_reference_is_what_the_commands_say() -> None:
    assert PAGE.exists(), "docs/cli.md is missing: make docs-cli"
    assert PAGE.read_text(encoding="utf-8") == reference(load()), "docs/cli.md is behind the commands: make docs-cli"


@pytest.fixture
def program() -> click.Group:
    """A program with one good command and one that breaks every rule."""

    @click.group(help="A program.")
    def root() -> None:
        pass

    @root.command(help="\b\nExamples:\n  holdfast good here")
    @click.option("--json", "as_json", is_flag=True, help="Print JSON.")
    def good() -> None:
        pass

    @root.command(help="")
    @click.option("--odd")
    def bad() -> None:
        pass

    return root


def test_a_command_that_breaks_the_rules_is_found(program: click.Group) -> None:
    assert without_help(program) == ["holdfast bad"]
    assert without_examples(program) == ["holdfast bad"]
    assert without_json(program) == ["holdfast bad"]
    assert undocumented_options(program) == ["holdfast bad --odd"]


def test_the_reference_has_a_section_for_each_command(program: click.Group) -> None:
    headings = [line for line in reference(program).splitlines() if line.startswith("## ")]
    assert headings == ["## holdfast", "## holdfast bad", "## holdfast good"]
