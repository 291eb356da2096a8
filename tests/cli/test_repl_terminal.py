"""`repl` on a terminal: the prompt, line editing, Ctrl-C and Ctrl-D."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cli.kv_data import make_users
from tests.cli.support import environment

# The terminal becomes the program's own, so that Ctrl-C reaches it as it would reach anybody's.
START = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0);"
    "os.execv(sys.executable, [sys.executable, '-m', 'holdfast.cli', *sys.argv[1:]])"
)
PATIENCE_S = 60


class Terminal:
    """A person's side of a terminal."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._seen = ""

    def type(self, text: str) -> None:
        os.write(self._descriptor, text.encode())

    def wait_for(self, text: str, *, again: str = "") -> str:
        """What was printed up to this text; `again` is typed once more whenever nothing has come for a while."""
        for _ in range(PATIENCE_S if again else 1):
            while text not in self._seen:
                ready, _, _ = select.select([self._descriptor], [], [], 1 if again else PATIENCE_S)
                if not ready:
                    break
                self._seen += os.read(self._descriptor, 4096).decode()
            if text in self._seen:
                break
            if again:
                self.type(again)
        assert text in self._seen, f"{text!r} did not come; there is {self._seen!r}"
        before, _, self._seen = self._seen.partition(text)
        return before


@contextmanager
def terminal(*words: str, home: Path) -> Iterator[tuple[Terminal, subprocess.Popen[bytes]]]:
    """The program on a terminal of 80 columns; what it leaves behind goes to `home`."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    variables = {**environment(), "TERM": "dumb", "HOME": str(home), "XDG_STATE_HOME": str(home / "state")}
    process = subprocess.Popen(
        [sys.executable, "-c", START, *words],
        stdin=theirs, stdout=theirs, stderr=theirs, env=variables, start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    try:
        yield Terminal(ours), process
    finally:
        process.kill()
        process.wait(timeout=PATIENCE_S)
        os.close(ours)


def test_a_person_can_look_around_at_a_prompt(tmp_path: Path) -> None:
    """K23: the prompt shows data set and snapshot; Ctrl-C cancels a line, Ctrl-D leaves, and the history is kept."""
    people = make_users(tmp_path)
    newest, pinned = "people 2026-03-14 12:30:00> ", "people 2026-03-14 11:30:00 (pinned)> "
    with terminal("repl", str(people), home=tmp_path) as (screen, process):
        assert "people: 8 rows in 4 shards" in screen.wait_for(newest)
        screen.type("get 3\n")
        assert "Barbara" in screen.wait_for(newest)
        screen.type("get 77")
        screen.wait_for("get 77")
        screen.type("\x03")
        # Python's prompt may miss a signal that comes while it still takes in the letter before, until the next comes.
        assert "error" not in screen.wait_for(newest, again="\x03")
        screen.type("get Ada\n")
        assert "error: 'Ada' is not a whole number" in screen.wait_for(newest)
        screen.type("use --offset 1\n")
        assert f"Now at offset 1: {people.refs()[1]}" in screen.wait_for(pinned).replace("\r\n", "")
        screen.type("\x10\x10\x10\n")  # three lines back in the history: get 3
        assert "Barbara" in screen.wait_for(pinned)
        screen.type("\x04")
        screen.wait_for("\n")
        assert process.wait(timeout=PATIENCE_S) == 0
    kept = (tmp_path / "state" / "holdfast" / "repl_history").read_text()
    assert "use --offset 1" in kept

    with terminal("repl", str(people), home=tmp_path) as (screen, process):
        screen.wait_for(newest)
        screen.type("ex\t\n")  # completed to exit
        screen.wait_for("exit")
        assert process.wait(timeout=PATIENCE_S) == 0
