"""`holdfast repl`: the commands for key-value data sets at a prompt, with the reader kept open between them."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator

import click

from holdfast.cli.call import url_argument
from holdfast.cli.failures import exit_code, failure_text
from holdfast.cli.kv import Look, reading_options, where_options
from holdfast.cli.output import Line, View
from holdfast.cli.prompt import Prompt
from holdfast.cli.repl_commands import prompt_commands, served_line
from holdfast.cli.session import Session
from holdfast.errors import BadInput

__all__ = ["command"]


@click.command(name="repl")
@url_argument
@where_options
@reading_options
@click.pass_context
def command(
    context: click.Context,
    url: str | None,
    ref: str | None,
    offset: int | None,
    direct: bool | None,
    cache: str | None,
    layout: str | None,
    as_json: bool,
) -> None:
    """Look around in a key-value data set at a prompt.

    Takes get, multiget, info, shards, route and history as the shell does, without the URL; refresh looks for a newer
    snapshot, and use switches to one of the history. An error is one line, and the prompt goes on.

    Commands can also come from a pipe or a file, one a line; lines that begin with # are left out. Then the exit code
    is that of the first command that failed. With --json each answer is one line, errors (command, error, exit_code)
    included.

    \b
    Examples:
      holdfast repl ./users
      holdfast repl s3://bucket/team/datasets/users --cached
      printf 'get 42\\nuse --offset 1\\nget 42\\n' | holdfast repl ./users --json
    """
    look = Look(url, ref=ref, offset=offset, layout=layout, as_json=as_json, direct=direct, cache=cache)
    session = Session(
        url=url,
        layout=layout,
        settings=look.call.settings,
        chain=look.call.chain,
        as_json=as_json,
        open_reader=look.open_reader,
    )
    session.use(ref=ref, offset=offset)
    try:
        if sys.stdin.isatty() and sys.stdout.isatty():
            _talk(session)
        else:
            context.exit(_follow(session, (line.rstrip("\r\n") for line in sys.stdin)))
    finally:
        session.close()


def _talk(session: Session) -> None:
    """With a person, who sees what failed."""
    if not session.as_json:
        hello = [Line(served_line(session)), Line("`help` lists the commands, Ctrl-D leaves.")]
        session.output(as_json=False).show(View(data={}, parts=hello))
    with Prompt(prompt_commands) as prompt:
        while not session.ended and (line := prompt.read(_label(session))) is not None:
            _run(session, line)


def _follow(session: Session, lines: Iterator[str]) -> int:
    """A script. Every line is run; the first failure decides the exit code."""
    first = 0
    for line in lines:
        code = _run(session, line)
        first = first or code
        if session.ended:
            break
    return first


def _run(session: Session, line: str) -> int:
    """One line; answers with its exit code."""
    words: list[str] = []
    if line.lstrip().startswith("#"):
        return 0
    try:
        words = _words(line)
        if not words:
            return 0
        result = prompt_commands.main(args=words, prog_name="", standalone_mode=False, obj=session)
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - reported, and the prompt goes on
        return _report(session, words, error)
    return result if isinstance(result, int) else 0


def _words(line: str) -> list[str]:
    """As a shell would split them, and with the program's name where habit put it."""
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise BadInput(f"{error}; close the quotation, or put a backslash before the mark") from None
    return words[1:] if words[:1] == ["holdfast"] else words


def _report(session: Session, words: list[str], error: BaseException) -> int:
    text, code = failure_text(error), exit_code(error)
    if session.as_json:
        document = {
            "command": words[0] if words else None,
            "chain": session.chain.handle.identity,
            "error": text,
            "exit_code": code,
        }
        session.output(as_json=True).show(View(data=document, parts=[]))
    else:
        sys.stderr.write(f"error: {text}\n")
        sys.stderr.flush()
    return code


def _label(session: Session) -> str:
    """`users 2026-11-16 00:24:01> `; with a mark where the snapshot was chosen and does not follow the head."""
    return f"{session.name} {session.served_at}{' (pinned)' if session.pinned else ''}> "
