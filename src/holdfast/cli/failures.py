"""What the program says and answers when it fails: one line on stderr, and an exit code for each class of error.

    0  done                             4  somebody else was first (Conflict)
    1  a failure nobody foresaw         5  this writer has lost its right (Fenced)
    2  bad input                        6  what is stored is damaged (Damaged), or `verify` found a break
    3  not found                        7  the store did not answer or cannot be used (StoreError)
                                        8  a build stopped, and nothing was published (BuildFailed)

`HOLDFAST_DEBUG=1` adds the traceback.
"""

from __future__ import annotations

import inspect
import os
import sys
import traceback

import click

from holdfast.errors import (
    BadInput,
    BadPipeline,
    BuildFailed,
    Conflict,
    Damaged,
    Fenced,
    HoldfastError,
    NotFound,
    StoreError,
)

__all__ = ["EXIT_DAMAGED", "EXIT_NOT_FOUND", "exit_code", "failure_text", "report"]

EXIT_UNFORESEEN = 1
EXIT_BAD_INPUT = 2
EXIT_NOT_FOUND = 3
EXIT_DAMAGED = 6
EXIT_INTERRUPTED = 130
_CODES: dict[type[HoldfastError], int] = {
    BadInput: EXIT_BAD_INPUT,
    NotFound: EXIT_NOT_FOUND,
    Conflict: 4,
    Fenced: 5,
    Damaged: EXIT_DAMAGED,
    StoreError: 7,
    BuildFailed: 8,
}


def exit_code(error: BaseException) -> int:
    """The exit code for a failure."""
    if isinstance(error, click.Abort | KeyboardInterrupt):
        return EXIT_INTERRUPTED
    if isinstance(error, click.ClickException):
        return EXIT_BAD_INPUT
    return next((code for kind, code in _CODES.items() if isinstance(error, kind)), EXIT_UNFORESEEN)


def report(error: BaseException) -> int:
    """Say what happened and what to do, and answer with the exit code. Problems of a pipeline have a line each."""
    if isinstance(error, BadPipeline):
        sys.stderr.write("".join(f"{one}\n" for one in error.problems))
    sys.stderr.write(f"error: {failure_text(error)}\n")
    return exit_code(error)


def failure_text(error: BaseException) -> str:
    """What happened and what to do, on one line."""
    if os.environ.get("HOLDFAST_DEBUG") == "1":
        traceback.print_exception(error, file=sys.stderr)
    return " ".join(_words(error).split())


def _words(error: BaseException) -> str:
    if isinstance(error, click.Abort | KeyboardInterrupt):
        return "stopped; run the command again: every command can be repeated"
    if isinstance(error, click.UsageError) and error.ctx is not None:
        message = error.format_message().rstrip(".")
        mark = " " if message.endswith("?") else "; "
        return f"{message}{mark}`{error.ctx.command_path} --help` shows how it is called"
    if isinstance(error, click.ClickException):
        return error.format_message()
    if isinstance(error, BadPipeline):
        number = "the problem" if len(error.problems) == 1 else f"the {len(error.problems)} problems"
        return f"nothing was run; fix {number} of {error.what} and run it again"
    if isinstance(error, HoldfastError):
        return _with_advice(error)
    return f"unforeseen {type(error).__name__}: {error}; HOLDFAST_DEBUG=1 shows where, please report it"


def _with_advice(error: HoldfastError) -> str:
    """The message; where it does not say itself what to do, with the advice of its class."""
    message = str(error)
    if type(error) is BadInput or ";" in message or "`" in message:  # what to fix is in the message
        return message
    _, _, advice = " ".join((inspect.getdoc(type(error)) or "").split()).partition(". ")
    return f"{message.rstrip('.')}. {advice}".rstrip()
