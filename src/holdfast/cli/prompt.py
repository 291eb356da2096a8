"""Reading lines from a person: with a history, completion, and Ctrl-C that cancels the line."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import click

__all__ = ["Prompt"]

_HISTORY_LINES_MAX = 1000


class Prompt:
    """A line editor for the commands of one group, where the terminal has one."""

    def __init__(self, commands: click.Group) -> None:
        self._commands = commands
        self._matches: list[str] = []

    def __enter__(self) -> Self:
        try:
            import readline
        except ImportError:  # a Python without it still has a prompt
            return self
        readline.set_completer(self._complete)
        readline.set_completer_delims(" \t")
        readline.parse_and_bind("tab: complete")
        readline.set_history_length(_HISTORY_LINES_MAX)
        with suppress(OSError):  # none yet, or not ours to read: the prompt works without
            readline.read_history_file(_history_file())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            import readline
        except ImportError:
            return
        readline.set_completer(None)
        with suppress(OSError):  # a home that cannot be written to costs the history, not the work
            _history_file().parent.mkdir(parents=True, exist_ok=True)
            readline.write_history_file(_history_file())

    def read(self, label: str) -> str | None:
        """The next line; empty if it was cancelled, None at the end."""
        try:
            return input(label)
        except EOFError:
            sys.stdout.write("\n")
            return None
        except KeyboardInterrupt:
            sys.stdout.write("\n")
            return ""

    def _complete(self, text: str, state: int) -> str | None:
        if state == 0:
            import readline

            before = readline.get_line_buffer()[: readline.get_begidx()].split()
            self._matches = [f"{one} " for one in self._choices(before) if one.startswith(text)]
        return self._matches[state] if state < len(self._matches) else None

    def _choices(self, before: Sequence[str]) -> list[str]:
        """What may come next: a command, or an option of the command that was typed."""
        context = click.Context(self._commands)
        if not before or before == ["help"]:
            return sorted(self._commands.list_commands(context))
        command = self._commands.get_command(context, before[0])
        if command is None:
            return []
        return [name for one in command.params for name in (*one.opts, *one.secondary_opts) if name.startswith("--")]


def _history_file() -> Path:
    """Where programs keep what they may lose."""
    home = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(home).expanduser() / "holdfast" / "repl_history"
